"""Model C types as the device compiler lays them out, with a class for each form."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .numbers import NUMBERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .numbers import NumberType
    from .options import ExistingStruct

_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True)
class CType:
    """
    A C type as the device compiler lays it out.

    Args:
        name: The spelling in C++.
        size: The size in bytes.
        align: The alignment in bytes.
    """

    name: str
    size: int
    align: int

    @property
    def code(self) -> str:
        """The abbreviation in generated names, such as "f32" for float."""
        return "_".join(_WORD.findall(self.name))

    @property
    def natural_align(self) -> int:
        """
        The alignment in bytes of the LLVM type that nvcc uses.

        The LLVM type of float2, for example, has two floats, and the alignment of one.
        """
        return self.align

    @property
    def cxx_only(self) -> bool:
        """Whether C has no such type."""
        return False

    @property
    def include(self) -> str:
        """The CUDA header that declares the type; "" if C or the generated header defines it."""
        return ""

    def declare(self, name: str) -> str:
        """Return the declaration of a variable or member *name* of this type."""
        return f"{self.name} {name}"


@dataclass(frozen=True)
class Void(CType):
    """No value."""

    name: str = "void"
    size: int = 0
    align: int = 1


@dataclass(frozen=True)
class Numeric(CType):
    """
    A type with a row in the table of numbers.

    Args:
        row: The row.
    """

    row: NumberType

    @property
    def code(self) -> str:
        """The abbreviation in generated names."""
        return self.row.code

    @property
    def cxx_only(self) -> bool:
        """Whether C has no such type."""
        return not self.row.in_c

    @property
    def include(self) -> str:
        """The CUDA header that declares the type."""
        return self.row.header


@dataclass(frozen=True)
class Scalar(Numeric):
    """A number of the language: a boolean, an integer, a float of 32 or 64 bits, or a byte of a string."""

    @property
    def extension(self) -> str:
        """
        The attribute in LLVM IR for the extension to 32 bits in device functions; "" for none.

        Callers extend arguments, and callees rely on that; callees extend results, and callers rely on that.
        """
        if self.row.is_float or self.size >= 4:
            return ""
        return "signext" if self.row.kind == "int" else "zeroext"


@dataclass(frozen=True)
class Compound(Numeric):
    """
    A struct or class that CUDA declares around one or more numbers: `__half`, `cuFloatComplex`, `float4`.

    Args:
        element: The type of the elements; None for a single number.
    """

    element: CType | None = None

    @property
    def natural_align(self) -> int:
        """The alignment of an element, in bytes."""
        return self.size // self.row.element_count


@dataclass(frozen=True)
class Pointer(CType):
    """
    A generic address.

    Args:
        target: The type at the address.
        readonly: Whether the function only reads through the pointer.
        restrict: Whether no other pointer refers to the memory that is accessed through it.
    """

    target: CType
    readonly: bool = False
    restrict: bool = False

    @property
    def code(self) -> str:
        """The abbreviation in generated names."""
        return f"{'c' if self.readonly else ''}p_{self.target.code}"

    def declare(self, name: str) -> str:
        """Return the declaration of a parameter or member *name*."""
        return f"{self.name} {'__restrict__ ' if self.restrict else ''}{name}".rstrip()


@dataclass(frozen=True)
class Array(CType):
    """An array inside a struct: *count* times *element*."""

    element: CType
    count: int

    @property
    def code(self) -> str:
        """The abbreviation in generated names."""
        return f"{self.count}x_{self.element.code}"

    @property
    def natural_align(self) -> int:
        """The alignment of an element in LLVM IR, in bytes."""
        return self.element.natural_align

    def declare(self, name: str) -> str:
        """Return the declaration of a member *name*."""
        return self.element.declare(f"{name}[{self.count}]")


@dataclass(frozen=True)
class Member:
    """
    A member of a struct.

    Args:
        name: The name in C.
        type: The type.
        offset: The offset in bytes.
        python: The name in Python; "" if it is *name*.
    """

    name: str
    type: CType
    offset: int
    python: str = field(default="", compare=False)

    @property
    def field(self) -> str:
        """The name in Python."""
        return self.python or self.name


@dataclass(frozen=True)
class Struct(CType):
    """
    A struct by value.

    Args:
        members: The members in the order of their offsets, without padding.
        packed: Whether the struct needs a `packed` attribute, because its layout is not C's natural one.
        is_numba_layout: Whether Numba stores such values in memory in this layout.
        python_kind: The kind of value in Python: "record" (NumPy), "tuple", "namedtuple" or "optional"; ""
            if the struct is only made to compute offsets.
        python_type: The Python type, for a comment in the header.
        existing: The struct that C++ defines; None if the generated header defines it.
    """

    members: tuple[Member, ...]
    packed: bool = False
    is_numba_layout: bool = False
    python_kind: str = ""
    python_type: str = ""
    existing: ExistingStruct | None = None

    @property
    def cxx_only(self) -> bool:
        """Whether C has no such type, since a namespace contains it."""
        return self.existing is not None and "::" in self.name

    @property
    def natural_align(self) -> int:
        """The alignment of the struct in LLVM IR, in bytes."""
        return 1 if self.packed else max(member.type.natural_align for member in self.members)

    @property
    def slots(self) -> Iterator[tuple[CType, Member | None]]:
        """
        The parts of the struct's LLVM type: for each, its type, and its member; None for explicit padding.

        LLVM itself aligns a member. Explicit padding is for gaps that are larger than this alignment leaves,
        and for the end of the struct.
        """
        end = 0
        for member in self.members:
            align = 1 if self.packed else member.type.natural_align
            if member.offset > round_up(end, align):
                yield from self._padding(member.offset - end)
            yield member.type, member
            end = member.offset + member.type.size
        yield from self._padding(self.size - end)

    def _padding(self, size: int) -> Iterator[tuple[CType, None]]:
        byte = number("uint8_t")
        # The header declares the padding of a packed struct as an array; to other structs, nvcc adds single
        # bytes.
        if self.packed and size:
            yield array(byte, size), None
        elif not self.packed:
            yield from [(byte, None)] * size

    @property
    def fingerprint(self) -> int:
        """A CRC-32 of the definition, by which headers recognise two different structs of one name."""
        members = ";".join(f"{member.offset}:{member.type.declare(member.name)}" for member in self.members)
        return zlib.crc32(f"{self.size},{self.align},{self.packed};{members}".encode())


@dataclass(frozen=True)
class View(CType):
    """
    `numba_ptxlink::array_view<T, ndim, Layout>`: an address, and shape and strides for each dimension.

    Args:
        element: The type of its elements.
        ndim: The number of its dimensions.
        layout: The order of the elements: "c" (row-major), "f" (column-major) or "any" (by strides). The
            view itself has the same members for each.
        readonly: Whether the elements are constant.
    """

    element: CType
    ndim: int
    layout: str
    readonly: bool

    @property
    def code(self) -> str:
        """The abbreviation in generated names."""
        # The layout's initial: c, f or a.
        return f"{'c' if self.readonly else ''}view{self.ndim}{self.layout[0]}_{self.element.code}"

    @property
    def cxx_only(self) -> bool:
        """Whether C has no such type."""
        return True

    @property
    def include(self) -> str:
        """The header of this package that declares the type."""
        return "numba_ptxlink/array_view.h"


def number(name: str) -> Scalar | Compound:
    """Return the row *name* of the table of numbers as a type."""
    row = NUMBERS[name]
    if not row.header:
        return Scalar(row.name, row.size, row.align, row)
    return Compound(row.name, row.size, row.align, row, number(row.element) if row.element else None)


def vector(element: CType, count: int) -> Scalar | Compound | None:
    """Return CUDA's vector type of *count* times *element*; None if there is none."""
    key = ("vector", element.name, count)
    rows = (row.name for row in NUMBERS.values() if (row.kind, row.element, row.element_count) == key)
    return next(map(number, rows), None)


