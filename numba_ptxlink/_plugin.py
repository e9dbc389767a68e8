"""
Activation: when and why this package takes over from numba-cuda's linker, and how it gives back.

The hook's finder calls `imported` after each module of numba-cuda that matters has run. The entry points call
`init`, which does the same for what is imported already. Everything here is idempotent.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _door, _numba, cache
from ._config import config
from ._locks import Lock
from .errors import ActivationError, PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

__all__ = ["Status", "disable", "enable", "init", "status"]

log = logging.getLogger("numba_ptxlink")


@dataclass(frozen=True)
class Status:
    """
    What the plugin is doing in this process.

    Args:
        active: Whether numba-cuda links through this package.
        reason: Why, or why not.
        trigger: What made the decision: "import hook", "entry point", "enable()", "disable()" or None for
            nothing yet.
        backend: NUMBA_PTXLINK_BACKEND, the tool that makes cubins; "auto" for what the inputs need.
        links_served: Links completed by `PtxLinker` in this process.
        assembled: How many of them went through nvPTXCompiler.
        linked: How many went through nvJitLink.
        cache_hits: Results of compilers and linkers that came out of the cache in this process.
        cache_misses: Results that had to be made.
        cache_bytes_read: Code that came out of the cache, in bytes.
        cache_bytes_written: Code that was put into it, in bytes.
        versions: The versions of what is in play, as far as it has been imported.
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
    wanted: bool | None = None  # what enable() or disable() said, None for neither
    reason: str = "numba.cuda has not been imported yet"
    trigger: str | None = None
    stock: Any = None


_state = _State()
_lock = Lock()


def init() -> None:
    """Serve the entry points `numba_extensions` and `numba_cuda_extensions`."""
    _decide("entry point")


def imported(module: ModuleType) -> None:
    """Serve the import hook: *module*, one of `_numba.HOOKED`, has just been imported."""
    with _lock.held:
        if module.__name__ == _numba.DRIVER:
            _decide("import hook")
        elif _state.active:
            _attempt("import hook", lambda: _apply(module.__name__))


def enable() -> Status:
    """
    Take over from numba-cuda's linker, now or as soon as numba.cuda is imported, whatever NUMBA_PTXLINK says.

    Raises:
        ActivationError: The numba-cuda in use cannot be served. Names the cure.
    """
    with _lock.held:
        reason = _numba.unsupported_reason()
        if reason is not None:
            raise ActivationError(f"numba-ptxlink cannot be enabled: {reason}.")
        _state.wanted = True
        _decide("enable()")
        return status()


def disable() -> Status:
    """Restore exactly what numba-cuda had, and stay out of its way until `enable` is called."""
    with _lock.held:
        _state.wanted = False
        _deactivate()
        _settle("disable()", "disable() was called")
        return status()


def status() -> Status:
    """Return what the plugin is doing and why. Imports neither numba nor CUDA."""
    counts = {"assembled": 0, "linked": 0}
    linker = sys.modules.get("numba_ptxlink._numba_linker")
    if linker is not None:
        counts = linker.served()
    kept = cache.counters()
    with _lock.held:
        return Status(
            active=_state.active,
            reason=_state.reason,
            trigger=_state.trigger,
            backend=config().backend,
            links_served=counts["assembled"] + counts["linked"],
            assembled=counts["assembled"],
            linked=counts["linked"],
            cache_hits=kept.hits,
            cache_misses=kept.misses,
            cache_bytes_read=kept.bytes_read,
            cache_bytes_written=kept.bytes_written,
            versions=_versions(),
        )


def _decide(trigger: str) -> None:
    with _lock.held:
        _set_up_logging()
        if _state.active:
            return
        refusal = _refusal()
        if refusal is not None:
            _settle(trigger, refusal)
            return
        if _numba.DRIVER not in sys.modules:
            _wait(trigger)
            return
        if _attempt(trigger, _activate):
            _settle(trigger, _grounds())
        elif trigger == "enable()":
            raise ActivationError(f"numba-ptxlink cannot be enabled: {_state.reason}.")


def _attempt(trigger: str, change: Callable[[], None]) -> bool:
    """Make a change to numba-cuda; where its inside is not what its version says, stay out of its way."""
    try:
        change()
    except (ImportError, AttributeError, KeyError) as error:
        _deactivate()
        _settle(trigger, f"numba-cuda lacks what the plugin replaces ({type(error).__name__}: {error})")
        return False
    return True


def _refusal() -> str | None:
    """Return why the plugin stays inactive, None where it should be active."""
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
    return _numba.unsupported_reason()


def _grounds() -> str:
    if _state.wanted:
        return "enable() was called"
    if config().mode == "auto":
        return f"NUMBA_PTXLINK=auto: {driver_is_older()[1]}"
    return "numba-cuda is installed and supported"


def driver_is_older() -> tuple[bool, str]:
    """Compare driver and toolkit, without a fork or initialising CUDA; return the answer and its words."""
    driver = driver_version()
    if driver is None:
        return False, "there is no driver"
    from . import _nvrtc

    try:
        toolkit = _nvrtc.version()
    except PtxlinkError as error:
        return False, f"the toolkit's version is unknown ({error})"
    relation = "older than" if driver < toolkit else "as new as"
    words = f"the driver (CUDA {driver[0]}.{driver[1]}) is {relation} the toolkit ({toolkit[0]}.{toolkit[1]})"
    return driver < toolkit, words


def driver_version() -> tuple[int, int] | None:
    """Return the newest CUDA the driver supports, None without a driver. CUDA is not initialised."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    number = ctypes.c_int()
    # The one driver function that works without cuInit.
    if library.cuDriverGetVersion(ctypes.byref(number)):
        return None
    return (number.value // 1000, number.value % 1000 // 10)


def _wait(trigger: str) -> None:
    try:
        import _numba_ptxlink_hook
    except ImportError:
        _settle(trigger, "numba.cuda has not been imported yet, and the import hook is not installed")
        return
    _numba_ptxlink_hook.install()
    _settle(trigger, "numba.cuda has not been imported yet")


def _activate() -> None:
    from ._numba_linker import PtxLinker

    driver: Any = sys.modules[_numba.DRIVER]
    if driver._Linker is not PtxLinker:
        _state.stock = driver._Linker
        _numba.bind_everywhere(_state.stock, PtxLinker)
    _state.active = True
    for name in _numba.HOOKED - {_numba.DRIVER}:
        spec = getattr(sys.modules.get(name), "__spec__", None)
        # A module that is still being imported has its turn when it has run.
        if spec is not None and not getattr(spec, "_initializing", False):
            _apply(name)


def _apply(module: str) -> None:
    for each in _substitutions():
        if each.module == module:
            _numba.apply(each)


def _substitutions() -> tuple[_numba.Substitution, ...]:
    return (*_numba.SUBSTITUTIONS, *_door.SUBSTITUTIONS)


def _deactivate() -> None:
    for each in _substitutions():
        _numba.undo(each)
    if _state.stock is not None:
        from ._numba_linker import PtxLinker

        _numba.bind_everywhere(PtxLinker, _state.stock)
        _state.stock = None
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
