"""
Inline calls in a PTX module: replace the call by the body of the function.

ptxas never inlines a function. The body becomes a block, which is a scope of names, so that its registers and
variables keep their names; labels get new names. A parameter of the function and the variable that the call
passes for it become one variable, split into one or more registers. If the function takes the parameter's
address, or an access would join several of these registers of less than 32 bits, the variable is in local
memory. A call stays, with a reason, if a use of the parameter or the variable is unknown, or if a name of the
function would mean something else in the caller.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

from . import NotCombinedError
from .address_spaces import infer_address_spaces
from .body import Body
from .combine import strip_debug_lines, with_body
from .graphs import bottom_up, reachable
from .local_memory import promote_local_memory
from .register_pieces import RegisterPieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .body import CallSite
    from .combine import Combined
    from .register_pieces import Access, Edits, MemorySlot

MAX_SMALL_INSTRUCTIONS = 200
"""
The size up to which a function is inlined at every call, in instructions.

A larger function is inlined only if the module has one call of it, so that no large code is copied.
"""

MAX_CALLER_INSTRUCTIONS = 50_000
"""The size up to which a caller may grow, in instructions: it bounds the time of ptxas."""

MAX_UNREACHED_CHARS = 20_000
"""
The maximum length of all unreachable functions together; if they are longer, none of them is kept.

