"""numba-cuda as a front end. Importing this module imports neither numba-cuda nor the wrappers."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._front_end.compiler import Compiler, Releases

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cabi.options import AbiOptions
    from numba_ptxlink._cabi.signatures import Signature
    from numba_ptxlink._front_end.protocol import CompileOptions, FrontEnd
    from numba_ptxlink._front_end.substitution import Substitution

    from .compile import Lowered


# The first release of NumPy that the supported releases of numba-cuda do not run with.
_NUMPY_BELOW = (2, 5)


class NumbaCuda(Compiler):
    """numba-cuda; see `_front_end.protocol.FrontEnd`, where each member is described."""

    name = "numba-cuda"
    module = "numba_cuda"
    root = "numba"
    package = "numba.cuda"
    distributions: tuple[str, ...] = ("numba-cuda", "numba", "llvmlite")

    @property
    def extra(self) -> str:
        from numba_ptxlink._tools import find

        return "cu12" if find.major() == 12 else "cu13"

    def unsupported_reason(self) -> str | None:
        if self.simulated():
            return "the CUDA simulator is in use; unset NUMBA_ENABLE_CUDASIM"
        try:
            from numba_cuda import __file__ as package
            from numba_cuda import __version__ as version
        except (ImportError, OSError):
            return f"numba-cuda is not installed; install it with `pip install 'numba-ptxlink[{self.extra}]'`"
        if version not in self.supported:
            return f"numba-cuda {version} is not supported; install numba-cuda{self.supported}"
        driver = getattr(sys.modules.get(self.driver), "__file__", None)
        if driver and not Path(driver).resolve().is_relative_to(Path(package).resolve().parent):
            return (
                "numba.cuda is Numba's own, because Python has not read the .pth file of numba-cuda; "
                "import _numba_cuda_redirector, which does what that file does, before numba.cuda"
            )
        return _numpy_reason(version)

    def simulated(self) -> bool:
        driver = sys.modules.get(self.driver)
        if driver is not None:
            return getattr(driver, "__name__", self.driver) != self.driver
        for name in ("numba.cuda.core.config", "numba.core.config"):
            switch = getattr(sys.modules.get(name), "ENABLE_CUDASIM", None)
            if switch is not None:
                return bool(switch)
        switch = os.environ.get("NUMBA_ENABLE_CUDASIM", "").strip()
        return switch.isdecimal() and int(switch) != 0

    def table(self) -> tuple[Substitution, ...]:
        from .patches import TABLE

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


def _numpy_reason(version: str) -> str | None:
    """Return that numba-cuda *version* does not run with this NumPy, with the cure; None if it does."""
    try:
        numpy = getattr(sys.modules.get("numpy"), "__version__", None) or metadata.version("numpy")
        if tuple(int(part) for part in numpy.split(".")[:2]) < _NUMPY_BELOW:
            return None
    except (metadata.PackageNotFoundError, ValueError):
        return None  # The import tells.
    below = ".".join(map(str, _NUMPY_BELOW))
    return f"numba-cuda {version} does not run with NumPy {numpy}; run `pip install 'numpy<{below}'`"


FRONT_END: FrontEnd = NumbaCuda("numba.cuda", Releases((0, 30, 4), (0, 31)))
