"""
Model C types with their device layout, and derive the PTX prototypes of functions that use them.

The rules are those of nvcc, observed in its output: scalars are passed in 32 or 64 bits, everything else as
an aligned byte array; a kernel's scalar parameters keep their width.
"""

from __future__ import annotations

import dataclasses
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink._formats.ptx import Param, Prototype
from numba_ptxlink.errors import AbiError

from . import names as cnames
from .numbers import NUMBERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .cxx import Existing
    from .numbers import Number

# In bytes; observed in nvcc's output, like the rest.
_LARGEST_DIRECT = 128
_LARGEST_ALIGNMENT = 16


@dataclass(frozen=True)
class CType:
    """
    A C type as the device compiler lays it out.

    Args:
        name: Its spelling in C++.
        size: In bytes.
        align: In bytes.
    """

    name: str
    size: int
    align: int

    @property
    def natural_align(self) -> int:
        """The alignment of the type in LLVM IR that nvcc uses for it, in bytes."""
        return self.align

    @property
    def cxx_only(self) -> bool:
        """Whether C has no such type."""
        return False

    @property
    def include(self) -> str | None:
        """The CUDA header that declares the type, None for a type of the language."""
        return None

    def declare(self, name: str) -> str:
        """Return the declaration of a variable or member *name* of this type."""
        return f"{self.name} {name}"

    def param(self, *, kernel: bool = False) -> Param | None:
        """Return the type as a parameter or return value in PTX, None for void."""
        del kernel  # only scalars of kernels differ
        return Param(align=self.align, size=self.size)


@dataclass(frozen=True)
class Void(CType):
    """No value."""

    name: str = "void"
    size: int = 0
    align: int = 1

    def param(self, *, kernel: bool = False) -> Param | None:
        """Return None: void has no parameter."""
        del kernel
        return None


@dataclass(frozen=True)
class Scalar(CType):
    """
    A number of the language: a boolean, an integer, a float of 32 or 64 bits, or a byte of a string.

    Args:
        row: What it is.
    """

    row: Number

    @property
    def extension(self) -> str:
        """
        How LLVM IR says that a device function extends it to 32 bits, "" for nothing.

        Both sides of a call rely on the other's.
        """
        if self.row.format or self.size >= 4:
            return ""
        return "signext" if self.row.kind == "int" else "zeroext"

    def param(self, *, kernel: bool = False) -> Param | None:
        """Return the 32 or 64 bits it is passed in; a kernel's parameter keeps its width."""
        return Param(bits=self.size * 8 if kernel else max(32, self.size * 8))


@dataclass(frozen=True)
class Compound(CType):
    """
    A struct or class that CUDA declares around one or more numbers: `__half`, `cuFloatComplex`, `float4`.

    Args:
        row: What it is.
        element: The type of its elements, None if it is one number.
    """

    row: Number
    element: CType | None = None

    @property
    def natural_align(self) -> int:
        """The alignment of one number, in bytes."""
        return self.size // self.row.lanes

    @property
    def cxx_only(self) -> bool:
        """Whether C has no such type."""
        return not self.row.in_c

    @property
    def include(self) -> str | None:
        """The CUDA header that declares the type."""
        return self.row.header


@dataclass(frozen=True)
class Pointer(CType):
    """
    A generic address.

    Args:
        target: What is there.
        readonly: Whether it is only read.
        restrict: Whether nothing else leads to what is read or written through it.
    """

    target: CType
    readonly: bool = False
    restrict: bool = False

    def declare(self, name: str) -> str:
        """Return the declaration of a parameter or member *name*."""
        return f"{self.name} {'__restrict__ ' if self.restrict else ''}{name}".rstrip()

    def param(self, *, kernel: bool = False) -> Param | None:
        """Return the 64 bits of an address."""
        del kernel
        return Param(bits=64)


@dataclass(frozen=True)
class Array(CType):
    """An array inside a struct: *count* times *element*."""

    element: CType
    count: int

    @property
    def natural_align(self) -> int:
        """The alignment of an element in LLVM IR, in bytes."""
        return self.element.natural_align

    def declare(self, name: str) -> str:
        """Return the declaration of a member *name*."""
        return self.element.declare(f"{name}[{self.count}]")


@dataclass(frozen=True)
class Member:
    """One member of a struct, *offset* bytes from its start."""

    name: str
    type: CType
    offset: int


