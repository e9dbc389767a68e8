"""
Makes every kind of code with the tools of one toolkit, in a process of its own: one loads one toolkit.

Takes a folder with the unpacked wheels of a CUDA release and a folder to write to; says what could not be
made, and why, as JSON. Libraries are called through ctypes, since the bindings here are of another release.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ARCH = "80"
# Shared, zeroed, initialised, constant, managed and texture data, a weak template and calls between modules.
CALLEE = """\
__device__ int zeroed[4096];
__device__ int counted[16] = {5};
__constant__ int table[512] = {1, 2, 3};
__constant__ int blank[256];
__managed__ int managed[1024];
extern __shared__ int dynamic[];
template <class T> __device__ T remember(T a) { static __device__ T memo[512]; memo[1] += a; return memo[2]; }
extern "C" __device__ int f(int i) {
  __shared__ int s[2048];
  s[threadIdx.x] = i;
  __syncthreads();
  return s[2047 - i] + zeroed[i] + counted[i & 15] + table[i & 511] + blank[i & 255] + managed[i] + dynamic[i]
    + remember(i);
}
extern "C" __device__ float fetch(cudaTextureObject_t texture, int i) {
  return tex1Dfetch<float>(texture, i);
}
"""
CALLER = """\
extern "C" __device__ int f(int);
extern "C" __device__ float fetch(cudaTextureObject_t, int);
extern "C" __global__ void k(int* p, cudaTextureObject_t texture) {
  __shared__ int own[512];
  own[threadIdx.x] = p[1];
  __syncthreads();
  p[0] = f(p[2]) + own[511 - threadIdx.x] + int(fetch(texture, p[3]));
  printf("%d", p[0]);
}
"""
MODES = ("none", "size", "speed", "balance", "default")
PACKING = ((), ("-compress=false",), ("-compress-all",), *((f"-compress-mode={mode}",) for mode in MODES))
TYPES = {"cubin": 1, "ptx": 2, "ltoir": 3, "fatbin": 4, "object": 5, "archive": 6}


class ToolError(Exception):
    """A tool refused what it was given."""


def library(folder: Path, name: str) -> ctypes.CDLL:
    """Return the library *name* of the toolkit in *folder*."""
    path = min(folder.rglob(f"lib{name}.so.*"), key=lambda path: len(path.name))
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)


def checked(status: int, log: str = "") -> None:
    """Raise where a call failed."""
    if status:
        raise ToolError(f"status {status} {log.strip()}")


def strings(texts: list[str]) -> ctypes.Array[ctypes.c_char_p]:
    """Return *texts* as an array of C strings."""
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))


def sized(size_of: Any, fill: Any, handle: ctypes.c_void_p) -> bytes:
    """Return what a pair of functions gives: one tells the size, one fills a buffer."""
    size = ctypes.c_size_t()
    checked(size_of(handle, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value or 1)
    checked(fill(handle, buffer))
    return buffer.raw[: size.value]


def compile_source(nvrtc: ctypes.CDLL, source: str, output: str) -> bytes:
    """Return CUDA C++ as relocatable "ptx", "cubin" or "ltoir"."""
    program = ctypes.c_void_p()
    checked(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"source.cu", 0, None, None))
    try:
        arch = f"-arch={'compute' if output == 'ptx' else 'sm'}_{ARCH}"
        options = [arch, "-dlto" if output == "ltoir" else "-rdc=true"]
        if nvrtc.nvrtcCompileProgram(program, len(options), strings(options)):
            raise ToolError(sized(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode())
        name = {"ptx": "PTX", "cubin": "CUBIN", "ltoir": "LTOIR"}[output]
        code = sized(getattr(nvrtc, f"nvrtcGet{name}Size"), getattr(nvrtc, f"nvrtcGet{name}"), program)
        return code.rstrip(b"\0") if output == "ptx" else code
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def link(linker: ctypes.CDLL, inputs: list[tuple[str, bytes]], flags: list[str]) -> bytes:
    """Return *inputs*, each (kind, code), as one image made by nvJitLink."""
    handle = ctypes.c_void_p()
    checked(linker.nvJitLinkCreate(ctypes.byref(handle), len(flags), strings(flags)))
    try:
        status = 0
        for number, (kind, code) in enumerate(inputs):
            status = status or linker.nvJitLinkAddData(
                handle, TYPES[kind], code, ctypes.c_size_t(len(code)), f"{number}.{kind}".encode()
            )
        status = status or linker.nvJitLinkComplete(handle)
        if status:
            log = sized(linker.nvJitLinkGetErrorLogSize, linker.nvJitLinkGetErrorLog, handle)
            checked(status, log.rstrip(b"\0").decode(errors="replace"))
        return sized(linker.nvJitLinkGetLinkedCubinSize, linker.nvJitLinkGetLinkedCubin, handle)
    finally:
        linker.nvJitLinkDestroy(ctypes.byref(handle))


def pack(packer: ctypes.CDLL, entries: list[tuple[str, bytes]], flags: list[str]) -> bytes:
    """Return *entries*, each (kind, code), as one fat binary made by nvFatbin."""
    handle = ctypes.c_void_p()
    checked(packer.nvFatbinCreate(ctypes.byref(handle), strings(flags), ctypes.c_size_t(len(flags))))
    try:
        for kind, code in entries:
            size, arch, name = ctypes.c_size_t(len(code)), ARCH.encode(), b"f"
            if kind == "cubin":
                checked(packer.nvFatbinAddCubin(handle, code, size, arch, name))
            elif kind == "ptx":
                checked(packer.nvFatbinAddPTX(handle, code, size, arch, name, b""))
            else:
                checked(packer.nvFatbinAddLTOIR(handle, code, size, arch, name, b""))
        return sized(packer.nvFatbinSize, packer.nvFatbinGet, handle)
    finally:
        packer.nvFatbinDestroy(ctypes.byref(handle))


class Made:
    """What was made, by file name, and what could not be."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.codes: dict[str, bytes] = {}
        self.missing: dict[str, str] = {}

    def add(self, name: str, maker: Callable[..., bytes], *arguments: Any) -> None:
        """Write what *maker* returns, or keep why it could not."""
        try:
            self.codes[name] = maker(*arguments)
        except (ToolError, OSError, subprocess.CalledProcessError, AttributeError) as error:
            self.missing[name] = str(error)
        else:
            (self.out / name).write_bytes(self.codes[name])


