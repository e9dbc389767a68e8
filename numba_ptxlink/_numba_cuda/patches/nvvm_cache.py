"""NVVM's output out of the cache: what numba-cuda's `compile_ir` returns, without running NVVM again."""

from __future__ import annotations

import functools
import hashlib
import warnings
from typing import TYPE_CHECKING, Any

from numba_ptxlink import cache
from numba_ptxlink._locks import in_tool
from numba_ptxlink._numba_cuda import stable_names
from numba_ptxlink._numba_cuda.context import current, entered
from numba_ptxlink._tools import build_id
from numba_ptxlink.cache.key import package_version

from .substitution import Substitution

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


_DEBUG = "!DICompileUnit"


def _wrap_get_log(original: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return numba-cuda's `CompilationUnit.get_log`, which also notes what it returns."""

    @functools.wraps(original)
    def get_log(self: Any) -> str:
        log = original(self)
        remarks = current().remarks
        if remarks is not None:
            remarks.append(log)
        return log

    return get_log


def _wrap_compile_ir(original: Callable[..., bytes]) -> Callable[..., bytes]:
    """Return numba-cuda's `compile_ir`, which takes its output out of the cache where it is there."""

    @functools.wraps(original)
    def compile_ir(llvmir: str | Sequence[str], **options: Any) -> bytes:
        given = [llvmir] if isinstance(llvmir, str) else list(llvmir)
        # Text can be given its names back. LTO-IR and debug information, which spell them in bytes, cannot.
        fixed = {"gen_lto", "gen-lto", "g"} & options.keys() or any(_DEBUG in each for each in given)
        modules = [stable_names.Module(each) for each in given]
        renamed = stable_names.rename(modules, None if fixed else ())
        key = _key([module.meaning(renamed.names) for module in modules], options)
        made_here = False

        def make() -> cache.Entry:
            nonlocal made_here
            made_here = True
            remarks: list[str] = []
            with in_tool(), entered(remarks=remarks):
                code = original(list(renamed.texts), **options)
            return cache.Entry({"log": remarks[-1] if remarks else ""}, code)

        made = cache.cached(key, make)
        if made.log and not made_here:
            from numba.cuda.cudadrv.error import NvvmWarning

            warnings.warn(made.log, category=NvvmWarning, stacklevel=2)
        return (
            stable_names.restore(made.code.decode(), renamed.names).encode() if renamed.names else made.code
        )

    return compile_ir


def _key(modules: Sequence[str], options: Mapping[str, Any]) -> cache.Key:
    from numba_cuda import __version__ as numba_cuda

    return cache.Key.of(
        "nvvm",
        {
            "package": package_version(),
            # It rewrites the text before NVVM sees it.
            "numba-cuda": numba_cuda,
            "tool": ("NVVM", build_id.loaded("nvvm"), _libdevice()),
            # "fastmath" and a missing "-opt" mean something to it too.
            "flags": [f"{name}={options[name]!r}" for name in sorted(options)],
            **{f"module {i}": module for i, module in enumerate(modules, start=1)},
        },
    )


@functools.cache
def _libdevice() -> str:
    from numba.cuda.cudadrv.nvvm import LibDevice

    return hashlib.sha256(LibDevice().get()).hexdigest()


NVVM = (
    # The module that names it, since NVVM's own is imported before the plugin is.
    Substitution(
        "numba.cuda.codegen",
        "nvvm.compile_ir",
        _wrap_compile_ir,
        "What NVVM made before comes out of the cache.",
    ),
    Substitution(
        "numba.cuda.codegen",
        "nvvm.CompilationUnit.get_log",
        _wrap_get_log,
        "NVVM's warnings are kept beside its output, and shown again.",
    ),
)
"""What makes NVVM's output come out of the cache; an export needs it, too."""
