"""Run libNVVM for the front ends' compilers, with the cache; calls with side effects in a child process."""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from numba_ptxlink import cache

if TYPE_CHECKING:
    from collections.abc import Callable

# The first bytes of LLVM bitcode, without and with a wrapper header.
_BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")


class _CompilationUnit:
    """
    A compiler's class for one call of libNVVM, which adds, verifies and compiles modules.

    The steps are recorded, and run only if the cache has no result.
    """

    options: list[bytes]
    _fail: Callable[[str, int], None]
    _normalize: Callable[[str], str]
    _errors_module: str

    def __init__(self, options: Any) -> None:
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
        self.log = self._log = entry.log
        if self.log:
            category = importlib.import_module(self._errors_module).NvvmWarning
            warnings.warn(self.log, category=category, stacklevel=2)
        return entry.code

    def _compile(self, options: list[str]) -> cache.Entry:
        from numba_ptxlink._tools import nvvm

        step, status, result = nvvm.run(self._steps, options)
        self._log = result["log"]
        if step:
            self._fail(step, status)
        return cache.Entry({"log": self._log}, result["code"])

    def _key(self, options: list[str]) -> cache.Key:
        from numba_ptxlink._tools import find

        parts: dict[str, Any] = {
            "package": cache.package_version(),
            "tool": ("NVVM", find.library_build_id("nvvm")),
            "flags": options,
            "steps": [kind for _, _, kind in self._steps],
            "code": [
                self._normalize(code.decode()) if kind == "whole" and not code.startswith(_BITCODE) else code
                for _, code, kind in self._steps
            ],
        }
        return cache.Key.of("nvvm", parts)

    def get_log(self) -> str:
        return self._log


def compilation_unit(
    original: Any, fail: Callable[[Any, str, int], None], normalize: Callable[[str], str] = str
) -> Any:
    """
    Return the compiler's class for one call of libNVVM, with results kept in the cache.

    A call that would alter the code of later calls in this process is made in a child process.

    Args:
        original: The compiler's own class.
        fail: Raises the compiler's error, given an instance, the failed step, and libNVVM's status.
        normalize: Returns a text that is equal for modules that libNVVM compiles to the same code.
    """
    members = {
        "_fail": fail,
        "_normalize": staticmethod(normalize),
        "_errors_module": f"{original.__module__.rpartition('.')[0]}.error",
    }
    return type("CompilationUnit", (_CompilationUnit, original), members)
