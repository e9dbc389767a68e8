"""The front end that compiles Python functions: numba-cuda, with all that the package uses of it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._numba_cuda import build, release
    from ._numba_cuda.compile import CompileOptions
    from ._numba_cuda.patches import substitution
    from ._numba_cuda.patches.table import HOOKED, TABLE
    from ._numba_cuda.ptx_linker import PtxLinker, served
    from ._numba_cuda.signatures import Typed, describe, typed

# The module of each name. The plugin takes the table alone, whenever numba.cuda is
# imported; what exports need takes longer to import than many kernels to load.
_HOMES = {
    "HOOKED": "patches.table",
    "TABLE": "patches.table",
    "CompileOptions": "compile",
    "PtxLinker": "ptx_linker",
    "Typed": "signatures",
    "describe": "signatures",
    "served": "ptx_linker",
    "typed": "signatures",
}
_MODULES = {"build": "build", "release": "release", "substitution": "patches.substitution"}

__all__ = [
    "HOOKED",
    "TABLE",
    "CompileOptions",
    "PtxLinker",
    "Typed",
    "build",
    "describe",
    "release",
    "served",
    "substitution",
    "typed",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    package = f"{__package__}._numba_cuda"
    if name in _MODULES:
        value = importlib.import_module(f"{package}.{_MODULES[name]}")
    else:
        value = getattr(importlib.import_module(f"{package}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
