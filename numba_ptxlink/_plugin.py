"""
Activation: when and why this package replaces numba-cuda's linker, and how it restores it.

The hook's finder calls `imported` after each module in `HOOKED` has run. The entry points call `init`, which
does the same for modules that are imported already. Everything here is idempotent.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import cache
from ._config import config
from ._front_end import HOOKED, TABLE, release, served, substitution
from ._locks import Lock
from ._tools import driver, nvrtc
from .errors import ActivationError, PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

__all__ = ["Status", "disable", "enable", "init", "status"]

log = logging.getLogger("numba_ptxlink")


@dataclass(frozen=True)
class Status:
    """
    The state of the plugin in this process.

    Args:
        active: Whether numba-cuda links through this package.
        reason: Why, or why not.
        trigger: The event that decided: "import hook", "entry point", "enable()", "disable()", or None before
            any.
        backend: NUMBA_PTXLINK_BACKEND, the tool that makes cubins; "auto" selects it by the inputs.
        links_served: Links completed by `PtxLinker` in this process.
        assembled: Those of them done by nvPTXCompiler.
        linked: Those of them done by nvJitLink.
        cache_hits: Results of compilers and linkers read from the cache in this process.
        cache_misses: Results that were not in the cache.
        cache_bytes_read: Code read from the cache, in bytes.
        cache_bytes_written: Code written to the cache, in bytes.
        versions: The versions of the packages involved that have been imported.
    """

    active: bool
    reason: str
    trigger: str | None
    backend: str
    links_served: int
    assembled: int
    linked: int
    cache_hits: int
    cache_misses: int
    cache_bytes_read: int
    cache_bytes_written: int
    versions: dict[str, str]


@dataclass
class _State:
    active: bool = False
    wanted: bool | None = None  # set by enable() and disable(), None before either
    reason: str = "numba.cuda has not been imported yet"
    trigger: str | None = None
    ran: set[str] = field(default_factory=set)  # modules that the hook has reported
    applied: list[substitution.Substitution] = field(default_factory=list)


_state = _State()
_lock = Lock()


def init() -> None:
    """Serve the entry points `numba_extensions` and `numba_cuda_extensions`."""
    _decide("entry point")


def imported(module: ModuleType) -> None:
    """Serve the import hook: *module*, one of `HOOKED`, has just been imported."""
    with _lock.held:
        _state.ran.add(module.__name__)
        if module.__name__ == release.DRIVER:
            _decide("import hook")
        elif _state.active:
            _attempt("import hook", lambda: _apply(module.__name__))


def enable() -> Status:
    """
    Replace numba-cuda's linker, now or as soon as numba.cuda is imported, whatever NUMBA_PTXLINK is.

    Raises:
        ActivationError: The installed numba-cuda is not supported. The message names the cure.
    """
    with release.compilation_stopped(), _lock.held:
        reason = release.unsupported_reason()
        if reason is not None:
            raise ActivationError(f"numba-ptxlink cannot be enabled: {reason}.")
        _state.wanted = True
        _decide("enable()")
        return status()


def disable() -> Status:
    """Restore numba-cuda's own attributes exactly, and stay inactive until `enable` is called."""
    with release.compilation_stopped(), _lock.held:
        _state.wanted = False
        _deactivate()
        _settle("disable()", "disable() was called")
        return status()


def status() -> Status:
    """Return the state of the plugin and its reason. Imports neither numba nor CUDA."""
    counts = served()
    cache_counts = cache.counters()
    with _lock.held:
        return Status(
            active=_state.active,
            reason=_reason(),
            trigger=_state.trigger,
            backend=config().backend,
            links_served=counts["assembled"] + counts["linked"],
            assembled=counts["assembled"],
            linked=counts["linked"],
            cache_hits=cache_counts.hits,
            cache_misses=cache_counts.misses,
            cache_bytes_read=cache_counts.bytes_read,
            cache_bytes_written=cache_counts.bytes_written,
            versions=_versions(),
        )


