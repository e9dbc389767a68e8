"""What a front end is: one of Numba's compilers for CUDA, which have much in common as they stem from one."""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink import cache
from numba_ptxlink.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._tools.nvvm import Nvvm
    from numba_ptxlink._tools.options import Options

    from .patch import Patch
    from .protocol import LoweredFunction

# Final, post and local versions (PEP 440); before a final version, what the plugin replaces may still change.
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)*(?:\.post\d+)?(?:\+[\w.]+)?")
# What LLVM bitcode begins with, and what its wrapper does.
_BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")

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


class FrontEnd(ABC):
    """
    One of Numba's compilers for CUDA.

    Importing the module that holds it, and reading its attributes, imports nothing of the compiler: that
    happens at each start of a program that uses it. Methods import what they need.

    Args:
        home: The package that has the modules `types`, `core`, `np` and `cudadrv`.
        supported: The releases that are served.
    """

    name: str
    """The name that users choose it by, which is that of its distribution: "numba-cuda"."""

    module: str
    """The module by whose presence it is known to be installed: "numba_cuda"."""

    root: str
    """The outermost package of its modules, classes of types and dispatchers: "numba"."""

    package: str
    """The package whose modules its table names; the import hook lists it: "numba.cuda"."""

    distributions: tuple[str, ...]
    """The distributions whose versions say what it compiled: its own, and those it compiles with."""

    remark = ""
    """What `status()` adds of a release that this package was not tested with; "" of others."""

    def __init__(self, home: str, supported: Releases) -> None:
        self.home = home
        self.supported = supported
        # The module of *package* whose import decides whether the plugin becomes active.
        self.trigger_module = f"{home}.cudadrv.driver"

    @property
    @abstractmethod
    def extra(self) -> str:
        """The extra of numba-ptxlink, or extras with commas, that install it with its tools: "cu13"."""

    # Activation. None of these imports the compiler, and none raises.

    @abstractmethod
    def unsupported_reason(self) -> str | None:
        """
        Return why it cannot serve, with the cure, without a full stop; None if it can.

        Not installed, a release that is not served, a simulator. The words "is not installed" and "is not
        supported" are what `doctor` finds its advice by.
        """

    def simulated(self) -> bool:
        """Return whether it is a simulator, or will be once it is imported: then nothing is warned of."""
        return False

    def table(self) -> tuple[Patch, ...]:
        """
        Return what the plugin replaces.

        Importing the wrappers imports nothing of the compiler: it may be within its own import.
        """
        rows: tuple[Patch, ...] = self.own("patches").TABLE
        return rows

    def compilation_stopped(self) -> AbstractContextManager[Any]:
        """Return a context that waits for other threads' compilations, and blocks new ones."""
        return self._lock() or contextlib.nullcontext()

    def free_compiler_lock(self) -> None:
        """Free it in a forked child of what threads hold or work for that the child lacks."""
        lock = self._lock()
        # It is a pair with Numba's, or one where there is no Numba.
        for part in (getattr(lock, "_numba_lock", None), getattr(lock, "_cuda_lock", lock)):
            inner = getattr(part, "_lock", None)
            if inner is not None and not inner._is_owned():  # noqa: SLF001 - as `threading.Condition` does
                inner._at_fork_reinit()  # noqa: SLF001 - as `threading` does

    def _lock(self) -> Any:
        home = sys.modules.get(f"{self.home}.core.compiler_lock")
        return getattr(home, "global_compiler_lock", None)

    def own(self, name: str) -> Any:
        """Return the module *name* of its package here, which may import the compiler."""
        return importlib.import_module(f"{type(self).__module__.rpartition('.')[0]}.{name}")

    # Types and signatures.

    def _module(self, name: str) -> Any:
        return importlib.import_module(f"{self.home}.{name}")

    @property
    def types(self) -> Any:
        """Its module of types: `Type`, `Integer`, `Record`, `Array`, `unliteral`, `voidptr` and so on."""
        return self._module("types")

    @abstractmethod
    def vectors(self) -> Mapping[str, Any]:
        """Return CUDA's vector types by the names that signatures spell: "float32x4" and "float4"."""

    @abstractmethod
    def vector(self, ty: Any) -> tuple[Any, int] | None:
        """Return the type and number of elements of a vector type; None for any other type."""

    def vector_of(self, value: type) -> Any | None:  # noqa: ARG002 - such a class may be the type itself
        """Return the vector type that a class, such as `cuda.float32x4`, makes; None for any other class."""
        return None

    def from_dtype(self, dtype: Any) -> Any:
        """Return the type of a NumPy dtype. Raises whatever the compiler raises."""
        return self._module("np.numpy_support").from_dtype(dtype)

    def normalize(self, signature: Any) -> tuple[tuple[Any, ...], Any]:
        """
        Return the types of parameters and result; None for a result that is to be inferred.

        Args:
            signature: A signature object, a tuple of types, or a string without names of its module.

        Raises:
            Exception: It is none. The caller adds the function and the cure.
        """
        args, result = self._module("core.sigutils").normalize_signature(signature)
        return tuple(args), result

    # Compilation.

    def lower(
        self, function: Callable[..., Any], args: tuple[Any, ...], result: Any, **how: Any
    ) -> LoweredFunction:
        """
        Compile *function* to LLVM IR in NVVM's dialect, with a C function that calls it.

        The C function has nvcc's prototype in PTX. It converts arguments from C, an error does what it is to
        do, and it converts the result to C. A kernel, where the declaration is of one, is an entry and has
        the launch bounds. Needs no driver.

        Args:
            function: The Python function. It may call marked functions, and itself through one.
            args: The types of its parameters.
            result: The type of its result, None to infer it; void for a kernel.
            how: What `lower` in the front end's module `compile` takes:
                arch, the GPU to generate code for;
                options, those of the export;
                abi, what an error does, and whether divisions and indices are checked;
                declare, a `protocol.Declare`, called once, when the compiler has accepted the function;
                inline, whether NVVM may inline the Python function into the C function (it may);
                launch_bounds, for a kernel, as `@kernel` takes them.

        Raises:
            Exception: Before *declare* is called, the compiler refused the function. The message becomes the
                reason in an ExportError that names function and line.
            PtxlinkError: C has not its types, a link file cannot be read, or the compiler lacks what the C
                function needs; with the cure.
        """
        # It imports the compiler.
        ir: LoweredFunction = self.own("compile").lower(function, args, result, **how)
        return ir

    def compile_ir(
        self,
        modules: Sequence[str],
        arch: Arch,
        options: Options,
        *,
        lto: bool,
        toolkit: Nvvm | None = None,
    ) -> bytes:
        """
        Compile modules of lowered functions to PTX, or to LTO-IR if *lto* is set.

        The result may come from the cache. Needs no driver. LTO-IR is made by the libNVVM of *toolkit*, if
        that is given.

        Raises:
            ExportError: libNVVM refused it.
            LinkError: libNVVM cannot be loaded.
        """
        from numba_ptxlink._tools import nvvm
        from numba_ptxlink._tools.options import NVVM

        flags = [f"-arch={arch.compute}", *options.to_flags(NVVM), *["-gen-lto"] * lto]
        if toolkit is not None:
            return toolkit.compile_ir(modules, flags)
        return nvvm.compile_ir(modules, flags, self._module("cudadrv.nvvm").LibDevice().get())

    @abstractmethod
    def dispatcher(self, function: Callable[..., Any], *, launch_bounds: Any = None, device: bool) -> Any:
        """
        Return what its `cuda.jit` makes of *function*: a device function, or a kernel.

        The result has the attribute `_numba_type_`, by which other functions of this front end call it.
        """

    def call_attributes(self, dispatcher: Any) -> Mapping[str, Any]:  # noqa: ARG002 - its type may suffice
        """Return what else an object needs, by name, for a call of it to be one of *dispatcher*."""
        return {}


