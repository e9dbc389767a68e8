"""numba-cuda-mlir as a front end. Importing this module imports neither numba-cuda-mlir nor the wrappers."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._front_end.base import FrontEnd, Releases

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MLIR_CONTEXT = "numba_cuda_mlir.lowering_utilities.context"
_NEVER = (1000, 0)
_of_parents: list[Any] = []


class NumbaCudaMlir(FrontEnd):
    """numba-cuda-mlir; see `FrontEnd`, where each member is described."""

    name = "numba-cuda-mlir"
    module = "numba_cuda_mlir"
    root = "numba_cuda_mlir"
    package = "numba_cuda_mlir"
    distributions = ("numba-cuda-mlir",)

    @property
    def extra(self) -> str:
        from numba_ptxlink._tools import find

        return f"mlir,{find.toolkit()}"

    def unsupported_reason(self) -> str | None:
        # It is not imported, which takes long.
        try:
            version = metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return (
                f"{self.name} is not installed; install it with `pip install 'numba-ptxlink[{self.extra}]'`"
            )
        digests = Path(__file__).with_name("sources.json").read_text()
        # Each start of a program asks for this.
        if f'"{version}": ' in digests:
            return None
        if version not in Releases(self.supported.first, _NEVER):
            return f"{self.name} {version} is not supported; install {self.name}{self.supported}"
        import json

        from numba_ptxlink._front_end import sources

        known, site = json.loads(digests), sources.site(self)
        for place in self.contract():
            if sources.digest(place, site) not in {release.get(place) or None for release in known.values()}:
                what = f"{self.name} {version} is not supported: {place} has changed"
                return f"{what}; install {self.name}=={max(known)}"
        self.remark = f"{version} was not tested, and has all that is replaced or called unchanged"
        return None

    def contract(self) -> tuple[str, ...]:
        """Return the places of what is replaced and of what is called, as `sources` has them."""
        from .patches import CALLED, TABLE

        return (*(row.target for row in TABLE), *CALLED)

    def free_compiler_lock(self) -> None:
        super().free_compiler_lock()
        home: Any = sys.modules.get(_MLIR_CONTEXT)
        if getattr(home, "_context", None) is not None:
            # Its threads are the parent's, and each use waits for them; so might its end, and it is kept.
            _of_parents.append(home._context)
            home._context = None

    def vectors(self) -> Mapping[str, Any]:
        from numba_cuda_mlir.cuda.vector_types import vector_types_by_alias, vector_types_by_name

        return {**vector_types_by_name, **vector_types_by_alias}

    def vector(self, ty: Any) -> tuple[Any, int] | None:
        from numba_cuda_mlir.type_defs.vector_types import VectorType

        return (ty.dtype, ty.length) if isinstance(ty, VectorType) and len(ty.shape) == 1 else None

    def dispatcher(self, function: Callable[..., Any], *, launch_bounds: Any = None, device: bool) -> Any:
        from numba_cuda_mlir import cuda

        # The signature is the mark's; annotations may be for readers.
        jit = cuda.jit(device=device, launch_bounds=launch_bounds, annotations_as_signatures=False)
        return jit(function)

    def call_attributes(self, dispatcher: Any) -> Mapping[str, Any]:
        # A call of an object that has these two is compiled as one of the dispatcher.
        return {"__numba_cuda_mlir_jitable__": True, "_numba_cuda_mlir_device_dispatcher": dispatcher}


FRONT_END = NumbaCudaMlir("numba_cuda_mlir.numba_cuda", Releases((0, 5, 4), (0, 7)))
