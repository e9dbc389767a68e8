"""
A Triton kernel calls a function that Numba compiles, with the calls inlined: `python damped.py --arch sm_90`.

A hook of Triton replaces the last stage of its compiler, from PTX to machine code, by a link. The kernel runs
on the CPU and, with a GPU and PyTorch, on the GPU.
"""

import argparse
import hashlib
from pathlib import Path

import numpy as np
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language import core

import numba_ptxlink as pl


@pl.udf("float32(float32)")
def damp(x):
    return x / (1 + abs(x))


@core.extern
def damped(x, _semantic=None):
    float32 = core.dtype("fp32")
    symbols = {(float32,): ("damp", float32)}
    return core.extern_elementwise("", "", [x], symbols, is_pure=True, _semantic=_semantic)


@triton.jit
def damp_all(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, damped(tl.load(x + i, mask=i < n)), mask=i < n)


def with_functions(*functions, inline="all", keep=None):
    """Return a hook for Triton that links *functions* with each kernel; then calls *keep*, if passed."""
    ptx_of_functions = pl.export(functions, name="functions", emit=["ptx"]).read("ptx")
    # Triton caches kernels on disk: with the PTX in the key, an edit of a function compiles them again.
    key = hashlib.sha256(ptx_of_functions).hexdigest()

    def hook(compiler=None, stages=None, options=None, language=None, capability=None):
        # Triton calls the hook without arguments for parts of its cache's key.
        if compiler is None:
            return key, inline

        def link(ptx, metadata):
            # From sm_90 on, Triton's PTX is for the architecture-specific variant, such as sm_90a.
            variant = "a" if capability >= 90 else ""
            linked = pl.link(ptx, *functions, arch=f"sm_{capability}{variant}", lto=False, inline=inline)
            if keep is not None:
                keep(ptx, linked)
            return linked.cubin

        stages["cubin"] = link
        return None

    return hook


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", type=pl.Arch.of, default=pl.Arch.of("sm_90"))
    parser.add_argument("--out-dir", type=Path, help="the folder for the PTX before and after the link")
    options = parser.parse_args()

    links = []

    def keep(ptx, linked):
        links.append(linked)
        print(f"{linked.reason}; {linked.ptx.count('call.uni')} calls left")
        if options.out_dir:
            options.out_dir.mkdir(parents=True, exist_ok=True)
            (options.out_dir / "kernel.ptx").write_text(ptx)
            (options.out_dir / "linked.ptx").write_text(linked.ptx)

    triton.knobs.runtime.add_stages_inspection_hook = with_functions(damp, keep=keep)
    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = ASTSource(fn=damp_all, signature=signature, constexprs={"BLOCK": 256})
    kernel = triton.compile(source, target=GPUTarget("cuda", options.arch.number, 32))
    print(f"{kernel.name}: {len(kernel.asm['cubin'])} bytes of machine code for {options.arch.sm}")
    # If Triton's cache has the kernel, there was no link.
    for linked in links:
        run_on_cpu(kernel, linked)
    run_on_gpu()


def run_on_cpu(kernel, linked):
    """Run the linked *kernel* on the CPU, and compare with NumPy."""
    x = np.linspace(-4, 4, 1000, dtype=np.float32)
    y = np.zeros_like(x)
    # Triton's kernels have two more parameters, for memory that this one does not use.
    launch = linked.kernel(kernel.name, device="cpu")
    launch[triton.cdiv(len(x), 256), 32 * kernel.metadata.num_warps](x, y, np.int32(len(x)), None, None)
    np.testing.assert_allclose(y, x / (1 + abs(x)), rtol=1e-6)
    print(f"Verified on the CPU: {len(x)} elements match NumPy")


def run_on_gpu():
    try:
        import torch

        x = torch.linspace(-4, 4, 1000, device="cuda")
    except (ImportError, AssertionError, RuntimeError) as reason:
        print(f"Not run: {reason}")
        return
    y = torch.empty_like(x)
    damp_all[(triton.cdiv(len(x), 256),)](x, y, len(x), BLOCK=256)
    torch.testing.assert_close(y, x / (1 + x.abs()))
    print("The results are PyTorch's.")


if __name__ == "__main__":
    main()
