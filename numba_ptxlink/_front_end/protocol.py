"""
What a front end does: one of Numba's compilers for CUDA, in a package of its own.

`registry` lists the packages. Each has a module `front_end` with an object `FRONT_END`, which is a
`FrontEnd`, and a module `compile` with its functions `lower` and `compile_ir`. Nothing else names a module of
a front end, and no front end imports the other.

A package holds what is private to its compiler and no more. Common to all, and below them, are:

- `_front_end`: `substitution`, how an attribute is replaced and put back, and what travels between replaced
  functions; `compiler`, the methods that front ends share; `disk_keys`, keys of kernels on disk; `errors`,
  what link errors have in common.
- `abi`: which C type a type is. The classes of types have equal names in all front ends.
- `_export`: `signatures` resolves signatures; `externs` and `link_files` read what a function calls and
  links; `compile` verifies prototypes, merges link files and makes cubins.
- `_tools.nvvm`: libNVVM, with the cache, for a front end whose own call of it adds nothing.

An export calls, for each architecture, `normalize` for each signature, `lower` for each function, which
returns its IR, C function and all, and `compile_ir` for the IR of several functions: to PTX, and to LTO-IR
where it is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from numba_ptxlink._tools.options import NVVM, Options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cabi.header import CFunction
    from numba_ptxlink._cabi.options import AbiOptions
    from numba_ptxlink._cabi.signatures import Signature
    from numba_ptxlink._tools.nvvm import Nvvm

    from .compiler import Releases
    from .substitution import Substitution


@dataclass(frozen=True)
class CompileOptions:
    """
    The options that marked functions are compiled with.

    Args:
        opt: Whether NVVM optimises.
        fastmath: Whether floating-point arithmetic may be approximate.
        lineinfo: Whether the code carries the Python line numbers.
        arithmetic: The options of arithmetic that differ from *fastmath*'s, as pairs of one of
            `_tools.options.ARITHMETIC` and its value.
    """

    opt: bool = True
    fastmath: bool = False
    lineinfo: bool = False
    arithmetic: tuple[tuple[str, bool], ...] = ()

    @property
    def described(self) -> dict[str, bool]:
        """The options as manifests have them: those of arithmetic where they were given."""
        return {
            "opt": self.opt,
            "fastmath": self.fastmath,
            "lineinfo": self.lineinfo,
            **dict(self.arithmetic),
        }

    def __repr__(self) -> str:
        """Show what was given: names in the code of functions are made of it."""
        told = (f"{name}={value}" for name, value in self.described.items())
        return f"CompileOptions({', '.join(told)})"

    @property
    def level(self) -> int:
        """The optimisation level of NVVM and the assembler."""
        return 3 if self.opt else 0

    @property
    def tools(self) -> Options:
        """These options as those of NVIDIA's tools."""
        options = Options(opt_level=self.level, lineinfo=self.lineinfo, fast_math=self.fastmath or None)
        given: dict[str, Any] = dict(self.arithmetic)
        return options._replace(**given)

    def nvvm_flags(self, arch: Arch, *, lto: bool) -> list[str]:
        """Return what libNVVM takes to make PTX for *arch*, or LTO-IR."""
        flags = [f"-arch={arch.compute}", *self.tools.spelled(NVVM)]
        return [*flags, "-gen-lto"] if lto else flags


@dataclass(frozen=True)
class LinkFile:
    """
    A file that a compiled function links.

    Args:
        name: What messages call it.
        kind: Its kind, one of `_formats.kinds`.
        content: What it holds.
        path: Where it is, absolute; None for code in memory.
    """

    name: str
    kind: str
    content: bytes
    path: Path | None = None


@dataclass(frozen=True)
class IR:
    """
    A function of an export for one architecture, in LLVM IR that depends on no other function.

    Args:
        declaration: What a header says of its C function.
        abi: What an error does in it.
        modules: The NVVM IR of the C function and of all that it calls, callers first. A module has the same
            text wherever it occurs. All but the C function is internal or has a name by its content, so that
            neither another process nor what this one compiled before makes a difference.
        links: The files that it links, without the compiler's memory manager.
        calls: The functions that `cuda.declare_device` declares and it may call: symbol, and C signature
            where C has the types.
        raises: The source lines where it or its callees may raise, as "file.py:line", its own first. Lines
            that are proved never to raise may be left out.
    """

    declaration: CFunction
    abi: AbiOptions
    modules: tuple[str, ...]
    links: tuple[LinkFile, ...] = ()
    calls: tuple[tuple[str, Signature | None], ...] = ()
    raises: tuple[str, ...] = ()

    @property
    def signature(self) -> Signature:
        """Its C signature."""
        return self.declaration.signature

    @property
    def title(self) -> str:
        """How messages name it: "name (file.py:line)"."""
        return f"{self.signature.name} ({self.declaration.source})"

    @property
    def place(self) -> str:
        """Where it is defined, as "/home/me/file.py:line"."""
        return self.declaration.place


