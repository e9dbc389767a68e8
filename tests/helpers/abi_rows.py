"""
Define the rows of the ABI's type table, and compile signatures of these types and their header.

A type is a spec: a name, or a tuple of a kind and its parts, so that it can be pickled and shrunk.
`numba_type` returns the Numba type of a spec, for one of the front ends.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import random
import re
import zlib
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import front_ends

from numba_ptxlink import Arch, abi
from numba_ptxlink._cabi import header as c_header
from numba_ptxlink._cabi.signatures import unaligned_member
from numba_ptxlink._export import marks
from numba_ptxlink._export.compile import Code, Group, compile_group, compile_lowered
from numba_ptxlink._export.compile import build as built
from numba_ptxlink._export.signatures import resolve
from numba_ptxlink._formats import llvm_ir
from numba_ptxlink._formats.ptx import Prototype, parse
from numba_ptxlink._front_end import registry
from numba_ptxlink._tools import nvrtc as nvrtc_tool
from numba_ptxlink._tools.options import Options
from numba_ptxlink.linker import INCLUDE_DIR

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

ARCHS = ("sm_75", "sm_90", "sm_100", "sm_120")
OPTIONS = Options()

INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
NUMBERS = ("boolean", *INTEGERS, "float16", "float32", "float64", "complex64", "complex128")
VECTORS = tuple(f"{base}x{count}" for base in (*INTEGERS, "float32", "float64") for count in (1, 2, 3, 4))
ROWS = {
    **{name: name for name in (*NUMBERS, "bfloat16", "voidptr", "intenum", "datetime64", "timedelta64")},
    "pointer": ("pointer", "float32"),
    "pointer_to_record": ("pointer", ("record", True, (("a", "int8"), ("b", "float64")))),
    "tuple": ("tuple", ("int8", "float64", "int16")),
    "unituple": ("tuple", ("float32", "float32", "float32")),
    "namedtuple": ("named", (("x", "float32"), ("y", "uint8"))),
    "record": ("record", True, (("a", "int8"), ("b", "float64"), ("c", ("nested", "int16", (3,))))),
    "packed": ("record", False, (("a", "int8"), ("b", "float64"))),
    "record_of_records": (
        "record",
        True,
        (("a", "uint8"), ("inner", ("record", False, (("a", "int8"), ("b", "int32")))), ("z", "complex128")),
    ),
    "packed_half": (
        "record",
        False,
        (("a", "int8"), ("h", "float16"), ("n", ("record", True, (("h", "float16"),)))),
    ),
    "large": ("record", False, (("a", "int8"), ("many", ("nested", "int16", (70,))))),
    **{name: ("vector", name) for name in ("float32x2", "float32x3", "float32x4", "uint8x4", "float64x4")},
    "array1": ("array", "float32", 1, "C"),
    "array2": ("array", "complex64", 2, "A"),
    "array_rows": ("array", "int16", 2, "C"),
    "array_f": ("array", "float32", 2, "F"),
    "array0": ("array", "int8", 0, "C"),
    "optional": ("optional", "int32"),
    "optional_tuple": ("optional", ("tuple", ("float64", "int8"))),
}


class Level(enum.IntEnum):
    """The enum of the row "intenum"."""

    LOW = -1
    HIGH = 7


@dataclasses.dataclass(frozen=True)
class Echo:
    """A function that returns its arguments: the one parameter, or a tuple of all."""

    params: tuple[Any, ...]

    @property
    def result(self) -> Any:
        """The spec of the result."""
        return self.params[0] if len(self.params) == 1 else ("tuple", self.params)

    def udf(self, name: str, front_end: str = "numba-cuda") -> marks.Udf:
        """Return the function as a UDF."""
        params = [numba_type(spec, front_end) for spec in self.params]
        signature = numba_type(self.result, front_end)(*params)
        return marks.Udf(ECHOES[len(params)], signature, abi.AbiOptions(name))

    def compiles(self, front_end: str) -> bool:
        """Return whether *front_end* can compile it: numba-cuda-mlir lacks some Optionals and arrays."""
        return front_end == "numba-cuda" or not _is_only_in_numba_cuda(self.result)


def _echo(count: int) -> Callable[..., Any]:
    names = ", ".join(f"p{number}" for number in range(count))
    scope: dict[str, Any] = {}
    exec(f"def echo({names}):\n    return {names}", scope)  # noqa: S102 - as many parameters as asked for
    return scope["echo"]  # type: ignore[no-any-return]


ECHOES = {count: _echo(count) for count in range(1, 9)}


_TUPLES = ("tuple", "named")


def _is_only_in_numba_cuda(spec: Any) -> bool:
    if isinstance(spec, str):
        return False
    kind, *parts = spec
    if kind == "optional":
        return _is_aggregate(parts[0]) or _is_only_in_numba_cuda(parts[0])
    if kind == "array":
        return (
            _has_strided_records(spec)
            or _has_strided_parts(spec)
            or _has_vectors_of_three(spec)
            or _is_only_in_numba_cuda(parts[0])
        )
    if kind == "record":
        return _is_packed(spec)
    if kind == "pointer":
        return _leads_to_struct(parts[0])
    if kind not in _TUPLES:
        return False
    inner = [part for _, part in parts[0]] if kind == "named" else parts[0]
    nested = any(part[0] in _TUPLES for part in inner)
    return (nested and not front_ends.IS_MLIR_06) or any(map(_is_only_in_numba_cuda, inner))


def _has_strided_parts(spec: Any) -> bool:
    _, element, ndim, layout = spec
    name = str(element if isinstance(element, str) else element[-1])
    return (
        ndim > 0 and layout != "C" and (layout, ndim) != ("F", 1) and bool(re.search("complex|64x4$", name))
    )


def _has_strided_records(spec: Any) -> bool:
    if spec[0] != "array" or spec[1][0] != "record":
        return False
    _, _, ndim, layout = spec
    return ndim > 0 and layout != "C" and (layout, ndim) != ("F", 1)


def _has_vectors_of_three(spec: Any) -> bool:
    element = spec[1]
    return element[0] == "vector" and str(element[1]).endswith("x3")


def _is_packed(record: Any) -> bool:
    """Return whether a *record* has members that are not aligned, or is none that Numba has a type for."""
    try:
        return unaligned_member(abi.c_type(numba_type(record))) is not None
    except ValueError:
        return True


def _leads_to_struct(spec: Any) -> bool:
    """Return whether numba-cuda-mlir misreads the target of a pointer to *spec*."""
    if isinstance(spec, str):
        return False
    kind, *parts = spec
    if kind == "pointer":
        return _leads_to_struct(parts[0])
    return kind != "vector" or parts[0].endswith("x3")


def _is_aggregate(spec: Any) -> bool:
    """Return whether *spec* is of a kind of which numba-cuda-mlir has no Optional."""
    return (
        spec.startswith("complex")
        if isinstance(spec, str)
        else spec[0] in ("tuple", "named", "array", "record")
    )


def numba_type(spec: Any, front_end: str = "numba-cuda") -> Any:
    """Return the type that *front_end* has for *spec*, the same object for equal arguments."""
    return _numba_type(spec, front_end)


@functools.cache
def _numba_type(spec: Any, front_end: str) -> Any:
    compiler = front_ends.get(front_end)
    types = compiler.types
    if isinstance(spec, str):
        special = {
            "intenum": lambda: types.IntEnumMember(Level, types.int64),
            "datetime64": lambda: types.NPDatetime("s"),
            "timedelta64": lambda: types.NPTimedelta("ms"),
        }
        return special[spec]() if spec in special else getattr(types, spec)
    kind, *parts = spec
    if kind == "pointer":
        return types.CPointer(numba_type(parts[0], front_end))
    if kind == "tuple":
        return types.BaseTuple.from_types([numba_type(part, front_end) for part in parts[0]])
    if kind == "named":
        fields = [name for name, _ in parts[0]]
        cls = namedtuple(f"Named_{zlib.crc32(repr(spec).encode()):08x}", fields)  # noqa: PYI024 - made at run time
        return types.NamedTuple([numba_type(part, front_end) for _, part in parts[0]], cls)
    if kind == "record":
        return compiler.from_dtype(dtype(spec))
    if kind == "vector":
        return compiler.vector_types()[parts[0]]
    if kind == "array":
        element, ndim, layout = parts
        return types.Array(numba_type(element, front_end), ndim, layout)
    return types.Optional(numba_type(parts[0], front_end))


def dtype(spec: Any) -> Any:
    """Return the NumPy dtype of a record's *spec*, or of one of its fields."""
    import numpy as np

    if isinstance(spec, str):
        names = {"boolean": "bool", "datetime64": "M8[s]", "timedelta64": "m8[ms]"}
        return np.dtype(names.get(spec, spec))
    if spec[0] == "nested":
        return np.dtype((dtype(spec[1]), spec[2]))
    _, aligned, fields = spec
    return np.dtype([(name, dtype(part)) for name, part in fields], align=aligned)


