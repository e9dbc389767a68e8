"""PTX of Triton and of Warp: alone, and linked into a kernel of Numba."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from numba import cuda, types
from standin import ARCH, CC, Kernel, Ptx

# The compilers read the source of the kernels, so the kernels are in separate modules.
sys.path.insert(0, str(Path(__file__).resolve().parent))
FOLDER = Path(os.environ.get("STANDIN_SHARED", "."))


def prepare(folder: Path) -> None:
    """Write the PTX files of both compilers to *folder*."""
    prepare_triton(folder)
    prepare_warp(folder)


def prepare_triton(folder: Path) -> None:
    """Compile the Triton kernels."""
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    import triton
    import triton_kernels
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    for name, (function, signature, constants) in triton_kernels.KERNELS.items():
        source = ASTSource(fn=function, signature=signature, constexprs=constants)
        compiled = triton.compile(source, target=GPUTarget("cuda", CC[0] * 10 + CC[1], 32))
        (folder / f"triton_{name}.ptx").write_text(compiled.asm["ptx"])


def prepare_warp(folder: Path) -> None:
    """Compile the Warp kernels."""
    import warp

    warp.config.quiet = True
    warp.config.kernel_cache_dir = str(folder / "warp")
    import warp_kernels

    warp.init()
    warp.compile_aot_module(
        warp_kernels, arch=CC[0] * 10 + CC[1], module_dir=str(folder / "warp"), use_ptx=True
    )
    (file,) = (folder / "warp").glob("*.ptx")
    file.rename(folder / "warp_kernels.ptx")


def linked(name: str, **options: Any) -> Kernel:
    """Return a kernel that links the PTX of others."""

    @cuda.jit(link=[str(FOLDER / f"{name}.ptx")])
    def kernel(x):
        x[cuda.grid(1)] *= 2

    return Kernel(kernel, (types.float32[::1],), options)


def alone(name: str) -> Ptx:
    """Return the PTX of others."""
    return Ptx(FOLDER / f"{name}.ptx", ARCH)


FILES = ("triton_multiply", "warp_kernels")
CASES = {
    **{f"{name} alone": partial(alone, name) for name in FILES},
    **{f"{name} linked": partial(linked, name) for name in FILES},
    **{f"{name} linked without LTO": partial(linked, name, lto=False) for name in FILES},
}
