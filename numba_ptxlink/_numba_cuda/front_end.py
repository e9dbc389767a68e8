"""
Describe numba-cuda to this package: define the front end `FRONT_END`.

The import of this module imports neither numba-cuda nor the code that generates wrappers.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._front_end.base import FrontEnd, Releases

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class NumbaCuda(FrontEnd):
    """The front end numba-cuda; see the base class, where each member is described."""

    name = "numba-cuda"
    module = "numba_cuda"
    root = "numba"
    package = "numba.cuda"
    distributions = ("numba-cuda", "numba", "llvmlite")

    @property
    def extra(self) -> str:
        from numba_ptxlink._tools import find

        # The major release of the installed CUDA libraries.
        return "cu12" if find.major() == 12 else "cu13"

    def unsupported_reason(self) -> str | None:
        if self.is_simulated():
            return "the CUDA simulator is in use; unset NUMBA_ENABLE_CUDASIM"
        try:
            from numba_cuda import __file__ as package_file
            from numba_cuda import __version__ as version
        except (ImportError, OSError):
            return f"numba-cuda is not installed; install it with `pip install 'numba-ptxlink[{self.extra}]'`"
        if version not in self.supported:
            return f"numba-cuda {version} is not supported; install numba-cuda{self.supported}"
        driver_module_file = getattr(sys.modules.get(self.trigger_module), "__file__", None)
        if driver_module_file and not Path(driver_module_file).resolve().is_relative_to(
            Path(package_file).resolve().parent
        ):
            return (
                "numba.cuda is Numba's own, because Python has not read the .pth file of numba-cuda; "
                "import _numba_cuda_redirector, which does what that file does, before numba.cuda"
            )
        return None

    def is_simulated(self) -> bool:
        driver_module = sys.modules.get(self.trigger_module)
        if driver_module is not None:
            # The simulator registers its own module in sys.modules under the name of numba-cuda's.
            return getattr(driver_module, "__name__", self.trigger_module) != self.trigger_module
        setting = os.environ.get("NUMBA_ENABLE_CUDASIM", "").strip()
        return setting.isdecimal() and int(setting) != 0

    def vector_types(self) -> Mapping[str, Any]:
        from numba.cuda.vector_types import vector_types

        by_name: Mapping[str, Any] = vector_types
        return by_name

    def vector_elements(self, ty: Any) -> tuple[Any, int] | None:
        from numba.cuda.vector_types import VectorType

        return (ty.base_type, ty.num_elements) if isinstance(ty, VectorType) else None

    def vector_type_of(self, value: type) -> Any | None:
        # The class `cuda.float32x4`, which user code names, is not the Numba type but an attribute of it.
        vector_type = self.vector_types().get(value.__name__)
        return vector_type if vector_type is not None and vector_type.user_facing_object is value else None

    def dispatcher(self, function: Callable[..., Any], *, launch_bounds: Any = None, device: bool) -> Any:
        from numba import cuda

        return cuda.jit(device=True)(function) if device else cuda.jit(launch_bounds=launch_bounds)(function)


FRONT_END = NumbaCuda(core_package="numba.cuda", supported=Releases((0, 30, 4), (0, 31)))
