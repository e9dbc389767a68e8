"""Arguments of an `Echo` as bytes, and the bytes that come back: a second opinion on the C layout."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numba_ptxlink._cabi import types as c

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    import abi_rows as rows

    from numba_ptxlink._cabi.signatures import Signature

KERNEL = """
extern "C" __global__ void check{number}(const char* in, char* out) {{
    in += threadIdx.x * {arguments};
    {declarations}
    {result} r = f{number}({names});
    memcpy(out + threadIdx.x * {size}, &r, sizeof r);
}}
"""


# What nvcc makes of a function with the same result: it shares the way a result leaves with the function.
PROBE = 'extern "C" __device__ {result} probe{number}({result} const* p) {{ return *p; }}\n'
_HEAD = re.compile(r"\.(?:entry|func)\b[^{;]*?\b(check|probe|f|k)(\d+)\s*\([^{;]*\)[^{;]*\{")
_PARAM = re.compile(
    r"\.param \.align (\d+) \.b8 (\w+)\["
    r"|\b(?:ld|st)\.param(?:\.v(\d))?\.[busf](\d+)\s.*?\[(\w+?)(?:\+(\d+))?\]"
)


def moved_wrongly(ptx: str) -> set[int]:
    """
    Return the functions of *ptx* that move a part of an aggregate by more bytes than it is aligned to.

    nvcc 13 takes some members of packed structs inside of structs for aligned; such accesses trap.
    """
    found = set()
    heads = [*_HEAD.finditer(ptx)]
    for head, end in zip(heads, [*(later.start() for later in heads[1:]), len(ptx)], strict=True):
        aligns: dict[str, int] = {}
        for align, declared, lanes, bits, name, offset in _PARAM.findall(ptx[head.start() : end]):
            if declared:
                aligns[declared] = int(align)
                continue
            size = int(bits) // 8 * int(lanes or 1)
            if name in aligns and (int(offset or 0) % size or size > aligns[name]):
                found.add(int(head[2]))
    return found


@dataclass(frozen=True)
class Layout:
    """
    What C makes of one `Echo`.

    Args:
        number: Of the function in its batch.
        echo: The function.
        params: The C types of its parameters.
        result: The C type of its result.
    """

    number: int
    echo: rows.Echo
    params: tuple[c.CType, ...]
    result: c.CType

    @classmethod
    def of(cls, echo: rows.Echo, signature: Signature) -> Layout:
        """Return the layout of *echo*, exported as *signature*."""
        params = tuple(ctype for _, ctype in signature.params)
        return cls(int(signature.name[1:]), echo, params, signature.result)

    @property
    def arguments_size(self) -> int:
        """How many bytes the arguments take, one after the other."""
        return sum(ctype.size for ctype in self.params)

    @property
    def result_size(self) -> int:
        """How many bytes the result takes."""
        return self.result.size

    def in_cxx(self) -> str:
        """Return the function itself, in C++."""
        params = ", ".join(ctype.declare(f"p{number}") for number, ctype in enumerate(self.params))
        members = getattr(self.result, "members", ())
        body = "return p0;"
        if len(self.params) > 1:
            copies = " ".join(f"r.{member.name} = p{number};" for number, member in enumerate(members))
            body = f"{self.result.name} r; {copies} return r;"
        return f'extern "C" __device__ {self.result.name} f{self.number}({params}) {{ {body} }}\n'

    def probe(self) -> str:
        """Return a C++ function that returns what the function does."""
        return PROBE.format(result=self.result.name, number=self.number)

    def kernel(self) -> str:
        """Return the C++ kernel that calls the function, each thread with its own arguments."""
        lines, place = [], 0
        for number, ctype in enumerate(self.params):
            lines.append(f"{ctype.declare(f'p{number}')}; memcpy(&p{number}, in + {place}, {ctype.size});")
            place += ctype.size
        return KERNEL.format(
            number=self.number,
            arguments=self.arguments_size,
            declarations="\n    ".join(lines),
            result=self.result.name,
            names=", ".join(f"p{number}" for number in range(len(self.params))),
            size=self.result.size,
        )


def fill(layout: Layout, generator: random.Random, front_end: str = "numba-cuda") -> bytes:
    """
    Return random arguments: any bytes, but for booleans, which are 0 or 1.

    Where *front_end* counts strides in elements, those of an array of numbers are multiples of its elements.
    """
    data = bytearray(generator.randbytes(layout.arguments_size))
    place = 0
    for ctype in layout.params:
        for offset in _booleans(ctype):
            data[place + offset] &= 1
        for offset, size in _strides(ctype) if front_end == "numba-cuda-mlir" else ():
            stride = slice(place + offset, place + offset + 8)
            data[stride] = (int.from_bytes(data[stride], "little") // size * size).to_bytes(8, "little")
        place += ctype.size
    return bytes(data)


def split(layout: Layout, arguments: bytes) -> list[bytes]:
    """Return the bytes of each of the *arguments*."""
    ends = itertools.accumulate((ctype.size for ctype in layout.params), initial=0)
    return [arguments[begin:end] for begin, end in itertools.pairwise(ends)]


def outcome(layout: Layout, arguments: bytes) -> tuple[bytes, bytes]:
    """Return the bytes that have to come back for *arguments*, and which of them matter: padding does not."""
    parts = list(zip(layout.echo.params, layout.params, split(layout, arguments), strict=True))
    expected, relevant = bytearray(layout.result.size), bytearray(layout.result.size)
    members = layout.result.members if len(parts) > 1 else ()  # type: ignore[attr-defined]
    places = [member.offset for member in members] or [0]
    for start, (spec, ctype, data) in zip(places, parts, strict=True):
        _copy(spec, ctype, data, expected, relevant, start)
    return bytes(expected), bytes(relevant)


def _copy(spec: Any, ctype: c.CType, data: bytes, to: bytearray, relevant: bytearray, start: int) -> None:  # noqa: PLR0917
    """Write what becomes of *data*, a value of *ctype*, to *to* from *start* on."""
    if isinstance(ctype, c.View):
        # Contiguous views come back with the strides that their shape asks for.
        data = _contiguous(spec, ctype, data)
    kind = spec[0] if isinstance(spec, tuple) else spec
    if kind == "optional":
        value, flag = ctype.members  # type: ignore[attr-defined]
        relevant[start + flag.offset] = 1
        to[start + flag.offset] = data[flag.offset]
        if data[flag.offset]:
            _copy(spec[1], value.type, data[: value.type.size], to, relevant, start)
        else:
            relevant[start : start + value.type.size] = bytes(_relevance(value.type))
        return
    if kind in ("tuple", "named"):
        inner = spec[1] if kind == "tuple" else [part for _, part in spec[1]]
        for part, member in zip(inner, ctype.members, strict=True):  # type: ignore[attr-defined]
            piece = data[member.offset : member.offset + member.type.size]
            _copy(part, member.type, piece, to, relevant, start + member.offset)
        return
    for offset, matters in enumerate(_relevance(ctype)):
        if matters:
            to[start + offset], relevant[start + offset] = data[offset], 1


def _contiguous(spec: Any, ctype: c.View, data: bytes) -> bytes:
    _, _, ndim, layout = spec
    if layout == "A" or not ndim:
        return data
    shape = [int.from_bytes(data[8 + 8 * axis : 16 + 8 * axis], "little") for axis in range(ndim)]
    strides, stride = [0] * ndim, ctype.element.size
    for axis in reversed(range(ndim)) if layout == "C" else range(ndim):
        strides[axis] = stride
        stride = stride * shape[axis] % 2**64
    return data[: 8 + 8 * ndim] + b"".join(each.to_bytes(8, "little") for each in strides)


def _relevance(ctype: c.CType) -> bytearray:
    """Return for each byte of *ctype* whether it belongs to a value."""
    found = bytearray(ctype.size)
    for offset, part in _parts(ctype):
        found[offset : offset + part.size] = b"\1" * part.size
    return found


def _booleans(ctype: c.CType) -> Iterator[int]:
    """Yield where the booleans of *ctype* are."""
    yield from (offset for offset, part in _parts(ctype) if part == c.number("bool"))


def _strides(ctype: c.CType) -> Iterator[tuple[int, int]]:
    """Yield where the strides of *ctype*'s arrays of numbers are, with the size of an element."""
    for offset, part in _parts(ctype):
        if isinstance(part, c.View) and not isinstance(part.element, c.Struct):
            yield from ((offset + 8 + 8 * (part.ndim + axis), part.element.size) for axis in range(part.ndim))


def _parts(ctype: c.CType, start: int = 0) -> Iterator[tuple[int, c.CType]]:
    """Yield what *ctype* is made of, each with its offset from *start*."""
    if isinstance(ctype, c.Array):
        for number in range(ctype.count):
            yield from _parts(ctype.element, start + number * ctype.element.size)
    elif isinstance(ctype, c.Struct):
        for member in ctype.members:
            yield from _parts(member.type, start + member.offset)
    else:
        yield start, ctype
