"""
Model functions of C: the PTX prototypes that nvcc gives them, and the types that they use.

The rules are those of nvcc, observed in its output: scalars are passed in 32 or 64 bits, all other types as
an aligned byte array; a kernel's scalar parameters keep their width.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numba_ptxlink._formats.llvm_ir import NvvmDialect
from numba_ptxlink._formats.ptx import Param, Prototype
from numba_ptxlink.errors import AbiError

from . import names as cnames
from .types import Array, Compound, CType, Member, Numeric, Pointer, Scalar, Struct, Void, struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# Sizes and alignments in bytes. Scalars in PTX have at most 8; larger types are passed as arrays of bytes.
_MAX_SCALAR_SIZE = 8
# As observed in nvcc's output: larger types are passed by address in NVVM IR.
_MAX_DIRECT_SIZE = 128
# The largest alignment of a number or a vector, such as float4.
_MAX_ALIGNMENT = 16


@dataclass(frozen=True, repr=False)
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
        return self.prototype_for(NvvmDialect.OPAQUE_POINTERS)

    def prototype_for(self, dialect: NvvmDialect) -> Prototype:
        """
        Return the PTX prototype that nvcc emits for the declaration.

        Args:
            dialect: The dialect of NVVM IR for the target. In the one for targets before sm_100, a parameter
                that is a large struct is aligned to at least 4 bytes.
        """
        params = (_param(ctype, dialect, kernel=self.kernel) for _, ctype in self.params)
        result = _param(self.result, NvvmDialect.OPAQUE_POINTERS, kernel=False)
        return Prototype(name=self.name, result=result, params=tuple(filter(None, params)), entry=self.kernel)

    def is_passed_by_address(self, ctype: CType) -> bool:
        """Return whether nvcc passes a parameter by address in NVVM IR; in PTX, it is passed by value."""
        return _is_large(ctype) and not self.kernel

    @property
    def types(self) -> Iterator[CType]:
        """Every type used by the declaration, members before their structs."""
        return nested_types([self.result, *(ctype for _, ctype in self.params)])

    def __str__(self) -> str:
        params = ", ".join(ctype.declare(name) for name, ctype in self.params) or "void"
        return self.result.declare(f"{self.name}({params})")

    def __repr__(self) -> str:
        return f"<{self}>"


def _param(ctype: CType, dialect: NvvmDialect, *, kernel: bool) -> Param | None:
    """Return the parameter or the result of a type in PTX; None for void."""
    if isinstance(ctype, Void):
        return None
    if isinstance(ctype, (Scalar, Pointer)) and ctype.size <= _MAX_SCALAR_SIZE:
        return Param(bits=ctype.size * 8 if kernel else max(32, ctype.size * 8))
    min_align = 4 if _is_large(ctype) and not kernel and not dialect.is_opaque else 1
    return Param(align=max(ctype.align, min_align), size=ctype.size)


def _is_large(ctype: CType) -> bool:
    return ctype.size > _MAX_DIRECT_SIZE


def structs_of(signatures: Iterable[Signature]) -> dict[str, Struct]:
    """
    Return the structs that *signatures* use by name, members before their structs.

    Structs inside a struct that C++ defines are left out, except those that C++ defines as well.

    Raises:
        AbiError: Two structs have the same name.
    """
    # The first struct of each name, and the symbol of the function that uses it.
    first_uses: dict[str, tuple[Struct, str]] = {}
    for signature in signatures:
        for layout in itertools.chain.from_iterable(map(_structs, signature.types)):
            first_layout, first_user = first_uses.setdefault(layout.name, (layout, signature.name))
            if _layout_key(first_layout) != _layout_key(layout):
                new_name = cnames.closest_legal_name(layout.name, first_uses)
                raise AbiError(
                    f"Two structs would be named {layout.name}: {first_layout.python_type} of {first_user} "
                    f"and {layout.python_type} of {signature.name}; rename the record or NamedTuple among "
                    f"them, for example to {new_name!r}, or import the record under another name; "
                    "say by structs= of the decorator which struct C++ has for each; or export the functions "
                    "apart."
                )
    return {name: layout for name, (layout, _) in first_uses.items()}


def _layout_key(layout: Struct) -> Any:
    """Return a key that is equal for equal structs."""
    if not layout.existing:
        # Records and named tuples both have members with names in Python, so they may share a struct.
        python_kind = layout.python_kind.replace("namedtuple", "record")
        return (
            layout.fingerprint,
            python_kind,
            *((path, offset, part.name) for path, offset, part in walk_members(layout)),
        )
    # The key of a struct that C++ defines has no names of its members' types: structs= of one function may
    # name the struct of a member, and that of another function leave it out.
    return (
        layout.size,
        layout.align,
        *((path, offset, part.size) for path, offset, part in walk_members(layout)),
    )


def _structs(ctype: CType) -> Iterator[Struct]:
    """Yield *ctype* if it is a struct; if C++ defines it, first yield the structs in it that C++ defines."""
    if isinstance(ctype, Struct) and not ctype.existing:
        yield ctype
    elif isinstance(ctype, Struct):
        within = nested_types([ctype], inside_existing=True)
        yield from (part for part in within if isinstance(part, Struct) and part.existing)


def nested_types(types: Iterable[CType], *, inside_existing: bool = False) -> Iterator[CType]:
    """
    Yield *types* and all types that they contain or point to, each once, parts first.

    Args:
        types: The types to begin with.
        inside_existing: Whether the types inside of structs that C++ defines are yielded, too.
    """
    seen: set[CType] = set()
    for ctype in types:
        yield from _walk(ctype, seen, inside_existing=inside_existing)


def _walk(ctype: CType, seen: set[CType], *, inside_existing: bool) -> Iterator[CType]:
    if ctype in seen:
        return
    seen.add(ctype)
    if inside_existing or not (isinstance(ctype, Struct) and ctype.existing):
        members = (member.type for member in getattr(ctype, "members", ()))
        contained = (getattr(ctype, "element", None), getattr(ctype, "target", None), *members)
        for part in filter(None, contained):
            yield from _walk(part, seen, inside_existing=inside_existing)
    yield ctype


def walk_members(
    ctype: CType, path: str = "", start: int = 0, max_elements: int = 1
) -> Iterator[tuple[str, int, CType]]:
    """
    Yield path, offset and type of all members inside *ctype*, each before its own members.

    Args:
        ctype: A struct or an array; other types have no members.
        path: The beginning of the paths, with names in Python.
        start: The offset of *ctype* in bytes, to which the offsets of members are added.
        max_elements: The number of elements at the beginning of an array to visit.
    """
    parts: list[tuple[str, int, CType]] = []
    if isinstance(ctype, Struct):
        parts = [(f".{member.field}", member.offset, member.type) for member in ctype.members]
    elif isinstance(ctype, Array):
        indices = range(min(ctype.count, max_elements))
        parts = [(f"[{index}]", index * ctype.element.size, ctype.element) for index in indices]
    for name, offset, part in parts:
        part_path = f"{path}{name}".removeprefix(".")
        yield part_path, start + offset, part
        yield from walk_members(part, part_path, start + offset, max_elements)


def words(types: Iterable[CType]) -> set[str]:
    """Return the words in the spelling of *types*."""
    return {word for ctype in types for word in re.findall(r"[^\W\d]\w*", ctype.name)}


def unaligned_member(ctype: CType) -> str | None:
    """
    Return the path of an unaligned member of *ctype*, passed by value; None if all members are aligned.

    Before sm_100, nvcc 13 and NVVM move such a member of an argument or a result by aligned instructions: a
    16-bit member at offset 1 by `st.param.b16`, a 64-bit member at offset 9 by `st.param.f64`, and a member
    at offset 0 of a parameter with alignment 1 by `ld.param.u64`. The device traps, or moves other bytes.
    Kernels are not affected: their parameters are read by accesses that are no larger than the alignment.
    """
    # The first 16 elements of an array suffice: whether an element is aligned depends on its offset modulo
    # 16, and later elements repeat these values.
    for path, offset, part in walk_members(ctype, max_elements=_MAX_ALIGNMENT):
        has_no_parts = not isinstance(part, (Array, Struct))
        if has_no_parts and (offset % part.align or part.align > ctype.align):
            return path
    return None


def check_ptx(signature: Signature, option: str = "emit=['ltoir']") -> None:
    """
    Check that nvcc passes the arguments and the result of *signature* correctly between functions in PTX.

    A function in LTO-IR is inlined into its callers, so that no argument is passed.

    Args:
        signature: The function.
        option: The option for LTO-IR, for the message.

    Raises:
        AbiError: A struct that is passed by value has an unaligned member.
    """
    if signature.kernel:
        return
    values = [(f"parameter {name!r}", ctype) for name, ctype in signature.params]
    for title, ctype in (("the return value", signature.result), *values):
        member = unaligned_member(ctype)
        if member is not None:
            raise AbiError(
                f"Function {signature.name}: {title}, of C type {ctype.name}, has the unaligned member "
                f"{member!r}, and nvcc passes such structs by value wrongly in PTX; create its dtype with "
                "align=True (and with C's offsets if a member is complex), pass a pointer to it or an array "
                f"of it, or export and link only LTO-IR ({option})."
            )


def describe(types: Iterable[CType]) -> dict[str, dict[str, Any]]:
    """Return the manifest's entries for *types* and the types of their members, by C names, members first."""
    return {part.name: _type_entry(part) for part in nested_types(types, inside_existing=True)}


