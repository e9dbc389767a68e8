"""
Activate the plugin in a front end (one of Numba's compilers for CUDA): apply patches that replace its linker.

Each decision is stored with its reason, for `numba_ptxlink.status()`. `_plugin` makes an `Activation` for
each front end.
"""

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

    from .base import FrontEnd
    from .patch import Patch

log = logging.getLogger("numba_ptxlink")


class Switch:
    """The switch of the plugin for all front ends: the last `enable()` or `disable()`, else NUMBA_PTXLINK."""

    enabled: bool | None = None
    """True if `enable()` was called last, False if `disable()` was; None if neither was called yet."""

    def off_reason(self) -> str | None:
        """
        Return why the plugin is switched off; None if it is switched on.

        Raises:
            ConfigError: An environment variable of this package has an unknown value.
        """
        if self.enabled is False:
            return "disable() was called"
        if self.enabled is None:
            # NUMBA_PTXLINK: "1" switches on, "0" off, "auto" on if the driver is older than the toolkit.
            mode = config().mode
            if mode == "0":
                return f"NUMBA_PTXLINK={os.environ.get('NUMBA_PTXLINK', mode)}"
            if mode == "auto":
                is_older, sentence = compare_driver()
                if not is_older:
                    return f"NUMBA_PTXLINK=auto: {sentence}"
        return None


switch = Switch()


