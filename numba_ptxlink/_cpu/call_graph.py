"""
Find the functions that a kernel or function calls, directly or not.

Also find the functions that are recursive, and those in which a thread may suspend to wait for other threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# Opcodes at which a thread may suspend to wait for other threads.
_SUSPENDING_OPCODES = {
    "bar",
    "barrier",
    "shfl",
    "vote",
    "match",
    "redux",
    "elect",
    "activemask",
    "mma",
    "movmatrix",
    "ldmatrix",
    "stmatrix",
    "wmma",
    "mbarrier",
}
# The function of the device runtime at which a thread suspends: the grid barrier of cooperative groups.
_SUSPENDING_FUNCTION = "cudaCGSynchronize"


class CallGraph:
    """
    The functions that an entry calls, directly or not.

    Args:
        functions: Functions with a body, by their names and aliases.
        entry: The name of the kernel or function that is launched or called.
        address_taken: Returns the names of the functions whose address is taken, so that a call by a pointer
            may reach them. Called only if there is such a call.

    Attributes:
        bodies: The bodies of the entry and of the functions that it calls, by name: for each statement, its
            index, the statement itself, and its scope.
        callees: For each of these functions, by name, the names of the functions with a body that it calls,
            each once.
        suspending: The functions in which, or in a callee of which, a thread may suspend.
        recursive: The functions that call themselves, directly or not, and those that call such a function.
    """

    def __init__(
        self,
        functions: Mapping[str, ptx.Function],
        entry: str,
        address_taken: Callable[[], Iterable[str]],
    ) -> None:
        self._address_taken = address_taken
        self.bodies: dict[str, Sequence[tuple[int, ptx.Statement, ptx.Scope]]] = {}
        self.callees: dict[str, list[str]] = {}
        self.suspending: set[str] = set()
        self._callers: dict[str, list[str]] = {}
        pending = [functions[entry]]
        while pending:
            function = pending.pop()
            if function.name not in self.bodies:
                self._add(function, functions)
                pending += [functions[name] for name in reversed(self.callees[function.name])]
        # A thread may suspend in the callers of these functions, too. The loop visits the names that it adds.
        suspending_names = [*self.suspending]
        for name in suspending_names:
            new = [caller for caller in self._callers.get(name, ()) if caller not in self.suspending]
            self.suspending.update(new)
            suspending_names += new
        self._callees_first = self._sort()
        self.recursive = self.callees.keys() - self._callees_first

    def _add(self, function: ptx.Function, functions: Mapping[str, ptx.Function]) -> None:
        """Add the body and the callees of a function, and whether a thread may suspend in its body."""
        name = function.name
        self.bodies[name] = body = list(ptx.with_scopes(function.body))
        instructions = [statement for _, statement, _ in body if isinstance(statement, ptx.Instruction)]
        calls = [ptx.parse_call(call) for call in instructions if call.opcode == "call"]
        # A dict keeps the order of the source. The order of a set, and with it the LLVM IR, would change with
        # PYTHONHASHSEED.
        called_names = dict.fromkeys(call.callee for call in calls)
        for call in calls:
            # For a call by a pointer, `callee` is the register with the address.
            if call.callee.startswith("%"):
                targets = self.indirect_callees(call, functions)
                called_names |= dict.fromkeys(target.name for target in targets)
        opcodes = {instruction.opcode for instruction in instructions}
        if _SUSPENDING_FUNCTION in called_names or opcodes & _SUSPENDING_OPCODES:
            self.suspending.add(name)
        # `functions` has no registers, and no functions of CUDA such as vprintf.
        callees = (functions[callee].name for callee in called_names if callee in functions)
        self.callees[name] = [*dict.fromkeys(callees)]
        for callee in self.callees[name]:
            self._callers.setdefault(callee, []).append(name)

    def indirect_callees(
        self, call: ptx.Call, functions: Mapping[str, ptx.Function]
    ) -> Sequence[ptx.Function]:
        """
        Return the functions that a call by a pointer may reach.

        Their address is taken, and they have as many results and parameters as the call.
        """
        counts = len(call.results), len(call.arguments)
        # Aliases of a function have its name in `Function.name`, so that each function is here once.
        targets = {functions[name].name: functions[name] for name in self._address_taken()}
        return [
            target
            for target in targets.values()
            if target.kind != "entry" and (len(target.results), len(target.params)) == counts
        ]

    def stack_sizes(
        self, frame_sizes: Mapping[str, int], callee_offsets: Mapping[str, int], recursion_size: int
    ) -> Mapping[str, int]:
        """
        Return for each function the bytes that it and its callees need, on the path of calls that needs most.

        Args:
            frame_sizes: The bytes that each function needs without its callees.
            callee_offsets: The offset in the frame of each function from which on its callees have theirs.
            recursion_size: The bytes for each function of `recursive` with its callees, since the depth of a
                recursion is unknown.
        """
        sizes = dict.fromkeys(self.recursive, recursion_size)
        for name in self._callees_first:
            callee_size = max((sizes[callee] for callee in self.callees[name]), default=0)
            sizes[name] = callee_offsets[name] + callee_size if callee_size else frame_sizes[name]
        return sizes

    def _sort(self) -> list[str]:
        """Return the functions from which no call leads into a recursion, callees before their callers."""
        # The number of callees of each function that are not in `sorted_names` yet.
        unsorted_counts = {name: len(callees) for name, callees in self.callees.items()}
        sorted_names = [name for name, count in unsorted_counts.items() if not count]
        # The loop also visits the names that it appends.
        for callee in sorted_names:
            for caller in self._callers.get(callee, ()):
                unsorted_counts[caller] -= 1
                if not unsorted_counts[caller]:
                    sorted_names.append(caller)
        return sorted_names
