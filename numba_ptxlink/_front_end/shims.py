"""
Remove uncalled shims from the CUDA C++ that compiled functions link.

Compiled functions call C++ functions of a header, such as those of bfloat16, through shims: `extern "C"`
functions that NVIDIA's generator numbast has written. numba-cuda links one source with the shims of all
functions that the process has compiled, so that the source would depend on what else was compiled.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Matches before each shim. Names of shims end in _nbst; those of conversions begin with two underscores and
# the class, such as `____nv_bfloat16` for the class `__nv_bfloat16`.
_SHIM = r'(?=extern "C" __device__ int\s+(?:\w+_nbst|____nv_\w+)\()'


def split(source: str) -> tuple[str, dict[str, str]]:
    """Split *source* into the text before the first shim, and the shims by name: none in code of users."""
    head, *shims = re.split(_SHIM, source)
    # The name is the last word before the parenthesis: `extern "C" __device__ int name(`.
    return head, {shim[: shim.index("(")].split()[-1]: f"{shim.strip()}\n" for shim in shims}


def keep_called(source: str, modules: Iterable[str]) -> str:
    """Return *source* with only the shims that the LLVM IR *modules* call, sorted by name."""
    head, shims = split(source)
    if not shims:
        return source
    # Each word of LLVM IR that is the name of a shim counts as a call.
    called = {name for module in modules for name in re.findall(r"\w+", module)} & shims.keys()
    return "\n".join([head, *(shims[name] for name in sorted(called))])
