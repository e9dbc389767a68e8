"""Merge equal definitions: find PTX modules that define the same function, and make it weak."""

from __future__ import annotations

from dataclasses import replace
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


def _is_state(variable: ptx.Variable) -> bool:
    # nvcc has the literals of strings in global memory, under this name.
    return variable.memory in ("global", "managed", "shared") and not variable.name.startswith("$str")


def _declared(statements: Iterable[ptx.Statement]) -> Iterator[ptx.Variable]:
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
    statements = [each for each in function.body if not isinstance(each, ptx.Directive) or each.names]
    listed = [each.name for each in statements if isinstance(each, ptx.Label)]
    labels = {label: f"$L{number}" for number, label in enumerate(listed)}
    spelled = [str(ptx.with_labels(statement, labels)) for statement in statements]
    used = {symbol for statement in statements for symbol in ptx.references(statement)} - seen - {name}
    local = _reached(module, used)
    if any(map(_is_state, (*local, *_declared(statements)))):
        return None
    used |= {symbol for variable in local for symbol in (variable.name, *variable.symbols)}
    # A weak function cannot have an alias, and the targets of aliases are not compared.
    if any({alias.name, alias.target} & {name, *used} for alias in module.aliases):
        return None
    callees = [
        callee for callee in module.functions if callee.name in used and not callee.linkage and callee.defined
    ]
    inside = seen | {name, *(callee.name for callee in callees)}
    inner = [_spelled(module, callee.name, inside) for callee in callees]
    if None in inner:
        return None
    heading = function.heading.removeprefix(f".{function.linkage}").split()
    return "\n".join((*heading, *spelled, *map(_without_place, local), *map(str, inner)))


def _without_place(variable: ptx.Variable) -> str:
    return repr(replace(variable, line=0, start=0, end=0))


def _reached(module: ptx.Module, names: set[str]) -> list[ptx.Variable]:
    """Return the private variables in *names*, and those their initializers name, in the module's order."""
    private = {variable.name: variable for variable in module.variables if not variable.linkage}
    reached: set[str] = set()
    pending = [name for name in names if name in private]
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending += [symbol for symbol in private[name].symbols if symbol in private]
    return [variable for name, variable in private.items() if name in reached]
