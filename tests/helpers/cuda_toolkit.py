"""Find nvcc in this environment's wheels or on this machine, and read linked programs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import processes
import pytest

from numba_ptxlink._formats import elf
from numba_ptxlink._tools import nvrtc, programs
from numba_ptxlink.linker import INCLUDE_DIR

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SUFFIXES = {"g++": ".cpp", "gcc": ".c"}
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only")


def host_includes() -> list[str]:
    """Return the options by which a compiler finds this package's headers, and CUDA's without warnings."""
    folders = nvrtc.toolkit_include_dirs()
    return [f"-I{INCLUDE_DIR}", *(flag for path in folders for flag in ("-isystem", str(path)))]


def check_header(folder: Path, header: object, compiler: str, *options: str) -> None:
    """Check that *compiler* takes *header*, included twice by a source in *folder*, without a message."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source = folder / f"includes{SUFFIXES.get(compiler, '.cu')}"
    include = f'#include "{header}"\n'
    source.write_text(f"{include}{include}int main(void) {{ return 0; }}\n")
    arguments = STRICT if compiler in SUFFIXES else ("-arch=sm_90", "-rdc=true", "-c", "-o", "/dev/null")
    processes.run(compiler, *options, *arguments, *host_includes(), source, quiet=True)


def lay_out(folder: Path, *, installed: bool = False) -> Path:
    """
    Return the toolkit of the wheels; skip the test if they have no nvcc.

    `nvcc -dlto` loads libnvvm.so from nvvm/lib64. The wheels have libnvvm.so.4 in lib instead, as have
    toolkits made of them: those are laid out below *folder*, by links.

    Args:
        folder: A folder without a file "cuda".
        installed: Whether to take the toolkit of this machine if the wheels have none. Its `release` may be
            older than that of the libraries in the wheels.
    """
    folders = (*_wheels(), *(_installed() if installed else ()))
    folder_of_toolkit = next(filter(_is_whole, folders), None)
    if folder_of_toolkit is None or shutil.which("g++") is None:
        pytest.skip("there is no nvcc with libcudart_static.a beside it, or no g++ for it")
    return completed(folder_of_toolkit, folder)


def completed(folder_of_toolkit: Path, folder: Path) -> Path:
    """Return the toolkit *home*, or the same by links below *folder*, with the names that wheels lack."""
    if (folder_of_toolkit / "nvvm" / "lib64" / "libnvvm.so").exists():
        return folder_of_toolkit
    root = folder / "cuda"
    (root / "nvvm" / "lib64").mkdir(parents=True)
    # The folder bin is no link, since nvcc looks for other files relative to bin/...
    (root / "bin").mkdir()
    (root / "lib").mkdir()
    links = {
        f"{path.parent.name}/{path.name}": path
        for name in ("bin", "lib")
        for path in (folder_of_toolkit / name).iterdir()
    }
    links |= {name: folder_of_toolkit / name for name in ("include", "nvvm/bin", "nvvm/libdevice")}
    named = {"nvvm/lib64/libnvvm.so": "libnvvm.so.*", "lib/libcudart.so": "libcudart.so.*"}
    links |= {name: next((folder_of_toolkit / "lib").glob(pattern)) for name, pattern in named.items()}
    for name, target in {**links, "lib64": root / "lib"}.items():
        (root / name).symlink_to(target)
    return root


def release(toolkit: Path) -> str:
    """Return the release of *toolkit*, such as "13.0"."""
    output = subprocess.check_output([toolkit / "bin" / "nvcc", "--version"], text=True)
    return re.search(r"release ([0-9.]+),", output)[1]


def _is_whole(folder_of_toolkit: Path) -> bool:
    return (folder_of_toolkit / "bin" / "nvcc").exists() and bool(
        [*folder_of_toolkit.glob("lib*/libcudart_static.a")]
    )


def _wheels() -> Iterator[Path]:
    with contextlib.suppress(ImportError):
        import nvidia

        for path in nvidia.__path__:
            yield from (path.parents[1] for path in Path(path).glob("*/bin/nvcc"))


def _installed() -> Iterator[Path]:
    yield from (Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name))
    if nvcc := shutil.which("nvcc"):
        yield Path(nvcc).resolve().parents[1]
    yield Path("/usr/local/cuda")


def environment(toolkit: Path) -> Mapping[str, str]:
    """Return the environment of this process with *toolkit* first on PATH."""
    path = f"{toolkit / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "CUDACXX": str(toolkit / "bin" / "nvcc")}


def shell(command: str, folder: Path, toolkit: Path) -> str:
    """Run *command* in *folder*, and return its output."""
    done = processes.run("/bin/bash", "-euo", "pipefail", "-c", command, cwd=folder, env=environment(toolkit))
    return done.stdout + done.stderr


def linked_functions(program: Path) -> dict[str, set[str]]:
    """Return the functions with machine code in the device link of *program*, or a cubin, by architecture."""
    code = program.read_bytes()
    if program.suffix == ".cubin":
        return {"": _functions(code)}
    # The device link comes first on the linker's command line; whole programs of exports follow.
    functions: dict[str, set[str]] = {}
    for piece in programs.pieces(code, program.name) or ():
        if piece.kind == "cubin" and piece.arch not in functions:
            functions[piece.arch] = _functions(piece.code or b"")
    return functions


def _functions(cubin: bytes) -> set[str]:
    names = (section.name for section in elf.read(cubin).sections)
    return {name.removeprefix(".text.") for name in names if name.startswith(".text.")}
