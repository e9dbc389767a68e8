"""
Split the CUDA C++ of numba-cuda's bindings into shims, and keep those that are called.

Compiled functions call C++ headers, such as that of bfloat16, through shims, which numbast has generated.
numba-cuda accumulates the shims of all functions that a process has compiled, so that unused ones have to be
removed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Names of shims end in _nbst; those of conversions begin with two underscores and the class, such as
# ____nv_bfloat16.
_SHIM = r'(?=extern "C" __device__ int\s+(?:\w+_nbst|____nv_\w+)\()'


def split(source: str) -> tuple[str, dict[str, str]]:
    """Split *source* into the text before the first shim, and the shims by name; other CUDA C++ has none."""
    head, *shims = re.split(_SHIM, source)
    return head, {shim[: shim.index("(")].split()[-1]: f"{shim.strip()}\n" for shim in shims}


def keep_called(source: str, modules: Iterable[str]) -> str:
    """Return *source* with only the shims that the LLVM IR *modules* call, sorted by name."""
    head, shims = split(source)
    if not shims:
        return source
    called = {name for module in modules for name in re.findall(r"\w+", module)} & shims.keys()
    return "\n".join([head, *(shims[name] for name in sorted(called))])