class Declare(Protocol):
    """Says what a header has of a C function, once its compiler knows the types."""

    def __call__(self, args: tuple[Any, ...], result: Any, /, *, raises: bool) -> CFunction:
        """
        Return the declaration of the C function, with its signature.

        Args:
            args: The types of the parameters, as the compiler takes them.
            result: The type of the result, inferred or as declared.
            raises: Whether it or a callee may raise.

        Raises:
            AbiError: C has not one of the types.
        """


class FrontEnd(Protocol):
    """
    One of Numba's compilers for CUDA.

    Importing the module that holds it, and reading its attributes, imports nothing of the compiler: that
    happens at each start of a program that uses it. Methods import what they need.
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

    driver: str
    """The module of *package* whose import decides whether the plugin becomes active."""

    supported: Releases
    """The releases that are served."""

    remark: str
    """What `status()` adds of a release that this package was not tested with; "" of others."""

    @property
    def extra(self) -> str:
        """The extra of numba-ptxlink, or extras with commas, that install it with its tools: "cu13"."""

    # Activation. None of these imports the compiler, and none raises.

    def unsupported_reason(self) -> str | None:
        """
        Return why it cannot serve, with the cure, without a full stop; None if it can.

        Not installed, a release that is not served, a simulator. The words "is not installed" and "is not
        supported" are what `doctor` finds its advice by.
        """

    def simulated(self) -> bool:
        """Return whether it is a simulator, or will be once it is imported: then nothing is warned of."""

    def table(self) -> tuple[Substitution, ...]:
        """
        Return what the plugin replaces.

        Importing the wrappers imports nothing of the compiler: it may be within its own import.
        """

    def linker(self) -> type | None:
        """Return the class that takes the place of its linker class; None where only methods are replaced."""

    def compilation_stopped(self) -> AbstractContextManager[None]:
        """Return a context that waits for other threads' compilations, and blocks new ones."""

    def free_compiler_lock(self) -> None:
        """Free it in a forked child of what threads hold or work for that the child lacks."""

    # Types and signatures.

    @property
    def types(self) -> Any:
        """Its module of types: `Type`, `Integer`, `Record`, `Array`, `unliteral`, `voidptr` and so on."""

    def vectors(self) -> Mapping[str, Any]:
        """Return CUDA's vector types by the names that signatures spell: "float32x4" and "float4"."""

    def vector(self, ty: Any) -> tuple[Any, int] | None:
        """Return the type and number of elements of a vector type; None for any other type."""

    def vector_of(self, value: type) -> Any | None:
        """Return the vector type that a class, such as `cuda.float32x4`, makes; None for any other class."""

    def from_dtype(self, dtype: Any) -> Any:
        """Return the type of a NumPy dtype. Raises whatever the compiler raises."""

    def normalize(self, signature: Any) -> tuple[tuple[Any, ...], Any]:
        """
        Return the types of parameters and result; None for a result that is to be inferred.

        Args:
            signature: A signature object, a tuple of types, or a string without names of its module.

        Raises:
            Exception: It is none. The caller adds the function and the cure.
        """

    # Compilation.

    def lower(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        result: Any,
        *,
        arch: Arch,
        options: CompileOptions,
        abi: AbiOptions,
        declare: Declare,
        inline: bool = True,
        launch_bounds: Any = None,
    ) -> IR:
        """
        Compile *function* to LLVM IR in NVVM's dialect for *arch*, with a C function that calls it.

        The C function has nvcc's prototype in PTX. It converts arguments from C, an error does what *abi*
        says, and it converts the result to C. A kernel, where the declaration is of one, is an entry and has
        the launch bounds. Needs no driver.

        Args:
            function: The Python function. It may call marked functions, and itself through one.
            args: The types of its parameters.
            result: The type of its result, None to infer it; void for a kernel.
            arch: The GPU to generate code for.
            options: The options of the export.
            abi: What an error does, and whether divisions and indices are checked.
            declare: Called once, when the compiler has accepted the function.
            inline: Whether NVVM may inline the Python function into the C function.
            launch_bounds: For a kernel, as `@kernel` takes them.

        Raises:
            Exception: Before *declare* is called, the compiler refused the function. The message becomes the
                reason in an ExportError that names function and line.
            PtxlinkError: C has not its types, a link file cannot be read, or the compiler lacks what the C
                function needs; with the cure.
        """

    def compile_ir(
        self,
        modules: Sequence[str],
        arch: Arch,
        options: CompileOptions,
        *,
        lto: bool,
        toolkit: Nvvm | None = None,
    ) -> bytes:
        """
        Compile the modules of one or several `IR` to PTX, or to LTO-IR for *lto*, or read it from the cache.

        Needs no driver. LTO-IR is made by the libNVVM of *toolkit*, where that is given.

        Raises:
            Exception: libNVVM refused it, or cannot be loaded. The message becomes the reason in an
                ExportError that names the functions.
        """

    def dispatcher(self, function: Callable[..., Any], *, launch_bounds: Any = None, device: bool) -> Any:
        """
        Return what its `cuda.jit` makes of *function*: a device function, or a kernel.

        The result has the attribute `_numba_type_`, by which other functions of this front end call it.
        """

    def call_attributes(self, dispatcher: Any) -> Mapping[str, Any]:
        """Return what else an object needs, by name, for a call of it to be one of *dispatcher*."""
