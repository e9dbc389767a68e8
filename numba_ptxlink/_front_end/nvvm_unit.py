"""
Run libNVVM for the front ends' compilers, and keep the results in the cache.

After a call with some options, such as "-opt=0", libNVVM would generate other code in later calls of the
process. Calls with these options run in a child process: see `_tools.nvvm.run`.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from numba_ptxlink import cache

if TYPE_CHECKING:
    from collections.abc import Callable

# The first bytes of LLVM bitcode, without and with a wrapper header.
_BITCODE_MAGIC = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")


class _CompilationUnit:
    """
    A mixin that replaces methods of a compiler's class `CompilationUnit`, each of which calls libNVVM.

    `add_module`, `lazy_add_module` and `verify` only record steps; `compile` runs them if the cache has no
    result.
    `compilation_unit` sets the class attributes that begin with an underscore.
    """

    options: list[bytes]
    """libNVVM's options, which the compiler's own constructor sets."""
    _fail: Callable[[str, int], None]
    """Raises the compiler's error for a failed step and libNVVM's status."""
    _normalize: Callable[[str], str]
    """Returns a module's text for the key of the cache; see `compilation_unit`."""
    _errors_module: str
    """The name of the compiler's module that has the class `NvvmWarning`."""

    def __init__(self, options: Any) -> None:
        # The steps for `_tools.nvvm.run`: name, content and use of a module; names stay empty. To verify is a
        # step, too, with an empty content.
        self._steps: list[tuple[str, bytes, str]] = []
        self._log = ""
        super().__init__(options)  # type: ignore[call-arg]

    def add_module(self, buffer: bytes) -> None:
        self._steps.append(("", bytes(buffer), "whole"))

    def lazy_add_module(self, buffer: bytes) -> None:
        self._steps.append(("", bytes(buffer), "lazy"))

    def verify(self) -> None:
        self._steps.append(("", b"", "verify"))

    def compile(self) -> bytes:
        options = [option.decode() for option in self.options]
        entry = cache.cached(lambda: self._key(options), lambda: self._compile(options))
        # The original method also sets `log`, and warns of it.
        self.log = self._log = entry.log
        if self.log:
            category = importlib.import_module(self._errors_module).NvvmWarning
            warnings.warn(self.log, category=category, stacklevel=2)
        return entry.code

    def _compile(self, options: list[str]) -> cache.Entry:
        from numba_ptxlink._tools import nvvm

        failed_step, status, outputs = nvvm.run(self._steps, options)
        self._log = outputs["log"]
        if failed_step:
            self._fail(failed_step, status)
        return cache.Entry({"log": self._log}, outputs["code"])

    def _key(self, options: list[str]) -> cache.Key:
        from numba_ptxlink._tools import find

        parts: dict[str, Any] = {
            "package": cache.package_version(),
            "tool": ("NVVM", find.library_build_id("nvvm")),
            "flags": options,
            "steps": [use for _, _, use in self._steps],
            # Bitcode, and libraries such as libdevice ("lazy"), do not depend on the process.
            "code": [
                self._normalize(code.decode())
                if use == "whole" and not code.startswith(_BITCODE_MAGIC)
                else code
                for _, code, use in self._steps
            ],
        }
        return cache.Key.of("nvvm", parts)

    def get_log(self) -> str:
        return self._log


def compilation_unit(
    original: Any, fail: Callable[[Any, str, int], None], normalize: Callable[[str], str] = str
) -> Any:
    """
    Return a subclass of the compiler's class `CompilationUnit` whose results are kept in the cache.

    Args:
        original: The compiler's own class.
        fail: A method that raises the compiler's error, given the failed step and libNVVM's status.
        normalize: Returns a text for the key of the cache, without names that depend on the process: if it is
            equal for two modules, libNVVM compiles both to equivalent code.
    """
    members = {
        "_fail": fail,
        "_normalize": staticmethod(normalize),
        # The module `error` is beside the module that defines the class.
        "_errors_module": f"{original.__module__.rpartition('.')[0]}.error",
    }
    return type("CompilationUnit", (_CompilationUnit, original), members)
