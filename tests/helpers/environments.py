"""Create environments with other packages and this checkout, and keep them in a folder of the user's."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "PTXLINK_THIRDPARTY_DIR"
# Packages of every environment.
BASE = """
cffi==2.1.1 cuda-core==1.2.2 cuda-pathfinder==1.9.0 numba-cuda==0.30.4 packaging==26.3 pycparser==3.12
pyelftools==0.33 typing_extensions==4.16.0
numpy==2.4.6;python_version>='3.11' numpy==2.2.6;python_version<'3.11'
"""
NUMBA = "llvmlite==0.50.0 numba==0.68.1 "
OLD_NUMBA = "llvmlite==0.47.0 numba==0.65.1 "
COMMON = f"""
{BASE} cuda-bindings==13.5.0 nvidia-cuda-cccl==13.3.5.0.6 nvidia-cuda-nvrtc==13.5.37
nvidia-cuda-runtime==13.5.37 nvidia-nvfatbin==13.5.37 nvidia-nvjitlink==13.5.37 nvidia-nvvm==13.5.37
"""
NVCC = "nvidia-cuda-crt==13.5.37 nvidia-cuda-nvcc==13.5.37 "
# The oldest of each package that pyproject.toml allows.
OLDEST = """
cffi==1.16.0;python_version<'3.13' cffi==2.1.1;python_version>='3.13' cuda-core==0.7.0 cuda-pathfinder==1.4.2
llvmlite==0.50.0 pyelftools==0.31 numba==0.68.1 numba-cuda==0.30.4 numpy==2.2.6 packaging==26.3
pycparser==3.12 typing_extensions==4.16.0
"""

# All packages are listed, since dependencies would add gigabytes of packages that need a device.
PACKAGES = {
    "cuda-12.4": f"""
{BASE} {NUMBA} cuda-bindings==12.9.10 nvidia-cuda-nvcc-cu12==12.4.131 nvidia-cuda-nvrtc-cu12==12.4.127
nvidia-cuda-runtime-cu12==12.4.127 nvidia-cuda-cccl-cu12==12.4.127.post1 nvidia-nvjitlink-cu12==12.4.127
nvidia-nvfatbin-cu12==12.4.127
""",
    "cuda-12.9": f"""
{BASE} {NUMBA} cuda-bindings==12.9.10 nvidia-cuda-nvcc-cu12==12.9.86 nvidia-cuda-nvrtc-cu12==12.9.86
nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-cccl-cu12==12.9.27 nvidia-nvjitlink-cu12==12.9.86
nvidia-nvfatbin-cu12==12.9.82
""",
    "cuda-13.0": f"""
{BASE} {NUMBA} cuda-bindings==13.5.0 nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88
nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 nvidia-nvjitlink==13.0.88
nvidia-nvfatbin==13.0.85
""",
    # The last whose nvJitLink returns no LTO-IR.
    "cuda-13.3": f"""
{BASE} {NUMBA} cuda-bindings==13.5.0 nvidia-cuda-nvcc==13.3.73 nvidia-cuda-crt==13.3.73 nvidia-nvvm==13.3.73
nvidia-cuda-nvrtc==13.3.33 nvidia-cuda-runtime==13.3.29 nvidia-cuda-cccl==13.3.3.4.1 nvidia-nvjitlink==13.3.33
nvidia-nvfatbin==13.3.29
""",
    "cuda-13.5": f"{COMMON} {NUMBA} {NVCC}",
    "lowest-12": f"""
{OLDEST} cuda-bindings==12.9.3 nvidia-nvjitlink-cu12==12.3.52 nvidia-nvfatbin-cu12==12.4.99
nvidia-cuda-cccl-cu12==12.0.90 nvidia-cuda-nvcc-cu12==12.0.76 nvidia-cuda-nvrtc-cu12==12.0.76
nvidia-cuda-runtime-cu12==12.0.107
""",
    "lowest-13": f"""
{OLDEST} cuda-bindings==13.0.2 nvidia-nvjitlink==13.0.39 nvidia-nvfatbin==13.0.39 nvidia-cuda-cccl==13.0.50
nvidia-cuda-nvrtc==13.0.48 nvidia-cuda-runtime==13.0.48 nvidia-nvvm==13.0.48
""",
    # cuda-cccl 1.1.1 is the last release on numba-cuda, and requires numba < 0.66; 1.2 is on numba-cuda-mlir.
    "cccl": f"{COMMON} {OLD_NUMBA} {NVCC} cuda-cccl==1.1.1",
    "cccl-mlir": f"{COMMON} {NUMBA} {NVCC} cuda-cccl==1.2.1 numba-cuda-mlir==0.5.4",
    "nvmath": f"""
{COMMON} {OLD_NUMBA} nvidia-curand==10.4.5.25 nvidia-libmathdx-cu13==0.3.2.6 nvmath-python==1.0.0
""",
    "compilers": f"{COMMON} {NUMBA} cudf-cu13==26.10.2 triton==3.8.0 warp-lang==1.19.0",
    "suites": f"""
{COMMON} {NUMBA} {NVCC} numba-cuda-mlir==0.6.0 ml-dtypes==0.6.0 stumpy==1.14.1 scipy==1.17.1 pandas==3.1.1
polars==2.1.0 polars-runtime-32==2.1.0 python-dateutil==4.0.0 six==1.17.0 psutil==7.2.2 filecheck==1.0.6
pytest==9.2.0 pytest-xdist==3.8.0 execnet==2.1.2 iniconfig==2.3.1 pluggy==1.7.0 pygments==2.21.0
""",
    "inlined": f"{COMMON} {NUMBA} triton==3.8.0 warp-lang==1.19.0",
}
TOOLKITS = [name.removeprefix("cuda-") for name in PACKAGES if name.startswith("cuda-")]
LOWEST = {major: PACKAGES[f"lowest-{major}"].split() for major in ("12", "13")}


class Unavailable(Exception):  # noqa: N818 - it is a reason to skip
    """An environment cannot be created here. The message has the reason."""


def base() -> Path:
    """Return the folder that the environments are kept in."""
    cache_folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(VARIABLE) or Path(cache_folder) / "numba-ptxlink-thirdparty")


def digest(*parts: bytes | str) -> str:
    """Return a short name that depends on all *parts*."""
    digest_of_parts = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest_of_parts.update(f"{len(content)}:".encode() + content)
    return digest_of_parts.hexdigest()[:16]


@contextlib.contextmanager
def locked(name: str) -> Iterator[Path]:
    """Lock the subfolder *name* against other test processes, and return its path."""
    base().mkdir(parents=True, exist_ok=True)
    with (base() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield base() / name


def pip(python: Path, *arguments: str) -> None:
    """Run pip in the environment of *python*."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    missing = [line for line in done.stderr.splitlines() if "No matching distribution" in line]
    if missing:
        raise Unavailable(missing[0].strip())
    assert not done.returncode, done.stderr[-4000:]


