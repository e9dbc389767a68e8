"""
Collect the LLVM module of an entry: a kernel that is launched or a function that is called, with its callees.

Each entry has a module of its own, so that a launch compiles only the code that it reaches. The module only
declares the variables of the program, which `symbols` defines once for all entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .call_graph import CallGraph
from .mnemonics import UnsupportedInstruction
from .runtime import SHARED_START

if TYPE_CHECKING:
    from numba_ptxlink._formats import ptx

    from .symbols import Symbols

    # The key of a symbol: for a function or variable of the module, shared or not, its name. Functions may
    # declare shared variables of one name: the key of such a variable is the function's name, and the scope
    # and name of the variable, as in `functions.translate_body`.
    SharedName = str | tuple[str, ptx.Register]

# Each shared variable begins at a multiple of this at least: the size of the largest access to shared memory.
_ALIGNMENT_BYTES = 16
# A placeholder for the address of dynamic shared memory, until the size of the static part is known.
_DYNAMIC_ADDRESS = "$dynamic_shared"


class SharedLayout:
    """
    The addresses of shared variables, each assigned at its first use.

    Dynamic shared memory follows the static part; all `extern __shared__` arrays have one address, as on a
    GPU. The address is a multiple of their alignments.
    """

    def __init__(self) -> None:
        self._addresses: dict[SharedName, int] = {}
        self._end = SHARED_START
        self._dynamic_alignment = _ALIGNMENT_BYTES

    def address(self, name: SharedName, variable: ptx.Variable) -> str:
        """Return the address of a variable; for a dynamic one a placeholder, which `resolve` replaces."""
        # A dynamic variable has no size: `.extern .shared .b8 x[];`.
        if not variable.size:
            self._dynamic_alignment = max(self._dynamic_alignment, variable.alignment)
            return _DYNAMIC_ADDRESS
        if name not in self._addresses:
            self._addresses[name] = _align(self._end, max(variable.alignment, _ALIGNMENT_BYTES))
            self._end = self._addresses[name] + variable.size
        return str(self._addresses[name])

    @property
    def size(self) -> int:
        """Bytes of static shared memory so far, up to the beginning of the dynamic part."""
        return _align(self._end, self._dynamic_alignment) - SHARED_START

    def resolve(self, text: str) -> str:
        """
        Return *text*, LLVM IR, with the address of dynamic shared memory in place of its placeholder.

        Call this when all functions are translated, since the address depends on all shared variables.
        """
        return text.replace(_DYNAMIC_ADDRESS, str(SHARED_START + self.size))


def _align(value: int, alignment: int) -> int:
    """Return *value* rounded up to a multiple of *alignment*."""
    return -(-value // alignment) * alignment


class EntryModule:
    """
    State that the functions of one entry share while they are translated.

    Args:
        symbols: The symbols of the PTX module.
        entry: The name of the kernel or function.
        checks_accesses: Whether accesses to memory are checked (memcheck).
        reports_accesses: Whether each access, and each barrier that a thread passes, is reported to racecheck
            and initcheck.

    Attributes:
        functions: The functions of the PTX module with a body, by their names and aliases.
        call_graph: The functions that the entry calls, directly or not.
        global_values: Declarations of functions and variables that the code refers to, in LLVM IR by name.
        fault_sites: Function and statement index of each statement that can fault. Generated code refers to a
            statement by its index in this list.
        access_count: The number of checked accesses so far.
        shared: The layout of shared memory.
        shared_variables: Variables in shared memory: those of the module, and those that the functions
            translated so far declare.
    """

    def __init__(
        self, symbols: Symbols, entry: str, *, checks_accesses: bool, reports_accesses: bool = False
    ) -> None:
        self.checks_accesses, self.reports_accesses = checks_accesses, reports_accesses
        self.functions = symbols.functions
        self.call_graph = CallGraph(symbols.functions, entry, lambda: symbols.address_taken)
        self.global_values: dict[str, str] = {}
        self.fault_sites: list[tuple[str, int]] = []
        self.access_count = 0
        self.shared = SharedLayout()
        self.shared_variables: dict[SharedName, ptx.Variable] = {}
        self.shared_variables.update(symbols.shared)
        self._symbols = symbols

    def add_fault_site(self, function: str, statement_index: int) -> int:
        """Add a statement of a function to `fault_sites`; return its index there."""
        self.fault_sites.append((function, statement_index))
        return len(self.fault_sites) - 1

    def element_size(self, name: SharedName) -> int:
        """Return the bytes of an element of a variable in global, constant or shared memory."""
        variables: dict[SharedName, ptx.Variable] = {**self.shared_variables}
        variables.update(self._symbols.variables)
        return variables[name].bits // 8

    def constant_base(self) -> str:
        """
        Return the address of any variable in constant memory, to complete addresses in 32-bit registers.

        The upper bits of such addresses are missing. All variables are in one object of machine code,
        less than 2 GiB apart, so that the missing bits follow from the address of any variable.

        Raises:
            UnsupportedInstruction: The module has no variable in constant memory.
        """
        for name, variable in self._symbols.variables.items():
            if variable.memory == "const":
                return self.symbol_address(name)
        raise UnsupportedInstruction

    def symbol_address(self, name: SharedName) -> str:
        """
        Return the address of a variable or a function, in its state space, as a constant of LLVM IR.

        Raises:
            UnsupportedInstruction: The module has no such symbol.
        """
        if name in self.shared_variables:
            return self.shared.address(name, self.shared_variables[name])
        if not isinstance(name, str):
            # A variable inside of a function is in shared memory, or in a `Storage` of the translator.
            raise UnsupportedInstruction
        if name in self._symbols.variables:
            self.global_values[f"v.{name}"] = self._symbols.declaration(name)
        return self._symbols.address(name)
