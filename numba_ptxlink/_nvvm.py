"""NVVM's output out of the cache: what numba-cuda's `compile_ir` returns, without running NVVM again."""

from __future__ import annotations

import functools
import hashlib
import threading
import warnings
from typing import TYPE_CHECKING, Any

from . import _build_id, _keys, _names, cache
from ._locks import in_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


_DEBUG = "!DICompileUnit"


class _Log(threading.local):
    text = ""


_log = _Log()


def wrap_get_log(original: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return numba-cuda's `CompilationUnit.get_log`, which also remembers what it returned last."""

    @functools.wraps(original)
    def get_log(self: Any) -> str:
        _log.text = original(self)
        return _log.text

    return get_log


def wrap_compile_ir(original: Callable[..., bytes]) -> Callable[..., bytes]:
    """Return numba-cuda's `compile_ir`, which takes its output out of the cache where it is there."""

    @functools.wraps(original)
    def compile_ir(llvmir: str | Sequence[str], **options: Any) -> bytes:
        given = [llvmir] if isinstance(llvmir, str) else list(llvmir)
        # Text can be given its names back. LTO-IR and debug information, which spell them in bytes, cannot.
        fixed = {"gen_lto", "gen-lto", "g"} & options.keys() or any(_DEBUG in each for each in given)
        modules = [_names.Module(each) for each in given]
        renamed = _names.rename(modules, None if fixed else ())
        key = _key([module.meaning(renamed.names) for module in modules], options)
        made_here = False

        def make() -> cache.Entry:
            nonlocal made_here
            made_here = True
            _log.text = ""
            with in_tool():
                code = original(list(renamed.texts), **options)
            return cache.Entry({"log": _log.text}, code)

        made = cache.cached(key, make)
        if made.log and not made_here:
            from numba.cuda.cudadrv.error import NvvmWarning

            warnings.warn(made.log, category=NvvmWarning, stacklevel=2)
        return _names.restore(made.code.decode(), renamed.names).encode() if renamed.names else made.code

    return compile_ir


def _key(modules: Sequence[str], options: Mapping[str, Any]) -> cache.Key:
    from numba_cuda import __version__ as numba_cuda

    return cache.Key.of(
        "nvvm",
        {
            "package": _keys.package_version(),
            # It rewrites the text before NVVM sees it.
            "numba-cuda": numba_cuda,
            "tool": ("NVVM", _build_id.loaded("nvvm"), _libdevice()),
            # "fastmath" and a missing "-opt" mean something to it too.
            "flags": [f"{name}={options[name]!r}" for name in sorted(options)],
            **{f"module {i}": module for i, module in enumerate(modules, start=1)},
        },
    )


@functools.cache
def _libdevice() -> str:
    from numba.cuda.cudadrv.nvvm import LibDevice

    return hashlib.sha256(LibDevice().get()).hexdigest()