class Drawn:
    """
    Random specs.

    Args:
        seed: The seed of the random numbers.
        front_end: The front end, which has a type for each spec.
    """

    def __init__(self, seed: int, front_end: str) -> None:
        self._random, self._front_end = random.Random(seed), front_end  # noqa: S311 - not for secrets

    def spec(self, depth: int = 3) -> Any:
        """Return a spec of the front end with others in it to a depth."""
        while True:
            spec = self._spec(depth)
            if self._front_end == "numba-cuda" or not _is_only_in_numba_cuda(spec):
                return spec

    def _spec(self, depth: int) -> Any:
        kind = self._random.choice((*["leaf"] * 4, "tuple", "named", "optional")) if depth else "leaf"
        if kind == "leaf":
            return self._leaf()
        if kind == "named":
            return kind, self._members(lambda: self.spec(depth - 1))
        if kind == "tuple":
            return kind, tuple(self.spec(depth - 1) for _ in range(self._random.randint(1, 4)))
        inner = self.spec(depth - 1)
        return inner if inner[0] == "optional" else (kind, inner)

    def _leaf(self) -> Any:
        choose = self._random.choice
        element = choose((choose((*NUMBERS, "bfloat16")), self.record()))
        return choose(
            (
                choose((*NUMBERS, "bfloat16", "voidptr", "intenum", "datetime64", "timedelta64")),
                ("vector", choose(VECTORS)),
                ("pointer", "float32" if element == "bfloat16" else element),
                ("array", element, choose(range(4)), choose("CFA")),
                self.record(),
            )
        )

    def record(self, depth: int = 2) -> Any:
        """Return the spec of a record."""
        return "record", self._random.choice((False, True)), self._members(lambda: self._field(depth))

    def _field(self, depth: int) -> Any:
        # Numba has no nested arrays of the others.
        number = self._random.choice(NUMBERS[1:])
        shape = tuple(self._random.choices(range(1, 4), k=self._random.randint(1, 2)))
        simple_specs = [number, number, "boolean", "datetime64", "timedelta64", ("nested", number, shape)]
        return self._random.choice([*simple_specs, self.record(depth - 1)] if depth else simple_specs)

    def _members(self, draw: Callable[[], Any]) -> Any:
        return tuple((f"m{number}", draw()) for number in range(self._random.randint(1, 4)))


