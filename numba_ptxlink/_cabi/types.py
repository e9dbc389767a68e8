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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


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
    A boolean, an integer, a float of 32 or 64 bits, or a byte of a string.

    Args:
        kind: "bool", "int", "uint", "float" or "char".
    """

    kind: str

    def param(self, *, kernel: bool = False) -> Param | None:
        """Return the 32 or 64 bits it is passed in; a kernel's parameter keeps its width."""
        return Param(bits=self.size * 8 if kernel else max(32, self.size * 8))


@dataclass(frozen=True)
class Half(CType):
    """
    A 16-bit float, which CUDA C++ declares as a class around 16 bits.

    Args:
        header: The CUDA header that declares it.
        is_class: Whether it is the class, which C has not, rather than its bits, such as `__half_raw`.
    """

    header: str
    is_class: bool = True

    @property
    def cxx_only(self) -> bool:
        """Whether C has no such type."""
        return self.is_class

    @property
    def include(self) -> str | None:
        """The CUDA header that declares the type."""
        return self.header


@dataclass(frozen=True)
class Complex(CType):
    """`cuFloatComplex` or `cuDoubleComplex`, as aligned as it is large."""

    element: Scalar

    @property
    def include(self) -> str | None:
        """The CUDA header that declares the type."""
        return "cuComplex.h"


@dataclass(frozen=True)
class Vector(CType):
    """
    One of CUDA's vector types, such as `float4`.

    Args:
        element: The type of its elements.
        count: The number of its elements.
        cuda_name: Its name in CUDA before 13; *name* differs if CUDA 13 deprecates that.
    """

    element: Scalar
    count: int
    cuda_name: str


@dataclass(frozen=True)
class Pointer(CType):
    """A generic address of a *target*."""

    target: CType

    def param(self, *, kernel: bool = False) -> Param | None:
        """Return the 64 bits of an address."""
        del kernel
        return Param(bits=64)


@dataclass(frozen=True)
class Array(CType):
    """An array inside a struct: *count* times *element*."""

    element: CType
    count: int

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
    """

    members: tuple[Member, ...]
    packed: bool = False
    in_memory: bool = False
    record: bool = False
    about: str = ""

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


def view(element: CType, ndim: int, layout: str, *, readonly: bool = False) -> View:
    """Return the view of *ndim* dimensions of *element*."""
    const = "const " if readonly else ""
    name = f"numba_ptxlink::array_view<{const}{element.name}, {ndim}, numba_ptxlink::layout_{layout}>"
    return View(name, 8 + 16 * ndim, 8, element, ndim, layout, readonly)


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

    Raises:
        AbiError: Two of them have the same name.
    """
    named: dict[str, Struct] = {}
    for ctype in dict.fromkeys(ctype for signature in signatures for ctype in signature.types):
        if not isinstance(ctype, Struct):
            continue
        first = named.setdefault(ctype.name, ctype)
        if first.fingerprint != ctype.fingerprint:
            raise AbiError(
                f"Two structs would be named {ctype.name}: {first.about} and {ctype.about}; rename the "
                "record or NamedTuple among them in Python, for example to "
                f"{cnames.propose(ctype.name, named)!r}."
            )
    return named


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


def parts(ctype: CType) -> Iterator[CType]:
    """Yield every type that *ctype* contains or points to, and *ctype* itself last."""
    return _walk(ctype, set())


def _walk(ctype: CType, seen: set[CType]) -> Iterator[CType]:
    if ctype in seen:
        return
    seen.add(ctype)
    inner: Iterable[CType] = ()
    if isinstance(ctype, Struct):
        inner = (member.type for member in ctype.members)
    elif isinstance(ctype, Pointer):
        inner = (ctype.target,)
    elif isinstance(ctype, (Array, Vector, Complex, View)):
        inner = (ctype.element,)
    for part in inner:
        yield from _walk(part, seen)
    yield ctype
