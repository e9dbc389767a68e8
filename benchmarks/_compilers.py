"""PTX of a given size, and NVIDIA's compilers of PTX, called without this package."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from importlib import metadata
from pathlib import Path


def generate_ptx(size: int) -> str:
    """Return one kernel of about *size* characters: loads, fused multiply-adds, stores."""
    head = (
        ".version 8.0\n.target sm_75\n.address_size 64\n\n.visible .entry kernel(.param .u64 out)\n{\n"
        ".reg .b64 %rd<2>;\n.reg .f32 %f<17>;\nld.param.u64 %rd1, [out];\n"
    )
    lanes = 4 if size < 1000 else 16
    loads = "".join(f"ld.global.f32 %f{i}, [%rd1+{4 * i}];\n" for i in range(lanes))
    stores = "".join(f"st.global.f32 [%rd1+{4 * i}], %f{i};\n" for i in range(lanes))
    body: list[str] = []
    length = len(head) + len(loads) + len(stores) + 8
    while length < size:
        i = len(body)
        body.append(f"fma.rn.f32 %f{i % lanes}, %f{(i + 3) % lanes}, %f{(i + 5) % lanes}, %f{i % lanes};\n")
        length += len(body[-1])
    return f"{head}{loads}{''.join(body)}{stores}ret;\n}}\n"


def link(ptx: bytes, arch: str) -> bytes:
    """Compile with nvJitLink."""
    from cuda.bindings import nvjitlink

    handle = nvjitlink.create(2, [f"-arch={arch}", "-O3"])
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, ptx, len(ptx), "kernel.ptx")
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
    finally:
        nvjitlink.destroy(handle)
    return bytes(cubin)


@functools.cache
def find_ptxas() -> str | None:
    """Return the path of ptxas from the wheel nvidia-cuda-nvcc, else from PATH."""
    try:
        files = metadata.files("nvidia-cuda-nvcc") or []
    except metadata.PackageNotFoundError:
        files = []
    return next((str(file.locate()) for file in files if file.name == "ptxas"), shutil.which("ptxas"))


def run_ptxas(path: Path, arch: str) -> bytes:
    """Compile the file *path* in a process of ptxas."""
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".cubin") as output:
        command = [find_ptxas() or "ptxas", f"-arch={arch}", "-O3", str(path), "-o", output.name]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return Path(output.name).read_bytes()