def parameters(params: Sequence[tuple[str, CType]], *, kernel: bool) -> list[dict[str, Any]]:
    """Return the manifest's entries for parameters; for a kernel, with offsets in the buffer of arguments."""
    entries: list[dict[str, Any]] = [{"name": name, "type": ctype.name} for name, ctype in params]
    if kernel:
        # Parameters are laid out like a C struct; "Kernel Function Parameters" in the PTX ISA.
        for entry, member in zip(entries, struct("", params).members, strict=True):
            entry["offset"] = member.offset
    return entries


def _type_entry(ctype: CType) -> dict[str, Any]:
    # The kinds of other types are the names of their classes: "void", "array", "struct", "pointer", "view".
    kind = ctype.row.kind if isinstance(ctype, Numeric) else type(ctype).__name__.lower()
    entry: dict[str, Any] = {"kind": kind, "size": ctype.size, "align": ctype.align}
    for name in ("target", "element", "count", "ndim", "layout", "readonly"):
        value = getattr(ctype, name, None)
        if value is not None:
            entry[name] = value.name if isinstance(value, CType) else value
    if isinstance(ctype, Compound) and ctype.element:
        entry["count"] = ctype.row.element_count
    elif isinstance(ctype, Struct):
        entry["members"] = list(map(_member_entry, ctype.members))
        entry["python_kind"] = ctype.python_kind
    return entry


def _member_entry(member: Member) -> dict[str, Any]:
    renamed = {"field": member.field} if member.field != member.name else {}
    return {"name": member.name, "type": member.type.name, "offset": member.offset, **renamed}
