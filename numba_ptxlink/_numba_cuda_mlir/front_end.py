"""
Describe numba-cuda-mlir to this package: define the front end `FRONT_END`.

The import of this module imports neither numba-cuda-mlir nor the code that generates wrappers.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._front_end.base import FrontEnd, Releases

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# The module with numba-cuda-mlir's global MLIR context.
_MLIR_CONTEXT = "numba_cuda_mlir.lowering_utilities.context"
# A release number above all that exist.
_NO_UPPER_BOUND = (1000, 0)
# MLIR contexts of the parent process, never destroyed; see `free_compiler_lock`.
_contexts_of_parent: list[Any] = []


class NumbaCudaMlir(FrontEnd):
    """The front end numba-cuda-mlir; see the base class, where each member is described."""

    name = "numba-cuda-mlir"
    module = "numba_cuda_mlir"
    root = "numba_cuda_mlir"
    package = "numba_cuda_mlir"
    distributions = ("numba-cuda-mlir",)

    @property
    def extra(self) -> str:
        from numba_ptxlink._tools import find

        return f"mlir,{find.toolkit_extra()}"

    def unsupported_reason(self) -> str | None:
        # A tested release is supported. A newer one is supported if the functions that this package patches
        # or calls have the same source as in a tested release. Read the version without importing the
        # compiler, which takes long.
        try:
            version = metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return (
                f"{self.name} is not installed; install it with `pip install 'numba-ptxlink[{self.extra}]'`"
            )
        # sources.json has, for each tested release, the digests of the functions of `contract`.
        digests_text = Path(__file__).with_name("sources.json").read_text()
        # Search the text, since parsing it would delay each start of a program.
        if f'"{version}": ' in digests_text:
            return None
        if version not in Releases(self.supported.first, _NO_UPPER_BOUND):
            return f"{self.name} {version} is not supported; install {self.name}{self.supported}"
        import json

        from numba_ptxlink._front_end import sources

        digests_by_release, site = json.loads(digests_text), sources.site_folder(self)
        for target in self.contract():
            # A missing function, whose digest is "", is a change, even if a tested release lacks it, too.
            tested_digests = {digests.get(target) or None for digests in digests_by_release.values()}
            if sources.digest(target, site) not in tested_digests:
                message = f"{self.name} {version} is not supported: {target} has changed"
                return f"{message}; install {self.name}=={max(digests_by_release)}"
        self.remark = f"{version} was not tested, but all functions that are patched or called are unchanged"
        return None

    def contract(self) -> tuple[str, ...]:
        """Return the functions that are patched or called, as "module:path"."""
        from .patches import CALLED, TABLE

        return (*(patch.target for patch in TABLE), *CALLED)

    def free_compiler_lock(self) -> None:
        super().free_compiler_lock()
        module: Any = sys.modules.get(_MLIR_CONTEXT)
        if getattr(module, "_context", None) is not None:
            # After a fork, the threads of the MLIR context exist in the parent only, and each use of the
            # context would wait for them. To destroy the context might wait, too, so keep it alive, and let
            # numba-cuda-mlir create a new one.
            _contexts_of_parent.append(module._context)
            module._context = None

    def vector_types(self) -> Mapping[str, Any]:
        from numba_cuda_mlir.cuda.vector_types import vector_types_by_alias, vector_types_by_name

        return {**vector_types_by_name, **vector_types_by_alias}

    def vector_elements(self, ty: Any) -> tuple[Any, int] | None:
        from numba_cuda_mlir.type_defs.vector_types import VectorType

        return (ty.dtype, ty.length) if isinstance(ty, VectorType) and len(ty.shape) == 1 else None

    def dispatcher(self, function: Callable[..., Any], *, launch_bounds: Any = None, device: bool) -> Any:
        from numba_cuda_mlir import cuda

        # The signature comes from `@udf` or `@kernel`; annotations of the function may be documentation.
        jit = cuda.jit(device=device, launch_bounds=launch_bounds, annotations_as_signatures=False)
        return jit(function)

    def call_attributes(self, dispatcher: Any) -> Mapping[str, Any]:
        # numba-cuda-mlir compiles a call of an object with both attributes as a call of the dispatcher.
        return {"__numba_cuda_mlir_jitable__": True, "_numba_cuda_mlir_device_dispatcher": dispatcher}


FRONT_END = NumbaCudaMlir(core_package="numba_cuda_mlir.numba_cuda", supported=Releases((0, 5, 4), (0, 7)))
