"""Build a C function as LLVM IR text: its instructions, and nvcc's types and prototype for it."""

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
        suffix: The text that follows the arguments of a call: attributes and debug information; "" for
            neither.
    """

    symbol: str
    result: Type
    params: list[Type]
    suffix: str


class FunctionBuilder:
    """
    The instructions of a function.

    Symbols and struct names are quoted, as in `@"f"` and `%"struct.P"`: code that later renames or looks up
    symbols searches for the quotes.

    Args:
        dialect: The spelling of pointers in the module.

    Attributes:
        globals: The lines that the module needs outside of the function, such as declarations of functions
            and definitions of structs, by the names that they define.
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
        """Append an *instruction*; return the name of its result, such as "%w3"."""
        name = f"%w{next(self._numbers)}"
        self.emit(f"{name} = {instruction}")
        return name

    def allocate(self, ty: Type, align: int, content: str = "") -> TypedValue:
        """Return the address of new memory for a value of *ty*; store *content* there unless it is ""."""
        # NVVM moves memory into registers only if the alloca is at the start of the function, where `lines`
        # puts it.
        name, pointer = f"%w{next(self._numbers)}", self.pointer(ty)
        self._allocas.append(f"  {name} = alloca {ty}, align {align}")
        if content:
            self.emit(f"store {ty} {content}, {pointer} {name}, align {align}")
        return pointer, name

    def begin_block(self, name: str) -> None:
        """Begin the block *name*."""
        self._lines.append(f"{name}:")

    def emit_return(self, ty: Type, value: str) -> None:
        """Append a return of *value*, or of nothing if *ty* is void."""
        self.emit("ret void" if str(ty) == "void" else f"ret {ty} {value}")

    def branch(self, condition: str) -> str:
        """
        Begin a block that runs if the `i1` *condition* is true.

        Returns:
            The name of the block to jump to if *condition* is false. The caller begins it, by `join` or
            `begin_block`, after the instructions of the block that runs if *condition* is true.
        """
        number = next(self._numbers)
        self.emit(f"br i1 {condition}, label %then{number}, label %after{number}")
        self.begin_block(f"then{number}")
        return f"after{number}"

    def join(self, after: str) -> None:
        """End the current block by a jump to the block *after*, and begin that block."""
        self.emit(f"br label %{after}")
        self.begin_block(after)

    def call(self, callee: Callee, arguments: Iterable[TypedValue]) -> str:
        """Call *callee*, with *arguments* converted to its parameter types. Return the result, "" if void."""
        typed_arguments = ", ".join(
            f"{param_type} {self.convert(source_type, value, param_type)}"
            for (source_type, value), param_type in zip(arguments, callee.params, strict=True)
        )
        call = f'call {callee.result} @"{callee.symbol}"({typed_arguments}){callee.suffix}'
        if str(callee.result) != "void":
            return self.emit_value(call)
        self.emit(call)
        return ""

    def pointer(self, target: Type) -> PointerType:
        """Return the type of pointers to *target*."""
        return PointerType(None if self.dialect.is_opaque else target)

    def extract(self, ty: Type, value: str, *path: int) -> str:
        """Return the member of the aggregate *value* at *path*: (1, 0) is member 0 of member 1."""
        return self.emit_value(f"extractvalue {ty} {value}, {', '.join(map(str, path))}")

    def aggregate(self, ty: Type, values: Iterable[tuple[int, str]]) -> str:
        """Return an aggregate of *values*, pairs of a member's index and value; the rest is undefined."""
        aggregate = "undef"
        for index, value in values:
            aggregate = self.emit_value(
                f"insertvalue {ty} {aggregate}, {members(ty)[index]} {value}, {index}"
            )
        return aggregate

    def select(self, condition: str, ty: Type, value: str) -> str:
        """Return *value*, of the type *ty*, if the `i1` *condition* is true, and zero if it is false."""
        if not members(ty):
            return self.emit_value(f"select i1 {condition}, {ty} {value}, {ty} zeroinitializer")
        # LLVM 7 cannot simplify `extractvalue` of a `select` of aggregates: select the members.
        selected_members = (
            (index, self.select(condition, member_type, self.extract(ty, value, index)))
            for index, member_type in enumerate(members(ty))
        )
        return self.aggregate(ty, selected_members)

    def struct(self, typed_members: Sequence[TypedValue]) -> TypedValue:
        """Return a struct of *typed_members*."""
        llvm_type = StructType(tuple(ty for ty, _ in typed_members))
        return llvm_type, self.aggregate(llvm_type, enumerate(value for _, value in typed_members))

    def c_type(self, ctype: c.CType, *, behind_pointer: bool = False) -> Type:
        """
        Return the type that nvcc uses for *ctype*, as a parameter, as a result and in memory.

        A struct is an identified type, such as `%"struct.P"`, as in nvcc's code: link-time optimisation
        inlines a call only if caller and callee have equal types, and a literal struct, such as
        `{ i32, float }`, never equals an identified one.

        A struct *behind_pointer* is opaque, without members. Otherwise linking would merge two structs with
        equal members and different names; C++ code keeps the two apart, so that its calls would have other
        types than the callee. Opaque structs are never merged. Only the definition in the module is opaque:
        the returned type has the members in any case.
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
            # A use by value needs the members: it replaces an opaque definition.
            self.globals[name] = f"{name} = type {body}"
        return IdentifiedStruct(name, body)

    def _pointer_to(self, target: c.CType) -> PointerType:
        if isinstance(target, c.Void):
            return self.pointer(I8)
        # The elements of an array must not be opaque: an array type needs their size.
        return self.pointer(self.c_type(target, behind_pointer=not isinstance(target, c.Array)))

    def _body(self, ctype: Any, *, behind_pointer: bool) -> StructType:
        if isinstance(ctype, c.Compound):  # A struct of CUDA, such as float4.
            return StructType((read(ctype.row.ir),) * ctype.row.element_count)
        if isinstance(ctype, c.View):
            # An address, a shape and strides; without dimensions, only the address.
            extents = (SequentialType(ctype.ndim, I64),) * (2 if ctype.ndim else 0)
            return StructType((self._pointer_to(ctype.element), *extents))
        # A slot is a member or padding.
        slot_types = (self.c_type(slot_type, behind_pointer=behind_pointer) for slot_type, _ in ctype.slots)
        return StructType(tuple(slot_types), ctype.packed)

    def indexed_members(self, ctype: Any) -> list[tuple[int, c.Member]]:
        """Return the members of a struct with their indices in the LLVM type, which also counts padding."""
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
            return self._convert_integer(source_type, value, target_type)
        source_members, target_members = members(source_type), members(target_type)
        if source_members and len(source_members) == len(target_members):
            converted = (
                self.convert(member_type, self.extract(source_type, value, index), target_members[index])
                for index, member_type in enumerate(source_members)
            )
            return self.aggregate(target_type, enumerate(converted))
        if not source_members and len(target_members) == 1:
            # A number or a pointer becomes the only member of a struct, such as that of __half.
            return self.aggregate(target_type, [(0, self.convert(source_type, value, target_members[0]))])
        # Other types, such as a vector and a struct of its elements, have the same bytes in memory: store the
        # value as one type and load it as the other, at the start of memory that is large enough for either.
        # No type needs a larger alignment than a vector of four doubles, 32 bytes.
        address = self.allocate(StructType((source_type, target_type)), 32)
        source_pointer, target_pointer = self.pointer(source_type), self.pointer(target_type)
        self.emit(f"store {source_type} {value}, {source_pointer} {self.convert(*address, source_pointer)}")
        return self.emit_value(
            f"load {target_type}, {target_pointer} {self.convert(*address, target_pointer)}"
        )

    def _convert_integer(self, source_type: ScalarType, value: str, target_type: ScalarType) -> str:
        if target_type.bits == 1:
            return self.emit_value(f"icmp ne {source_type} {value}, 0")
        # Only booleans become wider, from i1 of Numba to i8 of C, so that zeros are right.
        operation = "trunc" if target_type.bits < source_type.bits else "zext"
        return self.emit_value(f"{operation} {source_type} {value} to {target_type}")


class FunctionHead(NamedTuple):
    """
    The head of a C function in LLVM IR.

    Args:
        definition: The text after `define`: result, symbol and parameters, which are named %p0, %p1 and so
            on.
        typed_symbol: The symbol after its type, as in metadata that refers to the function.
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
    # Annotate alignments that LLVM does not derive from the type. NVVM IR Specification, "Global Property
    # Annotation": the lower 16 bits are the alignment, and the upper 16 bits the position, which is 0 for the
    # result and 1 for the first parameter.
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
    """
    Return "zeroext " or "signext " for an integer below 32 bits; "" for other values.

    Kernels have no such attributes: their parameters come from memory, and not from registers.
    """
    if signature.kernel or not isinstance(ctype, c.Scalar) or not ctype.extension:
        return ""
    return f"{ctype.extension} "
