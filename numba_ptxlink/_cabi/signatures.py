"""
Model functions of C: the PTX prototypes that nvcc gives them, and the types that they use.

The rules are those of nvcc, observed in its output: scalars are passed in 32 or 64 bits, everything else as
an aligned byte array; a kernel's scalar parameters keep their width.
"""

from __future__ import annotations

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

# PTX has no wider parameters in bytes, but arrays of bytes.
_WIDEST = 8
# In bytes; observed in nvcc's output, like the rest.
_LARGEST_DIRECT = 128
_LARGEST_ALIGNMENT = 16


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
            dialect: What NVVM compiles for the target, whose LLVM aligns large structs.
        """
        params = (_param(ctype, dialect, kernel=self.kernel) for _, ctype in self.params)
        result = _param(self.result, NvvmDialect.OPAQUE_POINTERS, kernel=False)
        return Prototype(name=self.name, result=result, params=tuple(filter(None, params)), entry=self.kernel)

    def is_by_address(self, ctype: CType) -> bool:
        """Return whether nvcc passes a parameter by address in NVVM IR; in PTX it is by value."""
        return _is_large(ctype) and not self.kernel

    @property
    def types(self) -> Iterator[CType]:
        """Every type used by the declaration, members before their structs."""
        return parts([self.result, *(ctype for _, ctype in self.params)])

    def __str__(self) -> str:
        params = ", ".join(ctype.declare(name) for name, ctype in self.params) or "void"
        return self.result.declare(f"{self.name}({params})")

    def __repr__(self) -> str:
        return f"<{self}>"


def _param(ctype: CType, dialect: NvvmDialect, *, kernel: bool) -> Param | None:
    """Return a type as a parameter or result in PTX, None for void."""
    if isinstance(ctype, Void):
        return None
    if isinstance(ctype, (Scalar, Pointer)) and ctype.size <= _WIDEST:
        return Param(bits=ctype.size * 8 if kernel else max(32, ctype.size * 8))
    aligned = 4 if _is_large(ctype) and not kernel and not dialect.is_opaque else 1
    return Param(align=max(ctype.align, aligned), size=ctype.size)


def _is_large(ctype: CType) -> bool:
    return ctype.size > _LARGEST_DIRECT


def structs_of(signatures: Iterable[Signature]) -> dict[str, Struct]:
    """
    Return the structs that *signatures* use by name, members before their structs.

    Of what is inside of a struct that C++ defines, these are the structs that C++ defines, too.

    Raises:
        AbiError: Two of them have the same name.
    """
    named: dict[str, tuple[Struct, str]] = {}
    for signature in signatures:
        for each in (each for part in signature.types for each in _structs(part)):
            first, user = named.setdefault(each.name, (each, signature.name))
            if _layout(first) != _layout(each):
                raise AbiError(
                    f"Two structs would be named {each.name}: {first.python_type} of {user} and "
                    f"{each.python_type} of {signature.name}; rename the record or NamedTuple among them, as "
                    f"to {cnames.propose(each.name, named)!r}, as `import ... as` does for a record; say by "
                    "structs= of the decorator which struct C++ has for each; or export the functions apart."
                )
    return {name: each for name, (each, _) in named.items()}


def _layout(each: Struct) -> Any:
    """Return what is equal for equal structs."""
    if not each.existing:
        # Members have names in Python if it is a record or a named tuple, so these may share a struct.
        python_kind = each.python_kind.replace("namedtuple", "record")
        return (
            each.fingerprint,
            python_kind,
            *((path, at, part.name) for path, at, part in walk_members(each)),
        )
    # One function may name what is in a struct of C++, and another one not.
    return each.size, each.align, *((path, at, part.size) for path, at, part in walk_members(each))


def _structs(ctype: CType) -> Iterator[Struct]:
    """Yield *ctype* if it is a struct, after what C++ defines in one that it defines."""
    if isinstance(ctype, Struct) and not ctype.existing:
        yield ctype
    elif isinstance(ctype, Struct):
        within = parts([ctype], with_members=True)
        yield from (part for part in within if isinstance(part, Struct) and part.existing)


def parts(types: Iterable[CType], *, with_members: bool = False) -> Iterator[CType]:
    """
    Yield every type that *types* contain or point to, and these themselves, each once and after its parts.

    Args:
        types: Types.
        with_members: Whether members of structs that C++ defines are parts, too.
    """
    seen: set[CType] = set()
    for ctype in types:
        yield from _walk(ctype, seen, with_members=with_members)


def _walk(ctype: CType, seen: set[CType], *, with_members: bool) -> Iterator[CType]:
    if ctype in seen:
        return
    seen.add(ctype)
    if with_members or not (isinstance(ctype, Struct) and ctype.existing):
        members = (member.type for member in getattr(ctype, "members", ()))
        held = (getattr(ctype, "element", None), getattr(ctype, "target", None), *members)
        for part in filter(None, held):
            yield from _walk(part, seen, with_members=with_members)
    yield ctype


def walk_members(
    ctype: CType, path: str = "", start: int = 0, elements: int = 1
) -> Iterator[tuple[str, int, CType]]:
    """
    Yield path, offset and type of everything inside *ctype*, members before what is in them.

    Args:
        ctype: A struct or an array; nothing else holds something.
        path: What paths begin with, by the names in Python.
        start: The offset of *ctype*.
        elements: How many elements of an array are looked at.
    """
    steps: list[tuple[str, int, CType]] = []
    if isinstance(ctype, Struct):
        steps = [(f".{member.field}", member.offset, member.type) for member in ctype.members]
    elif isinstance(ctype, Array):
        numbers = range(min(ctype.count, elements))
        steps = [(f"[{number}]", number * ctype.element.size, ctype.element) for number in numbers]
    for name, offset, part in steps:
        inner = f"{path}{name}".removeprefix(".")
        yield inner, start + offset, part
        yield from walk_members(part, inner, start + offset, elements)


def words(types: Iterable[CType]) -> set[str]:
    """Return the words that *types* are spelled with."""
    return {word for ctype in types for word in re.findall(r"[^\W\d]\w*", ctype.name)}


def unaligned_member(ctype: CType) -> str | None:
    """
    Return the path of a member that *ctype*, passed by value, does not align; None if it aligns all of them.

    Before sm_100, nvcc 13 and NVVM move such a member of an argument or a result by aligned instructions: a
    16-bit member at offset 1 by `st.param.b16`, a 64-bit one at offset 9 by `st.param.f64`, and one at offset
    0 of a parameter that is aligned to 1 by `ld.param.u64`. The device traps, or moves other bytes. What a
    kernel is launched with is read by accesses that are no larger than its alignment.
    """
    # Later elements lie at offsets that are equal to earlier ones, modulo the largest alignment.
    for path, offset, part in walk_members(ctype, elements=_LARGEST_ALIGNMENT):
        is_leaf = not isinstance(part, (Array, Struct))
        if is_leaf and (offset % part.align or part.align > ctype.align):
            return path
    return None


def check_ptx(signature: Signature, option: str = "emit=['ltoir']") -> None:
    """
    Check that nvcc passes the arguments and the result of *signature* rightly between functions in PTX.

    A function in LTO-IR is inlined into its callers, which passes nothing.

    Args:
        signature: The function.
        option: What asks for LTO-IR, for the message.

    Raises:
        AbiError: A struct that is passed by value holds a member that is not aligned.
    """
    if signature.kernel:
        return
    values = [(f"parameter {name!r}", ctype) for name, ctype in signature.params]
    for where, ctype in (("the return value", signature.result), *values):
        member = unaligned_member(ctype)
        if member is not None:
            raise AbiError(
                f"Function {signature.name}: {where}, of C type {ctype.name}, holds the member {member!r}, "
                "which is not aligned, and nvcc passes such structs by value wrongly in PTX. "
                "Create its dtype with align=True, and with offsets of C where a member is complex; pass a "
                f"pointer to it or an array of it; or make and link LTO-IR alone ({option})."
            )


def describe(types: Iterable[CType]) -> dict[str, dict[str, Any]]:
    """Return a description of each of *types*, and of what is in them before it, by its C name."""
    return {part.name: _describe(part) for part in parts(types, with_members=True)}


def parameters(params: Sequence[tuple[str, CType]], *, kernel: bool) -> list[dict[str, Any]]:
    """Return name and type of each parameter, and for a kernel where it begins in the argument buffer."""
    described: list[dict[str, Any]] = [{"name": name, "type": ctype.name} for name, ctype in params]
    if kernel:
        # As in a C struct; "Kernel Function Parameters" in the PTX ISA.
        for entry, member in zip(described, struct("", params).members, strict=True):
            entry["offset"] = member.offset
    return described


def _describe(ctype: CType) -> dict[str, Any]:
    kind = ctype.row.kind if isinstance(ctype, Numeric) else type(ctype).__name__.lower()
    described: dict[str, Any] = {"kind": kind, "size": ctype.size, "align": ctype.align}
    for name in ("target", "element", "count", "ndim", "layout", "readonly"):
        value = getattr(ctype, name, None)
        if value is not None:
            described[name] = value.name if isinstance(value, CType) else value
    if isinstance(ctype, Compound) and ctype.element:
        described["count"] = ctype.row.lanes
    elif isinstance(ctype, Struct):
        described["members"] = list(map(_place, ctype.members))
        described["python_kind"] = ctype.python_kind
    return described


def _place(member: Member) -> dict[str, Any]:
    renamed = {"field": member.field} if member.field != member.name else {}
    return {"name": member.name, "type": member.type.name, "offset": member.offset, **renamed}
