"""Compute the bytes of arguments and results of an `Echo`, independently of the package's C layout."""

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


# A function with the same result, by which the conventions of nvcc for results are tested.
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
    result = set()
    heads = [*_HEAD.finditer(ptx)]
    for head, end in zip(heads, [*(later.start() for later in heads[1:]), len(ptx)], strict=True):
        aligns: dict[str, int] = {}
        for align, declared, lanes, bits, name, offset in _PARAM.findall(ptx[head.start() : end]):
            if declared:
                aligns[declared] = int(align)
                continue
            size = int(bits) // 8 * int(lanes or 1)
            if name in aligns and (int(offset or 0) % size or size > aligns[name]):
                result.add(int(head[2]))
    return result


@dataclass(frozen=True)
class Layout:
    """
    The C types of one `Echo`.

    Args:
        number: The number of the function in its batch.
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
        """The number of bytes of all arguments, one after the other."""
        return sum(ctype.size for ctype in self.params)

    @property
    def result_size(self) -> int:
        """The number of bytes of the result."""
        return self.result.size

    def in_cxx(self) -> str:
        """Return the definition of the function in C++."""
        params = ", ".join(ctype.declare(f"p{number}") for number, ctype in enumerate(self.params))
        members = getattr(self.result, "members", ())
        body = "return p0;"
        if len(self.params) > 1:
            copies = " ".join(f"r.{member.name} = p{number};" for number, member in enumerate(members))
            body = f"{self.result.name} r; {copies} return r;"
        return f'extern "C" __device__ {self.result.name} f{self.number}({params}) {{ {body} }}\n'

    def probe(self) -> str:
        """Return a C++ function with the same result type."""
        return PROBE.format(result=self.result.name, number=self.number)

    def kernel(self) -> str:
        """Return the C++ kernel that calls the function, each thread with its own arguments."""
        lines, position = [], 0
        for number, ctype in enumerate(self.params):
            lines.append(f"{ctype.declare(f'p{number}')}; memcpy(&p{number}, in + {position}, {ctype.size});")
            position += ctype.size
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
    position = 0
    for ctype in layout.params:
        for offset in _booleans(ctype):
            data[position + offset] &= 1
        for offset, size in _strides(ctype) if front_end == "numba-cuda-mlir" else ():
            stride = slice(position + offset, position + offset + 8)
            data[stride] = (int.from_bytes(data[stride], "little") // size * size).to_bytes(8, "little")
        position += ctype.size
    return bytes(data)


def split(layout: Layout, arguments: bytes) -> list[bytes]:
    """Return the bytes of each of the *arguments*."""
    ends = itertools.accumulate((ctype.size for ctype in layout.params), initial=0)
    return [arguments[begin:end] for begin, end in itertools.pairwise(ends)]


def outcome(layout: Layout, arguments: bytes) -> tuple[bytes, bytes]:
    """Return the expected bytes of the result, and a mask of those that are not padding."""
    parts = list(zip(layout.echo.params, layout.params, split(layout, arguments), strict=True))
    expected, relevant = bytearray(layout.result.size), bytearray(layout.result.size)
    members = layout.result.members if len(parts) > 1 else ()  # type: ignore[attr-defined]
    offsets = [member.offset for member in members] or [0]
    for start, (spec, ctype, data) in zip(offsets, parts, strict=True):
        _copy(spec, ctype, data, expected, relevant, start)
    return bytes(expected), bytes(relevant)


def _copy(spec: Any, ctype: c.CType, data: bytes, to: bytearray, relevant: bytearray, start: int) -> None:  # noqa: PLR0917
    """Write the result for *data*, a value of *ctype*, to *to*, from *start* on."""
    if isinstance(ctype, c.View):
        # The result of a contiguous view has the strides that follow from its shape.
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
    return data[: 8 + 8 * ndim] + b"".join(stride.to_bytes(8, "little") for stride in strides)


def _relevance(ctype: c.CType) -> bytearray:
    """Return for each byte of *ctype* whether it belongs to a value."""
    result = bytearray(ctype.size)
    for offset, part in _parts(ctype):
        result[offset : offset + part.size] = b"\1" * part.size
    return result


def _booleans(ctype: c.CType) -> Iterator[int]:
    """Yield the offsets of the booleans of *ctype*."""
    yield from (offset for offset, part in _parts(ctype) if part == c.number("bool"))


def _strides(ctype: c.CType) -> Iterator[tuple[int, int]]:
    """Yield the offsets of the strides in *ctype*'s arrays of numbers, with the size of an element."""
    for offset, part in _parts(ctype):
        if isinstance(part, c.View) and not isinstance(part.element, c.Struct):
            yield from ((offset + 8 + 8 * (part.ndim + axis), part.element.size) for axis in range(part.ndim))


def _parts(ctype: c.CType, start: int = 0) -> Iterator[tuple[int, c.CType]]:
    """Yield the scalars and pointers in *ctype*, with their offsets from *start*."""
    if isinstance(ctype, c.Array):
        for number in range(ctype.count):
            yield from _parts(ctype.element, start + number * ctype.element.size)
    elif isinstance(ctype, c.Struct):
        for member in ctype.members:
            yield from _parts(member.type, start + member.offset)
    else:
        yield start, ctype
