"""
The base class of front ends: Numba's compilers for CUDA, numba-cuda and its fork numba-cuda-mlir.

For each front end, this distribution has a package such as `numba_ptxlink._numba_cuda`. Its module
`front_end` defines `FRONT_END`, an instance of `FrontEnd`; its module `compile` defines `lower`. `registry`
loads the packages by name. No other module names a front end's package, and no front end imports another.

An export of Python functions calls `normalize` once for each signature. For each architecture, it calls
`lower` for each function, and `compile_ir` for the LLVM IR of several functions.
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

# Final, post and local versions (PEP 440), such as "0.30.4.post1+cu13"; the groups are its first three
# numbers. Pre-releases do not match: the private functions that the plugin patches may still change.
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
        # In "0.30" the third group is None, and counts as 0.
        return self.first <= tuple(int(number or 0) for number in match.groups()) < self.below

    def __str__(self) -> str:
        """Return the range as a version specifier."""
        return f">={_dotted(self.first)},<{_dotted(self.below)}"


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))


class FrontEnd(ABC):
    """
    Base class of Numba's compilers for CUDA.

    To create a front end and to read its attributes imports nothing of the compiler, so that programs which
    import `numba_ptxlink` start quickly. Methods import the modules that they need.

    Args:
        core_package: The compiler's package that has the modules `types`, `core`, `np` and `cudadrv`:
            "numba.cuda" or "numba_cuda_mlir.numba_cuda".
        supported: The supported releases.
    """

    name: str
    """The name for users, the name of the distribution: "numba-cuda"."""

    module: str
    """The module that exists only if the front end is installed: "numba_cuda"."""

    root: str
    """The outermost package of the modules that define its types, dispatchers and functions: "numba"."""

    package: str
    """The package whose modules are patched, which the import hook lists: "numba.cuda"."""

    distributions: tuple[str, ...]
    """The distributions whose versions determine the code: its own, and those that it compiles with."""

    remark = ""
    """The remark of `status()` if the plugin was not tested with the installed release; else ""."""

    def __init__(self, core_package: str, supported: Releases) -> None:
        self.core_package = core_package
        self.supported = supported
        # The plugin decides whether to become active when this module of `package` is imported.
        self.trigger_module = f"{core_package}.cudadrv.driver"

    @property
    @abstractmethod
    def extra(self) -> str:
        """The extras of numba-ptxlink, with commas, that install the front end and its tools: "cu13"."""

    # Activation and locks: these methods do not import the compiler, and do not raise exceptions.

    @abstractmethod
    def unsupported_reason(self) -> str | None:
        """
        Return why the front end cannot be used, such as its release; None if it can be used.

        The text is "reason; cure" without a full stop: `doctor` splits it at the last semicolon.
        """

    def is_simulated(self) -> bool:
        """
        Return whether the front end is a simulator of CUDA, or will be one if it is imported now.

        The plugin is then inactive without a warning, since a simulator links nothing.
        """
        return False

    def table(self) -> tuple[Patch, ...]:
        """
        Return the patches of the plugin.

        Nothing of the compiler is imported, since the caller may run in the middle of the compiler's import.
        """
        patches: tuple[Patch, ...] = self.package_module("patches").TABLE
        return patches

    def block_compilation(self) -> AbstractContextManager[Any]:
        """Return a context manager that waits for compilations of other threads, and blocks new ones."""
        return self._compiler_lock() or contextlib.nullcontext()

    def free_compiler_lock(self) -> None:
        """Release the compiler's locks in a forked child, which lacks the threads that held them."""
        compiler_lock = self._compiler_lock()
        # `compiler_lock` holds two locks: Numba's, and that of the front end. If Numba is not installed,
        # `compiler_lock` is the lock of the front end.
        for lock in (
            getattr(compiler_lock, "_numba_lock", None),
            getattr(compiler_lock, "_cuda_lock", compiler_lock),
        ):
            rlock = getattr(lock, "_lock", None)
            # The thread that forked runs on in the child: it owns the locks that it held, and releases them
            # later.
            if rlock is not None and not rlock._is_owned():  # noqa: SLF001 - as `threading.Condition` does
                rlock._at_fork_reinit()  # noqa: SLF001 - as `threading` does

    def _compiler_lock(self) -> Any:
        """Return the lock that the compiler holds while it compiles; None if it is not imported."""
        module = sys.modules.get(f"{self.core_package}.core.compiler_lock")
        return getattr(module, "global_compiler_lock", None)

    # Modules, types and signatures: these methods may import the compiler.

    def package_module(self, name: str) -> Any:
        """Return the module *name* of the package that defines this front end. May import the compiler."""
        return importlib.import_module(f"{type(self).__module__.rpartition('.')[0]}.{name}")

    def _compiler_module(self, name: str) -> Any:
        """Return the module *name* of the compiler, which is imported for that."""
        return importlib.import_module(f"{self.core_package}.{name}")

    @property
    def types(self) -> Any:
        """The compiler's module `types`, with `Type`, `Integer`, `Record`, `Array` and so on."""
        return self._compiler_module("types")

    @abstractmethod
    def vector_types(self) -> Mapping[str, Any]:
        """Return CUDA's vector types by the names that signatures use: "float32x4" and its alias "float4"."""

    @abstractmethod
    def vector_elements(self, ty: Any) -> tuple[Any, int] | None:
        """Return the type and number of elements of a vector type; None for any other type."""

    def vector_type_of(self, value: type) -> Any | None:  # noqa: ARG002 - see below
        """
        Return the vector type that a class such as `cuda.float32x4` stands for; None for any other class.

        For front ends without such classes: their `cuda.float32x4` is the vector type itself.
        """
        return None

    def from_dtype(self, dtype: Any) -> Any:
        """Return the Numba type of a NumPy dtype. Raises the compiler's exceptions."""
        return self._compiler_module("np.numpy_support").from_dtype(dtype)

    def normalize(self, signature: Any) -> tuple[tuple[Any, ...], Any]:
        """
        Return the types of the parameters, and the type of the result; None if that is to be inferred.

        Args:
            signature: A signature object, a tuple of types, or a string that names only Numba's types.

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

        The wrapper has the prototype that nvcc would give the function in PTX. The wrapper converts arguments
        from C, handles errors, and converts the result to C. The wrapper of a kernel is an entry (`.entry`)
        with launch bounds. Needs no driver.

        Args:
            function: The Python function. It may call functions that are marked with `@udf`, and itself if
                its global name refers to the marked function.
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
            Exception: The compiler refused the function; *declare* was not called. The caller adds the
                function and its line.
            PtxlinkError: A type has no counterpart in C, a link file cannot be read, or the compiler lacks a
                feature that the wrapper needs. The message names the cure.
        """
        # The import of the module `compile` imports the compiler.
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

        The result may come from the cache. Needs no driver. *older_nvvm*, if passed, compiles in place of
        this environment's libNVVM, with the libdevice of its own toolkit: linkers of an older CUDA release do
        not read newer LTO-IR.

        Raises:
            ExportError: libNVVM refused the modules.
            LinkError: libNVVM cannot be loaded.
        """
        from numba_ptxlink._tools import nvvm
        from numba_ptxlink._tools.options import NVVM

        flags = [f"-arch={arch.compute}", *options.to_flags(NVVM), *(["-gen-lto"] if lto else [])]
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
        """
        Return attributes, by name, with which calls of an object are compiled as calls of *dispatcher*.

        The attribute `_numba_type_`, which each front end requires, is not among them.
        """
        return {}
