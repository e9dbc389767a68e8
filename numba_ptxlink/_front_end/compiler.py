"""What the compilers have in common, which all stem from one: releases, where modules are, and the lock."""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

# Final, post and local versions (PEP 440); before a final version, what the plugin replaces may still change.
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)*(?:\.post\d+)?(?:\+[\w.]+)?")

Version = tuple[int, ...]


class Releases:
    """
    A range of releases.

    Args:
        first: The first one, of three numbers.
        below: The first one that is not served any more.
    """

    def __init__(self, first: Version, below: Version) -> None:
        self.first = first
        self.below = below

    def __contains__(self, version: str) -> bool:
        match = _VERSION.fullmatch(version)
        return (
            match is not None and self.first <= tuple(int(part or 0) for part in match.groups()) < self.below
        )

    def __str__(self) -> str:
        """Return them as a version specifier."""
        return f">={_spelled(self.first)},<{_spelled(self.below)}"


def _spelled(version: Version) -> str:
    return ".".join(map(str, version))


class Compiler:
    """
    The members of `protocol.FrontEnd` that front ends share.

    Args:
        home: The package that has the modules `types`, `core`, `np` and `cudadrv`.
        supported: The releases that are served.
    """

    remark = ""

    def __init__(self, home: str, supported: Releases) -> None:
        self.home = home
        self.driver = f"{home}.cudadrv.driver"
        self.supported = supported

    def lower(self, *args: Any, **options: Any) -> Any:
        """Return the `protocol.IR` of a function."""
        return self._compile.lower(*args, **options)

    def compile_ir(self, *args: Any, **options: Any) -> Any:
        """Return what NVVM makes of LLVM IR."""
        return self._compile.compile_ir(*args, **options)

    @property
    def _compile(self) -> Any:
        # It imports the compiler.
        return importlib.import_module(f"{type(self).__module__.rpartition('.')[0]}.compile")

    @property
    def types(self) -> Any:
        """Its module of types."""
        return self._module("types")

    def from_dtype(self, dtype: Any) -> Any:
        """Return the type of a NumPy dtype."""
        return self._module("np.numpy_support").from_dtype(dtype)

    def normalize(self, signature: Any) -> tuple[tuple[Any, ...], Any]:
        """Return the types of parameters and result."""
        args, result = self._module("core.sigutils").normalize_signature(signature)
        return tuple(args), result

    def _module(self, name: str) -> Any:
        return importlib.import_module(f"{self.home}.{name}")

    def compilation_stopped(self) -> AbstractContextManager[Any]:
        """Return what waits for other threads' compilations, and blocks new ones during a `with` block."""
        return self._lock() or contextlib.nullcontext()

    def free_compiler_lock(self) -> None:
        """Release the lock in a forked child, if it was held by a thread that the child lacks."""
        lock = self._lock()
        # It is a pair with Numba's, or one where there is no Numba.
        for part in (getattr(lock, "_numba_lock", None), getattr(lock, "_cuda_lock", lock)):
            inner = getattr(part, "_lock", None)
            if inner is not None and not inner._is_owned():  # noqa: SLF001 - as `threading.Condition` does
                inner._at_fork_reinit()  # noqa: SLF001 - as `threading` does

    def _lock(self) -> Any:
        home = sys.modules.get(f"{self.home}.core.compiler_lock")
        return getattr(home, "global_compiler_lock", None)


def checked_closures(original: Any, exports: Callable[[], bool]) -> Any:
    """
    Return *original*, `_get_callee_args` of a compiler, for the calls of functions within functions.

    The compilers match arguments and defaults by their places alone: of what is passed by a keyword, or by
    fewer places than the function has, another value would be taken without a word.

    Args:
        original: It returns the arguments of a call.
        exports: Whether the function that is compiled is exported; others are the compiler's.
    """

    @functools.wraps(original)
    def _get_callee_args(call: Any, callee: Any, loc: Any, func_ir: Any) -> Any:
        from pathlib import Path

        args, code = original(call, callee, loc, func_ir), getattr(callee, "code", None)
        if call.op != "call" or code is None or not exports():
            return args
        if call.kws or code.co_argcount not in (len(call.args), len(args)):
            raise ExportError(
                f"{Path(loc.filename).name}:{loc.line}: the closure {code.co_name!r} is called with keyword "
                f"arguments, or not with as many as its {code.co_argcount} parameters; pass a value for each "
                "parameter by its place, or define the function outside with @cuda.jit(device=True)"
            )
        return args

    return _get_callee_args


@functools.cache
def libdevice(home: str) -> str:
    """Return a digest of the libdevice that the compiler in the package *home* compiles with."""
    import hashlib

    code = importlib.import_module(f"{home}.cudadrv.nvvm").LibDevice().get()
    return hashlib.sha256(code).hexdigest()


def isolating(original: Any, fail: Callable[[Any, str, int], None]) -> Any:
    """
    Return a compiler's class for one call of libNVVM, with the call made apart where it changes later ones.

    Args:
        original: The class.
        fail: Raises the compiler's error, of an instance, the step that failed, and libNVVM's status.
    """

    class CompilationUnit(original):  # type: ignore[misc]
        """The compiler's, whose modules are added, verified and compiled by one call."""

        def __init__(self, options: Any) -> None:
            self._steps: list[tuple[str, bytes, str]] = []
            self._said = ""
            super().__init__(options)

        def add_module(self, buffer: bytes) -> None:
            self._steps.append(("", bytes(buffer), "whole"))

        def lazy_add_module(self, buffer: bytes) -> None:
            self._steps.append(("", bytes(buffer), "lazy"))

        def verify(self) -> None:
            self._steps.append(("", b"", "verify"))

        def compile(self) -> bytes:
            from numba_ptxlink._tools import nvvm

            step, status, given = nvvm.run(self._steps, [option.decode() for option in self.options])
            self._said = given["log"]
            if step:
                fail(self, step, status)
            self.log = self.get_log()
            if self.log:
                errors = importlib.import_module(f"{original.__module__.rpartition('.')[0]}.error")
                warnings.warn(self.log, category=errors.NvvmWarning, stacklevel=2)
            code: bytes = given["code"]
            return code

        def get_log(self) -> str:
            return self._said

    return CompilationUnit


def is_imported(name: str) -> bool:
    """Return whether the module *name* is imported, and no thread is still importing it."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)
