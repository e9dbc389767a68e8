"""
What travels between the replaced functions of numba-cuda-mlir: the compilation that a thread is in.

Importing this module imports nothing of numba-cuda-mlir: it may run during its own import.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink._front_end.patch import Context

if TYPE_CHECKING:
    from collections.abc import Iterator

_DISPATCHER_STATE = ("overloads", "targetoptions", "_device_dispatcher")


@dataclass(eq=False, repr=False)
class ExportedFunction:
    """
    One exported function with all that it calls, filled in as its compilation proceeds.

    Args:
        chip: The architecture, such as "sm_90a".
        cc: Its compute capability.
        links: The link files that it asks for, in order.
        declared: The functions of `cuda.declare_device` that it calls.
        raises: The file and line of each `raise` and `assert`.
    """

    chip: str
    cc: tuple[int, int]
    links: dict[Any, None] = field(default_factory=dict)
    declared: dict[Any, None] = field(default_factory=dict)
    raises: dict[tuple[str, int], None] = field(default_factory=dict)
    _borrowed: dict[int, tuple[Any, dict[str, Any]]] = field(default_factory=dict)

    def borrow(self, dispatcher: Any) -> None:
        """
        Let *dispatcher* forget what it compiled for others, until the end of this export.

        It keeps one result for all architectures, and for kernels that numba-cuda-mlir launches, which have
        another way with errors.
        """
        if id(dispatcher) in self._borrowed:
            return
        there = vars(dispatcher)
        kept = {name: there[name] for name in _DISPATCHER_STATE if name in there}
        self._borrowed[id(dispatcher)] = (dispatcher, kept)
        there.pop("_device_dispatcher", None)
        dispatcher.overloads = type(dispatcher.overloads)()
        dispatcher.targetoptions = {**dispatcher.targetoptions, "chip": self.chip}

    def give_back(self) -> None:
        """Restore every borrowed dispatcher."""
        for dispatcher, kept in self._borrowed.values():
            vars(dispatcher).pop("_device_dispatcher", None)
            vars(dispatcher).update(kept)
        self._borrowed.clear()


class Compilation(NamedTuple):
    """
    The values that outer replaced functions pass to inner ones.

    Args:
        cc: The requested compute capability, which counts where there is no device.
        origin: The Python function that is being compiled, with file and line, for messages.
        called: The declared functions that it calls, each with its signature and whether it has the C ABI.
        links: Whether anybody has use for a cubin.
        lowering: Whether a function is being lowered; what it calls is compiled meanwhile.
        export: The exported function that is being compiled, None for any other compilation.
        unoptimised: Whether NVVM does not optimise, which changes what it compiles later.
    """

    cc: tuple[int, int] | None = None
    origin: str = ""
    called: tuple[tuple[str, tuple[Any, bool]], ...] = ()
    links: bool = True
    lowering: bool = False
    export: ExportedFunction | None = None
    unoptimised: bool = False


_compilations = Context("numba_ptxlink_mlir", Compilation())
current, entered = _compilations.current, _compilations.entered


@contextlib.contextmanager
def exporting(export: ExportedFunction) -> Iterator[None]:
    """Compile *export* for the length of a `with` block."""
    try:
        with entered(export=export, cc=export.cc):
            yield
    finally:
        export.give_back()


def requested_cc(options: dict[str, Any]) -> tuple[int, int] | None:
    """Return the compute capability in a dispatcher's options, None where none was asked for."""
    from numba_ptxlink._arch import Arch

    requested = options.get("chip") or options.get("cc")
    if not requested:
        return current().cc
    arch = Arch.of(requested)
    return (arch.major, arch.minor)