def pointer(target: CType, *, readonly: bool = False, restrict: bool = False) -> Pointer:
    """Return the type of pointers to *target*."""
    # All addresses have 64 bits.
    return Pointer(
        f"{_const_spelling(target) if readonly else target.name}*", 8, 8, target, readonly, restrict
    )


def array(element: CType, count: int) -> Array:
    """Return the type of arrays of *count* times *element*."""
    return Array(f"{element.name}[{count}]", element.size * count, element.align, element, count)


def view(element: CType, ndim: int, layout: str, *, readonly: bool = False) -> View:
    """Return the view of *ndim* dimensions of *element*."""
    element_name = _const_spelling(element) if readonly else element.name
    name = f"numba_ptxlink::array_view<{element_name}, {ndim}, numba_ptxlink::layout_{layout}>"
    # An address of 8 bytes, and for each dimension an extent and a stride of 8 bytes each.
    return View(name, 8 + 16 * ndim, 8, element, ndim, layout, readonly)


def _const_spelling(ctype: CType) -> str:
    """Return how C++ spells *ctype* with const."""
    # `const float*` would be a variable pointer to constants.
    return f"{ctype.name} const" if isinstance(ctype, Pointer) else f"const {ctype.name}"


def struct(
    name: str, members: Iterable[tuple[str, CType]], *, python_kind: str = "", python_type: str = ""
) -> Struct:
    """Return the struct of *members* with C's layout."""
    laid_out: list[Member] = []
    offset, align = 0, 1
    for member_name, ctype in members:
        offset = round_up(offset, ctype.align)
        laid_out.append(Member(member_name, ctype, offset))
        offset += ctype.size
        align = max(align, ctype.align)
    size = round_up(offset, align)
    return Struct(name, size, align, tuple(laid_out), python_kind=python_kind, python_type=python_type)


def round_up(number: int, multiple: int) -> int:
    """Return the smallest multiple of *multiple* that is at least *number*."""
    return -(-number // multiple) * multiple
