"""Merge equal definitions: find PTX modules that define the same function, and make it weak."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx
from numba_ptxlink.errors import LinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def same(modules: Iterable[ptx.Module], name: str) -> bool:
    """
    Return whether all *modules* define the function *name*, with equal definitions.

    Equal are definitions whose statements, apart from labels and line numbers, and whose private variables
    and functions are equal. One that has a state of its own is equal to no other.
    """
    forms = {_form(module, name) for module in modules}
    return len(forms) == 1 and None not in forms


def has_state(module: ptx.Module) -> bool:
    """Return whether *module* defines a variable that may be written."""
    own = [variable for variable in module.variables if variable.defined]
    bodies = (statement for function in module.functions for statement in ptx.flattened(function.body))
    return any(map(_is_state, (*own, *_declared(bodies))))


def _is_state(variable: ptx.Variable) -> bool:
    # nvcc has the literals of strings in global memory, under this name.
    return variable.memory in ("global", "managed", "shared") and not variable.name.startswith("$str")


def _declared(statements: Iterable[ptx.Statement | str]) -> Iterator[ptx.Variable]:
    for statement in statements:
        if isinstance(statement, ptx.Declaration):
            yield from statement.variables


def weaken(module: ptx.Module, names: Iterable[str]) -> bytes:
    """Return *module* with its definitions of the functions *names* made weak, so a linker merges them."""
    wanted = set(names)
    visible = (function for function in module.functions if function.linkage == "visible")
    spans = [function.linkage_span for function in visible if function.name in wanted]
    return module.replace(dict.fromkeys(spans, ".weak")).encode(errors="surrogateescape")


def _form(module: ptx.Module, name: str) -> str | None:
    """Return a definition as normalised text, with the private symbols it uses; None where that fails."""
    try:
        return _spelled(module, name, frozenset())
    except LinkError:
        return None


def _spelled(module: ptx.Module, name: str, seen: frozenset[str]) -> str | None:
    function = module.definition(name)
    if function is None:
        return None
    statements = list(_flat(function.body))
    labels = {
        statement.name: f"$L{number}"
        for number, statement in enumerate(statements)
        if isinstance(statement, (ptx.Label, ptx.Targets, ptx.CallPrototype)) and statement.name
    }
    spelled = (
        statement
        if isinstance(statement, str)
        else str(ptx.renamed(statement, lambda symbol: labels.get(symbol, symbol)))
        for statement in statements
    )
    nodes = (statement for statement in statements if not isinstance(statement, str))
    used = {symbol for node in nodes for symbol in ptx.names(node)} - seen - {name}
    local = _reached(module, used)
    if any(map(_is_state, (*local, *_declared(statements)))):
        return None
    used |= {symbol for variable in local for symbol in ptx.names(variable)}
    # A weak function cannot have an alias, and the targets of aliases are not compared.
    if any({alias.name, alias.target.name} & {name, *used} for alias in _aliases(module)):
        return None
    callees = [
        callee for callee in module.functions if callee.name in used and not callee.linkage and callee.defined
    ]
    inside = seen | {name, *(callee.name for callee in callees)}
    inner = [_spelled(module, callee.name, inside) for callee in callees]
    if None in inner:
        return None
    heading = function.heading.removeprefix(f".{function.linkage} ")
    return "\n".join((heading, *spelled, *map(str, local), *map(str, inner)))


def _aliases(module: ptx.Module) -> list[ptx.Alias]:
    return [item for item in module.items if isinstance(item, ptx.Alias)]


def _reached(module: ptx.Module, names: set[str]) -> list[ptx.Variable]:
    """Return the private variables in *names*, and those their initializers name, in the module's order."""
    private = {variable.name: variable for variable in module.variables if not variable.linkage}
    reached: set[str] = set()
    pending = [name for name in names if name in private]
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending += [symbol for symbol in ptx.names(private[name]) if symbol in private]
    return [variable for name, variable in private.items() if name in reached]


def _flat(statements: Iterable[ptx.Statement]) -> Iterator[ptx.Statement | str]:
    """Yield *statements* without locations and pragmas, with blocks flattened between braces."""
    for statement in statements:
        if isinstance(statement, ptx.Block):
            yield "{"
            yield from _flat(statement.statements)
            yield "}"
        elif not isinstance(statement, (ptx.Location, ptx.Pragma)):
            yield statement
