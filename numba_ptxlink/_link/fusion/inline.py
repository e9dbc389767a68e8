"""
Inline calls in a PTX module: put the body of the called function in the place of the call.

ptxas never inlines a function. The body becomes a block, which has a scope of its own, so its registers and
variables keep their names. The variables that a call passes become registers, or local memory if the function
takes their address. A call that cannot be inlined stays, with a reason.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx
from numba_ptxlink._formats.ptx.statement_parser import DEEPEST

from .body import Body, guard, hides
from .cells import Cells
from .combine import plain, source
from .depots import aligned, promoted
from .scan import Scanned
from .spaces import proven

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .body import Access, Param, Site
    from .combine import Combined

SMALL = 200
"""Instructions of a function that is inlined wherever it is called."""

LARGEST = 50_000
"""Instructions that a caller may grow to."""

# That of an inlined body, one around it where the call has a predicate, and one around moves of parts.
_OWN_BLOCKS = 3


@dataclass(frozen=True)
class Inlined:
    """
    A module after inlining.

    Args:
        text: Its PTX.
        count: How many calls were inlined.
        left: Each call that was not, as "caller: callee: reason", and the number of those through pointers.
        dropped: The functions that nothing reaches any more.
    """

    text: str
    count: int
    left: tuple[str, ...]
    dropped: tuple[str, ...]


def inline(combined: Combined, *, everything: bool = False, closed: bool = True) -> Inlined:
    """
    Inline the calls of a module, and drop the functions that nothing reaches any more.

    Args:
        combined: The module. A call of a function that it does not define stays, and so do calls between
            functions of one origin: the compiler that saw both left them.
        everything: Whether to inline these too, and functions of any size.
        closed: Whether nothing else is linked with it. Else visible functions stay, and weak ones are called;
            so do those of a module without kernels, which is of use to other modules alone.

    Raises:
        LinkError: A function is malformed.
    """
    return _Inliner(combined, everything=everything, closed=closed).run()


class _Inliner:
    def __init__(self, combined: Combined, *, everything: bool, closed: bool) -> None:
        self._combined = combined
        self._functions = {function.name: function for function in combined.functions if function.defined}
        self._aliases = {alias.name: alias.target.name for alias in combined.aliases}
        self._closed = closed and any(function.kind == "entry" for function in self._functions.values())
        self._everything = everything
        self._bodies = self._read()
        self._callers = Counter(site.callee for body in self._bodies.values() for site in body.sites)
        self._reached_from = {name: body.reached for name, body in self._bodies.items()}
        self._left: list[str] = []
        self._count = 0
        # It is in no name of the functions.
        texts = [source(body.function) for body in self._bodies.values()]
        self._prefix = "inl"
        while any(self._prefix in text for text in texts):
            self._prefix += "_"

    def run(self) -> Inlined:
        """Inline the calls of all functions."""
        expanded = {name: self._expanded(name) for name in self._bottom_up()}
        reached = set(_reachable(self._roots(), self._reached_from.get))
        dropped = tuple(name for name in self._functions if name not in reached)
        texts = {
            name: self._finished(expanded[name], body.function) if expanded[name] else source(body.function)
            for name, body in self._bodies.items()
            if name in reached
        }
        return Inlined(self._combined.printed(texts), self._count, tuple(self._left), dropped)

    def _finished(self, text: str, function: ptx.Function) -> str:
        """Return the function *text* with what can be known of it now that its calls are inlined."""
        scanned = promoted(Scanned(text, function), self._prefix)
        return aligned(proven(scanned, function, f"%{self._prefix}_").text)

    def _read(self) -> dict[str, Body]:
        """Return the bodies of the functions that are reached, in the order of the module."""
        bodies: dict[str, Body] = {}

        def reached_from(name: str) -> set[str] | None:
            if name not in self._functions:
                return None
            bodies[name] = Body(plain(self._functions[name]))
            return bodies[name].reached

        for _ in _reachable(self._roots(), reached_from):
            pass
        return {name: bodies[name] for name in self._functions if name in bodies}

    def _bottom_up(self) -> list[str]:
        """Return the functions, callees before callers but for cycles."""
        order: dict[str, None] = {}
        entered: set[str] = set()
        for root in self._bodies:
            if root in entered:
                continue
            entered.add(root)
            stack = [(root, self._callees(root))]
            while stack:
                name, callees = stack[-1]
                callee = next((callee for callee in callees if callee not in entered), None)
                if callee is None:
                    order[name] = None
                    stack.pop()
                else:
                    entered.add(callee)
                    stack.append((callee, self._callees(callee)))
        return list(order)

    def _callees(self, name: str) -> Iterator[str]:
        return iter([site.callee for site in self._bodies[name].sites if site.callee in self._bodies])

    def _expanded(self, name: str) -> str:
        """Inline the calls of the function *name*; return its new text, "" if nothing changes."""
        body = self._bodies[name]
        edits: dict[ptx.Span, str] = {}
        size = body.size
        self._reached_from[name] = body.symbols.copy()
        for site in body.sites:
            reason = self._obstacle(name, site, size)
            if not reason:
                try:
                    edits.update(self._inlined(site))
                except ValueError as error:
                    reason = str(error)
            if reason:
                self._left.append(f"{name}: {site.callee}: {reason}")
                self._reached_from[name].add(site.callee)
            else:
                self._count += 1
                size += self._bodies[site.callee].size
                self._reached_from[name] |= self._reached_from[site.callee]
        if body.indirect:
            calls = "1 call" if body.indirect == 1 else f"{body.indirect} calls"
            self._left.append(f"{name}: {calls} through a pointer: the function is known at run time alone")
        if not edits:
            return ""
        text = ptx.replaced(body.function.text, edits, body.function.span)
        if self._callers[name]:
            (function,) = ptx.parse(text).functions
            self._bodies[name] = Body(function)
        return text

    def _obstacle(self, caller: str, site: Site, size: int) -> str:
        """Return why a call stays, "" if it can be inlined and is worth it."""
        callee = self._bodies.get(site.callee)
        if callee is None:
            alias = self._aliases.get(site.callee)
            return f"it is another name of {alias}" if alias else "it is not defined here"
        if callee.function.linkage == "weak" and not self._closed:
            return "it is weak, and another input may define it"
        return (
            _obstacle_in(site, callee)
            or _obstacle_around(self._bodies[caller], site, callee)
            or (self._policy(caller, site, size))
        )

    def _policy(self, caller: str, site: Site, size: int) -> str:
        callee = self._bodies[site.callee].size
        if size + callee > LARGEST:
            return f"{caller} would grow beyond {LARGEST} instructions"
        if site.depth + self._bodies[site.callee].depth + _OWN_BLOCKS > DEEPEST:
            return f"blocks would be nested more than {DEEPEST} deep"
        if self._everything:
            return ""
        origins = self._combined.origins
        if origins[caller] == origins[site.callee]:
            return "both are in one input, whose compiler left the call"
        if callee > SMALL and self._callers[site.callee] > 1:
            return f"it has {callee} instructions and {self._callers[site.callee]} calls"
        return ""

    def _inlined(self, site: Site) -> dict[ptx.Span, str]:
        """Return the edits of the caller that inline the call *site*."""
        callee = self._bodies[site.callee]
        name = f"{self._prefix}{self._count}_"
        outside: dict[ptx.Span, str] = {}
        inside: dict[ptx.Span, str] = {}
        for place, (formal, param) in enumerate(zip(callee.formals, site.passed, strict=True)):
            if param is None or param.declaration is None:
                raise ValueError(f"{formal.name} is not passed in a variable")
            if formal.addresses:
                declaration, accesses = _in_memory(f"{name}{place}_", formal, param, inside)
            else:
                cells = Cells(f"%{name}{place}_", param.size, (*param.accesses, *formal.accesses))
                declaration = cells.declarations()
                accesses = {access: cells.moves(access) for access in (*param.accesses, *formal.accesses)}
            outside[param.declaration.span] = declaration
            outside.update((access.instruction.span, accesses[access]) for access in param.accesses)
            inside.update((access.instruction.span, accesses[access]) for access in formal.accesses)
        outside[site.call.span] = _guarded(site.call, f"${name}", _block(callee, f"${name}", inside))
        return outside

    def _roots(self) -> Iterator[str]:
        """Yield the names that kernels, variables, aliases and other inputs reach."""
        for name, function in self._functions.items():
            # A driver finds kernels and unified functions by their names.
            if function.kind == "entry" or function.attributes or (function.linkage and not self._closed):
                yield name
        for variable, _ in self._combined.variables:
            yield from variable.symbols
        for alias in self._combined.aliases:
            yield from (alias.name, alias.target.name)


def _reachable(roots: Iterable[str], reached_from: Callable[[str], Iterable[str] | None]) -> Iterator[str]:
    """Yield what *roots* reach: names for which *reached_from* returns other names, each once."""
    entered: set[str] = set()
    names = list(roots)
    while names:
        name = names.pop()
        if name in entered:
            continue
        entered.add(name)
        reached = reached_from(name)
        if reached is not None:
            yield name
            names += reached


def _obstacle_in(site: Site, callee: Body) -> str:
    """Return what in the called function keeps it from being inlined."""
    function = callee.function
    if function.kind == "entry":
        return "it is a kernel"
    if any(inner.callee == site.callee for inner in callee.sites):
        return "it is recursive"
    if callee.obstacle:
        return callee.obstacle
    return next(
        (f"{formal.name} is not only loaded and stored" for formal in callee.formals if formal.exposed), ""
    )


def _obstacle_around(caller: Body, site: Site, callee: Body) -> str:
    """Return what in the caller keeps a call from being inlined."""
    if any(inner.callee == caller.function.name for inner in callee.sites):
        return "it is recursive"
    if len(site.passed) != len(callee.formals) or site.results != len(callee.function.results):
        return "the call passes another number of values"
    for formal, param in zip(callee.formals, site.passed, strict=True):
        if param is None:
            return f"{formal.name} is not passed in a variable"
        if param.size != formal.size:
            return f"{param.size} bytes are passed for {formal.name}, which has {formal.size}"
        if param.joined or param.calls > 1 or param.exposed or param.addresses:
            cause = "is declared with others in one statement" if param.joined else "has other uses"
            return f"the variable for {formal.name} {cause}"
    visible = site.visible | {label.name for label in caller.labels}
    hidden = [name for name in callee.reached if hides(visible, name)]
    return f"a name of the caller hides {min(hidden)}" if hidden else ""


def _in_memory(
    name: str, formal: Param, param: Param, inside: dict[ptx.Span, str]
) -> tuple[str, dict[Access, str]]:
    """Return the declaration of local memory for a parameter, and the text of each access to it."""
    for instruction in formal.addresses:
        inside[instruction.operands[1].span] = name
    alignment = max(formal.alignment, param.alignment)
    accesses = {access: _local(access, name) for access in (*param.accesses, *formal.accesses)}
    return f".local .align {alignment} .b8 {name}[{param.size}];", accesses


def _local(access: Access, name: str) -> str:
    shape, values = "", str(access.values[0])
    if len(access.values) > 1:
        shape, values = f".v{len(access.values)}", f"{{{', '.join(map(str, access.values))}}}"
    operands = (f"[{name}+{access.offset}]", values)
    first, second = operands if access.stores else operands[::-1]
    return f"{access.guard}{access.instruction.opcode}.local{shape}.{access.type} {first}, {second};"


def _block(callee: Body, prefix: str, edits: dict[ptx.Span, str]) -> str:
    """Return the body of *callee* as a block, after *edits*, with labels that begin with *prefix*."""
    function = callee.function
    end = f"{prefix}end"
    names = dict.fromkeys(label.name for label in callee.labels)
    labels = {name: f"{prefix}{number}" for number, name in enumerate(names)}
    edits = {
        **edits,
        **{name.span: labels[name.name] for name in (*callee.labels, *callee.jumps) if name.name in labels},
    }
    last = next(reversed(callee.statements), None)
    jumps = False
    for instruction in callee.returns:
        falls = instruction is last and not instruction.predicate
        edits[instruction.span] = "" if falls else f"{guard(instruction.predicate)}bra {end};"
        jumps |= not falls
    start, stop = function.body_span
    text = ptx.replaced(function.text, edits, ptx.Span(start + 1, stop - 1))
    return f"{{{text}\n{end}:\n}}" if jumps else f"{{{text}}}"


def _guarded(call: ptx.Call, prefix: str, block: str) -> str:
    predicate = call.predicate
    if not predicate:
        return block
    opposite = predicate.operand if isinstance(predicate, ptx.Negated) else f"!{predicate}"
    return f"{{ @{opposite} bra {prefix}skip;\n{block}\n{prefix}skip:\n}}"
