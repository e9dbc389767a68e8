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

from . import alignment, existing
from . import names as cnames
from .types import Array, CType, Struct, parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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
        for struct in (struct for part in signature.types for struct in _structs(part)):
            users.setdefault(struct, signature.name)
    for ctype in users:
        first = named.setdefault(ctype.name, ctype)
        if first.existing and ctype.existing:
            # Not by fingerprint: one function may name what is in them, and another one not.
            differing = existing.difference(first, ctype)
            if differing:
                pairs = zip(differing, (first, ctype), strict=True)
                ways = ", ".join(f"{what} in {users[struct]}" for what, struct in pairs)
                raise AbiError(
                    f"{ctype.name} is given for {first.about} and for {ctype.about}, which are laid out in "
                    f"two ways: {ways}. C++ has one struct of that name; give all functions the same dtype "
                    "and the same structs=."
                )
            named[ctype.name] = existing.with_includes_of(first, ctype)
            continue
        if first.fingerprint != ctype.fingerprint or first.existing != ctype.existing:
            raise AbiError(
                f"Two structs would be named {ctype.name}: {_described(first, users)} and "
                f"{_described(ctype, users)}; rename the record or NamedTuple among them in Python, for "
                f"example to {cnames.propose(ctype.name, named)!r}, as `import ... as` does for a record; "
                "say by structs= of the decorator which struct C++ has for it; or export the functions apart."
            )
    return named


def _described(struct: Struct, users: Mapping[Struct, str]) -> str:
    members = ", ".join(member.name for member in struct.members)
    return f"{struct.about} of {users[struct]}, with the members {members}"


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
                f"{alignment.cure(ctype)}, pass a pointer to it or an array of it, or make and link LTO-IR "
                f"alone ({option})."
            )
