"""
Translate PTX functions to C++ for any host compiler, so that host code can call them.

The C++ is called the host version of a function. It is made of the LLVM IR that runs kernels on the CPU, but
without checks and without a launch: a trap aborts the process, and local variables are on the C stack. A
function that needs a launch, such as for a thread index or a barrier, has no host version; `translate`
returns the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats import ptx
from numba_ptxlink.errors import LaunchError

from . import cxx, runtime
from .control import EXTERNAL_FUNCTIONS
from .entry_module import EntryModule
from .faults import source_files
from .functions import find_labels, translate_body
from .runtime import Fault
from .symbols import Symbols
from .translator import Translator

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .entry_module import SharedName
    from .runtime import ThreadState

# Functions that CUDA provides on a device and a host version cannot call, each with the reason and the cure.
_REFUSED_FUNCTIONS = {
    "vprintf": "it prints; print in the caller",
    "malloc": "it allocates memory of the device; pass a pointer to memory",
    "free": "it frees memory of the device; free it in the caller",
}
_SHARED_REASON = "it uses shared memory, which belongs to a block of threads; pass a pointer to memory"
# Faults at which a host version aborts the process. Without checks of memory, the only fault of the kind
# ACCESS is an access to a variable of the function at a constant offset beyond its end.
_ABORTING_FAULTS = (Fault.TRAP, Fault.ASSERT, Fault.ACCESS)


class NoHostVersionError(Exception):
    """A function has no host version. The message has the reason and the cure."""


class HostSource(NamedTuple):
    """
    Functions in C++.

    Args:
        text: The definitions, to be put into a namespace of their own.
        names: The name of the C++ function for each symbol. The function returns nothing; it takes a pointer
            to the result, if it has one, and a pointer to each parameter.
        reasons: The reason and the cure for each symbol without a host version.
    """

    text: str
    names: dict[str, str]
    reasons: dict[str, str]


def translate(ptx_text: str, names: Iterable[str]) -> HostSource:
    """
    Translate the exported functions of a PTX module, with their callees.

    Args:
        ptx_text: The text of the module.
        names: The symbols of the exported functions. The module has to define them.
    """
    program = _HostProgram(ptx.parse(ptx_text))
    functions: dict[str, cxx.CxxFunction] = {}
    variables: dict[str, str] = {}
    cxx_names, reasons = {}, {}
    for name in names:
        try:
            definitions = program.find_definitions(name)
        except NoHostVersionError as error:
            reasons[name] = str(error)
        else:
            functions |= definitions.functions
            variables |= definitions.variables
            cxx_names[name] = cxx.symbol_name(f"f.{name}")
    parts = [
        cxx.prelude(),
        *variables.values(),
        *(f"{function.prototype};" for function in functions.values()),
        *(f"{function.prototype}\n{function.body}" for function in functions.values()),
    ]
    return HostSource("\n".join(parts), cxx_names, reasons)


class _Definitions(NamedTuple):
    """Functions and variables in C++, by their names in LLVM IR."""

    functions: dict[str, cxx.CxxFunction]
    variables: dict[str, str]


class _HostProgram:
    """The functions of a PTX module, each translated when an exported function first needs it."""

    def __init__(self, module: ptx.Module) -> None:
        self._symbols, self._source_files = Symbols(module), source_files(module)
        # Functions of LLVM IR that the translations of instructions call, by name.
        self._helpers = cxx.split_functions(runtime.read_ir("program.ll"))
        # The C++ of each translated function, or the reason why it has none.
        self._translated: dict[str, cxx.CxxFunction | NoHostVersionError] = {}

    def find_definitions(self, name: str) -> _Definitions:
        """
        Return an exported function, with the functions and variables that it uses.

        Raises:
            NoHostVersionError: The function, or one that it calls, has no host version.
        """
        definitions = _Definitions({}, {})
        module = _HostModule(self._symbols, name, checks_accesses=False)
        module.source_files = self._source_files
        # If *name* is an alias, this is the name of the function for which it stands.
        self._add(module, module.functions[name].name, definitions)
        return definitions

    def _add(self, module: _HostModule, name: str, definitions: _Definitions) -> None:
        """
        Add a function of the module, and the functions and variables that it uses, to *definitions*.

        Raises:
            NoHostVersionError: The function, or one that it calls, has no host version.
        """
        function = self._translate_once(module, name)
        definitions.functions[f"f.{name}"] = function
        # In LLVM IR, "f.x" is the function x of the PTX, and "v.x" its variable x. Other symbols are helpers
        # of program.ll, but for `abort` of the C library.
        for symbol in sorted(function.uses - definitions.functions.keys() - {"abort"}):
            prefix, _, ptx_name = symbol.partition(".")
            if prefix == "v":
                definitions.variables[symbol] = self._convert_variable(ptx_name)
            elif prefix != "f":
                self._add_helper(symbol, definitions)
            else:
                try:
                    self._add(module, ptx_name, definitions)
                except NoHostVersionError as error:
                    raise NoHostVersionError(f"it calls {ptx_name}: {error}") from error

    def _add_helper(self, name: str, definitions: _Definitions) -> None:
        """Add a function of `program.ll`, and those that it uses, to *definitions*."""
        if name not in self._helpers:
            raise _no_counterpart_error(name)
        definitions.functions[name] = function = _convert_function(self._helpers[name])
        for used_name in sorted(function.uses - definitions.functions.keys()):
            self._add_helper(used_name, definitions)

    def _convert_variable(self, name: str) -> str:
        try:
            return cxx.convert_variable(self._symbols.definition(name))
        except (cxx.NotInCxxError, LaunchError) as error:
            raise NoHostVersionError(
                f"it uses the variable {name}, which contains addresses or is not defined; pass the values"
            ) from error

    def _translate_once(self, module: _HostModule, name: str) -> cxx.CxxFunction:
        """Return the C++ of a function, or raise its NoHostVersionError; translate it at the first call."""
        if name not in self._translated:
            try:
                self._translated[name] = _convert_function(module.translate(name))
            except NoHostVersionError as error:
                self._translated[name] = error
        result = self._translated[name]
        if isinstance(result, NoHostVersionError):
            raise result
        return result


def _convert_function(ir: str) -> cxx.CxxFunction:
    try:
        return cxx.convert_function(ir)
    except cxx.NotInCxxError as error:
        raise _no_counterpart_error(str(error)) from error


def _no_counterpart_error(name: str) -> NoHostVersionError:
    return NoHostVersionError(f"'{name}' of LLVM IR has no counterpart in C++; please report it")


class _HostModule(EntryModule):
    """
    Translates to LLVM IR for the host: an exported function, and the functions that it calls.

    Attributes:
        source_files: The source files by their numbers in `.loc` directives. Set it before `translate`.
    """

    source_files: Mapping[str, str]

    def translate(self, name: str) -> str:
        """Return a function in LLVM IR, which takes pointers to its results and its parameters."""
        function, body = self.functions[name], self.call_graph.bodies[name]
        self._check_callees(body)
        b = _HostTranslator(self, function, find_labels(body), suspends=False)
        translate_body(b, body)
        b.begin_block("return")
        b.end_block("ret void")
        b.begin_block("leave")
        # The PTX instruction `exit` ends a thread. A host version has none to end, and so ends the process.
        b.abort()
        params = ", ".join(f"ptr {pointer}" for pointer in b.pointers)
        return b.to_text(f'internal void @"f.{name}"({params})')

    def _check_callees(self, body: Iterable[tuple[int, ptx.Statement, ptx.Scope]]) -> None:
        """Raise NoHostVersionError if a statement calls a function that the host lacks."""
        for _, statement, _ in body:
            if isinstance(statement, ptx.Instruction) and statement.opcode == "call":
                callee = ptx.parse_call(statement).callee
                if callee.startswith("%"):
                    raise NoHostVersionError(
                        "it calls a function through a pointer; call the function by its name"
                    )
                if callee in _REFUSED_FUNCTIONS:
                    raise NoHostVersionError(_REFUSED_FUNCTIONS[callee])
                if callee not in self.functions and callee not in EXTERNAL_FUNCTIONS:
                    raise NoHostVersionError(
                        f"it calls {callee}, which CUDA C++ defines; write {callee} in Python instead"
                    )

    def symbol_address(self, name: SharedName) -> str:
        """Return the address of a variable in global or constant memory."""
        if name in self.shared_variables:
            raise NoHostVersionError(_SHARED_REASON)
        if name in self.functions:
            raise NoHostVersionError("it takes the address of a function; call the function by its name")
        return super().symbol_address(name)


class _HostTranslator(Translator):
    """Translates a function that runs without a launch; raises NoHostVersionError if it needs one."""

    def emit_source_location(self) -> None:
        """Add a `#line` directive with the line of the source, for debuggers and sanitizers."""
        # The module always is a _HostModule; the test is for type checkers.
        if self.source_location and isinstance(self.module, _HostModule):
            # `.loc 1 20 5`: the file, the line, the column.
            _, file_number, line, *_ = self.source_location.text.split()
            file = self.module.source_files.get(file_number)
            if file and line != "0":
                self.emit(f'#line {line} "{file}"')

    def count_back_edge(self) -> None:
        """Add nothing: loops have no limit."""

    def allocate_local(self, size: int) -> str:
        """Return the instruction that allocates local memory: on the C stack."""
        return f"alloca [{size} x i8], align 16"

    def end_frame(self) -> None:
        """Add nothing: the C stack grows by itself."""

    def call_function(self, name: str, pointers: Sequence[str]) -> None:
        """Call a function of the module; *pointers* are the arguments for its results and parameters."""
        self.emit(f'call void @"f.{name}"({", ".join(pointers)})')

    def load_context_field(self, name: str, axis: int = 0) -> str:
        """Raise NoHostVersionError, since the fields describe a launch."""
        raise NoHostVersionError(_SHARED_REASON if "shared" in name else self._gpu_only_reason())

    def is_shared_pointer(self, pointer: str) -> str:
        """Return "false", since the host has no shared memory."""
        del pointer
        return "false"

    def suspend(self, state: ThreadState, **fields: str) -> None:
        """Raise NoHostVersionError, since there are no other threads to wait for."""
        raise NoHostVersionError(
            f"it waits for other threads ({self._instruction()}); move that to the kernel that calls it"
        )

    def expand(self, name: str, **values: object) -> str:
        """Add an operation of the table; raise NoHostVersionError for a special register."""
        if name.startswith("%"):
            raise NoHostVersionError(f"it reads {name}, which only a kernel has; pass it as a parameter")
        return super().expand(name, **values)

    def fault(self, kind: Fault, address: str = "0", size: int | str = 0) -> None:
        """Add the end of the process at a fault; raise NoHostVersionError if an instruction needs a GPU."""
        if kind not in _ABORTING_FAULTS:
            raise NoHostVersionError(self._gpu_only_reason())
        self.abort()

    def abort(self) -> None:
        """Add the end of the process."""
        self.emit("call void @abort() noreturn")
        self.end_block("unreachable")

    def _instruction(self) -> str:
        """Return the current instruction, such as "bar.sync", for a message."""
        statement = self.function.body[self.statement_index]
        return statement.mnemonic if isinstance(statement, ptx.Instruction) else str(statement)

    def _gpu_only_reason(self) -> str:
        return f"it has the instruction '{self._instruction()}', which only a GPU has; call it from a kernel"
