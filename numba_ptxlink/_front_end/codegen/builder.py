"""Write the instructions of one function as LLVM IR text, with types and prototypes as nvcc has them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink._cabi import types as c
from numba_ptxlink._formats.llvm_types import (
    IdentifiedStruct,
    PointerType,
    ScalarType,
    SequentialType,
    StructType,
    Type,
    members,
    read,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numba_ptxlink._cabi.signatures import Signature
    from numba_ptxlink._formats.llvm_ir import NvvmDialect

I1, I8, I64 = ScalarType("i1"), ScalarType("i8"), ScalarType("i64")
Leaf = tuple[Type, str]
"""A value with its type in LLVM IR."""


class Callee(NamedTuple):
    """
    The function that is called.

    Args:
        symbol: Its symbol.
        result: The type of its result.
        params: The types of its parameters.
        after: What stands behind a call of it: attributes and debug information.
    """

    symbol: str
    result: Type
    params: list[Type]
    after: str


class FunctionBuilder:
    """
    The instructions of a function.

    Args:
        dialect: How the module spells pointers.

    Its `globals` are the lines that it needs beside the function, by the names that these define. Symbols and
    types are in quotes, by which those that rename them find them.
    """

    def __init__(self, dialect: NvvmDialect) -> None:
        self.globals: dict[str, str] = {}
        self.dialect = dialect
        self._slots: list[str] = []
        self._lines: list[str] = []
        self._numbers = itertools.count()

    @property
    def lines(self) -> list[str]:
        """The instructions and labels."""
        return [*self._slots, *self._lines]

    def do(self, instruction: str) -> None:
        """Append an *instruction* without a result."""
        self._lines.append(f"  {instruction}")

    def value(self, instruction: str) -> str:
        """Append an *instruction*; return the name of its result."""
        name = f"%w{next(self._numbers)}"
        self.do(f"{name} = {instruction}")
        return name

    def slot(self, ty: Type, align: int, content: str = "") -> Leaf:
        """Return the address of memory for a value of *ty*, and store *content* there."""
        # NVVM keeps in registers what is allocated at the start of a function.
        name, pointer = f"%w{next(self._numbers)}", self.pointer(ty)
        self._slots.append(f"  {name} = alloca {ty}, align {align}")
        if content:
            self.do(f"store {ty} {content}, {pointer} {name}, align {align}")
        return pointer, name

    def block(self, name: str) -> None:
        """Begin the block *name*."""
        self._lines.append(f"{name}:")

    def returns(self, ty: Type, value: str) -> None:
        """Return *value*, nothing where *ty* is void."""
        self.do("ret void" if str(ty) == "void" else f"ret {ty} {value}")

    def branch(self, condition: str) -> str:
        """Begin a block for the *condition*, an `i1`; return the name of that for what follows."""
        number = next(self._numbers)
        self.do(f"br i1 {condition}, label %then{number}, label %after{number}")
        self.block(f"then{number}")
        return f"after{number}"

    def join(self, after: str) -> None:
        """Begin the block *after*, which follows this one."""
        self.do(f"br label %{after}")
        self.block(after)

    def call(self, callee: Callee, arguments: Iterable[Leaf]) -> str:
        """Call *callee* with *arguments*, as its types; return its result, "" for none."""
        passed = ", ".join(
            f"{want} {self.convert(have, value, want)}"
            for (have, value), want in zip(arguments, callee.params, strict=True)
        )
        call = f'call {callee.result} @"{callee.symbol}"({passed}){callee.after}'
        if str(callee.result) != "void":
            return self.value(call)
        self.do(call)
        return ""

    def pointer(self, target: Type) -> PointerType:
        """Return the type of the addresses of a *target*."""
        return PointerType(None if self.dialect.is_opaque else target)

    def extract(self, ty: Type, value: str, *path: int) -> str:
        """Return a member of the aggregate *value*."""
        return self.value(f"extractvalue {ty} {value}, {', '.join(map(str, path))}")

    def aggregate(self, ty: Type, values: Iterable[tuple[int, str]]) -> str:
        """Return an aggregate with these *values* of members, each behind its index."""
        out = "undef"
        for at, value in values:
            out = self.value(f"insertvalue {ty} {out}, {members(ty)[at]} {value}, {at}")
        return out

    def select(self, condition: str, ty: Type, value: str) -> str:
        """Return *value*, of the type *ty*, where *condition*, an `i1`, holds, and zero elsewhere."""
        if not members(ty):
            return self.value(f"select i1 {condition}, {ty} {value}, {ty} zeroinitializer")
        # LLVM 7 takes no member out of an aggregate that is selected as a whole.
        parts = enumerate(members(ty))
        return self.aggregate(
            ty, ((at, self.select(condition, part, self.extract(ty, value, at))) for at, part in parts)
        )

    def struct(self, parts: Sequence[Leaf]) -> Leaf:
        """Return a struct of *parts*."""
        kind = StructType(tuple(ty for ty, _ in parts))
        return kind, self.aggregate(kind, enumerate(value for _, value in parts))

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
            return SequentialType(ctype.count, self.c_type(ctype.element, behind_pointer=behind_pointer))
        body = self._body(ctype, behind_pointer=behind_pointer)
        name = f'%"struct.{ctype.name}"'
        if behind_pointer:
            self.globals.setdefault(name, f"{name} = type opaque")
        else:
            self.globals[name] = f"{name} = type {body}"
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
            extents = (SequentialType(ctype.ndim, I64),) * (2 if ctype.ndim else 0)
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
        old, new = members(have), members(want)
        if (len(old) or 1) == len(new):
            parts = (self.extract(have, value, at) for at in range(len(old))) if old else [value]
            kinds = zip(old or (have,), parts, new, strict=True)
            return self.aggregate(want, enumerate(self.convert(*each) for each in kinds))
        # Through memory, where both have their members at the same offsets.
        address = self.slot(StructType((have, want)), 32)
        pointer, copy = self.pointer(want), self.pointer(have)
        self.do(f"store {have} {value}, {copy} {self.convert(*address, copy)}")
        return self.value(f"load {want}, {pointer} {self.convert(*address, pointer)}")


class FunctionHead(NamedTuple):
    """
    A C function in LLVM IR.

    Args:
        head: What follows `define`: result, symbol and parameters, which are named %p0, %p1 and so on.
        symbol: The symbol with its type, as metadata names it.
        notes: Its annotations.
    """

    head: str
    symbol: str
    notes: list[str]


def prototype(builder: FunctionBuilder, signature: Signature) -> FunctionHead:
    """Return the prototype of *signature*, with the types of *builder*."""
    returned, result = builder.c_type(signature.result), signature.result
    types: list[Type] = []
    params: list[str] = []
    # NVVM IR Specification, "Global Property Annotation": the position is in the upper 16 bits.
    alignments = [result.align] if result.align != result.natural_align else []
    for position, (_, ctype) in enumerate(signature.params, start=1):
        kind, attribute = builder.c_type(ctype), _extension(ctype, signature)
        if signature.is_by_address(ctype):
            attribute = f"byval({kind}) align {ctype.align} "
            kind = builder.pointer(kind)
        elif ctype.align != ctype.natural_align:
            alignments.append(position << 16 | ctype.align)
        if isinstance(ctype, c.Pointer) and ctype.restrict:
            attribute = "noalias "
        types.append(kind)
        params.append(f"{kind} {attribute}%p{position - 1}")
    bare = f"{returned} ({', '.join(map(str, types))})"
    return FunctionHead(
        f'{_extension(result, signature)}{returned} @"{signature.name}"({", ".join(params)})',
        f'{builder.dialect.pointer(bare)} @"{signature.name}"',
        [f'!"align", i32 {alignment}' for alignment in alignments],
    )


def _extension(ctype: c.CType, signature: Signature) -> str:
    """Return how a device function extends a narrow integer, in front of what it stands before."""
    if signature.kernel or not isinstance(ctype, c.Scalar) or not ctype.extension:
        return ""
    return f"{ctype.extension} "
