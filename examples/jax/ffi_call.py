"""
A JAX program that launches a kernel written in Python, through XLA's foreign function interface.

The kernel is exported as a header that launches it. A C++ compiler builds XLA's handler with that header,
without nvcc. Without a GPU, the handler is built and registered, the program is lowered for CUDA, and the
kernel runs on the CPU.
"""

import argparse
import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import numba_ptxlink as pl

HERE = Path(__file__).resolve().parent


def build(folder, archs):
    """Compile kernel and handler into *folder*, and register the handler."""
    exported = pl.export(HERE / "udfs.py", folder, arch=archs, emit=["launcher", "ptx"])
    library = folder / "handler.so"
    subprocess.run(  # noqa: S603 - the compiler is the user's
        [
            *(os.environ.get("CXX", "c++"), "-std=c++17", "-O2", "-shared", "-fPIC"),
            *(f"-I{folder}", "-isystem", jax.ffi.include_dir()),
            *(str(HERE / "handler.cpp"), "-o", str(library), "-ldl"),
        ],
        check=True,
    )
    handler = ctypes.CDLL(str(library)).Squash
    jax.ffi.register_ffi_target("squash", jax.ffi.pycapsule(handler), platform="CUDA")
    return exported


@jax.jit
def squash_twice(x):
    call = jax.ffi.ffi_call("squash", jax.ShapeDtypeStruct(x.shape, x.dtype), vmap_method="broadcast_all")
    return call(call(x, scale=np.float32(3)), scale=np.float32(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--out-dir", type=Path, help="keep what is built here")
    options = parser.parse_args()
    on_gpu = jax.default_backend() == "gpu"
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.out_dir or Path(scratch)).resolve()
        exported = build(folder, "native" if on_gpu else "sm_90")
        x = jnp.linspace(-4, 4, 100_001, dtype="float32")
        lowered = squash_twice.trace(x).lower(lowering_platforms=("cuda",)).as_text()
        print(f"The program lowered for CUDA calls the handler {lowered.count('@squash(')} times")
        squashed_once = 3 * x / (1 + abs(x))
        if not on_gpu:
            y = np.empty(x.shape, np.float32)
            kernel = pl.load(exported, device="cpu").squash
            kernel[(x.size + 255) // 256, 256](np.array(x), y, 3)
            np.testing.assert_allclose(y, squashed_once, rtol=1e-6)
            print(f"Verified on the CPU: {len(x)} elements match JAX's own")
            return
        expected = squashed_once / (1 + abs(squashed_once))
        np.testing.assert_allclose(squash_twice(x), expected, rtol=1e-6)
        print(f"{len(x)} elements match JAX's own")


if __name__ == "__main__":
    main()