def assemble(ptxas: Path, ptx: Path) -> bytes:
    """Return PTX as a relocatable cubin made by ptxas."""
    ptxas.chmod(0o755)
    target = ptx.with_suffix(".scratch")
    subprocess.run([ptxas, "-c", f"-arch=sm_{ARCH}", ptx, "-o", target], check=True, capture_output=True)
    code = target.read_bytes()
    target.unlink()
    return code


def host_object(nvcc: Path, source: Path, *flags: str) -> bytes:
    """Return a host object with device code in it."""
    for tool in (*nvcc.parent.iterdir(), *nvcc.parents[1].rglob("cicc")):
        tool.chmod(0o755)
    target = source.with_suffix(".scratch")
    command = [nvcc, "-dc", "-Wno-deprecated-gpu-targets", *flags, source, "-o", target]
    subprocess.run(command, check=True, capture_output=True)
    code = target.read_bytes()
    target.unlink()
    return code


def archive(*members: bytes) -> bytes:
    """Return a static library."""
    library = b"!<arch>\n"
    for number, code in enumerate(members):
        header = f"{f'{number}.o/':<16}{0:<12}{0:<6}{0:<6}{0o644:<8o}{len(code):<10}`\n".encode()
        library += header + code + b"\n" * (len(code) % 2)
    return library


def make(folder: Path, out: Path) -> dict[str, str]:
    """Write what the toolkit in *folder* makes to *out*; return what could not be made, and why."""
    made = Made(out)
    nvrtc, linker, packer = (library(folder, each) for each in ("nvrtc", "nvJitLink", "nvfatbin"))
    for output in ("ptx", "cubin", "ltoir"):
        for name, source in (("f", CALLEE), ("k", CALLER)):
            made.add(f"{name}.{output}", compile_source, nvrtc, source, output)
    for ptxas in sorted(folder.rglob("bin/ptxas")):
        made.add("f_ptxas.cubin", assemble, ptxas, out / "f.ptx")
    for nvcc in sorted(folder.rglob("bin/nvcc")):
        (out / "f.cu").write_text(CALLEE)
        both = f"arch=compute_{ARCH},code=[sm_{ARCH},compute_{ARCH}]"
        made.add("f.object", host_object, nvcc, out / "f.cu", "-gencode", both)
        made.add("f_ltoir.object", host_object, nvcc, out / "f.cu", f"-arch=sm_{ARCH}", "-dlto")
        made.add("f.archive", archive, made.codes.get("f.object", b""))
    sources = {name: code for name, code in made.codes.items() if name.startswith("f")}
    for flags in PACKING:
        for kinds in (("cubin",), ("ptx",), ("ltoir",), ("cubin", "ptx", "ltoir")):
            entries = [(kind, sources[f"f.{kind}"]) for kind in kinds if f"f.{kind}" in sources]
            made.add(
                f"f_{'_'.join(kinds)}{''.join(flags)}.fatbin", pack, packer, entries, ["-64", "-c", *flags]
            )
    for name, code in [each for each in made.codes.items() if each[0].startswith("f")]:
        lto = ["-lto"] if "ltoir" in name else []
        caller = "ltoir" if lto else "cubin"
        inputs = [(caller, made.codes.get(f"k.{caller}", b"")), (name.rpartition(".")[2], code)]
        made.add(f"linked_{name}.cubin", link, linker, inputs, [f"-arch=sm_{ARCH}", *lto])
        made.add(f"relocatable_{name}.cubin", link, linker, inputs[1:], [f"-arch=sm_{ARCH}", *lto, "-r"])
    return made.missing


if __name__ == "__main__":
    print(json.dumps(make(Path(sys.argv[1]), Path(sys.argv[2]))))  # noqa: T201 - its answer
