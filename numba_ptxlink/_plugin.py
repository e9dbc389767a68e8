"""
Activate the plugin, which replaces the linkers of numba-cuda and numba-cuda-mlir, the front ends.

Programs call `enable`, `disable` and `status`. The import hook calls `imported` after each module in
`hooked()` has run. Without the hook, front ends that are imported already are patched by `init`, the entry
point in pyproject.toml, or by `imported_late`, which an import of this package calls. All functions may be
called repeatedly, and handle each front end separately: see `_front_end.activation`.

`imported`, `init` and `imported_late` never raise an exception, since imports would fail: a wrong environment
variable or a damaged installation causes a warning, and is the reason in `status()`. So that this module can
be imported even then, it imports most of the package on demand.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from ._config import FRONT_ENDS, config
from ._front_end.activation import Activation, error_reason, switch
from ._locks import Lock
from .errors import ActivationError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

__all__ = ["FrontEndStatus", "Status", "disable", "enable", "init", "status"]


class FrontEndStatus(NamedTuple):
    """
    The state of the plugin in one front end.

    Args:
        name: "numba-cuda" or "numba-cuda-mlir".
        active: Whether the front end links through this package.
        reason: The reason why it does, or does not.
        trigger: The event that decided, as in `Status`; None before any decision.
        versions: The versions of the front end's distributions that have been imported.
    """

    name: str
    active: bool
    reason: str
    trigger: str | None
    versions: dict[str, str]


class Status(NamedTuple):
    """
    The state of the plugin in this process.

    The first three fields refer to the active front end; if none is active, to an imported or installed one.

    Args:
        active: Whether a front end links through this package.
        reason: The reason why it does, or does not.
        trigger: The event that decided: "import hook", "entry point", "import of numba_ptxlink", "enable()",
            "disable()"; None before any decision.
        backend: NUMBA_PTXLINK_BACKEND, the tool that links; "auto" selects it by the inputs.
        links_served: The number of links of front ends that this package completed in this process.
        assembled: The number of these links done by nvPTXCompiler.
        linked: The number of these links done by nvJitLink.
        last_link: The tool of the last link, and the reason for its choice; "" before any link.
        cache_hits: The number of results of compilers and linkers read from the cache in this process.
        cache_misses: The number of results that were not in the cache.
        cache_bytes_read: The size of the code read from the cache, in bytes.
        cache_bytes_written: The size of the code written to the cache, in bytes.
        versions: The versions of the packages involved that have been imported.
        front_ends: The state in each front end, whether or not it is installed.
        device: The CUDA device of this process if that is the CPU, such as "CPU, sm_75, memcheck"; else "".
    """

    active: bool
    reason: str
    trigger: str | None
    backend: str
    links_served: int
    assembled: int
    linked: int
    last_link: str
    cache_hits: int
    cache_misses: int
    cache_bytes_read: int
    cache_bytes_written: int
    versions: dict[str, str]
    front_ends: tuple[FrontEndStatus, ...]
    device: str


def _free_compiler_locks() -> None:
    """Free the locks of the loaded front ends' compilers, in a forked child."""
    # If the registry is not imported, no front end is loaded.
    registry = sys.modules.get(f"{__package__}._front_end.registry")
    for front_end in registry.loaded_front_ends() if registry is not None else ():
        front_end.free_compiler_lock()


_activations = {name: Activation(name) for name in FRONT_ENDS}
# enable() and disable() also hold the locks of the compilers, which must be free in a forked child.
# Never import a front end's module while `_lock` is held: another thread that imports the module holds the
# module's import lock, and waits in `imported` for `_lock`.
_lock = Lock(forget=_free_compiler_locks)


def imported_late() -> None:
    """Patch front ends that were imported before this package, without the import hook."""
    _decide_safely("import of numba_ptxlink")


def hooked(name: str) -> frozenset[str]:
    """Return the modules of the front end *name* after whose import the hook calls `imported`."""
    return _activations[name].hooked_modules()


def init() -> None:
    """
    Patch the front ends: the entry point `init`.

    Numba calls this function before it first compiles for the CPU. As observed, neither numba-cuda 0.30
    nor numba-cuda-mlir 0.6 calls it for kernels.
    """
    _decide_safely("entry point")


def imported(module: ModuleType, name: str) -> None:
    """
    Activate the front end *name*, or patch *module*, which has just run.

    After the front end's `trigger_module`, decide whether to activate the front end; patch any other module
    if the front end is active. The import hook calls this function.
    """
    with _lock.held:
        _activations[name].after_import(module.__name__)


