"""
Activation: when and why this package replaces numba-cuda's linker, and how it restores it.

The hook calls `imported` after each module in `hooked()` has run. The entry points call `init`, and a
late import of the package `imported_late`, which do the same for modules that are imported already. All of it
is idempotent. What runs during an import never fails it: a wrong variable or a damaged installation is a
warning, and the reason in `status()`. For that, the rest of the package is imported when it is needed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._config import config
from ._locks import Lock, in_tool
from .errors import ActivationError, ConfigError, PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from ._front_end import substitution
    from ._front_end.protocol import FrontEnd

__all__ = ["Status", "disable", "enable", "init", "status"]

log = logging.getLogger("numba_ptxlink")


@dataclass(frozen=True)
class Status:
    """
    The state of the plugin in this process.

    Args:
        active: Whether numba-cuda links through this package.
        reason: Why, or why not.
        trigger: The event that decided: "import hook", "entry point", "import of numba_ptxlink", "enable()",
            "disable()", or None before any.
        backend: NUMBA_PTXLINK_BACKEND, the tool that makes cubins; "auto" selects it by the inputs.
        links_served: Links completed by `PtxLinker` in this process.
        assembled: Those of them done by nvPTXCompiler.
        linked: Those of them done by nvJitLink.
        last_link: Tool and reason of the last of them, "" before any.
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
    last_link: str
    cache_hits: int
    cache_misses: int
    cache_bytes_read: int
    cache_bytes_written: int
    versions: dict[str, str]


@dataclass(eq=False, repr=False)
class _State:
    active: bool = False
    wanted: bool | None = None  # set by enable() and disable(), None before either
    reason: str | None = None  # None while numba.cuda is waited for
    trigger: str | None = None
    ran: set[str] = field(default_factory=set)  # modules that the hook has reported
    applied: list[substitution.Substitution] = field(default_factory=list)
    warned: set[str] = field(default_factory=set)


def _front_end() -> FrontEnd:
    from ._front_end import registry

    return registry.get("numba-cuda")


def _free_compiler_lock() -> None:
    if f"{__package__}._front_end.registry" in sys.modules:
        _front_end().free_compiler_lock()


_state = _State()
# A thread that switches holds Numba's lock as well, which a forked child would never get.
# Nobody who holds it imports a module of numba-cuda: a thread that imports one waits for it in `imported`.
_lock = Lock(forget=_free_compiler_lock)


def imported_late() -> None:
    """Serve the first import of this package, without the import hook and after numba.cuda."""
    _decide_safely("import of numba_ptxlink")


def hooked() -> frozenset[str]:
    """Return the modules of numba-cuda whose import `imported` waits for: none if the package is damaged."""
    try:
        return _hooked()
    except Exception as error:  # noqa: BLE001 - whatever it is, numba.cuda is imported
        with _lock.held:
            _give_up("import hook", error)
        return frozenset()


def _hooked() -> frozenset[str]:
    return frozenset(row.module for row in _front_end().table())


def init() -> None:
    """Serve the entry points `numba_extensions` and `numba_cuda_extensions`."""
    _decide_safely("entry point")


def imported(module: ModuleType) -> None:
    """Serve the import hook: *module*, one of `hooked()`, has just been imported."""
    with _lock.held, in_tool():
        _state.ran.add(module.__name__)
        if module.__name__ == _front_end().driver:
            _decide_safely("import hook")
        elif _state.active:
            try:
                with _all_or_nothing():
                    _apply(module.__name__)
            except Exception as error:  # noqa: BLE001 - whatever it is, numba.cuda is imported
                _give_up("import hook", error)


