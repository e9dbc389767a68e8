"""Build the text of an LLVM function, one instruction a line. Values and types are texts of LLVM IR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

# Tags of type-based alias analysis: memory of the runtime never overlaps memory that PTX accesses, so that
# LLVM need not load a value of the runtime again after a store of the program. program.ll defines the tags.
RUNTIME_MEMORY, PROGRAM_MEMORY = "!tbaa !1", "!tbaa !2"
# Metadata that program.ll defines: the first target of a branch is taken much more often than the second.
_LIKELY = "!prof !5"


class IRBuilder:
    """
    An LLVM function under construction.

    Args:
        global_values: Declarations and definitions of the LLVM module, by name. The code that builds the
            function adds those that the function needs.

    Attributes:
        prologue: Instructions of the entry block, such as `alloca`.
        lines: Instructions and labels after the entry block.
        block_is_open: Whether the current block still needs a branch or a return at its end.
    """

    def __init__(self, global_values: dict[str, str]) -> None:
        self.global_values = global_values
        self.prologue: list[str] = []
        self.lines: list[str] = []
        self.block_is_open = True
        self._name_count = 0

    def unique_name(self, stem: str = "b") -> str:
        """Return an unused name for a value or a block, without `%`."""
        self._name_count += 1
        return f"{stem}{self._name_count}"

    def emit_value(self, text: str) -> str:
        """Add an instruction that has a result; return the result."""
        name = f"%{self.unique_name('t')}"
        self.lines.append(f"  {name} = {text}")
        return name

    def emit(self, text: str) -> None:
        """Add an instruction without a result."""
        self.lines.append(f"  {text}")

    def emit_op(self, opcode: str, ir_type: str, *operands: str | int) -> str:
        """Add an instruction whose operands have the same type, such as `add`; return its result."""
        return self.emit_value(f"{opcode} {ir_type} {', '.join(map(str, operands))}")

    def call(self, name: str, result_type: str, *arguments: str) -> str:
        """Add a call of the function *name* with arguments such as "i32 %a"; return its result."""
        return self.emit_value(f"call {result_type} @{name}({', '.join(arguments)})")

    def select(self, condition: str, ir_type: str, if_true: str, if_false: str) -> str:
        """Add a `select`; return its result."""
        return self.emit_value(f"select i1 {condition}, {ir_type} {if_true}, {ir_type} {if_false}")

    def emit_text(self, text: str, values: dict[str, Any]) -> str:
        """
        Add instructions from a template; return the result of the last one.

        Args:
            text: Lines such as "sum = add i32 {a}, {b}", where later lines may refer to {sum}.
            values: The values of names in braces that no line computes. The computed values are added.
        """
        result = ""
        for line in text.strip().splitlines():
            name, _, instruction = line.strip().partition(" = ")
            values[name] = result = self.emit_value(instruction.format_map(values))
        return result

    def alloca(self, ir_type: str) -> str:
        """Add a local variable, which LLVM keeps in a register if it can; return its address."""
        name = f"%{self.unique_name('v')}"
        self.prologue.append(f"  {name} = alloca {ir_type}")
        return name

    def begin_block(self, name: str) -> None:
        """Begin a basic block; a block before it that is still open ends by a branch to the new block."""
        if self.block_is_open:
            self.emit(f"br label %{name}")
        self.lines.append(f"{name}:")
        self.block_is_open = True

    def end_block(self, text: str) -> None:
        """End the current block by a branch or a return."""
        self.emit(text)
        self.block_is_open = False

    def cond_branch(self, condition: str, if_true: str, if_false: str, *, likely: bool = False) -> None:
        """End the current block by a branch to one of two labels; *likely*: the condition is mostly true."""
        weights = f", {_LIKELY}" if likely else ""
        self.end_block(f"br i1 {condition}, label %{if_true}, label %{if_false}{weights}")

    def offset_pointer(self, base: str, offset: int) -> str:
        """Return a pointer *offset* bytes after *base*."""
        return self.emit_value(f"getelementptr i8, ptr {base}, i64 {offset}") if offset else base

    def load(self, ir_type: str, base: str, offset: int = 0) -> str:
        """Add a load from memory of the runtime; return the value."""
        return self.emit_value(f"load {ir_type}, ptr {self.offset_pointer(base, offset)}, {RUNTIME_MEMORY}")

    def store(self, ir_type: str, value: str | int, base: str, offset: int = 0) -> None:
        """Add a store to memory of the runtime."""
        self.emit(f"store {ir_type} {value}, ptr {self.offset_pointer(base, offset)}, {RUNTIME_MEMORY}")

    def resize(self, value: str, old_bits: int, new_bits: int, *, signed: bool = False) -> str:
        """Return an integer with *new_bits*: truncated, or extended by zeros, or if *signed* by its sign."""
        if old_bits == new_bits:
            return value
        extension = "sext" if signed else "zext"
        opcode = "trunc" if old_bits > new_bits else extension
        return self.emit_value(f"{opcode} i{old_bits} {value} to i{new_bits}")

    def split_bits(self, value: str, bits: int, count: int) -> list[str]:
        """Split an integer with *bits* into *count* parts of equal width; return them, the lowest first."""
        part_bits = bits // count
        shifted = [self.emit_op("lshr", f"i{bits}", value, part_bits * index) for index in range(1, count)]
        return [self.resize(part, bits, part_bits) for part in (value, *shifted)]

    def join_bits(self, parts: Sequence[str], part_bits: int) -> str:
        """Return the integer that consists of *parts* with *part_bits* each, the lowest first."""
        bits = part_bits * len(parts)
        result = self.resize(parts[0], part_bits, bits)
        for index, part in enumerate(parts[1:], start=1):
            shifted = self.emit_op("shl", f"i{bits}", self.resize(part, part_bits, bits), part_bits * index)
            result = self.emit_op("or", f"i{bits}", result, shifted)
        return result

    def to_text(self, signature: str) -> str:
        """
        Return the definition of the function; *signature* is the text between `define` and the body.

        The prologue is the entry block, since LLVM keeps variables in registers only if they are allocated
        there.
        """
        blocks = ("entry:", *self.prologue, "  br label %start", "start:", *self.lines)
        return "\n".join((f"define {signature} {{", *blocks, "}"))