def _reason() -> str:
    if _state.trigger is None and "numba.cuda" in sys.modules:
        unsupported = release.unsupported_reason()
        return unsupported or "numba.cuda has been imported without the import hook; call enable()"
    return _state.reason


def _decide(trigger: str) -> None:
    with _lock.held:
        _set_up_logging()
        if _state.active:
            return
        refusal = _refusal()
        if refusal is not None:
            _settle(trigger, refusal)
            return
        # The hook reports a module that another thread is still importing, once it is complete.
        if release.DRIVER not in _state.ran and not release.is_imported(release.DRIVER):
            _wait(trigger)
            return
        if _attempt(trigger, _activate):
            _settle(trigger, _grounds())
        elif trigger == "enable()":
            raise ActivationError(f"numba-ptxlink cannot be enabled: {_state.reason}.")


def _attempt(trigger: str, change: Callable[[], None]) -> bool:
    """Apply a change to numba-cuda; deactivate if its internals are not those of its version."""
    try:
        change()
    except (ImportError, AttributeError, KeyError) as error:
        _deactivate()
        _settle(trigger, f"numba-cuda lacks what the plugin replaces ({type(error).__name__}: {error})")
        return False
    return True


def _refusal() -> str | None:
    """Return why the plugin stays inactive, None if it should be active."""
    if _state.wanted is False:
        return "disable() was called"
    if _state.wanted is None:
        mode = config().mode
        if mode == "0":
            return "NUMBA_PTXLINK=0"
        if mode == "auto":
            newer, why = driver_is_older()
            if not newer:
                return f"NUMBA_PTXLINK=auto: {why}"
    return release.unsupported_reason()


def _grounds() -> str:
    if _state.wanted:
        return "enable() was called"
    if config().mode == "auto":
        return f"NUMBA_PTXLINK=auto: {driver_is_older()[1]}"
    return "numba-cuda is installed and supported"


def driver_is_older() -> tuple[bool, str]:
    """Compare driver and toolkit, without a fork or initialising CUDA; return the answer and its wording."""
    cuda = driver.version()
    if cuda is None:
        return False, "there is no driver"
    try:
        toolkit = nvrtc.version()
    except PtxlinkError as error:
        return False, f"the toolkit's version is unknown ({error})"
    relation = "older than" if cuda < toolkit else "as new as"
    words = f"the driver (CUDA {cuda[0]}.{cuda[1]}) is {relation} the toolkit ({toolkit[0]}.{toolkit[1]})"
    return cuda < toolkit, words


def _wait(trigger: str) -> None:
    try:
        import _numba_ptxlink_hook
    except ImportError:
        _settle(trigger, "numba.cuda has not been imported yet, and the import hook is not installed")
        return
    _numba_ptxlink_hook.install()
    _settle(trigger, "numba.cuda has not been imported yet")


def _activate() -> None:
    _state.active = True
    for name in (release.DRIVER, *sorted(HOOKED - {release.DRIVER})):
        # A module that is still being imported is patched when the hook reports it.
        if name in _state.ran or release.is_imported(name):
            _apply(name)


def _apply(module: str) -> None:
    for row in TABLE:
        if row.module == module and row not in _state.applied:
            substitution.apply(row)
            _state.applied.append(row)


def _deactivate() -> None:
    while _state.applied:
        substitution.undo(_state.applied.pop())
    _state.active = False


def _settle(trigger: str, reason: str) -> None:
    if (_state.trigger, _state.reason) != (trigger, reason):
        log.info("%s: %s (%s)", "active" if _state.active else "inactive", reason, trigger)
    _state.trigger, _state.reason = trigger, reason


def _set_up_logging() -> None:
    level = config().log_level
    if level is not None and not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s %(levelname)s: %(message)s"))
        log.addHandler(handler)
        log.setLevel(level)


def _versions() -> dict[str, str]:
    names = {
        "numba": "numba",
        "numba_cuda": "numba-cuda",
        "cuda.core": "cuda-core",
        "cuda.bindings": "cuda-bindings",
    }
    return {
        package: str(sys.modules[name].__version__)
        for name, package in names.items()
        if hasattr(sys.modules.get(name), "__version__")
    }