@dataclass(frozen=True)
class Struct(CType):
    """
    A struct by value.

    Args:
        members: In the order of their offsets, without padding.
        packed: Whether the struct needs a `packed` attribute, because its layout is not C's natural one.
        in_memory: Whether Numba stores such values in memory in this layout.
        record: Whether it is a NumPy record rather than a tuple.
        about: The Python type it represents, for the header.
        existing: What C++ has of it already; None for what the header defines.
    """

    members: tuple[Member, ...]
    packed: bool = False
    in_memory: bool = False
    record: bool = False
    about: str = ""
    existing: Existing | None = None

    @property
    def cxx_only(self) -> bool:
        """Whether C has no such type."""
        return self.existing is not None and "::" in self.name

    @property
    def natural_align(self) -> int:
        """The alignment of the struct in LLVM IR, in bytes."""
        return 1 if self.packed else max(member.type.natural_align for member in self.members)

    @property
    def slots(self) -> Iterator[tuple[CType, Member | None]]:
        """The members of the struct in LLVM IR: the type of each, with None for padding."""
        end = 0
        for member in self.members:
            align = 1 if self.packed else member.type.natural_align
            if member.offset > _round_up(end, align):
                yield from self._padding(member.offset - end)
            yield member.type, member
            end = member.offset + member.type.size
        yield from self._padding(self.size - end)

    def _padding(self, size: int) -> Iterator[tuple[CType, None]]:
        byte = number("uint8_t")
        # The header declares padding of a packed struct as an array; otherwise nvcc adds single bytes.
        if self.packed and size:
            yield Array(f"uint8_t[{size}]", size, 1, byte, size), None
        elif not self.packed:
            yield from [(byte, None)] * size

    @property
    def fingerprint(self) -> int:
        """A CRC-32 of the definition, equal for equal definitions."""
        members = ";".join(f"{member.offset}:{member.type.declare(member.name)}" for member in self.members)
        return zlib.crc32(f"{self.size},{self.align},{self.packed};{members}".encode())


@dataclass(frozen=True)
class View(CType):
    """
    `numba_ptxlink::array_view<T, ndim, Layout>`: an address, and shape and strides for each dimension.

    Args:
        element: The type of its elements.
        ndim: The number of its dimensions.
        layout: "c", "f" or "any"; the layout in memory is the same.
        readonly: Whether the elements are constant.
    """

    element: CType
    ndim: int
    layout: str
    readonly: bool

    @property
    def cxx_only(self) -> bool:
        """Whether C has no such type."""
        return True

    @property
    def include(self) -> str | None:
        """The header of this package that declares the type."""
        return "numba_ptxlink/array_view.h"


def number(name: str) -> Scalar | Compound:
    """Return the row *name* of the table of numbers as a type."""
    row = NUMBERS[name]
    if not row.header:
        return Scalar(row.name, row.size, row.align, row)
    return Compound(row.name, row.size, row.align, row, number(row.element) if row.element else None)


def vector(element: CType, count: int) -> Scalar | Compound | None:
    """Return CUDA's vector type of *count* times *element*, None where it has none."""
    wanted = ("vector", element.name, count)
    rows = (row.name for row in NUMBERS.values() if (row.kind, row.element, row.lanes) == wanted)
    return next(map(number, rows), None)


def pointer(target: CType, *, readonly: bool = False, restrict: bool = False) -> Pointer:
    """Return an address of *target*."""
    return Pointer(f"{_readonly(target) if readonly else target.name}*", 8, 8, target, readonly, restrict)


def view(element: CType, ndim: int, layout: str, *, readonly: bool = False) -> View:
    """Return the view of *ndim* dimensions of *element*."""
    elements = _readonly(element) if readonly else element.name
    name = f"numba_ptxlink::array_view<{elements}, {ndim}, numba_ptxlink::layout_{layout}>"
    return View(name, 8 + 16 * ndim, 8, element, ndim, layout, readonly)


def _readonly(ctype: CType) -> str:
    """Return the spelling of *ctype* as a constant."""
    # `const float*` would be a pointer to constants.
    return f"{ctype.name} const" if isinstance(ctype, Pointer) else f"const {ctype.name}"


def struct(name: str, members: Iterable[tuple[str, CType]], *, about: str = "") -> Struct:
    """Return the struct of *members* as C lays it out."""
    placed: list[Member] = []
    offset, align = 0, 1
    for member, ctype in members:
        offset = _round_up(offset, ctype.align)
        placed.append(Member(member, ctype, offset))
        offset += ctype.size
        align = max(align, ctype.align)
    return Struct(name, _round_up(offset, align), align, tuple(placed), about=about)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


