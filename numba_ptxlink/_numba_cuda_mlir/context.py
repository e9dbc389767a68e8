"""
State that patched functions of numba-cuda-mlir share: the current compilation of a thread.

The import of this module imports nothing of numba-cuda-mlir, which may be in the middle of its own import.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink._front_end.patch import Context

if TYPE_CHECKING:
    from collections.abc import Iterator

# The attributes of a dispatcher that hold its compiled code, or the architecture to compile for.
_DISPATCHER_STATE = ("overloads", "targetoptions", "_device_dispatcher")


@dataclass(eq=False, repr=False)
class ExportedFunction:
    """
    The export of a function. Patched functions fill the dictionaries, of which only the keys are used.

    Args:
        chip: The architecture, such as "sm_90a".
        cc: The compute capability, such as (9, 0).
        links: The link files of the function and its callees, in the order in which they are met.
        declared: The functions of `cuda.declare_device` that the function and its callees call.
        raises: The file and line of each `raise` and `assert` in the function and its callees.
    """

    chip: str
    cc: tuple[int, int]
    links: dict[Any, None] = field(default_factory=dict)
    declared: dict[Any, None] = field(default_factory=dict)
    raises: dict[tuple[str, int], None] = field(default_factory=dict)
    # Each dispatcher whose code is hidden, with its former attributes, by its `id`.
    _hidden: dict[int, tuple[Any, dict[str, Any]]] = field(default_factory=dict)

    def hide_compiled_code(self, dispatcher: Any) -> None:
        """
        Hide the compiled code of *dispatcher* until the end of this export, so that it compiles again.

        A dispatcher keeps one result for all architectures, and the same one for exports and for kernels that
        are launched. But if the code meets an error as it runs, such as a `raise`, a launched kernel
        continues, and an export returns or traps.
        """
        if id(dispatcher) in self._hidden:
            return
        state = vars(dispatcher)
        attributes = {name: state[name] for name in _DISPATCHER_STATE if name in state}
        self._hidden[id(dispatcher)] = (dispatcher, attributes)
        state.pop("_device_dispatcher", None)
        dispatcher.overloads = type(dispatcher.overloads)()
        dispatcher.targetoptions = {**dispatcher.targetoptions, "chip": self.chip}

    def restore_dispatchers(self) -> None:
        """Restore the compiled code of all dispatchers."""
        for dispatcher, attributes in self._hidden.values():
            vars(dispatcher).pop("_device_dispatcher", None)
            vars(dispatcher).update(attributes)
        self._hidden.clear()


class Compilation(NamedTuple):
    """
    The values that outer patched functions pass to inner ones, through code of numba-cuda-mlir.

    Args:
        cc: The requested compute capability; None if none is requested. In an export, or if there is no
            device, queries for the device's compute capability return the requested one.
        origin: The Python function that is being compiled, with file and line, for messages; "" if unknown.
        parameter_names: For each parameter of the compiled kernel, the name of the Python argument that it
            belongs to; empty if they are unknown.
        declared_calls: The functions of `cuda.declare_device` that the compiled code calls: the name of each,
            its signature, and whether it has the C ABI.
        needs_cubin: Whether the result is linked into a cubin; False while only PTX or LTO-IR is needed.
        is_lowering: Whether a function is being lowered. A device function that is compiled meanwhile is a
            callee.
        export: The export that the compilation belongs to; None for a kernel or `cuda.compile`.
        unoptimised: Whether NVVM is called without optimisation. Such a call changes the code that the called
            library generates later in the process, so a private copy of NVVM is called.
    """

    cc: tuple[int, int] | None = None
    origin: str = ""
    parameter_names: tuple[str, ...] = ()
    declared_calls: tuple[tuple[str, tuple[Any, bool]], ...] = ()
    needs_cubin: bool = True
    is_lowering: bool = False
    export: ExportedFunction | None = None
    unoptimised: bool = False


_compilations = Context("numba_ptxlink_mlir", Compilation())
current_context, override = _compilations.current, _compilations.override


@contextlib.contextmanager
def exporting(export: ExportedFunction) -> Iterator[None]:
    """Compile for *export* in a `with` block; restore the dispatchers at its end."""
    try:
        with override(export=export, cc=export.cc):
            yield
    finally:
        export.restore_dispatchers()


def requested_cc(options: dict[str, Any]) -> tuple[int, int] | None:
    """Return the compute capability in a dispatcher's *options*, else the compilation's, else None."""
    from numba_ptxlink._arch import Arch

    requested = options.get("chip") or options.get("cc")
    if not requested:
        return current_context().cc
    arch = Arch.of(requested)
    return (arch.major, arch.minor)
