"""numba-cuda as a front end. Importing this module imports neither numba-cuda nor the wrappers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_ptxlink._front_end.compiler import Compiler

from . import release

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cabi.options import AbiOptions
    from numba_ptxlink._cabi.signatures import Signature
    from numba_ptxlink._front_end.protocol import CompileOptions, FrontEnd
    from numba_ptxlink._front_end.substitution import Substitution

    from .compile import Lowered


class NumbaCuda(Compiler):
    """numba-cuda; see `_front_end.protocol.FrontEnd`, where each member is described."""

    name = "numba-cuda"
    module = "numba_cuda"
    root = "numba"
    package = "numba.cuda"
    distributions: tuple[str, ...] = ("numba-cuda", "numba", "llvmlite")

    def simulated(self) -> bool:
        return release.simulated()

    def table(self) -> tuple[Substitution, ...]:
        from .patches.table import TABLE

        return TABLE

    def linker(self) -> type:
        from .linker import PtxLinker

        return PtxLinker

    def vectors(self) -> Mapping[str, Any]:
        from numba.cuda.vector_types import vector_types

        by_name: Mapping[str, Any] = vector_types
        return by_name

    def vector(self, ty: Any) -> tuple[Any, int] | None:
        from numba.cuda.vector_types import VectorType

        return (ty.base_type, ty.num_elements) if isinstance(ty, VectorType) else None

    def vector_of(self, value: type) -> Any | None:
        vector = self.vectors().get(value.__name__)
        return vector if vector is not None and vector.user_facing_object is value else None

    def dispatcher(self, function: Callable[..., Any], *, launch_bounds: Any = None, device: bool) -> Any:
        from numba import cuda

        return cuda.jit(device=True)(function) if device else cuda.jit(launch_bounds=launch_bounds)(function)

    def call_attributes(self, dispatcher: Any) -> Mapping[str, Any]:  # noqa: ARG002 - its type suffices
        return {}

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
        from .compile import lower

        return lower(function, args, result, arch, options, checked=abi.checked)

    def wrap(
        self,
        lowered: Lowered,
        signature: Signature,
        abi: AbiOptions,
        *,
        inline: bool,
        launch_bounds: Any = None,
    ) -> None:
        from .codegen import wrapper

        wrapper.emit(lowered.compiled, signature, abi, inline=inline, launch_bounds=launch_bounds)

    def modules(self, lowered: Sequence[Lowered], kept: Collection[str], arch: Arch) -> list[str]:
        from numba_ptxlink._formats.llvm_ir import in_dialect

        from .modules import ordered_modules

        salt = repr((arch, {one.options for one in lowered}))
        return in_dialect(ordered_modules([one.compiled.library for one in lowered], kept, salt), arch)

    def compile_ir(self, modules: Sequence[str], arch: Arch, options: CompileOptions, *, lto: bool) -> bytes:
        from .compile import compile_ir

        flags = {"arch": arch.compute, "opt": options.level, "fastmath": options.fastmath}
        return compile_ir(modules, **flags, **({"gen_lto": None} if lto else {}))

    def link_files(self, lowered: Sequence[Lowered]) -> Iterator[Any]:
        from .modules import of_libraries

        return of_libraries([one.compiled.library for one in lowered])

    def declarations(self, lowered: Sequence[Lowered]) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
        from .modules import declarations

        # All of them were typed by the same context.
        return declarations(lowered[-1].compiled.target_context)


FRONT_END: FrontEnd = NumbaCuda("numba.cuda", release)