def check_closure(call: Any, callee: Any, loc: Any, args: Sequence[Any]) -> None:
    """
    Refuse a call of a function within a function that the compilers would mix up.

    They match arguments and defaults by their places alone: of what is passed by a keyword, or by fewer
    places than the function has, another value would be taken without a word.

    Args:
        call: The expression in Numba IR.
        callee: What is called.
        loc: Where.
        args: The arguments that the compiler has found.

    Raises:
        ExportError: The call is such a one. Names its line.
    """
    code = getattr(callee, "code", None)
    if call.op != "call" or code is None:
        return
    if call.kws or code.co_argcount not in (len(call.args), len(args)):
        raise ExportError(
            f"{Path(loc.filename).name}:{loc.line}: the closure {code.co_name!r} is called with keyword "
            f"arguments, or not with as many as its {code.co_argcount} parameters; pass a value for each "
            "parameter by its place, or define the function outside with @cuda.jit(device=True)"
        )


class _Unit:
    """One call of libNVVM by a compiler, whose modules are added, verified and compiled by it."""

    options: list[bytes]
    _fail: Callable[[str, int], None]
    _meaning: Callable[[str], str]
    _errors: str

    def __init__(self, options: Any) -> None:
        self._steps: list[tuple[str, bytes, str]] = []
        self._said = ""
        super().__init__(options)  # type: ignore[call-arg]

    def add_module(self, buffer: bytes) -> None:
        self._steps.append(("", bytes(buffer), "whole"))

    def lazy_add_module(self, buffer: bytes) -> None:
        self._steps.append(("", bytes(buffer), "lazy"))

    def verify(self) -> None:
        self._steps.append(("", b"", "verify"))

    def compile(self) -> bytes:
        options = [option.decode() for option in self.options]
        entry = cache.cached(lambda: self._key(options), lambda: self._made(options))
        self.log = self._said = entry.log
        if self.log:
            category = importlib.import_module(self._errors).NvvmWarning
            warnings.warn(self.log, category=category, stacklevel=2)
        return entry.code

    def _made(self, options: list[str]) -> cache.Entry:
        from numba_ptxlink._tools import nvvm

        step, status, given = nvvm.run(self._steps, options)
        self._said = given["log"]
        if step:
            self._fail(step, status)
        return cache.Entry({"log": self._said}, given["code"])

    def _key(self, options: list[str]) -> cache.Key:
        from numba_ptxlink._tools import find

        parts: dict[str, Any] = {
            "package": cache.package_version(),
            "tool": ("NVVM", find.build_of("nvvm")),
            "flags": options,
            "steps": [kind for _, _, kind in self._steps],
            "code": [
                self._meaning(code.decode()) if kind == "whole" and not code.startswith(_BITCODE) else code
                for _, code, kind in self._steps
            ],
        }
        return cache.Key.of("nvvm", parts)

    def get_log(self) -> str:
        return self._said


def compilation_unit(
    original: Any, fail: Callable[[Any, str, int], None], meaning: Callable[[str], str] = str
) -> Any:
    """
    Return a compiler's class for one call of libNVVM, whose results are kept in the cache.

    A call that would change what libNVVM makes later in the same process is made in a child process.

    Args:
        original: The class.
        fail: Raises the compiler's error, of an instance, the step that failed, and libNVVM's status.
        meaning: Returns the same for modules that libNVVM makes the same of.
    """
    own = {
        "_fail": fail,
        "_meaning": staticmethod(meaning),
        "_errors": f"{original.__module__.rpartition('.')[0]}.error",
    }
    return type("CompilationUnit", (_Unit, original), own)


def is_imported(name: str) -> bool:
    """Return whether the module *name* is imported, and no thread is still importing it."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)
