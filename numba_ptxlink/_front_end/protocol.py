"""
What a front end does: one of Numba's compilers for CUDA, in a package of its own.

`registry` lists the packages. Each has a module `front_end` with an object `FRONT_END`, which is a
`FrontEnd`, and a module `compile`, which is its `Code`. Nothing else names a module of a front end, and no
front end imports the other.

A package holds what is private to its compiler and no more. Common to all, and below them, are:

- `_front_end`: `substitution`, how an attribute is replaced and put back, and what travels between replaced
  functions; `compiler`, the methods that front ends share; `disk_keys`, keys of kernels on disk; `errors`,
  what link errors have in common.
- `abi`: which C type a type is. The classes of types have equal names in all front ends.
- `_export`: `signatures` resolves signatures; `lower` and `compile` call the methods below in the order in
  which they stand here, verify prototypes, merge link files and make cubins.
- `_tools.nvvm`: libNVVM, with the cache, for a front end whose own call of it adds nothing.

An export of functions runs, for each architecture:

1. `normalize` for each signature.
2. `lower` for each function, then `wrap`, which adds the C function to what was lowered.
3. `modules` of all functions, and `compile_ir` of these to PTX, and to LTO-IR where it is wanted.
4. `link_files` where PTX has undefined symbols; `declarations` for what stays so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cabi.options import AbiOptions
    from numba_ptxlink._cabi.signatures import Signature

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
    """

    opt: bool = True
    fastmath: bool = False
    lineinfo: bool = False

    @property
    def level(self) -> int:
        """The optimisation level of NVVM and the assembler."""
        return 3 if self.opt else 0


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


class Lowered(Protocol):
    """A Python function as its compiler made it, with the compiler's own ABI; its other parts are private."""

    @property
    def args(self) -> tuple[Any, ...]:
        """The types of the parameters, as the compiler takes them."""

    @property
    def result(self) -> Any:
        """The type of the result, inferred or as declared."""

    @property
    def raises(self) -> tuple[str, ...]:
        """
        The lines where the function or its callees may raise, as "file.py:line", callers first.

        Lines that are proved never to raise may be left out. Known once `lower` has returned.
        """


class Code(Protocol):
    """
    What compiles: a module of a front end's package.

    All of it works without a driver and for any architecture.
    """

    def lower(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        result: Any,
        *,
        arch: Arch,
        options: CompileOptions,
        abi: AbiOptions,
    ) -> Lowered:
        """
        Compile *function* to an IR that `wrap` adds to, with the compiler's own ABI.

        Args:
            function: The Python function. It may call marked functions, and itself through one.
            args: The types of its parameters.
            result: The type of its result, None to infer it; void for a kernel.
            arch: The GPU to generate code for.
            options: The options of the export.
            abi: What an error does, and whether divisions and indices are checked.

        Raises:
            Exception: The compiler refused the function. The message becomes the reason in an ExportError
                that names function and line.
        """

    def wrap(
        self,
        lowered: Any,
        signature: Signature,
        abi: AbiOptions,
        /,
        *,
        inline: bool,
        launch_bounds: Any = None,
    ) -> None:
        """
        Add the C function of *signature* to *lowered*: by value, with nvcc's prototype in PTX.

        Arguments are converted from C, an error does what *abi* says, the result is converted to C. A kernel,
        where *signature* is one, is an entry and has the launch bounds.

        Args:
            lowered: What `lower` returned.
            signature: The C signature that `abi.c_signature` made of its types.
            abi: What an error does.
            inline: Whether NVVM may inline the Python function into the C function.
            launch_bounds: For a kernel, as `@kernel` takes them.

        Raises:
            ExportError: The compiler lacks what is asked for; with the cure.
        """

    def modules(self, lowered: Sequence[Any], kept: Collection[str], arch: Arch, /) -> list[str]:
        """
        Return the NVVM IR of *lowered* and all that it calls, each once, in the dialect for *arch*.

        Order and names depend on the program alone: another process, or what this one compiled before, makes
        no difference. All but the symbols *kept*, the C functions, is internal or has a name by its content.
        """

    def compile_ir(self, modules: Sequence[str], arch: Arch, options: CompileOptions, *, lto: bool) -> bytes:
        """
        Compile what `modules` returned to PTX, or to LTO-IR for *lto*, or read it from the cache.

        Raises:
            Exception: libNVVM refused it, or cannot be loaded. The message becomes the reason in an
                ExportError that names the functions.
        """

    def link_files(self, lowered: Sequence[Any]) -> Iterable[Any]:
        """
        Return what *lowered* and its callees link, as they give it, without the compiler's memory manager.

        That is paths, which may be relative, and code in memory: `LinkableCode` of the compiler, or
        `LinkFile`. `_export.link_files` reads them.
        """

    def declarations(self, lowered: Sequence[Any]) -> Iterable[tuple[str, tuple[Any, ...], Any]]:
        """Return the functions that `cuda.declare_device` declared: symbol, parameter types, result type."""


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

    @property
    def code(self) -> Code:
        """The module that compiles, which imports the compiler."""

    def dispatcher(self, function: Callable[..., Any], *, launch_bounds: Any = None, device: bool) -> Any:
        """
        Return what its `cuda.jit` makes of *function*: a device function, or a kernel.

        The result has the attribute `_numba_type_`, by which other functions of this front end call it.
        """

    def call_attributes(self, dispatcher: Any) -> Mapping[str, Any]:
        """Return what else an object needs, by name, for a call of it to be one of *dispatcher*."""