def enable() -> Status:
    """
    Replace the linkers of all front ends, now or as soon as they are imported, regardless of NUMBA_PTXLINK.

    Raises:
        ActivationError: An imported front end is not supported, or no installed one is. Other front ends are
            activated all the same. The message names the cure.
        ConfigError: An environment variable has an unknown value.
    """
    with _exclude_other_threads():
        config()
        # The reasons why front ends are refused, by their names.
        refused: dict[str, str] = {}
        first_error: Exception | None = None
        previous_setting = switch.enabled
        switch.enabled = True
        installed = [activation for activation in _activations.values() if activation.is_installed()]
        # If no front end is installed, the first one refuses, with the reason and the cure.
        for activation in installed or list(_activations.values())[:1]:
            try:
                reason = activation.front_end.unsupported_reason()
                if reason is None:
                    activation.decide("enable()")
            except Exception as error:  # noqa: BLE001 - raised below, after all front ends
                first_error, reason = first_error or error, error_reason(error)
                activation.record_decision("enable()", reason)
            if reason is not None:
                refused[activation.name] = reason
        # All installed front ends are refused, or none is installed and the first one is refused.
        if len(refused) >= len(installed):
            switch.enabled = previous_setting
        # Ignore refused front ends that the program does not import, since another one is enabled.
        elif not any(_activations[name].is_imported() for name in refused):
            refused.clear()
        if refused:
            raise ActivationError(
                f"numba-ptxlink cannot be enabled: {'; '.join(refused.values())}."
            ) from first_error
        return status()


def disable() -> Status:
    """Restore the front ends' original attributes, and stay inactive until `enable` is called."""
    with _exclude_other_threads():
        switch.enabled = False
        for activation in _activations.values():
            activation.deactivate()
            activation.record_decision("disable()", "disable() was called")
        return status()


def status() -> Status:
    """Return the state of the plugin and its reason. Imports neither numba nor CUDA."""
    counts = _counts()
    with _lock.held:
        reported_activation = _reported_activation()
        return Status(
            active=reported_activation.active,
            reason=reported_activation.reason,
            trigger=reported_activation.trigger,
            backend=_backend(),
            versions=_versions(("numba", *FRONT_ENDS, "cuda.core", "cuda.bindings")),
            front_ends=tuple(_front_end_status(activation) for activation in _activations.values()),
            device=_device(),
            **counts,
        )


def _reported_activation() -> Activation:
    """Return the activation that the first fields of `Status` refer to."""
    activations = list(_activations.values())
    for condition in (lambda activation: activation.active, Activation.is_imported, Activation.is_installed):
        for activation in activations:
            if condition(activation):
                return activation
    return activations[0]


def _front_end_status(activation: Activation) -> FrontEndStatus:
    """Return the public form of *activation*."""
    versions = _versions(activation.front_end.distributions)
    return FrontEndStatus(activation.name, activation.active, activation.reason, activation.trigger, versions)


def _counts() -> dict[str, Any]:
    """Return the fields of `Status` about links and the cache, by name."""
    from . import cache
    from ._link.kernels import completed_links

    links = completed_links()
    counters = None
    # An invalid environment variable is reported as the reason of the status.
    with contextlib.suppress(ConfigError):
        counters = cache.counters()
    counter_names = ("hits", "misses", "bytes_read", "bytes_written")
    return {
        "links_served": links.assembled + links.linked,
        "assembled": links.assembled,
        "linked": links.linked,
        "last_link": links.last_link,
        **{f"cache_{name}": getattr(counters, name, 0) for name in counter_names},
    }


def _device() -> str:
    """Return the description of the CPU if it is the CUDA device of this process, else ""."""
    from ._cpu import device

    return device.description() if device.is_active() else ""


def _backend() -> str:
    """Return the value of NUMBA_PTXLINK_BACKEND, even if it is unknown."""
    try:
        return config().backend
    except ConfigError:
        return os.environ.get("NUMBA_PTXLINK_BACKEND", "auto")


def _versions(names: Iterable[str]) -> dict[str, str]:
    """
    Return the versions of those of *names* that are imported, by distribution.

    A name is that of a distribution, such as "numba-cuda", or of a module, such as "cuda.core".
    """
    # "numba-cuda" has the module numba_cuda, and "cuda.core" belongs to the distribution cuda-core.
    modules = {name.replace(".", "-"): sys.modules.get(name.replace("-", "_")) for name in names}
    versions = {name: getattr(module, "__version__", None) for name, module in modules.items()}
    return {name: str(version) for name, version in versions.items() if version is not None}


@contextlib.contextmanager
def _exclude_other_threads() -> Iterator[None]:
    """Keep other threads from compiling and deciding during a `with` block."""
    with contextlib.ExitStack() as stack:
        # Acquire `_lock` last, as a thread does that compiles: it holds the compiler's lock, imports a module
        # of the front end, and then waits in `imported` for `_lock`.
        for activation in _activations.values():
            stack.enter_context(activation.front_end.block_compilation())
        stack.enter_context(_lock.held)
        yield


def _decide_safely(trigger: str) -> None:
    """Decide which front ends to activate, without making the current import fail."""
    with _lock.held:
        for activation in _activations.values():
            if activation.is_installed():
                with activation.during_import(trigger):
                    activation.decide(trigger)