def enable() -> Status:
    """
    Replace numba-cuda's linker, now or as soon as numba.cuda is imported, whatever NUMBA_PTXLINK is.

    Raises:
        ActivationError: The installed numba-cuda is not supported, or this package is damaged. The message
            names the cure.
        ConfigError: An environment variable has an unknown value.
    """
    with _changing():
        config()
        try:
            reason = _front_end().unsupported_reason()
            if reason is None:
                _state.wanted = True
                _decide("enable()")
                return status()
        except Exception as error:
            reason = _described(error)
            _settle("enable()", reason)
            raise ActivationError(f"numba-ptxlink cannot be enabled: {reason}.") from error
        raise ActivationError(f"numba-ptxlink cannot be enabled: {reason}.")


def disable() -> Status:
    """Restore numba-cuda's own attributes exactly, and stay inactive until `enable` is called."""
    with _changing():
        _state.wanted = False
        _deactivate()
        _settle("disable()", "disable() was called")
        return status()


def status() -> Status:
    """Return the state of the plugin and its reason. Imports neither numba nor CUDA."""
    served = _served()
    with _lock.held:
        return Status(
            active=_state.active,
            reason=_reason(),
            trigger=_state.trigger,
            backend=_backend(),
            versions=_versions(),
            **served,
        )


def _served() -> dict[str, Any]:
    counts: dict[str, Any] = {"assembled": 0, "linked": 0, "last_link": ""}
    counts |= dict.fromkeys(("cache_hits", "cache_misses", "cache_bytes_read", "cache_bytes_written"), 0)
    # Where the package is damaged, nothing was served, and the reason tells it.
    with contextlib.suppress(Exception):
        from . import cache
        from ._front_end.served import served

        links, counters = served(), cache.counters()
        counts |= {"assembled": links.assembled, "linked": links.linked, "last_link": links.last}
        for name in ("hits", "misses", "bytes_read", "bytes_written"):
            counts[f"cache_{name}"] = getattr(counters, name)
    return {"links_served": counts["assembled"] + counts["linked"], **counts}


def _backend() -> str:
    try:
        return config().backend
    except ConfigError:
        return os.environ.get("NUMBA_PTXLINK_BACKEND", "auto")


def _reason() -> str:
    """Return the reason that was settled, or what keeps the plugin from being active so far."""
    if _state.reason is not None:
        return _state.reason
    try:
        config()
    except Exception as error:  # noqa: BLE001 - the reason is what status() is for
        return _described(error)
    if _front_end().simulated() or _front_end().driver in sys.modules:
        refusal = _front_end().unsupported_reason()
        return refusal or "numba.cuda has been imported without the import hook; call enable()"
    if sys.modules.get("_numba_ptxlink_hook") is None:
        return (
            "numba.cuda has not been imported yet, and the import hook is not installed; "
            "call enable() after the import"
        )
    return "numba.cuda has not been imported yet"


def _described(error: Exception) -> str:
    """Return *error* as a reason with its cure, without a full stop."""
    if isinstance(error, PtxlinkError):
        return str(error).removesuffix(".")
    return (
        f"numba-ptxlink is damaged ({type(error).__name__}: {error}); "
        "install it again: python -m pip install --force-reinstall --no-deps numba-ptxlink"
    )


@contextlib.contextmanager
def _changing() -> Iterator[None]:
    """
    Keep other threads from compiling, deciding and forking during a `with` block.

    Both locks are acquired before forks are delayed: the thread that holds one of them may fork.
    """
    stopped: contextlib.AbstractContextManager[None]
    try:
        stopped = _front_end().compilation_stopped()
    except Exception:  # noqa: BLE001 - a damaged package has replaced nothing
        stopped = contextlib.nullcontext()
    with stopped, _lock.held, in_tool():
        yield


@contextlib.contextmanager
def _all_or_nothing() -> Iterator[None]:
    """Restore numba-cuda if a `with` block that replaces its attributes is left by an exception."""
    try:
        yield
    except BaseException as error:
        _deactivate()
        if isinstance(error, (AttributeError, KeyError)):
            raise ActivationError(
                f"numba-cuda lacks what the plugin replaces ({type(error).__name__}: {error}); "
                f"install numba-cuda{_front_end().specifier()} again."
            ) from error
        raise


