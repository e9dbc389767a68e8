"""Write the instructions of one function as LLVM IR text, with types and prototypes as nvcc has them."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink._cabi import types as c
from numba_ptxlink._cabi.signatures import Signature, is_large

from . import llvm
from .llvm import IdentifiedStruct, PointerType, ScalarType, StructType, Type, read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._formats.llvm_ir import NvvmDialect

I8, I64 = ScalarType("i8"), ScalarType("i64")
_PLAIN = re.compile(r"[\w.$-]+")


class FunctionBuilder:
    """
    The instructions of a function.

    Args:
        dialect: What NVVM reads.

    Its `bodies` are those of the types that it needs, by name: "opaque" of what is only pointed to.
    """

    def __init__(self, dialect: NvvmDialect) -> None:
        self.lines: list[str] = []
        self.bodies: dict[str, str] = {}
        self.dialect = dialect
        self._numbers = itertools.count()

    def do(self, instruction: str) -> None:
        """Append an *instruction* without a result."""
        self.lines.append(f"  {instruction}")

    def value(self, instruction: str) -> str:
        """Append an *instruction*; return the name of its result."""
        name = f"%w{next(self._numbers)}"
        self.do(f"{name} = {instruction}")
        return name

    def pointer(self, target: Type) -> PointerType:
        """Return the type of the addresses of a *target*."""
        return PointerType(None if self.dialect.is_opaque else target)

    def extract(self, ty: Type, value: str, *path: int) -> str:
        """Return a member of the aggregate *value*."""
        return self.value(f"extractvalue {ty} {value}, {', '.join(map(str, path))}")

    def insert(self, ty: Type, value: str, part: Type, member: str, *path: int) -> str:
        """Return the aggregate *value* with another *member*, of type *part*."""
        return self.value(f"insertvalue {ty} {value}, {part} {member}, {', '.join(map(str, path))}")

    def c_type(self, ctype: c.CType, *, behind_pointer: bool = False) -> Type:
        """
        Return the type that nvcc uses for *ctype*, as a parameter, as a result and in memory.

        Structs are identified types: link-time optimisation inlines a call only if the types of caller and
        callee are equal, and a literal struct never equals an identified one. It makes one of two equal
        structs of different modules, which C++ keeps apart, but for opaque ones: *behind_pointer*, structs
        are opaque.
        """
        if isinstance(ctype, c.Void):
            return ScalarType("void")
        if isinstance(ctype, c.Scalar):
            return read(ctype.row.ir)
        if isinstance(ctype, c.Pointer):
            return self._pointer_to(ctype.target)
        if isinstance(ctype, c.Array):
            return llvm.SequentialType(ctype.count, self.c_type(ctype.element, behind_pointer=behind_pointer))
        body = self._body(ctype, behind_pointer=behind_pointer)
        name = f"struct.{ctype.name}"
        name = f"%{name}" if _PLAIN.fullmatch(name) else f'%"{name}"'
        if behind_pointer:
            self.bodies.setdefault(name, "opaque")
        else:
            self.bodies[name] = str(body)
        return IdentifiedStruct(name, body)

    def _pointer_to(self, target: c.CType) -> PointerType:
        if isinstance(target, c.Void):
            return self.pointer(I8)
        # An array has no opaque elements.
        return self.pointer(self.c_type(target, behind_pointer=not isinstance(target, c.Array)))

    def _body(self, ctype: Any, *, behind_pointer: bool) -> StructType:
        if isinstance(ctype, c.Compound):
            return StructType((read(ctype.row.ir),) * ctype.row.lanes)
        if isinstance(ctype, c.View):
            extents = (llvm.SequentialType(ctype.ndim, I64),) * (2 if ctype.ndim else 0)
            return StructType((self._pointer_to(ctype.element), *extents))
        parts = (self.c_type(part, behind_pointer=behind_pointer) for part, _ in ctype.slots)
        return StructType(tuple(parts), ctype.packed)

    def places(self, ctype: Any) -> list[tuple[int, c.Member]]:
        """Return the members of a struct, each with its index in the type."""
        return [(at, member) for at, (_, member) in enumerate(ctype.slots) if member is not None]

    def convert(self, have: Type, value: str, want: Type) -> str:
        """Return *value*, a number, a pointer or an aggregate of these, as the type *want*."""
        if have == want:
            return value
        if isinstance(have, PointerType) and isinstance(want, PointerType):
            return self.value(f"bitcast {have} {value} to {want}")
        if isinstance(have, ScalarType) and isinstance(want, ScalarType) and have.bits and want.bits:
            if want.bits == 1:
                return self.value(f"icmp ne {have} {value}, 0")
            return self.value(f"{'trunc' if want.bits < have.bits else 'zext'} {have} {value} to {want}")
        if isinstance(have, StructType) and isinstance(want, StructType):
            out = "undef"
            for at, (old, new) in enumerate(zip(have.members, want.members, strict=True)):
                out = self.insert(want, out, new, self.convert(old, self.extract(have, value, at), new), at)
            return out
        # Through memory, where both have their members at the same offsets. NVVM keeps in registers what is
        # allocated at the start of a function.
        slot, whole = f"%w{next(self._numbers)}", StructType((have, want))
        self.lines.insert(0, f"  {slot} = alloca {whole}, align 32")
        self.do(f"store {have} {value}, {self.pointer(have)} {self._cast(slot, whole, have)}")
        return self.value(f"load {want}, {self.pointer(want)} {self._cast(slot, whole, want)}")

    def _cast(self, address: str, have: Type, want: Type) -> str:
        return self.convert(self.pointer(have), address, self.pointer(want))


class FunctionHead(NamedTuple):
    """
    A C function in LLVM IR.

    Args:
        head: What follows `define` or `declare`: result, symbol and parameters.
        symbol: The symbol with its type, as metadata names it.
        values: Each parameter: its name, and the type of its address where it is passed by address.
        notes: Its annotations.
    """

    head: str
    symbol: str
    values: tuple[tuple[str, Type | None], ...]
    notes: tuple[str, ...]


def prototype(builder: FunctionBuilder, signature: Signature) -> FunctionHead:
    """Return the prototype of *signature*, with the types of *builder*."""
    returned = builder.c_type(signature.result)
    params, bare, alignments = [], [], []
    values: list[tuple[str, Type | None]] = []
    if signature.result.align != signature.result.natural_align:
        alignments.append(signature.result.align)
    for number, (_, ctype) in enumerate(signature.params):
        kind, value = builder.c_type(ctype), f"%p{number}"
        if is_large(ctype) and not signature.kernel:
            address = builder.pointer(kind)
            byval = f"byval({kind})" if address.target is None else "byval"
            params.append(f"{address} {byval} align {ctype.align} {value}")
            bare.append(str(address))
            values.append((value, address))
            continue
        restrict = "noalias " if isinstance(ctype, c.Pointer) and ctype.restrict else ""
        params.append(f"{kind} {'' if signature.kernel else extension(ctype)}{restrict}{value}")
        bare.append(str(kind))
        values.append((value, None))
        if ctype.align != ctype.natural_align:
            # NVVM IR Specification, "Global Property Annotation": the position is in the upper 16 bits.
            alignments.append((number + 1) << 16 | ctype.align)
    bare_types = ", ".join(bare)
    result = f"{'' if signature.kernel else extension(signature.result)}{returned}"
    return FunctionHead(
        f"{result} @{signature.name}({', '.join(params)})",
        f"{builder.dialect.pointer(f'{returned} ({bare_types})')} @{signature.name}",
        tuple(values),
        tuple(f'!"align", i32 {alignment}' for alignment in alignments),
    )


def extension(ctype: c.CType) -> str:
    """Return how a device function extends a narrow integer, in front of what it stands before."""
    return f"{ctype.extension} " if isinstance(ctype, c.Scalar) and ctype.extension else ""


def nvvm_annotations(first: int, symbol: str, notes: Sequence[str]) -> list[str]:
    """Return the metadata that gives *notes* to *symbol*, in nodes from number *first* on."""
    if not notes:
        return []
    numbers = ", ".join(f"!{number}" for number in range(first, first + len(notes)))
    nodes = [f"!{number} = !{{{symbol}, {note}}}" for number, note in enumerate(notes, first)]
    return [*nodes, f"!nvvm.annotations = !{{{numbers}}}"]