def wheel() -> Path:
    """Return the wheel of this checkout, built where its sources are new."""
    tracked = [
        path
        for folder_name in ("numba_ptxlink", "hook", "cmake")
        for path in sorted((ROOT / folder_name).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    ]
    sources = [*tracked, ROOT / "CMakeLists.txt", ROOT / "pyproject.toml"]
    name = digest(
        sys.version, *[part for path in sources for part in (str(path.relative_to(ROOT)), path.read_bytes())]
    )
    with locked(f"wheel-{name}") as folder:
        if not list(folder.glob("*.whl")):
            pip(Path(sys.executable), "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
        (path,) = folder.glob("*.whl")
    return path


@contextlib.contextmanager
def environment(name: str) -> Iterator[Path]:
    """
    Lock the environment *name* with its packages and this checkout, and return its interpreter.

    Raises:
        Unavailable: A package is not available: no index, or no wheel for this interpreter or machine.
    """
    built = wheel()
    with locked(f"{name}-{digest(sys.version, *PACKAGES[name].split())}") as folder:
        python, done, installed = folder / "bin" / "python", folder / "packages", folder / "wheel"
        if not done.exists():
            venv.create(folder, clear=True, with_pip=True)
            pip(python, "install", "--quiet", "--no-deps", "--only-binary", ":all:", *PACKAGES[name].split())
            done.touch()
        if not installed.exists() or installed.read_text() != str(built):
            installed.unlink(missing_ok=True)
            pip(python, "install", "--quiet", "--no-deps", "--force-reinstall", str(built))
            installed.write_text(str(built))
        yield python


def driver() -> Path:
    """Return the stand-in of the driver's library, compiled where its source is new."""
    source = ROOT / "tests" / "thirdparty" / "driver.c"
    with locked(f"driver-{digest(source.read_bytes())}") as folder:
        folder.mkdir(exist_ok=True)
        library = folder / "libcuda.so.1"
        if not library.exists():
            compiler = shutil.which(os.environ.get("CC", "cc"))
            if compiler is None:
                raise Unavailable("there is no C compiler for the stand-in of the driver")
            command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", str(source)]
            subprocess.run([*command, "-o", str(library)], check=True, capture_output=True)
    return library
