"""
Merge PTX modules into one, as a linker would: rename private symbols, bind declarations to definitions.

Modules that cannot be merged without a change of meaning raise `NotCombinedError` with the reason.
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink._arch import Arch
from numba_ptxlink._formats import ptx
from numba_ptxlink.errors import ConfigError

from . import NotCombinedError
from .graphs import bottom_up

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# From sm_70 on, the threads of a warp do not run in lockstep (CUDA C++ Programming Guide, "Independent Thread
# Scheduling").
_INDEPENDENT_THREADS_ARCH = 70
_HEADER_KEYWORDS = ["version", "target", "address_size"]
# `.file 1 "udfs.py"`: the number and the quoted path.
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+("[^"]*")')
# State spaces of variables outside of functions.
_SPACES = ("global", "const", "shared", "tex")
# Control characters that ptxas rejects between tokens.
_INVALID_CHARS = sorted({*map(chr, range(32)), "\x7f"} - set("\t\n\f\r"))


@dataclass(frozen=True)
class Combined:
    """
    Several PTX modules as one.

    Args:
        head: The lines before all declarations and definitions: the header and pragmas.
        functions: The definition of each function, or a declaration if there is none.
        variables: Each variable with the text of its definition, or of a declaration if there is none. A
            variable follows the variables that its initializer names.
        aliases: Every alias.
        origins: The index of the module that defines each function, by the function's name.
        first_declarations: For each module, the offset into its text at which each name is first declared.
        files: For each module, the quoted paths of the source files by their numbers in `.loc`.
    """

    head: tuple[str, ...]
    functions: tuple[ptx.Function, ...]
    variables: tuple[tuple[ptx.Variable, str], ...]
    aliases: tuple[ptx.Alias, ...]
    origins: dict[str, int]
    first_declarations: tuple[dict[str, int], ...]
    files: tuple[dict[str, str], ...]

    @property
    def text(self) -> str:
        """The module, without line numbers."""
        defined = (function for function in self.functions if function.defined)
        return self.with_definitions(
            {function.name: with_body(function, strip_debug_lines(function)) for function in defined}
        )

    @property
    def text_with_lines(self) -> str:
        """The module with the line numbers of each input."""
        numbers: dict[str, int] = {}
        definitions = {}
        for function in self.functions:
            if not function.defined:
                continue
            files = self.files[self.origins[function.name]]
            body = (_renumber_line(statement, files, numbers) for statement in function.body)
            definitions[function.name] = with_body(function, body)
        file_directives = (f".file {number} {path}\n" for path, number in numbers.items())
        return f"{self.with_definitions(definitions)}{''.join(file_directives)}"

    def with_definitions(self, definitions: Mapping[str, str]) -> str:
        """
        Return the text of the module with other definitions of functions.

        Args:
            definitions: The text of each definition, by name. A function that this module defines and
                *definitions* lacks is left out, with its declaration.
        """
        declarations = [
            f"{function.heading};"
            for function in self.functions
            if function.kind == "func" and (function.name in definitions or not function.defined)
        ]
        # Declare each kernel that another function names: the function may launch it, and precede its
        # definition. The directives after the parameters, such as .maxntid, remain at the definition.
        declarations += [
            f"{function.heading.partition(')')[0]});"
            for function in self.functions
            if function.kind == "entry"
            and any(function.name in text for name, text in definitions.items() if name != function.name)
        ]
        variables = [text for _, text in self.variables]
        lines = (*self.head, *declarations, *variables, *definitions.values(), *map(str, self.aliases), "")
        return "\n".join(lines)


def with_body(function: ptx.Function, body: Iterable[ptx.Statement]) -> str:
    """Return the definition of *function* with another body."""
    return f"{function.heading}\n{ptx.format_body(body)}"


def combine(modules: Sequence[ptx.Module]) -> Combined:
    """
    Return *modules* as one, without sections for debuggers.

    Raises:
        NotCombinedError: A module has debug information or malformed text, or definitions contradict each
            other.
        LinkError: A function is malformed.
    """
    symbols = [tuple(_names_with_linkage(module)) for module in modules]
    for module, module_symbols in zip(modules, symbols, strict=True):
        _check_module(module)
        _check_symbols(module, module_symbols)
    header = _common_header(modules)
    modules = _rename_clashes(modules, symbols)
    functions = _choose_functions(modules)
    variables = _choose_variables(modules)
    references = {name: variable.symbols for name, (variable, _) in variables.items()}
    ambiguous = functions.keys() & variables.keys()
    if ambiguous:
        raise NotCombinedError(f"{min(ambiguous)} is a function and a variable")
    pragmas = dict.fromkeys(
        item.text
        for module in modules
        for item in module.items
        if isinstance(item, ptx.UnparsedItem) and item.keyword == "pragma"
    )
    aliases = [alias for module in modules for alias in module.aliases]
    return Combined(
        head=(header, *pragmas),
        functions=tuple(function for _, function in functions.values()),
        variables=tuple(variables[name] for name in bottom_up(references)),
        aliases=tuple(aliases),
        origins={name: index for name, (index, function) in functions.items() if function.defined},
        first_declarations=tuple(map(_first_declarations, modules)),
        files=tuple(map(_quoted_paths, modules)),
    )


def _quoted_paths(module: ptx.Module) -> dict[str, str]:
    """Return the paths of source files, with their quotes, by the numbers of the files."""
    directives = [
        item.text for item in module.items if isinstance(item, ptx.UnparsedItem) and item.keyword == "file"
    ]
    matches = filter(None, map(_FILE.match, directives))
    return {match[1]: match[2] for match in matches}


def _renumber_line(
    statement: ptx.Statement, files: Mapping[str, str], numbers: dict[str, int]
) -> ptx.Statement:
    """
    Return a `.loc` with the file's number in the combined module, and without `inlined_at`.

    Other statements are returned unchanged.

    Args:
        statement: A statement of a module.
        files: The quoted paths of the module's files, by their numbers in the module. A number without a
            `.file` gets an empty path.
        numbers: The number of each quoted path in the combined module; a new path is added.
    """
    if not isinstance(statement, ptx.Directive) or statement.keyword != "loc":
        return statement
    _, file, line, column, *_ = statement.text.replace(",", " ").replace(";", " ").split()
    path = files.get(file, '""')
    number = numbers.setdefault(path, len(numbers) + 1)
    return ptx.Directive(f".loc {number} {line} {column}")


def _check_module(module: ptx.Module) -> None:
    """Refuse a module with text that this package does not understand: the caller leaves it to a linker."""
    # Without "debug", the sections only describe source lines, so that `combine` can leave them out.
    if "debug" in module.header.target:
        raise NotCombinedError("an input has debug information")
    text = module.text.rstrip("\0")
    if not text.isascii() or any(char in text for char in _INVALID_CHARS):
        raise NotCombinedError("an input has characters that PTX does not allow")
    items = [item for item in module.items if isinstance(item, ptx.UnparsedItem)]
    for item in items:
        if not item.keyword or (item.keyword == "section" and not ptx.is_dwarf(item.text)):
            raise NotCombinedError(f"malformed PTX: {item.cause or 'a section'}")
        if item.keyword == "line":
            raise NotCombinedError("an input has lines for a preprocessor")
    if [item.keyword for item in items if item.keyword in _HEADER_KEYWORDS] != _HEADER_KEYWORDS:
        raise NotCombinedError("an input does not begin with one version, target and size of addresses")


def _check_symbols(module: ptx.Module, symbols: Iterable[tuple[str, str]]) -> None:
    """Refuse declarations of *module* that cannot be combined; *symbols* are its names with linkages."""
    linkages: dict[str, str] = {}
    for function in module.functions:
        # A variable may name the kernel, and `with_definitions` declares only kernels that functions name.
        if function.kind == "entry" and not function.defined:
            raise NotCombinedError(f"the kernel {function.name} is declared, and its address may be taken")
        if linkages.setdefault(function.name, function.linkage) != function.linkage:
            raise NotCombinedError(f"{function.name} is declared with different linkages")
        if function.linkage == "common" or (function.defined and function.linkage == "extern"):
            raise NotCombinedError(f"the function {function.name} is .{function.linkage}")
    for variable in module.variables:
        if variable.space.partition("[")[0] not in _SPACES:
            raise NotCombinedError(f"{variable.name} is in .{variable.space} memory outside of functions")
    for name, _ in symbols:
        if name[0] == "%":
            raise NotCombinedError(f"{name} has the name of a register")


def _common_header(modules: Sequence[ptx.Module]) -> str:
    """Return the directives at the head of the combined module: the newest version and GPU of *modules*."""
    versions = [module.header.version for module in modules if module.header.version]
    archs: list[Arch] = []
    # For each module, the words of `.target` beside the GPU, such as texmode_independent.
    other_words: set[tuple[str, ...]] = set()
    for module in modules:
        gpu_names = [word for word in module.header.target if word.startswith("sm_")]
        if len(gpu_names) != 1 or module.header.version is None:
            raise NotCombinedError("an input lacks its version or target")
        try:
            archs.append(Arch.of(gpu_names[0]))
        except ConfigError as error:
            raise NotCombinedError(str(error)) from error
        other_words.add(tuple(sorted(set(module.header.target) - set(gpu_names))))
    if len(other_words) > 1:
        raise NotCombinedError("the inputs have different texture modes")
    # Code for a variant such as sm_90a runs on no other architecture, so it must be the target.
    variants = {arch.sm for arch in archs if arch.variant}
    if len(variants) > 1:
        raise NotCombinedError(f"the inputs are for {' and '.join(sorted(variants))}")
    if {module.header.address_size for module in modules} != {64}:
        raise NotCombinedError("an input has no 64-bit addresses")
    numbers = [arch.number for arch in archs]
    # Code for older devices relies on the threads of a warp running in lockstep.
    if min(numbers) < _INDEPENDENT_THREADS_ARCH <= max(numbers):
        oldest, newest = min(numbers), max(numbers)
        raise NotCombinedError(f"threads of sm_{oldest} and of sm_{newest} are scheduled in different ways")
    target = max(archs).sm
    if variants and target not in variants:
        raise NotCombinedError(f"the inputs are for {min(variants)} and {target}")
    words = ", ".join((target, *other_words.pop()))
    return f".version {max(versions)}\n.target {words}\n.address_size 64"


def _rename_clashes(
    modules: Sequence[ptx.Module], symbols: Sequence[Sequence[tuple[str, str]]]
) -> list[ptx.Module]:
    """
    Return *modules* with new names for private symbols whose name another module has, too.

    Args:
        modules: The modules.
        symbols: For each module, the name and the linkage of its declarations and definitions.
    """
    # The number of modules that have a name.
    counts = Counter(name for module_symbols in symbols for name in {name for name, _ in module_symbols})
    clashes = []
    for module_symbols in symbols:
        private = {name for name, linkage in module_symbols if not linkage}
        # The name of an alias is visible, but may also be declared as a function without linkage: a name
        # that has a linkage anywhere in its module is not private.
        public = {name for name, linkage in module_symbols if linkage}
        clashes.append({name for name in private - public if counts[name] > 1})
    if not any(clashes):
        return [*modules]
    # A new name, such as f__0, has the index of its module after a suffix that no module contains.
    suffix = "__"
    while any(suffix in module.text for module in modules):
        suffix += "_"
    renamed_modules = []
    for index, (module, names) in enumerate(zip(modules, clashes, strict=True)):
        new_names = {name: f"{name}{suffix}{index}" for name in names}
        renamed_modules.append(ptx.parse(ptx.rename_symbols(module.text, new_names)) if new_names else module)
    return renamed_modules


def _first_declarations(module: ptx.Module) -> dict[str, int]:
    """
    Return the offset of the first declaration of each name.

    Raises:
        NotCombinedError: An initializer uses a name before its first declaration.
    """
    offsets: dict[str, int] = {}
    items: list[ptx.Function | ptx.Variable] = [*module.functions, *module.variables]
    for item in sorted(items, key=lambda item: item.start):
        offsets.setdefault(item.name, item.start)
        for name in item.symbols if isinstance(item, ptx.Variable) else ():
            if name not in offsets:
                raise NotCombinedError(f"{item.name} names {name} before it is declared")
    return offsets


def _names_with_linkage(module: ptx.Module) -> Iterator[tuple[str, str]]:
    """Yield the name and the linkage of each declaration and definition."""
    for function in module.functions:
        # A program finds a kernel by its name, so a kernel is never renamed, visible or not.
        yield function.name, "visible" if function.kind == "entry" else function.linkage
    for variable in module.variables:
        yield variable.name, variable.linkage
    for alias in module.aliases:
        yield alias.name, "visible"


class _Strength(enum.IntEnum):
    """Ranks of declarations and definitions: of several with one name, the highest is chosen."""

    EXTERN_DECLARATION = 0
    # A declaration without `.extern` belongs to a definition or an alias in the same module.
    DECLARATION = 1
    WEAK_DEFINITION = 2
    DEFINITION = 3

    @classmethod
    def of(cls, function: ptx.Function) -> _Strength:
        """Return the strength of *function*."""
        if function.defined:
            return cls.WEAK_DEFINITION if function.linkage == "weak" else cls.DEFINITION
        return cls.EXTERN_DECLARATION if function.linkage == "extern" else cls.DECLARATION


def _choose_functions(modules: Sequence[ptx.Module]) -> dict[str, tuple[int, ptx.Function]]:
    """Return the definition of each function, or a declaration, with the index of its module."""
    chosen: dict[str, tuple[int, ptx.Function]] = {}
    for module_index, module in enumerate(modules):
        for function in module.functions:
            _, previous = chosen.setdefault(function.name, (module_index, function))
            if previous is function:
                continue
            if previous.kind != function.kind:
                raise NotCombinedError(f"{function.name} is a kernel and a function")
            strength = _Strength.of(function)
            if strength > _Strength.of(previous):
                chosen[function.name] = module_index, function
            elif strength == _Strength.of(previous) == _Strength.DEFINITION:
                raise NotCombinedError(f"{function.name} is defined twice")
    return chosen


def _choose_variables(modules: Sequence[ptx.Module]) -> dict[str, tuple[ptx.Variable, str]]:
    """Return each variable with the text of its definition, or of a declaration if there is none."""
    chosen: dict[str, tuple[ptx.Variable, str]] = {}
    for module in modules:
        for item in module.items:
            if not isinstance(item, ptx.Declaration):
                continue
            for variable in item.variables:
                entry = variable, item.text_of(variable) if len(item.variables) > 1 else item.text
                previous = chosen.get(variable.name)
                chosen[variable.name] = entry if previous is None else _choose_definition(previous, entry)
    return chosen


def _choose_definition(
    first_entry: tuple[ptx.Variable, str], second_entry: tuple[ptx.Variable, str]
) -> tuple[ptx.Variable, str]:
    """
    Return the definition among two entries of one name.

    An entry is a variable with the text that declares or defines it. The result is the first of two weak
    definitions, and the more aligned one of two declarations: either input may rely on the alignment that it
    declares.

    Raises:
        NotCombinedError: The entries contradict each other.
    """
    first, second = first_entry[0], second_entry[0]
    if first.space != second.space or first.attributes != second.attributes:
        raise NotCombinedError(f"{first.name} is declared in different memory")
    if first.defined != second.defined:
        return first_entry if first.defined else second_entry
    if not first.defined:
        if (first.type, first.array_dims) != (second.type, second.array_dims):
            raise NotCombinedError(f"{first.name} is declared with different types")
        return max(first_entry, second_entry, key=lambda entry: entry[0].alignment)
    if (first.type, first.array_dims, first.alignment) != (second.type, second.array_dims, second.alignment):
        raise NotCombinedError(f"{first.name} is defined with different types")
    if not first.linkage == second.linkage == "weak":
        raise NotCombinedError(f"{first.name} is defined twice")
    return first_entry


def strip_debug_lines(function: ptx.Function) -> tuple[ptx.Statement, ...]:
    """
    Return the body of *function* without line numbers, and without pragmas for the next load.

    After inlining, another load may follow such a pragma.
    """
    return tuple(
        statement
        for statement in function.body
        if not isinstance(statement, ptx.Directive) or not (statement.keyword == "loc" or statement.is_hint)
    )