def _decide_safely(trigger: str) -> None:
    """Decide during an import, which never fails for it."""
    with _lock.held, in_tool():
        try:
            _decide(trigger)
        except Exception as error:  # noqa: BLE001 - whatever it is, numba.cuda is imported
            _give_up(trigger, error)


def _give_up(trigger: str, error: Exception) -> None:
    _settle(trigger, _described(error))
    _warn(_described(error))


def _decide(trigger: str) -> None:
    from ._front_end import imports

    with _lock.held:
        config()  # which sets up logging
        if _state.active:
            return
        switched_off = _switched_off()
        refusal = switched_off or _front_end().unsupported_reason()
        if refusal is not None:
            _settle(trigger, refusal)
            # A program without numba.cuda, and one that has switched the plugin off, miss nothing.
            if _front_end().driver in sys.modules and not (switched_off or _front_end().simulated()):
                _warn(refusal)
            return
        # The hook reports a module that another thread is still importing, once it is complete.
        if _front_end().driver not in _state.ran and not imports.is_imported(_front_end().driver):
            _wait(trigger)
            return
        _activate()
        _settle(trigger, _grounds())


def _switched_off() -> str | None:
    """Return the switch that keeps the plugin inactive, None if it should be active."""
    if _state.wanted is False:
        return "disable() was called"
    if _state.wanted is None:
        mode = config().mode
        if mode == "0":
            return f"NUMBA_PTXLINK={os.environ.get('NUMBA_PTXLINK', mode)}"
        if mode == "auto":
            newer, why = driver_is_older()
            if not newer:
                return f"NUMBA_PTXLINK=auto: {why}"
    return None


def _grounds() -> str:
    if _state.wanted:
        return "enable() was called"
    if config().mode == "auto":
        return f"NUMBA_PTXLINK=auto: {driver_is_older()[1]}"
    return "numba-cuda is installed and supported"


def driver_is_older() -> tuple[bool, str]:
    """Compare driver and toolkit, without a fork or initialising CUDA; return the answer and its wording."""
    from ._tools import driver, nvrtc

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
    with contextlib.suppress(ImportError):
        import _numba_ptxlink_hook

        _numba_ptxlink_hook.install()
    _settle(trigger, None)


def _activate() -> None:
    from . import _native
    from ._front_end import imports

    # Loading it would take time that a cached kernel does not need.
    if _native.location() is None:
        raise ImportError(f"{_native.EXTENSION} is missing")
    cause = _native.lacks_cffi()
    if cause is not None:
        raise ActivationError(f"{cause}.")
    with _all_or_nothing():
        _state.active = True
        for name in (_front_end().driver, *sorted(_hooked() - {_front_end().driver})):
            # A module that is still being imported is patched when the hook reports it.
            if name in _state.ran or imports.is_imported(name):
                _apply(name)


def _apply(module: str) -> None:
    from ._front_end import substitution

    for row in _front_end().table():
        if row.module == module and row not in _state.applied:
            substitution.apply(row)
            _state.applied.append(row)


def _deactivate() -> None:
    while _state.applied:
        from ._front_end import substitution

        substitution.undo(_state.applied.pop())
    _state.active = False


def _settle(trigger: str, reason: str | None) -> None:
    changed = (_state.trigger, _state.reason) != (trigger, reason)
    _state.trigger, _state.reason = trigger, reason
    if changed:
        log.info("%s: %s (%s)", "active" if _state.active else "inactive", _reason(), trigger)


def _warn(reason: str) -> None:
    """Warn once that the plugin is inactive, for *reason*."""
    if reason in _state.warned:
        return
    _state.warned.add(reason)
    message = f"numba-ptxlink is inactive, and numba-cuda goes on without it: {reason}."
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    except RuntimeWarning:
        # Warnings are errors here, and an import is not to fail for one.
        log.warning(message)


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
