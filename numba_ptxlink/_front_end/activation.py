"""When and why the replacements in one front end are applied, and the state of that, for `_plugin`."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from typing import TYPE_CHECKING

from numba_ptxlink._config import config
from numba_ptxlink.errors import ActivationError, PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .patch import Patch
    from .protocol import FrontEnd

log = logging.getLogger("numba_ptxlink")


class Switch:
    """What `enable()` and `disable()` said last, None before either; it counts for all front ends."""

    enabled: bool | None = None

    def off(self) -> str | None:
        """Return what keeps the plugin inactive, None if it should be active."""
        if self.enabled is False:
            return "disable() was called"
        if self.enabled is None:
            mode = config().mode
            if mode == "0":
                return f"NUMBA_PTXLINK={os.environ.get('NUMBA_PTXLINK', mode)}"
            if mode == "auto":
                newer, why = driver_is_older()
                if not newer:
                    return f"NUMBA_PTXLINK=auto: {why}"
        return None


switch = Switch()


class Activation:
    """
    The replacements in one front end. The caller holds the plugin's lock.

    What the plugin needs of the front end is imported when it is needed: a damaged package, or one damaged
    front end, is a reason here and no error of an import.

    Args:
        name: The front end's name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.active = False
        self.trigger: str | None = None
        self._reason: str | None = None  # None while the front end is waited for
        self.ran: set[str] = set()  # modules that the hook has reported
        self.applied: list[Patch] = []
        self._warned: set[str] = set()

    @property
    def front_end(self) -> FrontEnd:
        """The front end; its package is imported here, and nothing of its compiler."""
        from . import registry

        return registry.get(self.name)

    def hooked(self) -> frozenset[str]:
        """Return the modules whose import `imported` waits for."""
        return frozenset((self.front_end.trigger_module, *(row.module for row in self.front_end.table())))

    def imported(self, module: str) -> None:
        """Note that *module*, one of `hooked()`, has run; decide, or replace what is in it. Never raises."""
        self.ran.add(module)
        with self.during_import("import hook"):
            if module == self.front_end.trigger_module:
                self.decide("import hook")
            elif self.active:
                with self._all_or_nothing():
                    self._apply(module)

    @contextlib.contextmanager
    def during_import(self, trigger: str) -> Iterator[None]:
        """Let an error of a `with` block keep it inactive, and warn of that: no import fails for it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the import goes on
            self.record_decision(trigger, described(error))
            self._warn(described(error))

    def decide(self, trigger: str) -> None:
        """Become active if that is wanted and possible, now or once the front end is imported."""
        from .compiler import is_imported

        config()  # which sets up logging
        if self.active:
            return
        switched_off = switch.off()
        refusal = switched_off or self.front_end.unsupported_reason()
        if refusal is not None:
            self.record_decision(trigger, refusal)
            # A program without the front end, and one that has switched the plugin off, miss nothing.
            if self.is_imported() and not (switched_off or self.front_end.simulated()):
                self._warn(refusal)
            return
        # The hook reports a module that another thread is still importing, once it is complete.
        trigger_module = self.front_end.trigger_module
        if trigger_module not in self.ran and not is_imported(trigger_module):
            self._wait(trigger)
            return
        self._activate()
        self.record_decision(trigger, self._grounds())

    def deactivate(self) -> None:
        """Put back what was replaced."""
        while self.applied:
            from . import patch

            patch.undo(self.applied.pop())
        self.active = False

    def record_decision(self, trigger: str, reason: str | None) -> None:
        """Note what decided and why; log it if it is new."""
        changed = (self.trigger, self._reason) != (trigger, reason)
        self.trigger, self._reason = trigger, reason
        if changed:
            state = "active" if self.active else "inactive"
            log.info("%s in %s: %s (%s)", state, self.name, self.reason, trigger)

    @property
    def reason(self) -> str:
        """The reason that was settled, or what keeps it from being active so far."""
        if self._reason is not None:
            remark = self.front_end.remark if self.active else ""
            return "; ".join(filter(None, (self._reason, remark)))
        try:
            package, met = self.front_end.package, self.is_imported()
            config()
            refusal = None
            if met or self.front_end.simulated() or not self.is_installed():
                refusal = self.front_end.unsupported_reason()
        except Exception as error:  # noqa: BLE001 - the reason is what status() is for
            return described(error)
        if refusal is not None:
            return refusal
        if met:
            return f"{package} has been imported without the import hook; call enable()"
        return f"{package} has not been imported yet"

    def is_installed(self) -> bool:
        """Return whether the front end's compiler is installed."""
        from . import registry

        return registry.installed(self.front_end)

    def is_imported(self) -> bool:
        """Return whether the program uses the front end: the module that decides is imported."""
        return self.front_end.trigger_module in sys.modules

    def _grounds(self) -> str:
        if switch.enabled:
            return "enable() was called"
        if config().mode == "auto":
            return f"NUMBA_PTXLINK=auto: {driver_is_older()[1]}"
        return f"{self.name} is installed and supported"

    def _wait(self, trigger: str) -> None:
        with contextlib.suppress(ImportError):
            import _numba_ptxlink_hook

            _numba_ptxlink_hook.install()
        self.record_decision(trigger, None)

    def _activate(self) -> None:
        from numba_ptxlink import _native

        from .compiler import is_imported

        # Loading it would take time that a cached kernel does not need.
        cause = _native.not_loadable_reason()
        if cause is not None:
            raise ActivationError(f"{cause}.")
        trigger_module = self.front_end.trigger_module
        with self._all_or_nothing():
            self.active = True
            for name in (trigger_module, *sorted(self.hooked() - {trigger_module})):
                # A module that is still being imported is patched when the hook reports it.
                if name in self.ran or is_imported(name):
                    self._apply(name)

    def _apply(self, module: str) -> None:
        from . import patch

        for row in self.front_end.table():
            if row.module == module and row not in self.applied:
                patch.apply(row)
                self.applied.append(row)

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Restore the front end if a `with` block that replaces its attributes is left by an exception."""
        try:
            yield
        except BaseException as error:
            self.deactivate()
            if isinstance(error, (AttributeError, KeyError)):
                raise ActivationError(
                    f"{self.name} lacks what the plugin replaces ({type(error).__name__}: {error}); "
                    f"install {self.name}{self.front_end.supported} again."
                ) from error
            raise

    def _warn(self, reason: str) -> None:
        """Warn once that the plugin is inactive, for *reason*."""
        if reason in self._warned:
            return
        self._warned.add(reason)
        message = f"numba-ptxlink is inactive, and {self.name} goes on without it: {reason}."
        try:
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        except RuntimeWarning:
            # Warnings are errors here, and an import is not to fail for one.
            log.warning(message)


def described(error: Exception) -> str:
    """Return *error* as a reason with its cure, without a full stop."""
    if isinstance(error, PtxlinkError):
        return str(error).removesuffix(".")
    return (
        f"numba-ptxlink is damaged ({type(error).__name__}: {error}); "
        "install it again: python -m pip install --force-reinstall --no-deps numba-ptxlink"
    )


def driver_is_older() -> tuple[bool, str]:
    """Compare driver and toolkit, without a fork or initialising CUDA; return the answer and its wording."""
    from numba_ptxlink._arch import dotted
    from numba_ptxlink._tools import driver, nvrtc

    cuda = driver.version()
    if cuda is None:
        return False, "there is no driver"
    try:
        toolkit = nvrtc.version()
    except PtxlinkError as error:
        return False, f"the toolkit's version is unknown ({error})"
    relation = "older than" if cuda < toolkit else "as new as"
    words = f"the driver (CUDA {dotted(cuda)}) is {relation} the toolkit ({dotted(toolkit)})"
    return cuda < toolkit, words
