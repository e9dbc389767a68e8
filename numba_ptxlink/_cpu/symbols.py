"""
Find the addresses of the variables and functions of a PTX module, and write its variables in LLVM IR.

Variables are compiled once, so that all kernels of a program see the same memory. The code of a kernel, which
is compiled later, refers to a variable by name.
"""

from __future__ import annotations

import contextlib
import math
import re
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx
from numba_ptxlink.errors import LaunchError

from .mnemonics import UnsupportedInstruction, parse_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


# A byte of an address, as LLVM writes pointers in packed structs: `0xFF00(generic(x))` is the second byte.
_ADDRESS_BYTE = re.compile(r"0xFF((?:00)*)\s*\((.+)\)")
_ADDRESS_BYTES = 8
_NAME = re.compile(r"[\w$%]+")
# Such as `x`, `x+4` and `generic(x)+4`.
_SYMBOL_WITH_OFFSET = re.compile(r"(?:generic\()?\s*([\w$%]+)\s*\)?\s*(?:\+\s*(\d+))?")
# Generated code never jumps to the address of a PTX function: to call a pointer, it compares the pointer with
# the address of each candidate. So the addresses are numbers, outside of the address space of a process.
_FIRST_FUNCTION_ADDRESS, _FUNCTION_DISTANCE = 1 << 60, 16


