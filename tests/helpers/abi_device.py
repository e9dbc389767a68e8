"""Calls exported functions from C++ kernels on the device."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np

import numba_ptxlink as pl
from numba_ptxlink.linker import INCLUDE_DIR

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

CALL = """
extern "C" __global__ void call_{name}({result}* out, const {param}* in, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = {name}(in[i]);
}}
"""


def device() -> Any:
    """Return the current device."""
    from cuda.core import Device

    current = Device(0)
    current.set_current()
    return current


def arch() -> pl.Arch:
    """Return the device's architecture."""
    return pl.Arch.of(tuple(device().compute_capability))


def _by_nvcc(nvcc: str, source: str, folder: Path, kind: str, target: pl.Arch) -> Path:
    """Return a fat binary that nvcc made of *source*, with PTX or LTO-IR in it."""
    (folder / "caller.cu").write_text(source)
    code = {"ptx": target.compute, "ltoir": f"lto_{target}"}[kind]
    command = [nvcc, "-fatbin", "-rdc=true", "-std=c++17", f"-I{folder}", f"-I{INCLUDE_DIR}"]
    command += ["-gencode", f"arch={target.compute},code={code}", "-o", str(folder / "caller.fatbin")]
    subprocess.run([*command, str(folder / "caller.cu")], check=True)
    return folder / "caller.fatbin"


class Library:
    """
    Functions exported as one kind of artifact, linked with C++.

    Args:
        udfs: The functions.
        folder: Where the export goes.
        kind: "ptx", "ltoir" or "cubin".
        source: C++ with a kernel; by default one for each function of one parameter, `call_NAME`.
        nvcc: The path of the nvcc that compiles the source, None for NVRTC.
        front_end: What compiles the functions, None for what they use.
    """

    def __init__(
        self,
        udfs: Sequence[pl.Udf],
        folder: Path,
        kind: str,
        source: str | None = None,
        *,
        nvcc: str | None = None,
        front_end: str | None = None,
    ) -> None:
        target = arch()
        made = pl.export(udfs, folder, archs=[target], emit=[kind], name="lib", front_end=front_end)
        if source is None:
            calls = [
                CALL.format(name=each.name, result=each.result.name, param=each.params[0][1].name)
                for each in made.signatures
                if not each.kernel
            ]
            source = '#include "lib.h"\n' + "".join(calls)
        self.linked = pl.link(
            source if nvcc is None else _by_nvcc(nvcc, source, folder, kind, target),
            made.artifacts[kind, target.sm],
            arch=target,
            lto=kind == "ltoir",
            include_dirs=[folder],
            cxx_standard="c++17",
        )

    def call(self, name: str, arguments: np.ndarray, out: np.dtype) -> np.ndarray:
        """Return what the function *name* makes of each of *arguments*."""
        count = len(arguments)
        result = np.zeros(count, out)
        return self._launch(
            f"call_{name}", result, lambda address: (address, self._copy(arguments), np.int32(count))
        )

    def launch(self, kernel: str, out: np.ndarray, array: np.ndarray) -> np.ndarray:
        """Run one thread of *kernel*, which takes the addresses of *out* and *array*; return *out*."""
        return self._launch(kernel, out, lambda address: (address, self._copy(array)), block=1)

    def launch_with(
        self, kernel: str, out: np.ndarray, parameters: Callable[[int], tuple[Any, ...]], *, shared: int = 0
    ) -> np.ndarray:
        """Run *kernel* with what *parameters* makes of the address of *out*; bytes stand for structs."""
        return self._launch(kernel, out, parameters, block=len(out), shared=shared, structs=True)

    def _copy(self, array: np.ndarray) -> int:
        from numba import cuda

        kept = cuda.to_device(np.frombuffer(array.tobytes(), np.uint8))
        self.kept = kept  # until the launch is over
        return int(kept.__cuda_array_interface__["data"][0])

    def _launch(
        self,
        kernel: str,
        out: np.ndarray,
        parameters: Callable[[int], tuple[Any, ...]],
        *,
        block: int = 64,
        shared: int = 0,
        structs: bool = False,
    ) -> np.ndarray:
        from numba import cuda

        current = device()
        target = cuda.to_device(np.frombuffer(out.tobytes(), np.uint8).copy())
        address = int(target.__cuda_array_interface__["data"][0])
        values = parameters(address)
        grid = -(-len(out) // block)
        if structs:
            _launch_raw(self.linked.cubin, kernel, grid=grid, block=block, shared=shared, values=values)
        else:
            from cuda.core import LaunchConfig, launch

            stream = current.create_stream()
            config = LaunchConfig(grid=grid, block=block, shmem_size=shared)
            launch(stream, config, self.linked.kernel(kernel), *values)
            stream.sync()
        return np.frombuffer(target.copy_to_host().tobytes(), out.dtype)


def _launch_raw(
    cubin: bytes, kernel: str, *, grid: int, block: int, shared: int, values: Sequence[Any]
) -> None:
    """Launch with parameters given as bytes, which cuda.core has no type for."""
    from cuda.bindings import driver

    def check(answer: tuple[Any, ...]) -> Any:
        assert int(answer[0]) == 0, answer
        return answer[1] if len(answer) > 1 else None

    module = check(driver.cuModuleLoadData(cubin))
    function = check(driver.cuModuleGetFunction(module, kernel.encode()))
    buffers = [np.frombuffer(bytes(value), np.uint8).copy() for value in values]
    addresses = np.array([buffer.ctypes.data for buffer in buffers], np.uint64)
    check(driver.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, 0, addresses.ctypes.data, 0))
    check(driver.cuCtxSynchronize())
