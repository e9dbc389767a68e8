"""
Activation: `enable`, `disable`, `status`, and what the import hook and the entry points call.

The hook calls `imported` after each module in `hooked()` has run. The entry points call `init`, and a
late import of the package `imported_late`, which do the same for modules that are imported already. All of it
is idempotent, and each front end is served for itself: see `_front_end.activation`. What runs during an
import never fails it: a wrong variable or a damaged installation is a warning, and the reason in `status()`.
For that, the rest of the package is imported when it is needed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from ._config import FRONT_ENDS, config
from ._front_end.activation import Activation, described, switch
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
        active: Whether it links through this package.
        reason: Why, or why not.
        trigger: The event that decided, as in `Status`; None before any.
        versions: The versions of it and of what it compiles with, as far as these have been imported.
    """

    name: str
    active: bool
    reason: str
    trigger: str | None
    versions: dict[str, str]


class Status(NamedTuple):
    """
    The state of the plugin in this process.

    The first three tell of the front end that is active; if none is, of one that is imported, or installed.

    Args:
        active: Whether a front end links through this package.
        reason: Why, or why not.
        trigger: The event that decided: "import hook", "entry point", "import of numba_ptxlink", "enable()",
            "disable()", or None before any.
        backend: NUMBA_PTXLINK_BACKEND, the tool that links; "auto" selects it by the inputs.
        links_served: Links of front ends completed by this package in this process.
        assembled: Those of them done by nvPTXCompiler.
        linked: Those of them done by nvJitLink.
        last_link: Tool and reason of the last of them, "" before any.
        cache_hits: Results of compilers and linkers read from the cache in this process.
        cache_misses: Results that were not in the cache.
        cache_bytes_read: Code read from the cache, in bytes.
        cache_bytes_written: Code written to the cache, in bytes.
        versions: The versions of the packages involved that have been imported.
        front_ends: The state in each front end, whether or not it is installed.
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


def _free_compiler_locks() -> None:
    registry = sys.modules.get(f"{__package__}._front_end.registry")
    for front_end in registry.loaded() if registry is not None else ():
        front_end.free_compiler_lock()


_activations = {name: Activation(name) for name in FRONT_ENDS}
# A thread that switches holds the compilers' locks as well, which a forked child would never get.
# Nobody who holds it imports a module of a front end: a thread that imports one waits for it in `imported`.
_lock = Lock(forget=_free_compiler_locks)


def imported_late() -> None:
    """Serve the first import of this package, without the import hook and after that of a front end."""
    _decide_safely("import of numba_ptxlink")


def hooked(name: str) -> frozenset[str]:
    """Return the modules of the front end *name* whose import `imported` waits for."""
    return _activations[name].hooked()


def init() -> None:
    """Serve the entry points of the groups that the front ends read."""
    _decide_safely("entry point")


def imported(module: ModuleType, name: str) -> None:
    """Serve the import hook: *module*, one of `hooked(name)`, has just been imported."""
    with _lock.held:
        _activations[name].imported(module.__name__)


def enable() -> Status:
    """
    Replace the linkers of all front ends, now or as soon as they are imported, whatever NUMBA_PTXLINK is.

    Raises:
        ActivationError: A front end that is imported cannot be served, or none that is installed can. The
            others are served all the same. The message names the cure.
        ConfigError: An environment variable has an unknown value.
    """
    with _changing():
        config()
        refused: dict[str, str] = {}
        first: Exception | None = None
        before, switch.enabled = switch.enabled, True
        installed = [each for each in _activations.values() if each.is_installed()]
        for each in installed or list(_activations.values())[:1]:
            try:
                reason = each.front_end.unsupported_reason()
                if reason is None:
                    each.decide("enable()")
            except Exception as error:  # noqa: BLE001 - raised below, after the others were served
                first, reason = first or error, described(error)
                each.record_decision("enable()", reason)
            if reason is not None:
                refused[each.name] = reason
        if len(refused) >= len(installed):
            switch.enabled = before
        elif not any(_activations[name].is_imported() for name in refused):
            refused.clear()
        if refused:
            raise ActivationError(
                f"numba-ptxlink cannot be enabled: {'; '.join(refused.values())}."
            ) from first
        return status()


def disable() -> Status:
    """Restore the front ends' own attributes exactly, and stay inactive until `enable` is called."""
    with _changing():
        switch.enabled = False
        for each in _activations.values():
            each.deactivate()
            each.record_decision("disable()", "disable() was called")
        return status()


def status() -> Status:
    """Return the state of the plugin and its reason. Imports neither numba nor CUDA."""
    served = _served()
    with _lock.held:
        told = _told_of()
        return Status(
            active=told.active,
            reason=told.reason,
            trigger=told.trigger,
            backend=_backend(),
            versions=_versions(("numba", *FRONT_ENDS, "cuda.core", "cuda.bindings")),
            front_ends=tuple(_front_end_status(each) for each in _activations.values()),
            **served,
        )


def _told_of() -> Activation:
    """Return the front end that the plugin's own state is about."""
    every = list(_activations.values())
    for holds in (lambda each: each.active, Activation.is_imported, Activation.is_installed):
        for each in every:
            if holds(each):
                return each
    return every[0]


def _front_end_status(each: Activation) -> FrontEndStatus:
    versions = _versions(each.front_end.distributions)
    return FrontEndStatus(each.name, each.active, each.reason, each.trigger, versions)


def _served() -> dict[str, Any]:
    from . import cache
    from ._link.kernels import completed

    links, counters = completed(), None
    # A wrong variable is the reason in the status.
    with contextlib.suppress(ConfigError):
        counters = cache.counters()
    cached = ("hits", "misses", "bytes_read", "bytes_written")
    return {
        "links_served": links.assembled + links.linked,
        "assembled": links.assembled,
        "linked": links.linked,
        "last_link": links.last,
        **{f"cache_{name}": getattr(counters, name, 0) for name in cached},
    }


def _backend() -> str:
    try:
        return config().backend
    except ConfigError:
        return os.environ.get("NUMBA_PTXLINK_BACKEND", "auto")


def _versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of those of *names*, of distributions or modules, that have been imported."""
    modules = {name.replace(".", "-"): sys.modules.get(name.replace("-", "_")) for name in names}
    found = {name: getattr(module, "__version__", None) for name, module in modules.items()}
    return {name: str(version) for name, version in found.items() if version is not None}


@contextlib.contextmanager
def _changing() -> Iterator[None]:
    """Keep other threads from compiling and deciding during a `with` block."""
    with contextlib.ExitStack() as stack:
        for each in _activations.values():
            stack.enter_context(each.front_end.compilation_stopped())
        stack.enter_context(_lock.held)
        yield


def _decide_safely(trigger: str) -> None:
    """Decide during an import, which never fails for it."""
    with _lock.held:
        for each in _activations.values():
            if each.is_installed():
                with each.during_import(trigger):
                    each.decide(trigger)