class Symbols:
    """
    The symbols of a PTX module.

    Args:
        module: The module.

    Attributes:
        functions: Functions with a body, by their names and aliases.
        variables: Variables in global, managed and constant memory, by name.
        shared: Variables in shared memory outside of functions, by name.
    """

    def __init__(self, module: ptx.Module) -> None:
        bodies = {function.name: function for function in module.functions if function.defined}
        aliases = {alias.name: bodies[alias.target] for alias in module.aliases if alias.target in bodies}
        self.functions: Mapping[str, ptx.Function] = bodies | aliases
        self._function_indices = {name: index for index, name in enumerate(bodies)}
        self.variables: Mapping[str, ptx.Variable] = {
            variable.name: variable
            for variable in module.variables
            if variable.memory in ("global", "const", "managed")
        }
        self._address_taken: tuple[str, ...] | None = None
        self.shared: Mapping[str, ptx.Variable] = {
            variable.name: variable for variable in module.variables if variable.space == "shared"
        }

    @property
    def address_taken(self) -> tuple[str, ...]:
        """The names of the functions whose address is in an initialiser, or is an operand of `mov`."""
        # Not a cached_property, whose lock, before Python 3.12, could stay locked in a forked child.
        if self._address_taken is None:
            self._address_taken = self._find_address_taken()
        return self._address_taken

    def _find_address_taken(self) -> tuple[str, ...]:
        names = {name for variable in self.variables.values() for name in _NAME.findall(variable.initial)}
        for function in {*self.functions.values()}:
            for statement in function.body:
                if isinstance(statement, ptx.Instruction) and statement.opcode == "mov":
                    names.update(statement.names)
        # In the order of the source, as code compares a called pointer with the addresses in this order.
        return tuple(name for name in self.functions if name in names)

    def address(self, name: str) -> str:
        """
        Return the address of a function or variable as a constant of LLVM IR.

        Raises:
            UnsupportedInstruction: The module defines no such symbol, or it is a variable in shared memory.
        """
        if name in self.variables:
            return f'ptrtoint (ptr @"v.{name}" to i64)'
        if name not in self.functions:
            raise UnsupportedInstruction
        index = self._function_indices[self.functions[name].name]
        return str(_FIRST_FUNCTION_ADDRESS + index * _FUNCTION_DISTANCE)

    def declaration(self, name: str) -> str:
        """Return the declaration of a variable in LLVM IR, for code that refers to it."""
        return f'@"v.{name}" = external global [{self.variables[name].size} x i8]'

    def definitions(self) -> str:
        """
        Return the definitions of all variables in LLVM IR, "" if there is no variable.

        Raises:
            LaunchError: The module declares a variable without defining it, an initialiser refers to an
                undefined symbol, or its rows are incomplete.
        """
        return "\n".join(map(self.definition, self.variables))

    def definition(self, name: str) -> str:
        """
        Return the definition of a variable in LLVM IR.

        For `.global .b32 x[3] = {1};`, that is `@"v.x" = global <{i32, [8 x i8]}> <{i32 1, [8 x i8] ...`: the
        values of the initialiser, and then zeros up to the size of the variable.

        Raises:
            LaunchError: As for `definitions`.
        """
        variable = self.variables[name]
        if not variable.defined:
            raise LaunchError(
                f"The PTX declares the variable {variable.name} without defining it; link the file that "
                "defines it as well."
            )
        bits = variable.bits // variable.vector_length
        # The number of values in all dimensions. A dimension without a number counts as 1, so the check below
        # also refuses complete rows of `x[][2]` if there are several.
        count = math.prod(map(int, filter(None, variable.array_dims))) * variable.vector_length
        # All values in one list: 1, 2, 3, 4 for `{{1, 2}, {3, 4}}`. After a row with fewer values, the
        # positions of the values would be wrong.
        initial_values = [text.strip() for text in re.split("[{},]", variable.initial) if text.strip()]
        if variable.initial.count("{") > 1 and len(initial_values) != count:
            raise LaunchError(
                f"The initialiser of variable {variable.name} has incomplete rows, or an unknown number of "
                "rows; write out the size of each dimension, and all values."
            )
        zero_bytes = max(variable.size - len(initial_values) * bits // 8, 0)
        fields = [*self._fields(variable, initial_values, bits), (f"[{zero_bytes} x i8]", "zeroinitializer")]
        types = ", ".join(field_type for field_type, _ in fields)
        content = ", ".join(f"{field_type} {value}" for field_type, value in fields)
        # 16 bytes suit the vector accesses of PTX, such as `ld.v4.f32`.
        alignment = max(variable.alignment, 16)
        return f'@"v.{variable.name}" = global <{{{types}}}> <{{{content}}}>, align {alignment}'

    def _fields(
        self, variable: ptx.Variable, initial_values: Sequence[str], bits: int
    ) -> Iterator[tuple[str, str]]:
        """
        Yield the type and value of each field of an initialiser: ("i32", "1") for the value 1 of a `.b32`.

        Eight values that are the bytes 0 to 7 of one address become one field of 64 bits.
        """
        position = 0
        while position < len(initial_values):
            next_values = initial_values[position : position + _ADDRESS_BYTES]
            matches = map(_ADDRESS_BYTE.fullmatch, next_values)
            # For each byte of an address: its index in the address (the number of "00" in the mask), and the
            # address.
            address_bytes = [(len(match[1]) // 2, match[2]) for match in matches if match]
            address = address_bytes[0][1] if address_bytes else ""
            if bits == 8 and address_bytes == [(index, address) for index in range(_ADDRESS_BYTES)]:
                yield "i64", self._initial_value(variable, address, 64)
                position += _ADDRESS_BYTES
            else:
                yield f"i{bits}", self._initial_value(variable, initial_values[position], bits)
                position += 1

    def _initial_value(self, variable: ptx.Variable, text: str, bits: int) -> str:
        """Return a value of an initialiser in LLVM IR: a number, or an address with an offset."""
        match = _SYMBOL_WITH_OFFSET.fullmatch(text)
        with contextlib.suppress(UnsupportedInstruction):
            value = parse_number(text, bits)
            if value is not None:
                return str(value)
            if match:
                return f"add (i{bits} {self.address(match[1])}, i{bits} {match[2] or 0})"
        raise LaunchError(
            f"The initialiser {text} of variable {variable.name} refers to a symbol that the PTX does not "
            "define; link the file that defines it."
        )
