"""
The base class of front ends: Numba's compilers for CUDA, which share code, since one is a fork of the other.

Each front end has a package here, such as `_numba_cuda`, with a module `front_end`, whose `FRONT_END` is a
`FrontEnd`, and a module `compile` with a function `lower`. `registry` loads the packages by name. No other
module names a front end's package, and no front end imports another.

An export calls `normalize` once for each signature. For each architecture, it calls `lower` for each
function, and `compile_ir` for the LLVM IR of several functions.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._tools.nvvm import Nvvm
    from numba_ptxlink._tools.options import Options

    from .lowered import LoweredFunction
    from .patch import Patch

# Final, post and local versions (PEP 440), such as "0.30.4.post1+cu13". Pre-releases are rejected, since
# private functions may still change.
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)*(?:\.post\d+)?(?:\+[\w.]+)?")

Version = tuple[int, ...]
"""The numbers of a release, such as (0, 30, 4)."""


class Releases:
    """
    A range of releases.

    Args:
        first: The first release, of three numbers.
        below: The first release that is no longer supported.
    """

    def __init__(self, first: Version, below: Version) -> None:
        self.first = first
        self.below = below

    def __contains__(self, version: str) -> bool:
        match = _VERSION.fullmatch(version)
        if match is None:
            return False
        # The third number is None in "0.30".
        return self.first <= tuple(int(number or 0) for number in match.groups()) < self.below

    def __str__(self) -> str:
        """Return the range as a version specifier."""
        return f">={_dotted(self.first)},<{_dotted(self.below)}"


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))


class FrontEnd(ABC):
    """
    Base class of Numba's compilers for CUDA.

    Creating a front end and reading its attributes imports nothing of the compiler, since that happens at
    each start of a program that uses it. Methods import the modules that they need.

    Args:
        core_package: The package that has the modules `types`, `core`, `np` and `cudadrv`.
        supported: The supported releases.
    """

    name: str
    """The name for users, the name of the distribution: "numba-cuda"."""

    module: str
    """The module that exists if it is installed: "numba_cuda"."""

    root: str
    """The outermost package of its modules, types and dispatchers: "numba"."""

    package: str
    """The package whose modules are patched, which the import hook lists: "numba.cuda"."""

    distributions: tuple[str, ...]
    """The distributions whose versions determine the code: its own, and those that it compiles with."""

    remark = ""
    """The remark of `status()` on a release that this package was not tested with; "" for others."""

    def __init__(self, core_package: str, supported: Releases) -> None:
        self.core_package = core_package
        self.supported = supported
        # The module of *package* whose import decides whether the plugin becomes active.
        self.trigger_module = f"{core_package}.cudadrv.driver"

    @property
    @abstractmethod
    def extra(self) -> str:
        """The extra of numba-ptxlink, or extras with commas, that install it with its tools: "cu13"."""

    # Activation: these methods do not import the compiler, and do not raise.

    @abstractmethod
    def unsupported_reason(self) -> str | None:
        """
        Return why the front end cannot be used, with the cure, without a full stop; None if it can.

        For example, it is not installed, its release is not supported, or it is a simulator. `doctor` looks
        for the words "is not installed" and "is not supported".
        """

    def is_simulated(self) -> bool:
        """Return whether the front end is a simulator, or will be once imported; then nobody is warned."""
        return False

    def table(self) -> tuple[Patch, ...]:
        """
        Return the patches of the plugin.

        Importing them imports nothing of the compiler, which may be in the middle of its own import.
        """
        patches: tuple[Patch, ...] = self.package_module("patches").TABLE
        return patches

    def block_compilation(self) -> AbstractContextManager[Any]:
        """Return a context manager that waits for compilations of other threads, and blocks new ones."""
        return self._lock() or contextlib.nullcontext()

    def free_compiler_lock(self) -> None:
        """Release the compiler's locks in a forked child, which lacks the threads that held them."""
        lock = self._lock()
        # The lock consists of Numba's lock and the front end's; without Numba, it is a single lock.
        for numba_lock in (getattr(lock, "_numba_lock", None), getattr(lock, "_cuda_lock", lock)):
            rlock = getattr(numba_lock, "_lock", None)
            if rlock is not None and not rlock._is_owned():  # noqa: SLF001 - as `threading.Condition` does
                rlock._at_fork_reinit()  # noqa: SLF001 - as `threading` does

    def _lock(self) -> Any:
        module = sys.modules.get(f"{self.core_package}.core.compiler_lock")
        return getattr(module, "global_compiler_lock", None)

    def package_module(self, name: str) -> Any:
        """Return the module *name* of this package's code for the front end. May import the compiler."""
        return importlib.import_module(f"{type(self).__module__.rpartition('.')[0]}.{name}")

    # Types and signatures.

    def _compiler_module(self, name: str) -> Any:
        return importlib.import_module(f"{self.core_package}.{name}")

    @property
    def types(self) -> Any:
        """The compiler's module of types: `Type`, `Integer`, `Record`, `Array`, `unliteral`, `voidptr`..."""
        return self._compiler_module("types")

    @abstractmethod
    def vector_types(self) -> Mapping[str, Any]:
        """Return CUDA's vector types by their names in signatures: "float32x4" and "float4"."""

    @abstractmethod
    def vector_elements(self, ty: Any) -> tuple[Any, int] | None:
        """Return the type and number of elements of a vector type; None for any other type."""

    def vector_type_of(self, value: type) -> Any | None:  # noqa: ARG002 - see below
        """Return the vector type of a class such as `cuda.float32x4`; None for any other class."""
        # For compilers whose `cuda.float32x4` is the vector type itself.
        return None

    def from_dtype(self, dtype: Any) -> Any:
        """Return the type of a NumPy dtype. Raises the compiler's exceptions."""
        return self._compiler_module("np.numpy_support").from_dtype(dtype)

    def normalize(self, signature: Any) -> tuple[tuple[Any, ...], Any]:
        """
        Return the types of parameters and result; None for a result that is to be inferred.

        Args:
            signature: A signature object, a tuple of types, or a string without names of its module.

        Raises:
            Exception: *signature* is invalid. The caller adds the function and the cure.
        """
        args, result = self._compiler_module("core.sigutils").normalize_signature(signature)
        return tuple(args), result

    # Compilation.

    def lower(
        self, function: Callable[..., Any], args: tuple[Any, ...], result: Any, **arguments: Any
    ) -> LoweredFunction:
        """
        Compile *function* to LLVM IR in NVVM's dialect, with a wrapper that has the C ABI.

        The wrapper has nvcc's prototype in PTX, converts arguments from C, handles errors, and converts the
        result to C. The wrapper of a kernel is an entry with launch bounds. Needs no driver.

        Args:
            function: The Python function, which may call marked functions, and itself by its mark.
            args: The types of its parameters.
            result: The type of its result, None to infer it; void for a kernel.
            arguments: The other arguments of `lower` in the front end's module `compile`:
                arch, the GPU to generate code for;
                options, those of the export;
                abi, the effect of an error, and whether divisions and indices are checked;
                declare, a `lowered.Declare`, called once, when the compiler has accepted the function;
                inline, whether NVVM may inline the Python function into the wrapper (by default it may);
                launch_bounds, for a kernel, as `@kernel` takes them.

        Raises:
            Exception: Before *declare* is called, the compiler refused the function. The message becomes the
                reason in an ExportError that names function and line.
            PtxlinkError: A type has no counterpart in C, a link file cannot be read, or the compiler lacks a
                feature that the wrapper needs; with the cure.
        """
        # Importing the module `compile` imports the compiler.
        lowered: LoweredFunction = self.package_module("compile").lower(function, args, result, **arguments)
        return lowered

    def compile_ir(
        self,
        modules: Sequence[str],
        arch: Arch,
        options: Options,
        *,
        lto: bool,
        older_nvvm: Nvvm | None = None,
    ) -> bytes:
        """
        Compile modules of lowered functions to PTX, or to LTO-IR if *lto* is set.

        The result may come from the cache. Needs no driver. *older_nvvm*, if passed, compiles LTO-IR in place
        of this environment's libNVVM.

        Raises:
            ExportError: libNVVM refused the modules.
            LinkError: libNVVM cannot be loaded.
        """
        from numba_ptxlink._tools import nvvm
        from numba_ptxlink._tools.options import NVVM

        flags = [f"-arch={arch.compute}", *options.to_flags(NVVM), *["-gen-lto"] * lto]
        if older_nvvm is not None:
            return older_nvvm.compile_ir(modules, flags)
        return nvvm.compile_ir(modules, flags, self._compiler_module("cudadrv.nvvm").LibDevice().get())

    @abstractmethod
    def dispatcher(self, function: Callable[..., Any], *, launch_bounds: Any = None, device: bool) -> Any:
        """
        Return the result of the compiler's `cuda.jit` for *function*: a device function, or a kernel.

        The attribute `_numba_type_` of the result lets other functions of this front end call it.
        """

    def call_attributes(self, dispatcher: Any) -> Mapping[str, Any]:  # noqa: ARG002 - the type may suffice
        """Return other attributes that let the compiler treat calls of an object as calls of *dispatcher*."""
        return {}
