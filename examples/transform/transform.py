"""
A CUDA C++ kernel that calls a Python function.

The program exports the function, links it into the kernel as PTX and as LTO-IR, runs each linked kernel on
the CPU, and on a GPU if there is one, and compares the results with NumPy.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

import numba_ptxlink as pl

HERE = Path(__file__).resolve().parent
BLOCK = 256


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--elements", type=int, default=1 << 20, help="length of the arrays")
    parser.add_argument("--device", type=int, default=0, help="number of the GPU")
    parser.add_argument("--arch", default="sm_90", help="the architecture to compile for without a GPU")
    parser.add_argument("--out-dir", type=Path, help="keep the exported files here")
    arguments = parser.parse_args()
    if arguments.elements < 1:
        parser.error("--elements must be at least 1")

    device, reason = find_device(arguments.device)
    arch = pl.Arch.of(tuple(device.compute_capability)) if device else pl.Arch.of(arguments.arch)
    if device:
        print(f"Device: {device.name}, compute capability {arch.major}.{arch.minor}")
    else:
        print(f"Device: none ({reason}); compiling for {arch.sm}, to run on the CPU")

    with tempfile.TemporaryDirectory() as scratch:
        out_dir = arguments.out_dir or Path(scratch)
        exported = pl.export(HERE / "user_transform.py", out_dir, arch=[arch])
        print(f"Exported: {'; '.join(map(str, exported.signatures))}")
        linked = {
            kind: pl.link(
                HERE / "apply_transform.cu",
                exported.artifacts[kind, arch.sm],
                arch=arch,
                lto=kind == "ltoir",
                include_dirs=[out_dir],
            )
            for kind in ("ptx", "ltoir")
        }
    verified = True
    for kind, title in (("ptx", "PTX link"), ("ltoir", "LTO link")):
        result = linked[kind]
        symbols = [name for name in ("apply_transform", "user_transform") if name.encode() in result.cubin]
        print(
            f"{title}: {len(result.cubin)} bytes by {result.backend} ({result.reason}), "
            f"with {', '.join(symbols)}"
        )
        verified &= run_on_cpu(result, arguments.elements, title)
        if device:
            verified &= run_on_gpu(device, result, arguments.elements, title)
    return 0 if verified else 1


def find_device(number: int):
    """Return the device of `cuda.core` and ""; without a device, None and the reason."""
    from cuda.core import Device

    try:
        device = Device(number)
        device.set_current()
    except Exception as error:  # The exception for a missing driver depends on the version.
        return None, str(error).splitlines()[0] if str(error) else type(error).__name__
    return device, ""


def run_on_cpu(linked: pl.Linked, elements: int, title: str) -> bool:
    """Launch `apply_transform` on the CPU; return whether the result matches NumPy, and print that."""
    source = np.random.default_rng(0).random(elements, dtype=np.float32)
    # NaN shows elements that the kernel does not write.
    target = np.full_like(source, np.nan)
    kernel = linked.kernel("apply_transform", device="cpu")
    kernel[(elements + BLOCK - 1) // BLOCK, BLOCK](source, target, np.int32(elements))
    return report_match(source, target, f"{title}, on the CPU")


def run_on_gpu(device, linked: pl.Linked, elements: int, title: str) -> bool:
    """Launch `apply_transform` on the GPU; return whether the result matches NumPy, and print that."""
    from cuda.core import LaunchConfig, launch
    from numba import cuda

    cuda.select_device(device.device_id)
    values = np.random.default_rng(0).random(elements, dtype=np.float32)
    source = cuda.to_device(values)
    target = cuda.to_device(np.full_like(values, np.nan))
    stream = device.create_stream()
    config = LaunchConfig(grid=(elements + BLOCK - 1) // BLOCK, block=BLOCK)
    kernel = linked.kernel("apply_transform")
    pointers = (array.__cuda_array_interface__["data"][0] for array in (source, target))
    launch(stream, config, kernel, *pointers, np.int32(elements))
    stream.sync()
    return report_match(values, target.copy_to_host(), title)


def report_match(values: np.ndarray, actual: np.ndarray, title: str) -> bool:
    """Return whether *actual*, which the kernel computed from *values*, matches NumPy, and print that."""
    index = np.arange(values.size)
    expected = np.where(index % 2, values * np.exp(-0.001 * index), values + 1.0).astype(np.float32)
    is_equal = bool(np.allclose(actual, expected, rtol=1e-6))
    print(f"{title}: {values.size} elements {'match' if is_equal else 'DO NOT MATCH'} NumPy")
    return is_equal


if __name__ == "__main__":
    sys.exit(main())
