"""
Merge PTX modules into one, as a linker would: rename private symbols, bind declarations to definitions.

Modules that cannot be merged without a change of meaning raise `NotCombinedError` with the reason.
"""

from __future__ import annotations

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

# CUDA C++ Programming Guide, "Independent Thread Scheduling".
_INDEPENDENT_THREADS = 70
_HEAD = ["version", "target", "address_size"]
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+("[^"]*")')
_SPACES = ("global", "const", "shared", "tex")
# ptxas rejects these between tokens.
_INVALID_CHARS = sorted({*map(chr, range(32)), "\x7f"} - set("\t\n\f\r"))


@dataclass(frozen=True)
class Combined:
    """
    Several PTX modules as one.

    Args:
        head: The lines before declarations and definitions.
        functions: The definition of each function, or a declaration if there is none.
        variables: The definition of each variable, or a declaration, after those that its initializer names.
        aliases: Every alias.
        origins: The index of the module that defines each function, by the function's name.
        declared: The offset of the first declaration of each name in the text of each module.
        files: The names of the source files of each module, quoted, by their numbers in `.loc`.
    """

    head: tuple[str, ...]
    functions: tuple[ptx.Function, ...]
    variables: tuple[tuple[ptx.Variable, str], ...]
    aliases: tuple[ptx.Alias, ...]
    origins: dict[str, int]
    declared: tuple[dict[str, int], ...]
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
        bodies = {}
        for function in self.functions:
            if not function.defined:
                continue
            files = self.files[self.origins[function.name]]
            body = (_renumber_line(statement, files, numbers) for statement in function.body)
            bodies[function.name] = with_body(function, body)
        names = (f".file {number} {name}\n" for name, number in numbers.items())
        return f"{self.with_definitions(bodies)}{''.join(names)}"

    def with_definitions(self, bodies: Mapping[str, str]) -> str:
        """
        Return the module with other definitions.

        Args:
            bodies: The definitions, by name. Functions of this module without a definition here are left out,
                with their declarations.
        """
        declared = [
            f"{function.heading};"
            for function in self.functions
            if function.kind == "func" and (function.name in bodies or not function.defined)
        ]
        # A function may launch a kernel that is defined after it. The definition has the directives.
        declared += [
            f"{function.heading.partition(')')[0]});"
            for function in self.functions
            if function.kind == "entry"
            and any(function.name in text for name, text in bodies.items() if name != function.name)
        ]
        variables = [text for _, text in self.variables]
        return "\n".join((*self.head, *declared, *variables, *bodies.values(), *map(str, self.aliases), ""))


def with_body(function: ptx.Function, body: Iterable[ptx.Statement]) -> str:
    """Return the text of *function* with another body."""
    return f"{function.heading}\n{ptx.block(body)}"


def combine(modules: Sequence[ptx.Module]) -> Combined:
    """
    Return *modules* as one, without sections for debuggers.

    Raises:
        NotCombinedError: A module has debug information or malformed text, or definitions contradict each
            other.
        LinkError: A function is malformed.
    """
    symbols = [tuple(_symbols(module)) for module in modules]
    for module, module_symbols in zip(modules, symbols, strict=True):
        _check_module(module)
        _check_symbols(module, module_symbols)
    header = _common_header(modules)
    parts = _rename_clashes(modules, symbols)
    functions = _choose_functions(parts)
    variables = _choose_variables(parts)
    references = {name: variable.symbols for name, (variable, _) in variables.items()}
    ambiguous = functions.keys() & variables.keys()
    if ambiguous:
        raise NotCombinedError(f"{min(ambiguous)} is a function and a variable")
    pragmas = dict.fromkeys(
        item.text
        for module in parts
        for item in module.items
        if isinstance(item, ptx.UnparsedItem) and item.keyword == "pragma"
    )
    aliases = [alias for module in parts for alias in module.aliases]
    return Combined(
        (header, *pragmas),
        tuple(function for _, function in functions.values()),
        tuple(variables[name] for name in bottom_up(references)),
        tuple(aliases),
        {name: position for name, (position, function) in functions.items() if function.defined},
        tuple(map(_first_declarations, parts)),
        tuple(map(_file_names, parts)),
    )