def known_to_numba(echo: Echo, front_end: str = "numba-cuda") -> bool:
    """Return whether Numba has types for *echo*: for some nested records it fails."""
    try:
        return all(numba_type(spec, front_end) is not None for spec in echo.params)
    except ValueError as error:
        # The message of NumPy about the dtype that Numba computes for such a record.
        if "field alignment" not in str(error) and "cannot override to smaller itemsize" not in str(error):
            raise
        return False


def draw(count: int, seed: int, front_end: str = "numba-cuda") -> list[Echo]:
    """Return *count* different signatures that *front_end* has, always the same for the same *seed*."""
    drawn, echoes_drawn = Drawn(seed, front_end), dict[Echo, None]()
    while len(echoes_drawn) < count:
        echo = Echo(tuple(drawn.spec() for _ in range(1 + len(echoes_drawn) % 8)))
        if known_to_numba(echo, front_end):
            echoes_drawn[echo] = None
    return list(echoes_drawn)


def lower(echoes: Sequence[Echo], arch: str = "sm_100", front_end: str = "numba-cuda") -> Group:
    """
    Compile *echoes*, named f0, f1 and so on.

    `build` can convert the LLVM IR of numba-cuda for sm_100 to the dialect of any older architecture.
    """
    udfs = [echo.udf(f"f{number}", front_end) for number, echo in enumerate(echoes)]
    return program(udfs, front_end, Arch.of(arch), OPTIONS)


def program(udfs: Sequence[Any], front_end: str, arch: Arch, options: Options) -> Group:
    """Return *udfs* as LLVM IR and PTX."""
    return compile_group(resolve(udfs, registry.get(front_end)), arch, options)


def build(group: Group, arch: str, *kinds: str) -> Code:
    """Return artifacts of *group* for *arch*."""
    target_arch = Arch.of(arch)
    if target_arch != group.arch:
        functions = tuple(
            dataclasses.replace(
                function, modules=tuple(llvm_ir.NvvmDialect.of(target_arch).adapt_byval(function.modules))
            )
            for function in group.functions
        )
        group = compile_lowered(group.front_end, target_arch, functions, OPTIONS)
    return built(group, kinds, OPTIONS)


def header(signatures: Sequence[abi.Signature]) -> str:
    """Return the text of `echo.h`, which declares *signatures*."""
    return c_header.render(
        "echo", [c_header.CFunction(signature, "echo", location="echo.py:1") for signature in signatures]
    )


def callers(signatures: Sequence[abi.Signature]) -> str:
    """Return C++ that defines, for each function, another of the same type that calls it."""
    lines = ['#include "echo.h"']
    for signature in signatures:
        params = ", ".join(ctype.declare(name) for name, ctype in signature.params)
        names = ", ".join(name for name, _ in signature.params)
        declaration = signature.result.declare(f"calls_{signature.name}({params})")
        lines.append(f'extern "C" __device__ {declaration} {{ return {signature.name}({names}); }}')
    return "\n".join(lines)


def nvrtc(source: str, arch: str, folder: Path, output: str = "ptx") -> bytes:
    """Return *source* compiled by NVRTC, with the headers in *folder* and of this package."""
    return nvrtc_tool.compile_source(
        source,
        "caller.cu",
        Arch.of(arch),
        nvrtc_tool.SourceOptions(
            (folder, INCLUDE_DIR, *nvrtc_tool.toolkit_include_dirs()), flags=("-std=c++17",)
        ),
        output=output,
    ).code


def prototypes(ptx: bytes) -> dict[str, Prototype]:
    """Return the prototypes in *ptx* by name."""
    return {function.prototype.name: function.prototype for function in parse(ptx.decode()).functions}
