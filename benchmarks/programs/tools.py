"""Call NVIDIA's compilers of PTX and linkers without this package."""

from __future__ import annotations

import functools
import shutil
import subprocess
from importlib import metadata
from pathlib import Path


def link_by_nvjitlink(inputs: tuple[bytes, ...], arch: str, *, lto: bool = False) -> bytes:
    """Return the cubin that nvJitLink makes of PTX, or of LTO-IR."""
    from cuda.bindings import nvjitlink

    options = [f"-arch={arch}", "-O3", *["-lto"] * lto]
    kind = nvjitlink.InputType.LTOIR if lto else nvjitlink.InputType.PTX
    handle = nvjitlink.create(len(options), options)
    try:
        for number, code in enumerate(inputs):
            nvjitlink.add_data(handle, kind, code, len(code), f"input{number}")
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
    finally:
        nvjitlink.destroy(handle)
    return bytes(cubin)


def compile_by_driver(ptx: bytes) -> None:
    """Compile and load PTX with the driver, in the context of this thread."""
    from cuda.bindings import driver

    # The function reads a C string, which ends with a zero byte.
    status, module = driver.cuModuleLoadData(ptx + b"\0")
    if int(status):
        raise SystemExit(status.name)
    driver.cuModuleUnload(module)


@functools.cache
def find_ptxas() -> str | None:
    """Return the path of ptxas in the wheel nvidia-cuda-nvcc, else on PATH; None if it is missing."""
    try:
        files = metadata.files("nvidia-cuda-nvcc") or []
    except metadata.PackageNotFoundError:
        files = []
    return next((str(file.locate()) for file in files if file.name == "ptxas"), shutil.which("ptxas"))


def compile_by_ptxas(ptx: bytes, arch: str, *flags: str) -> None:
    """Compile *ptx* with ptxas, in the working directory."""
    Path("code.ptx").write_bytes(ptx)
    command = [find_ptxas() or "ptxas", f"-arch={arch}", "-O3", *flags, "code.ptx", "-o", "code.cubin"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
