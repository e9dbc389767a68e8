"""
Model functions of C: the PTX prototypes that nvcc gives them, and the structs that they use.

The rules are those of nvcc, observed in its output: scalars are passed in 32 or 64 bits, everything else as
an aligned byte array; a kernel's scalar parameters keep their width.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink._formats.ptx import Prototype
from numba_ptxlink.errors import AbiError

from . import existing
from . import names as cnames
from .layouts import inside, parts
from .types import Array, CType, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# In bytes; observed in nvcc's output, like the rest.
_LARGEST_DIRECT = 128
_LARGEST_ALIGNMENT = 16


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
        return parts([self.result, *(ctype for _, ctype in self.params)])

    def __str__(self) -> str:
        params = ", ".join(ctype.declare(name) for name, ctype in self.params) or "void"
        return self.result.declare(f"{self.name}({params})")


def structs_of(signatures: Iterable[Signature]) -> dict[str, Struct]:
    """
    Return the structs that *signatures* use by name, members before their structs.

    Of what is inside of a struct that C++ defines, these are the structs that C++ defines, too.

    Raises:
        AbiError: Two of them have the same name.
    """
    named: dict[str, Struct] = {}
    users: dict[Struct, str] = {}
    for signature in signatures:
        for each in (each for part in signature.types for each in _structs(part)):
            users.setdefault(each, signature.name)
    for ctype, user in users.items():
        first = named.setdefault(ctype.name, ctype)
        # Not by fingerprint: one function may name what is in a struct of C++, and another one not.
        by_layout = bool(first.existing and ctype.existing)
        same = existing.layout(first) == existing.layout(ctype)
        if not same or not (
            by_layout or (first.fingerprint, first.existing) == (ctype.fingerprint, ctype.existing)
        ):
            described = " and ".join(
                f"{each.about} of {who}, with the members {', '.join(member.name for member in each.members)}"
                for each, who in ((first, users[first]), (ctype, user))
            )
            raise AbiError(
                f"Two structs would be named {ctype.name}: {described}; rename the record or NamedTuple "
                f"among them, as to {cnames.propose(ctype.name, named)!r}, as `import ... as` does for a "
                "record; say by structs= of the decorator which struct C++ has for each; or export the "
                "functions apart."
            )
        if by_layout:
            named[ctype.name] = existing.with_includes_of(first, ctype)
    return named


def _structs(ctype: CType) -> Iterator[Struct]:
    """Yield *ctype* if it is a struct, after what C++ defines in one that it defines."""
    if not isinstance(ctype, Struct):
        return
    if ctype.existing:
        for part in parts([ctype], inside=True):
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
    # Later elements lie at offsets that are equal to earlier ones, modulo the largest alignment.
    for path, offset, part in inside(ctype, elements=_LARGEST_ALIGNMENT):
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
