"""
A PyTorch extension in C++ whose kernels are Python functions, with a gradient.

The kernels are exported as a header that launches them, so the extension needs a C++ compiler and no nvcc.
Without a GPU, the extension is built but not run, also by a PyTorch without CUDA.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from torch.utils import cpp_extension

import numba_ptxlink as pl

HERE = Path(__file__).resolve().parent


class Softsign(torch.autograd.Function):
    """The function x / (1 + abs(x)) with its gradient, by the kernels of udfs.py."""

    @staticmethod
    def forward(ctx, x):  # noqa: D102 - documented by PyTorch
        ctx.save_for_backward(x)
        return torch.ops.gallery.softsign(x, torch.cuda.current_stream().cuda_stream)

    @staticmethod
    def backward(ctx, dy):  # noqa: D102 - documented by PyTorch
        (x,) = ctx.saved_tensors
        return torch.ops.gallery.softsign_backward(
            x, dy.contiguous(), torch.cuda.current_stream().cuda_stream
        )


def build(folder, archs):
    """Compile the kernels and the extension into *folder*, and load it."""
    exported = pl.export(HERE / "udfs.py", folder, arch=archs, emit=["launcher"])
    cpp_extension.load(
        name="gallery",
        sources=[str(HERE / "extension.cpp")],
        build_directory=str(folder),
        extra_include_paths=[str(folder)],
        extra_ldflags=["-ldl"],
        is_python_module=False,
    )
    print(f"{len(exported.signatures)} functions; operator {torch.ops.gallery.softsign.default}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--out-dir", type=Path, help="keep what is built here")
    options = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.out_dir or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        build(folder, "native" if on_gpu else "sm_90")
        if not on_gpu:
            print("Not run: PyTorch finds no GPU")
            return
        x = torch.linspace(-4, 4, 100_001, device="cuda", requires_grad=True)
        (gradient,) = torch.autograd.grad(Softsign.apply(x).square().sum(), x)
        (expected,) = torch.autograd.grad(torch.nn.functional.softsign(x).square().sum(), x)
        torch.testing.assert_close(Softsign.apply(x), torch.nn.functional.softsign(x))
        torch.testing.assert_close(gradient, expected)
        print(f"{len(x)} values and gradients are PyTorch's")


if __name__ == "__main__":
    main()