class Activation:
    """
    The activation of the plugin in one front end. Callers hold the lock of the module `_plugin`.

    The import of the front end's trigger module (see `FrontEnd.trigger_module`), and each call of `enable()`
    or `disable()`, lead to a decision whether to patch.

    Methods import this package's modules where they need them: a damaged package then makes the plugin
    inactive with a reason, and does not break `import numba.cuda`.

    Args:
        name: The front end's name, such as "numba-cuda".

    Attributes:
        active: Whether the decision is to patch. The patches of imported modules are applied then, and those
            of other modules follow at their import.
        trigger: The event of the last decision, such as "import hook" or "enable()"; None before the first.
        reported: The modules that the import hook, `_numba_ptxlink_hook`, has passed to `after_import`.
        applied: The patches that are applied.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.active = False
        self.trigger: str | None = None
        # Set by `record_decision`. None until the plugin has decided, for which it may wait until the front
        # end is imported.
        self._reason: str | None = None
        self.reported: set[str] = set()
        self.applied: list[Patch] = []
        self._warned: set[str] = set()  # The reasons that `_warn` has shown.

    @property
    def front_end(self) -> FrontEnd:
        """The front end. Imports this package's modules for it, and nothing of its compiler."""
        from . import registry

        return registry.get(self.name)

    def hooked_modules(self) -> frozenset[str]:
        """Return the names of the modules for whose imports `after_import` is called."""
        return frozenset((self.front_end.trigger_module, *(row.module for row in self.front_end.table())))

    def after_import(self, module: str) -> None:
        """
        Decide after the import of the trigger module; patch any other of `hooked_modules()` if active.

        The import hook calls this after the code of *module* has run. Never raises.
        """
        self.reported.add(module)
        with self.during_import("import hook"):
            if module == self.front_end.trigger_module:
                self.decide("import hook")
            elif self.active:
                with self._deactivate_on_error():
                    self._apply_patches(module)

    @contextlib.contextmanager
    def during_import(self, trigger: str) -> Iterator[None]:
        """Record an error of a `with` block as the reason of a decision, and warn, so that imports go on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the import goes on after any error
            self.record_decision(trigger, error_reason(error))
            self._warn(error_reason(error))

    def decide(self, trigger: str) -> None:
        """
        Activate the plugin if it is switched on and supports the front end.

        The patches are applied now, or when the front end is imported.

        Raises:
            ActivationError: The extension module is missing, or the front end lacks a patched attribute.
            ConfigError: An environment variable of this package has an unknown value.
        """
        config()  # The first call sets up logging, which `record_decision` uses.
        if self.active:
            return
        switched_off = switch.off_reason()
        refusal = switched_off or self.front_end.unsupported_reason()
        if refusal is not None:
            self.record_decision(trigger, refusal)
            # No warning for programs that do not use the front end, or have switched the plugin off.
            if self.is_imported() and not (switched_off or self.front_end.is_simulated()):
                self._warn(refusal)
            return
        # If the trigger module is not imported, or another thread is importing it, the hook reports it later.
        trigger_module = self.front_end.trigger_module
        if trigger_module not in self.reported and not _is_loaded(trigger_module):
            self._wait_for_import(trigger)
            return
        self._activate()
        self.record_decision(trigger, self._activation_reason())

    def deactivate(self) -> None:
        """Restore the original attributes."""
        while self.applied:
            from . import patch

            patch.undo(self.applied.pop())
        self.active = False

    def record_decision(self, trigger: str, reason: str | None) -> None:
        """
        Store a decision, and log it unless it equals the last one.

        Args:
            trigger: The event that caused the decision.
            reason: Why the plugin is active or inactive; None if it waits for the import of the front end.
        """
        changed = (self.trigger, self._reason) != (trigger, reason)
        self.trigger, self._reason = trigger, reason
        if changed:
            state = "active" if self.active else "inactive"
            log.info("%s in %s: %s (%s)", state, self.name, self.reason, trigger)

    @property
    def reason(self) -> str:
        """Why the plugin is active or inactive; if that is not decided yet, why not."""
        if self._reason is not None:
            remark = self.front_end.remark if self.active else ""
            return "; ".join(filter(None, (self._reason, remark)))
        try:
            package, is_imported = self.front_end.package, self.is_imported()
            config()  # A wrong environment variable is the reason that `except` returns.
            refusal = None
            # An installed front end that is not imported yet is checked at its import.
            if is_imported or self.front_end.is_simulated() or not self.is_installed():
                refusal = self.front_end.unsupported_reason()
        except Exception as error:  # noqa: BLE001 - status() reports it
            return error_reason(error)
        if refusal is not None:
            return refusal
        if is_imported:
            return f"{package} has been imported without the import hook; call enable()"
        return f"{package} has not been imported yet"

    def is_installed(self) -> bool:
        """Return whether the front end's compiler is installed."""
        from . import registry

        return registry.is_installed(self.front_end)

    def is_imported(self) -> bool:
        """Return whether the program has imported the front end, by its trigger module."""
        return self.front_end.trigger_module in sys.modules

    def _activation_reason(self) -> str:
        if switch.enabled:
            return "enable() was called"
        if config().mode == "auto":
            return f"NUMBA_PTXLINK=auto: {compare_driver()[1]}"
        return f"{self.name} is installed and supported"

    def _wait_for_import(self, trigger: str) -> None:
        # An incomplete installation may lack the hook. The import then goes unnoticed, and after it, `reason`
        # advises to call enable().
        with contextlib.suppress(ImportError):
            import _numba_ptxlink_hook

            _numba_ptxlink_hook.install()
        self.record_decision(trigger, None)

    def _activate(self) -> None:
        from numba_ptxlink import _native

        # Only look for the extension module that contains nvPTXCompiler: loading it would delay programs
        # whose kernels are all cached.
        cause = _native.not_loadable_reason()
        if cause is not None:
            raise ActivationError(f"{cause}.")
        trigger_module = self.front_end.trigger_module
        with self._deactivate_on_error():
            self.active = True
            for name in (trigger_module, *sorted(self.hooked_modules() - {trigger_module})):
                # A module that is still being imported is patched when the hook reports it.
                if name in self.reported or _is_loaded(name):
                    self._apply_patches(name)

    def _apply_patches(self, module: str) -> None:
        """Apply the patches of *module* that are not applied yet."""
        from . import patch

        for row in self.front_end.table():
            if row.module == module and row not in self.applied:
                patch.apply(row)
                self.applied.append(row)

    @contextlib.contextmanager
    def _deactivate_on_error(self) -> Iterator[None]:
        """Restore the front end's attributes if a `with` block that patches them raises an exception."""
        try:
            yield
        except BaseException as error:
            self.deactivate()
            # `patch` raises these for a missing class or attribute.
            if isinstance(error, (AttributeError, KeyError)):
                raise ActivationError(
                    f"{self.name} lacks an attribute that the plugin patches ({type(error).__name__}: "
                    f"{error}); reinstall {self.name}{self.front_end.supported}."
                ) from error
            raise

    def _warn(self, reason: str) -> None:
        """Warn once that the plugin is inactive, for *reason*."""
        if reason in self._warned:
            return
        self._warned.add(reason)
        message = f"numba-ptxlink is inactive, so {self.name} uses its own linker: {reason}."
        try:
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        except RuntimeWarning:
            # Warnings are errors in this process, and an import must not fail because of one.
            log.warning(message)


def _is_loaded(name: str) -> bool:
    """Return whether the module *name* is imported, and no thread is still executing its code."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


def error_reason(error: Exception) -> str:
    """Return the text of *error* as a reason, with the cure, without a full stop."""
    if isinstance(error, PtxlinkError):
        return str(error).removesuffix(".")
    return (
        f"numba-ptxlink is damaged ({type(error).__name__}: {error}); "
        "install it again: python -m pip install --force-reinstall --no-deps numba-ptxlink"
    )


def compare_driver() -> tuple[bool, str]:
    """
    Return whether the driver is older than the toolkit, and a clause that says so. Starts no driver.

    The comparison is false if there is no driver, or if the toolkit's version is unknown.
    """
    from numba_ptxlink._arch import dotted
    from numba_ptxlink._tools import driver, nvrtc

    driver_release = driver.version()
    if driver_release is None:
        return False, "there is no driver"
    try:
        toolkit_release = nvrtc.version()
    except PtxlinkError as error:
        return False, f"the toolkit's version is unknown ({error})"
    is_older = driver_release < toolkit_release
    # "as new as" includes a newer driver.
    relation = "older than" if is_older else "as new as"
    return is_older, (
        f"the driver (CUDA {dotted(driver_release)}) is {relation} the toolkit ({dotted(toolkit_release)})"
    )