def _file_names(module: ptx.Module) -> dict[str, str]:
    """Return the quoted names of source files, by their numbers."""
    directives = [
        item.text for item in module.items if isinstance(item, ptx.UnparsedItem) and item.keyword == "file"
    ]
    matches = filter(None, map(_FILE.match, directives))
    return {match[1]: match[2] for match in matches}


def _renumber_line(
    statement: ptx.Statement, files: Mapping[str, str], numbers: dict[str, int]
) -> ptx.Statement:
    """Return a `.loc` with the number that its file has among all inputs, without inlined calls."""
    if not isinstance(statement, ptx.Directive) or statement.keyword != "loc":
        return statement
    _, file, line, column, *_ = statement.text.replace(",", " ").replace(";", " ").split()
    name = files.get(file, '""')
    return ptx.Directive(f".loc {numbers.setdefault(name, len(numbers) + 1)} {line} {column}")


def _check_module(module: ptx.Module) -> None:
    """Refuse text whose meaning would be lost: it is left to a linker, which reads or rejects it."""
    # Code with sections but without this word is optimised; its sections only describe lines.
    if "debug" in module.header.target:
        raise NotCombinedError("an input has debug information")
    text = module.text.rstrip("\0")
    if not text.isascii() or any(letter in text for letter in _INVALID_CHARS):
        raise NotCombinedError("an input has letters that PTX does not have")
    parts = [item for item in module.items if isinstance(item, ptx.UnparsedItem)]
    for part in parts:
        if not part.keyword or (part.keyword == "section" and not ptx.is_dwarf(part.text)):
            raise NotCombinedError(f"malformed PTX: {part.cause or 'a section'}")
        if part.keyword == "line":
            raise NotCombinedError("an input has lines for a preprocessor")
    if [part.keyword for part in parts if part.keyword in _HEAD] != _HEAD:
        raise NotCombinedError("an input does not begin with one version, target and size of addresses")


def _check_symbols(module: ptx.Module, symbols: Iterable[tuple[str, str]]) -> None:
    linkages: dict[str, str] = {}
    for function in module.functions:
        if function.kind == "entry" and not function.defined:
            raise NotCombinedError(f"the kernel {function.name} is declared, and its address may be taken")
        if linkages.setdefault(function.name, function.linkage) != function.linkage:
            raise NotCombinedError(f"{function.name} is declared differently")
        if function.linkage == "common" or (function.defined and function.linkage == "extern"):
            raise NotCombinedError(f"the function {function.name} is .{function.linkage}")
    for variable in module.variables:
        if variable.space.partition("[")[0] not in _SPACES:
            raise NotCombinedError(f"{variable.name} is in .{variable.space} memory outside of functions")
    for name, _ in symbols:
        if name[0] == "%":
            raise NotCombinedError(f"{name} has the name of a register")


def _common_header(modules: Sequence[ptx.Module]) -> str:
    versions = [module.header.version for module in modules if module.header.version]
    archs: list[Arch] = []
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
    specific = {arch.sm for arch in archs if arch.variant}
    if len(specific) > 1:
        raise NotCombinedError(f"the inputs are for {' and '.join(sorted(specific))}")
    if {module.header.address_size for module in modules} != {64}:
        raise NotCombinedError("an input has no 64-bit addresses")
    numbers = [arch.number for arch in archs]
    # Code for older devices relies on the threads of a warp running in lockstep.
    if min(numbers) < _INDEPENDENT_THREADS <= max(numbers):
        oldest, newest = min(numbers), max(numbers)
        raise NotCombinedError(f"threads of sm_{oldest} and of sm_{newest} are scheduled in different ways")
    target = max(archs).sm
    if specific and target not in specific:
        raise NotCombinedError(f"the inputs are for {min(specific)} and {target}")
    words = ", ".join((target, *other_words.pop()))
    return f".version {max(versions)}\n.target {words}\n.address_size 64"


