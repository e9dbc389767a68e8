"""Write the instructions of one function as LLVM IR text, with the types and prototypes that nvcc uses."""

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
TypedValue = tuple[Type, str]
"""A value: its type in LLVM IR, and its name or constant, such as (i32, "%w3") and (i64, "1")."""


class Callee(NamedTuple):
    """
    A called function.

    Args:
        symbol: The symbol.
        result: The type of the result.
        params: The types of the parameters.
        suffix: The text behind the arguments of a call: attributes and debug information; "" for neither.
    """

    symbol: str
    result: Type
    params: list[Type]
    suffix: str


class FunctionBuilder:
    """
    The instructions of a function.

    Symbols and types are quoted, since functions that rename them look for the quotes.

    Args:
        dialect: The spelling of pointers in the module.

    Attributes:
        globals: The lines that the module needs beside the function, by the names that they define.
    """

    def __init__(self, dialect: NvvmDialect) -> None:
        self.globals: dict[str, str] = {}
        self.dialect = dialect
        self._allocas: list[str] = []
        self._lines: list[str] = []
        self._numbers = itertools.count()

    @property
    def lines(self) -> list[str]:
        """The instructions and labels."""
        return [*self._allocas, *self._lines]

    def emit(self, instruction: str) -> None:
        """Append an *instruction* without a result."""
        self._lines.append(f"  {instruction}")

    def emit_value(self, instruction: str) -> str:
        """Append an *instruction*; return the name of its result."""
        name = f"%w{next(self._numbers)}"
        self.emit(f"{name} = {instruction}")
        return name

    def allocate(self, ty: Type, align: int, content: str = "") -> TypedValue:
        """Allocate memory for a value of *ty*, store *content* there unless it is "", return the address."""
        # NVVM moves memory into registers only if the alloca is at the start of the function.
        name, pointer = f"%w{next(self._numbers)}", self.pointer(ty)
        self._allocas.append(f"  {name} = alloca {ty}, align {align}")
        if content:
            self.emit(f"store {ty} {content}, {pointer} {name}, align {align}")
        return pointer, name

    def begin_block(self, name: str) -> None:
        """Begin the block *name*."""
        self._lines.append(f"{name}:")

    def emit_return(self, ty: Type, value: str) -> None:
        """Return *value*; nothing if *ty* is void."""
        self.emit("ret void" if str(ty) == "void" else f"ret {ty} {value}")

    def branch(self, condition: str) -> str:
        """Begin a block that runs if the `i1` *condition* is true; return the name of the block after it."""
        number = next(self._numbers)
        self.emit(f"br i1 {condition}, label %then{number}, label %after{number}")
        self.begin_block(f"then{number}")
        return f"after{number}"

    def join(self, after: str) -> None:
        """End this block, and begin the block *after*."""
        self.emit(f"br label %{after}")
        self.begin_block(after)

    def call(self, callee: Callee, arguments: Iterable[TypedValue]) -> str:
        """Call *callee* with *arguments*, converted to its types; return its result, "" for void."""
        passed = ", ".join(
            f"{param_type} {self.convert(source_type, value, param_type)}"
            for (source_type, value), param_type in zip(arguments, callee.params, strict=True)
        )
        call = f'call {callee.result} @"{callee.symbol}"({passed}){callee.suffix}'
        if str(callee.result) != "void":
            return self.emit_value(call)
        self.emit(call)
        return ""

    def pointer(self, target: Type) -> PointerType:
        """Return the type of pointers to *target*."""
        return PointerType(None if self.dialect.is_opaque else target)

    def extract(self, ty: Type, value: str, *path: int) -> str:
        """Return a member of the aggregate *value*: the one at the indices *path*, from the outermost."""
        return self.emit_value(f"extractvalue {ty} {value}, {', '.join(map(str, path))}")

    def aggregate(self, ty: Type, values: Iterable[tuple[int, str]]) -> str:
        """Return an aggregate of *values*, pairs of a member's index and value."""
        out = "undef"
        for index, value in values:
            out = self.emit_value(f"insertvalue {ty} {out}, {members(ty)[index]} {value}, {index}")
        return out

    def select(self, condition: str, ty: Type, value: str) -> str:
        """Return *value*, of the type *ty*, if the `i1` *condition* is true, and zero if it is false."""
        if not members(ty):
            return self.emit_value(f"select i1 {condition}, {ty} {value}, {ty} zeroinitializer")
        # LLVM 7 cannot simplify `extractvalue` of a `select` of aggregates: select the members.
        parts = enumerate(members(ty))
        return self.aggregate(
            ty,
            ((index, self.select(condition, part, self.extract(ty, value, index))) for index, part in parts),
        )

    def struct(self, parts: Sequence[TypedValue]) -> TypedValue:
        """Return a struct of *parts*."""
        llvm_type = StructType(tuple(ty for ty, _ in parts))
        return llvm_type, self.aggregate(llvm_type, enumerate(value for _, value in parts))

    def c_type(self, ctype: c.CType, *, behind_pointer: bool = False) -> Type:
        """
        Return the type that nvcc uses for *ctype*, as a parameter, as a result and in memory.

        Structs are identified types: link-time optimisation inlines a call only if the types of caller and
        callee are equal, and a literal struct never equals an identified one. Linking also makes one type of
        two structs that have equal members, but different names. Then the types of a caller from C++, where
        the two stay apart, would differ. Linking never merges opaque structs, so structs *behind_pointer* are
        opaque.
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
        # The elements of an array must not be opaque.
        return self.pointer(self.c_type(target, behind_pointer=not isinstance(target, c.Array)))

    def _body(self, ctype: Any, *, behind_pointer: bool) -> StructType:
        if isinstance(ctype, c.Compound):  # A struct of CUDA, such as float4.
            return StructType((read(ctype.row.ir),) * ctype.row.element_count)
        if isinstance(ctype, c.View):
            extents = (SequentialType(ctype.ndim, I64),) * (2 if ctype.ndim else 0)
            return StructType((self._pointer_to(ctype.element), *extents))
        parts = (self.c_type(part, behind_pointer=behind_pointer) for part, _ in ctype.slots)
        return StructType(tuple(parts), ctype.packed)

    def indexed_members(self, ctype: Any) -> list[tuple[int, c.Member]]:
        """Return the members of a struct, without padding, with their indices in the LLVM type."""
        return [(index, member) for index, (_, member) in enumerate(ctype.slots) if member is not None]

    def convert(self, source_type: Type, value: str, target_type: Type) -> str:
        """Return *value*, a number, a pointer or an aggregate of these, as the type *target_type*."""
        if source_type == target_type:
            return value
        if isinstance(source_type, PointerType) and isinstance(target_type, PointerType):
            return self.emit_value(f"bitcast {source_type} {value} to {target_type}")
        if (
            isinstance(source_type, ScalarType)
            and isinstance(target_type, ScalarType)
            and source_type.bits
            and target_type.bits
        ):
            if target_type.bits == 1:
                return self.emit_value(f"icmp ne {source_type} {value}, 0")
            # Only booleans become wider (i1 of Numba, i8 of C): no signed integer is extended with zeros.
            operation = "trunc" if target_type.bits < source_type.bits else "zext"
            return self.emit_value(f"{operation} {source_type} {value} to {target_type}")
        # Convert member by member; a number or a pointer becomes the member of a struct that has only one.
        source_members, target_members = members(source_type), members(target_type)
        if (len(source_members) or 1) == len(target_members):
            extracted = (self.extract(source_type, value, index) for index in range(len(source_members)))
            values = extracted if source_members else [value]
            triples = zip(source_members or (source_type,), values, target_members, strict=True)
            return self.aggregate(target_type, enumerate(self.convert(*triple) for triple in triples))
        # Types with different numbers of members have the same bytes in memory: store one and load the
        # other, in memory that is large enough for both.
        address = self.allocate(StructType((source_type, target_type)), 32)
        source_pointer, target_pointer = self.pointer(source_type), self.pointer(target_type)
        self.emit(f"store {source_type} {value}, {source_pointer} {self.convert(*address, source_pointer)}")
        return self.emit_value(
            f"load {target_type}, {target_pointer} {self.convert(*address, target_pointer)}"
        )


class FunctionHead(NamedTuple):
    """
    The head of a C function in LLVM IR.

    Args:
        definition: The text behind `define`: result, symbol and parameters, which are named %p0, %p1 and so
            on.
        typed_symbol: The symbol with its type, as metadata refers to the function.
        annotations: The annotations, as operands of metadata nodes, such as `!"align", i32 65552`.
    """

    definition: str
    typed_symbol: str
    annotations: list[str]


def function_head(builder: FunctionBuilder, signature: Signature) -> FunctionHead:
    """Return the head of the C function that has *signature*, with the types of *builder*."""
    result_type, result = builder.c_type(signature.result), signature.result
    types: list[Type] = []
    params: list[str] = []
    # NVVM IR Specification, "Global Property Annotation": the lower 16 bits are the alignment, the upper ones
    # the position: 0 for the result, 1 for the first parameter.
    alignments = [result.align] if result.align != result.natural_align else []
    for position, (_, ctype) in enumerate(signature.params, start=1):
        llvm_type, attribute = builder.c_type(ctype), _extension(ctype, signature)
        if signature.is_passed_by_address(ctype):
            attribute = f"byval({llvm_type}) align {ctype.align} "
            llvm_type = builder.pointer(llvm_type)
        elif ctype.align != ctype.natural_align:
            alignments.append(position << 16 | ctype.align)
        if isinstance(ctype, c.Pointer) and ctype.restrict:
            attribute = "noalias "
        types.append(llvm_type)
        params.append(f"{llvm_type} {attribute}%p{position - 1}")
    function_type = f"{result_type} ({', '.join(map(str, types))})"
    return FunctionHead(
        f'{_extension(result, signature)}{result_type} @"{signature.name}"({", ".join(params)})',
        f'{builder.dialect.pointer(function_type)} @"{signature.name}"',
        [f'!"align", i32 {alignment}' for alignment in alignments],
    )


def _extension(ctype: c.CType, signature: Signature) -> str:
    """Return "zeroext " or "signext " for a narrow integer of a device function; "" for other values."""
    if signature.kernel or not isinstance(ctype, c.Scalar) or not ctype.extension:
        return ""
    return f"{ctype.extension} "