@dataclass(frozen=True)
class Signature:
    """
    A C function: `result name(params)`.

    Args:
        name: The symbol.
        result: The type of its return value.
        params: The name and type of each parameter.
        kernel: Whether it is a `__global__` function.
    """

    name: str
    result: CType
    params: tuple[tuple[str, CType], ...]
    kernel: bool = False

    @property
    def prototype(self) -> Prototype:
        """The PTX prototype that nvcc emits for the declaration, from sm_100 on."""
        return self.prototype_for(modern=True)

    def prototype_for(self, *, modern: bool) -> Prototype:
        """
        Return the PTX prototype that nvcc emits for the declaration.

        Args:
            modern: Whether the target is sm_100 or later, for which NVVM uses a newer LLVM.
        """
        params = []
        for _, ctype in self.params:
            param = ctype.param(kernel=self.kernel)
            if param is None:
                continue
            if is_large(ctype) and not self.kernel and not modern:
                param = dataclasses.replace(param, align=max(param.align, 4))
            params.append(param)
        return Prototype(name=self.name, result=self.result.param(), params=tuple(params), entry=self.kernel)

    @property
    def types(self) -> Iterator[CType]:
        """Every type used by the declaration, members before their structs."""
        seen: set[CType] = set()
        for ctype in (self.result, *(ctype for _, ctype in self.params)):
            yield from _walk(ctype, seen)

    def __str__(self) -> str:
        params = ", ".join(ctype.declare(name) for name, ctype in self.params) or "void"
        return self.result.declare(f"{self.name}({params})")


def structs(signatures: Iterable[Signature]) -> dict[str, Struct]:
    """
    Return the structs that *signatures* use by name, members before their structs.

    Of what is inside of a struct that C++ defines, these are the structs that C++ defines, too.

    Raises:
        AbiError: Two of them have the same name.
    """
    named: dict[str, Struct] = {}
    types = (part for signature in signatures for part in signature.types)
    for ctype in dict.fromkeys(struct for part in types for struct in _structs(part)):
        first = named.setdefault(ctype.name, ctype)
        if first.fingerprint != ctype.fingerprint and first.existing and ctype.existing:
            raise AbiError(
                f"{ctype.name} is given for {first.about} and for {ctype.about}, which are laid out in two "
                "ways; C++ has one struct of that name."
            )
        if first.fingerprint != ctype.fingerprint or first.existing != ctype.existing:
            raise AbiError(
                f"Two structs would be named {ctype.name}: {first.about} and {ctype.about}; rename the "
                "record or NamedTuple among them in Python, for example to "
                f"{cnames.propose(ctype.name, named)!r}."
            )
    return named


def _structs(ctype: CType) -> Iterator[Struct]:
    """Yield *ctype* if it is a struct, after what C++ defines in one that it defines."""
    if not isinstance(ctype, Struct):
        return
    if ctype.existing:
        for part in parts(ctype, inside=True):
            if isinstance(part, Struct) and part.existing:
                yield part
    else:
        yield ctype


def is_large(ctype: CType) -> bool:
    """Return whether nvcc passes a parameter of this type by address in NVVM IR; in PTX it is by value."""
    return ctype.size > _LARGEST_DIRECT


def unaligned_member(ctype: CType) -> str | None:
    """
    Return the path of a member that *ctype*, passed by value, does not align; None if it aligns all of them.

    Before sm_100, nvcc 13 and NVVM move such a member of an argument or a result by aligned instructions: a
    16-bit member at offset 1 by `st.param.b16`, a 64-bit one at offset 9 by `st.param.f64`, and one at offset
    0 of a parameter that is aligned to 1 by `ld.param.u64`. The device traps, or moves other bytes. What a
    kernel is launched with is read by accesses that are no larger than its alignment.
    """
    leaves = _leaves(ctype, "", 0)
    return next((path for path, at, leaf in leaves if at % leaf.align or leaf.align > ctype.align), None)


def _leaves(ctype: CType, path: str, offset: int) -> Iterator[tuple[str, int, CType]]:
    if isinstance(ctype, Struct):
        for member in ctype.members:
            inner = f"{path}.{member.name}" if path else member.name
            yield from _leaves(member.type, inner, offset + member.offset)
    elif isinstance(ctype, Array):
        # Later elements lie at offsets that are equal to earlier ones, modulo the largest alignment.
        for number in range(min(ctype.count, _LARGEST_ALIGNMENT)):
            yield from _leaves(ctype.element, f"{path}[{number}]", offset + number * ctype.element.size)
    else:
        yield path, offset, ctype


def parts(ctype: CType, *, inside: bool = False) -> Iterator[CType]:
    """
    Yield every type that *ctype* contains or points to, and *ctype* itself last.

    Args:
        ctype: A type.
        inside: Whether members of structs that C++ defines are parts, too.
    """
    return _walk(ctype, set(), inside=inside)


def _walk(ctype: CType, seen: set[CType], *, inside: bool = False) -> Iterator[CType]:
    if ctype in seen:
        return
    seen.add(ctype)
    inner: Iterable[CType] = ()
    if isinstance(ctype, Struct):
        inner = (member.type for member in ctype.members if inside or not ctype.existing)
    elif isinstance(ctype, Pointer):
        inner = (ctype.target,)
    elif isinstance(ctype, (Array, View, Compound)) and ctype.element:
        inner = (ctype.element,)
    for part in inner:
        yield from _walk(part, seen, inside=inside)
    yield ctype