def _rename_clashes(
    modules: Sequence[ptx.Module], symbols: Sequence[Sequence[tuple[str, str]]]
) -> list[ptx.Module]:
    """
    Return *modules* with other names for private symbols whose name another module uses.

    Args:
        modules: The modules.
        symbols: Name and linkage of all symbols that each module declares or defines.
    """
    counts = Counter(name for module_symbols in symbols for name in {name for name, _ in module_symbols})
    clashes = []
    for module_symbols in symbols:
        private = {name for name, linkage in module_symbols if not linkage}
        # The linkage of a kernel or an alias may be on its forward declaration only.
        shared = {name for name, linkage in module_symbols if linkage}
        clashes.append({name for name in private - shared if counts[name] > 1})
    if not any(clashes):
        return [*modules]
    suffix = "__"
    while any(suffix in module.text for module in modules):
        suffix += "_"
    return [
        ptx.parse(ptx.rename_symbols(module.text, {name: f"{name}{suffix}{position}" for name in names}))
        if names
        else module
        for position, (module, names) in enumerate(zip(modules, clashes, strict=True))
    ]


def _first_declarations(module: ptx.Module) -> dict[str, int]:
    """Return the offset of the first declaration of each name, which initializers have to follow."""
    declared: dict[str, int] = {}
    items: list[ptx.Function | ptx.Variable] = [*module.functions, *module.variables]
    for item in sorted(items, key=lambda item: item.start):
        declared.setdefault(item.name, item.start)
        for name in item.symbols if isinstance(item, ptx.Variable) else ():
            if name not in declared:
                raise NotCombinedError(f"{item.name} names {name} before it is declared")
    return declared


def _symbols(module: ptx.Module) -> Iterator[tuple[str, str]]:
    for function in module.functions:
        # A program finds a kernel by its name, so a kernel is never renamed, visible or not.
        yield function.name, "visible" if function.kind == "entry" else function.linkage
    for variable in module.variables:
        yield variable.name, variable.linkage
    for alias in module.aliases:
        yield alias.name, "visible"


def _choose_functions(parts: Sequence[ptx.Module]) -> dict[str, tuple[int, ptx.Function]]:
    """Return the definition of each function, or a declaration, with the index of its module."""
    selected: dict[str, tuple[int, ptx.Function]] = {}
    for position, module in enumerate(parts):
        for function in module.functions:
            _, other = selected.setdefault(function.name, (position, function))
            if other is function:
                continue
            if other.kind != function.kind:
                raise NotCombinedError(f"{function.name} is a kernel and a function")
            if _strength(function) > _strength(other):
                selected[function.name] = position, function
            elif _strength(function) == _strength(other) == _STRONG:
                raise NotCombinedError(f"{function.name} is defined twice")
    return selected


_STRONG = 3


def _strength(function: ptx.Function) -> int:
    if not function.defined:
        # A declaration without extern belongs to a definition or an alias.
        return 0 if function.linkage == "extern" else 1
    return 2 if function.linkage == "weak" else _STRONG


def _choose_variables(parts: Sequence[ptx.Module]) -> dict[str, tuple[ptx.Variable, str]]:
    """Return the definition of each variable, or a declaration, and its text."""
    selected: dict[str, tuple[ptx.Variable, str]] = {}
    for module in parts:
        for item in module.items:
            if not isinstance(item, ptx.Declaration):
                continue
            for variable in item.variables:
                entry = variable, item.alone(variable) if len(item.variables) > 1 else item.text
                other = selected.get(variable.name)
                selected[variable.name] = entry if other is None else _choose_definition(other, entry)
    return selected


def _choose_definition(
    one: tuple[ptx.Variable, str], two: tuple[ptx.Variable, str]
) -> tuple[ptx.Variable, str]:
    first, second = one[0], two[0]
    if first.space != second.space or first.attributes != second.attributes:
        raise NotCombinedError(f"{first.name} is declared differently")
    if first.defined != second.defined:
        return one if first.defined else two
    if not first.defined:
        if (first.type, first.array_dims) != (second.type, second.array_dims):
            raise NotCombinedError(f"{first.name} is declared differently")
        return max(one, two, key=lambda entry: entry[0].alignment)
    if (first.type, first.array_dims, first.alignment) != (second.type, second.array_dims, second.alignment):
        raise NotCombinedError(f"{first.name} is defined with different types")
    if not first.linkage == second.linkage == "weak":
        raise NotCombinedError(f"{first.name} is defined twice")
    return one


def strip_debug_lines(function: ptx.Function) -> tuple[ptx.Statement, ...]:
    """Return the body without line numbers, and without hints for the next load, which may change."""
    return tuple(
        statement
        for statement in function.body
        if not isinstance(statement, ptx.Directive) or not (statement.keyword == "loc" or statement.is_hint)
    )