Unreachable functions are kept so that ptxas reports errors in them. PTX that is written by hand is shorter. A
library is longer: ptxas would need as long for its unreachable functions as for a link of the whole library.
"""

# Names that PTX predefines: the sink of an unused result, and the number of lanes of a warp.
_PREDEFINED = ("_", "WARP_SZ")


@dataclass(frozen=True)
class Inlined:
    """
    A module after inlining.

    Args:
        text: The PTX.
        count: The number of inlined calls.
        not_inlined: Each direct call that remains, as "caller: callee: reason"; and for each caller, the
            number of calls through pointers.
    """

    text: str
    count: int
    not_inlined: tuple[str, ...]


def inline(combined: Combined, *, inline_all: bool = False, whole_program: bool = True) -> Inlined:
    """
    Inline the calls of a module, and drop the functions that are not reachable any more.

    Functions that were never reachable stay, as private ones, if all of them together have at most
    `MAX_UNREACHED_CHARS` characters.

    Args:
        combined: The module. Calls of functions that it does not define stay.
        inline_all: Whether to inline functions of any size, and calls between functions of one input, too.
            Otherwise these calls stay, since the compiler of the input decided not to inline them.
        whole_program: Whether nothing else is linked with the module. Otherwise visible functions stay, and
            calls of weak functions stay, since another input may define the function. Counts as False for a
            module without kernels, which only other modules can use.

    Raises:
        NotCombinedError: A function uses a name that its module has not declared before.
        LinkError: A function is malformed.
    """
    return _Inliner(combined, inline_all=inline_all, whole_program=whole_program).run()


class _Inliner:
    """Inlines the calls of one module; the arguments are those of `inline`."""

    def __init__(self, combined: Combined, *, inline_all: bool, whole_program: bool) -> None:
        self._combined = combined
        self._functions = {function.name: function for function in combined.functions if function.defined}
        self._aliases = {alias.name: alias.target for alias in combined.aliases}
        self._whole_program = whole_program and any(
            function.kind == "entry" for function in self._functions.values()
        )
        self._inline_all = inline_all
        self._bodies = self._read_reachable_bodies()
        self._call_counts = Counter(site.callee for body in self._bodies.values() for site in body.call_sites)
        # The names that each function uses. Inlining a call replaces the name of the called function in
        # the set by the names that the called function uses.
        self._reached_names = {name: body.reached_names for name, body in self._bodies.items()}
        self._not_inlined: list[str] = []
        self._count = 0
        functions = [body.function for body in self._bodies.values()]
        texts = [function.text[function.start : function.end] for function in functions]
        # New names begin with a prefix that no function contains.
        self._prefix = "inl"
        while any(self._prefix in text for text in texts):
            self._prefix += "_"

    def run(self) -> Inlined:
        """Inline the calls of all functions."""
        callees = {name: [site.callee for site in body.call_sites] for name, body in self._bodies.items()}
        # Callees first, so that their bodies are complete when they are inlined into callers.
        changed_names = {name for name in bottom_up(callees) if self._inline_calls(name)}
        reached = reachable(self._roots(), self._reached_names.get)
        texts = {
            name: self._optimised_text(body)
            if name in changed_names
            else with_body(body.function, body.statements)
            for name, body in self._bodies.items()
            if name in reached
        }
        text = self._combined.with_definitions(texts)
        never_reached = [function for name, function in self._functions.items() if name not in self._bodies]
        never_reached_chars = sum(function.end - function.start for function in never_reached)
        # Undefined functions that no function in `self._bodies` calls: perhaps an unreachable function does.
        # Linkers accept such a module, but ptxas would reject it. So if there is any undefined function of
        # this kind, no unreachable function is kept.
        undefined = {function.name for function in self._combined.functions if not function.defined}
        undefined.difference_update(*self._reached_names.values())
        if not undefined and 0 < never_reached_chars <= MAX_UNREACHED_CHARS:
            # Keep all functions that are not in the text, also those whose calls are all inlined: a function
            # that was never reachable may call them.
            text += _as_private(function for name, function in self._functions.items() if name not in reached)
        return Inlined(text, self._count, tuple(self._not_inlined))

    def _optimised_text(self, body: Body) -> str:
        """Return the text of a function after inlining and the optimisations that inlining makes possible."""
        function = body.function
        kernel_params = {parameter.name for parameter in function.params if function.kind == "entry"}
        statements = promote_local_memory(body.statements, self._prefix)
        return with_body(function, infer_address_spaces(statements, kernel_params))

    def _read_reachable_bodies(self) -> dict[str, Body]:
        """Return the bodies of the reachable functions, in the order of the module."""
        bodies: dict[str, Body] = {}

        def read_body(name: str) -> set[str] | None:
            """Add the body of the function *name*, and return the names that it uses; None if undefined."""
            if name not in self._functions:
                return None
            function = self._functions[name]
            bodies[name] = body = Body(function, strip_debug_lines(function))
            declarations = self._combined.first_declarations[self._combined.origins[name]]
            # ptxas rejects these names, but would accept them in the combined text, where all declarations
            # are at the beginning.
            undeclared = {
                used_name
                for used_name in body.reached_names.difference(_PREDEFINED)
                if used_name not in declarations or declarations[used_name] > function.start
            }
            if undeclared:
                raise NotCombinedError(f"{name} names {min(undeclared)} before it is declared")
            return body.reached_names

        reachable(self._roots(), read_body)
        return {name: bodies[name] for name in self._functions if name in bodies}

    def _inline_calls(self, name: str) -> bool:
        """Inline calls in the function *name*, and record why others stay; return whether any is inlined."""
        body = self._bodies[name]
        edits: Edits = {}
        size = body.size
        self._reached_names[name] = body.symbols.copy()
        for site in body.call_sites:
            reason = next(self._not_inlined_reasons(name, site, size), "")
            if not reason:
                try:
                    edits.update(self._inlining_edits(body, site))
                except ValueError as error:
                    reason = str(error)
            if reason:
                self._not_inlined.append(f"{name}: {site.callee}: {reason}")
                self._reached_names[name].add(site.callee)
            else:
                self._count += 1
                size += self._bodies[site.callee].size
                self._reached_names[name] |= self._reached_names[site.callee]
        if body.indirect_calls:
            calls = "1 call" if body.indirect_calls == 1 else f"{body.indirect_calls} calls"
            self._not_inlined.append(
                f"{name}: {calls} through a pointer: the function is known only at run time"
            )
        body.statements = ptx.apply_edits(body.statements, edits)
        # Callers of this function come later, and inline its new statements: `Body` analyses them.
        if edits and self._call_counts[name]:
            self._bodies[name] = Body(body.function, body.statements)
        return bool(edits)

    def _not_inlined_reasons(self, name: str, site: CallSite, size: int) -> Iterator[str]:
        """
        Yield the reasons why a call is not inlined; none if it can be.

        Args:
            name: The function that contains the call.
            site: The call.
            size: The number of instructions of that function, with those of calls inlined so far.
        """
        callee = self._bodies.get(site.callee)
        if callee is None:
            target = self._aliases.get(site.callee)
            yield f"it is another name of {target}" if target else "it is not defined here"
            return
        if callee.function.linkage == "weak" and not self._whole_program:
            yield "it is weak, and another input may define it"
        yield from _callee_conflicts(site, callee)
        yield from _caller_conflicts(self._bodies[name], site, callee)
        if size + callee.size > MAX_CALLER_INSTRUCTIONS:
            yield f"{name} would grow beyond {MAX_CALLER_INSTRUCTIONS} instructions"
        if self._inline_all:
            return
        origins = self._combined.origins
        if origins[name] == origins[site.callee]:
            yield "both are in one input, whose compiler did not inline the call"
        if callee.size > MAX_SMALL_INSTRUCTIONS and self._call_counts[site.callee] > 1:
            yield f"it has {callee.size} instructions and {self._call_counts[site.callee]} calls"

    def _inlining_edits(self, caller: Body, site: CallSite) -> Edits:
        """
        Return the edits of *caller* that inline the call at *site*.

        Raises:
            ValueError: An access of the call's variables cannot be replaced; the message is the reason.
        """
        callee = self._bodies[site.callee]
        # The number of calls inlined so far makes the names of this call unique.
        prefix = f"{self._prefix}{self._count}_"
        caller_edits: Edits = {}
        callee_edits: Edits = {}
        for index, (formal, actual) in enumerate(zip(callee.formals, site.actuals, strict=True)):
            assert actual  # noqa: S101 - `_caller_conflicts` refuses a call with None
            accesses = *actual.accesses.values(), *formal.accesses.values()
            new_name = f"{prefix}{index}_"
            pieces = None if formal.address_indices else RegisterPieces(f"%{new_name}", actual.size, accesses)
            move: Callable[[Access], list[ptx.Statement]]
            if pieces is None or pieces.joins_narrow_pieces:
                caller_edits[actual.declaration_index] = [_local_declaration(new_name, formal, actual)]
                for address_index in formal.address_indices:
                    address_move = callee.statements[address_index]
                    callee_edits[address_index] = [_with_address_of(new_name, address_move)]
                move = functools.partial(_local_access, new_name)
            else:
                caller_edits[actual.declaration_index] = pieces.declarations()
                move = pieces.moves
            caller_edits |= actual.access_edits(move)
            callee_edits |= formal.access_edits(move)
        call = caller.statements[site.index]
        assert isinstance(call, ptx.Instruction)  # noqa: S101 - it is a `call`
        block = _as_block(callee, f"${prefix}", callee_edits)
        caller_edits[site.index] = _under_guard(call, f"${prefix}", block)
        return caller_edits

    def _roots(self) -> Iterator[str]:
        """Yield the names of functions that other inputs, drivers, variables and aliases refer to."""
        for name, function in self._functions.items():
            # A driver finds kernels and unified functions by their names.
            if (
                function.kind == "entry"
                or function.attributes
                or (function.linkage and not self._whole_program)
            ):
                yield name
        for variable, _ in self._combined.variables:
            yield from variable.symbols
        for alias in self._combined.aliases:
            yield from (alias.name, alias.target)


def _as_private(functions: Iterable[ptx.Function]) -> str:
    """
    Return the text of unreachable *functions*, private to the module.

    ptxas drops the functions, and reports errors in them as a linker would.
    """
    headings: list[str] = []
    bodies: list[str] = []
    for function in functions:
        heading = function.heading.removeprefix(".visible").removeprefix(".weak").lstrip()
        body = function.text[slice(*function.body_span)]
        headings.append(f"{heading};\n")
        # Most bodies have no line numbers, and need not be parsed to strip them.
        if ".loc" in body:
            body = ptx.format_body(strip_debug_lines(function))
        bodies.append(f"{heading}\n{body}\n")
    return "".join((*headings, *bodies))


def _callee_conflicts(site: CallSite, callee: Body) -> Iterator[str]:
    """Yield why the called function cannot be inlined, whatever its caller is."""
    if callee.function.kind == "entry":
        yield "it is a kernel"
    if any(inner.callee == site.callee for inner in callee.call_sites):
        yield "it is recursive"
    if callee.not_inlinable_reason:
        yield callee.not_inlinable_reason
    for formal in callee.formals:
        if formal.escapes:
            yield f"parameter {formal.name} has other uses"


def _caller_conflicts(caller: Body, site: CallSite, callee: Body) -> Iterator[str]:
    """Yield why the call of *callee* at *site* cannot be inlined into *caller*."""
    if any(inner.callee == caller.function.name for inner in callee.call_sites):
        yield "it is recursive"
    if len(site.actuals) != len(callee.formals) or site.result_count != len(callee.function.results):
        yield "the call passes another number of values"
        return
    for formal, actual in zip(callee.formals, site.actuals, strict=True):
        if actual is None:
            yield f"{formal.name} is not passed in a variable"
        elif actual.size != formal.size:
            yield f"{actual.size} bytes are passed for {formal.name}, which has {formal.size}"
        elif actual.calls > 1 or actual.escapes or actual.address_indices:
            yield f"the variable for {formal.name} has other uses"
    # Inside the caller, a name that *callee* uses, and that the module declares, would find the caller's own
    # declaration of that name.
    declared_names = {*caller.labels, *(formal.name for formal in caller.formals)}
    hidden = [name for name in callee.reached_names if name in declared_names or site.scope.find(name)]
    if hidden:
        yield f"the caller declares another {min(hidden)}"


def _local_declaration(name: str, formal: MemorySlot, actual: MemorySlot) -> ptx.Declaration:
    """Return the declaration of a local variable in place of the parameter *formal* and of *actual*."""
    alignment = max(formal.alignment, actual.alignment)
    return ptx.declaration(f".local .align {alignment} .b8 {name}[{actual.size}];")


def _with_address_of(name: str, address_move: ptx.Statement) -> ptx.Instruction:
    """Return *address_move*, such as `mov.b64 %rd1, param`, with *name* in place of the parameter."""
    assert isinstance(address_move, ptx.Instruction)  # noqa: S101 - it is a `mov`
    mnemonic, register = address_move.mnemonic, address_move.operands[0]
    return ptx.Instruction.of(mnemonic, register, name, guard=address_move.guard)


def _local_access(name: str, access: Access) -> list[ptx.Statement]:
    """Return *access* to the local variable *name*, such as `ld.local.v2.f32 {%f1, %f2}, [name+8]`."""
    vector = f".v{len(access.values)}" if len(access.values) > 1 else ""
    value = f"{{{', '.join(access.values)}}}" if vector else access.values[0]
    operands = f"[{name}+{access.offset}]", value
    mnemonic = f"{'st' if access.is_store else 'ld'}.local{vector}.{access.type}"
    return [
        ptx.Instruction.of(mnemonic, *(operands if access.is_store else operands[::-1]), guard=access.guard)
    ]


def _as_block(callee: Body, prefix: str, edits: Edits) -> list[ptx.Statement]:
    """Return the body of *callee* with *edits* as a block, whose labels begin with *prefix*."""
    end = f"{prefix}end"
    labels = {name: f"{prefix}{index}" for index, name in enumerate(callee.labels)}
    has_jumps = False
    for index in callee.returns:
        guard = callee.statements[index].guard  # type: ignore[union-attr] # it is a `ret`
        falls_through = index == len(callee.statements) - 1 and not guard
        edits[index] = [] if falls_through else [ptx.Instruction.of("bra", end, guard=guard)]
        has_jumps |= not falls_through
    for index in callee.label_indices:
        edits[index] = [ptx.with_labels(callee.statements[index], labels)]
    statements = ptx.apply_edits(callee.statements, edits)
    return [ptx.OPEN, *statements, *([ptx.Label(end)] if has_jumps else ()), ptx.CLOSE]


def _under_guard(call: ptx.Instruction, prefix: str, block: list[ptx.Statement]) -> list[ptx.Statement]:
    """Return *block*, which replaces *call*; if the call has a predicate, a branch skips the block."""
    if not call.guard:
        return block
    # The opposite of "@%p1 " is "@!%p1 ".
    register = call.guard[1:].lstrip("!")
    negated_guard = f"@{register}" if call.guard[1] == "!" else f"@!{register}"
    skip = f"{prefix}skip"
    return [
        ptx.OPEN,
        ptx.Instruction.of("bra", skip, guard=negated_guard),
        *block,
        ptx.Label(skip),
        ptx.CLOSE,
    ]
