"""
Export, link and compile with the toolkit of this process's environment, for a stand-in device.

    python worker.py FOLDER

Print, as JSON, what became of each step: "works", or how the error begins.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba_ptxlink as pl
from numba_ptxlink._tools import nvjitlink, nvrtc
from numba_ptxlink.linker import INCLUDE_DIR

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "helpers"))

ARCH = pl.Arch(8, 0)
KINDS = ("ptx", "ltoir", "cubin", "fatbin")
CALLERS = {
    "plain": """
        #include "plain.h"
        extern "C" __global__ void caller(float* p, Body* bodies) {
          p[0] = damp(p[1], 3) + checked(int(p[2]));
          bodies[0] = grown(bodies[1], 2.0);
        }
    """,
    "halves": """
        #include "halves.h"
        extern "C" __global__ void caller(__half* p, __nv_bfloat16* q) {
          p[0] = fused(p[1], p[2]);
          q[0] = doubled(q[1]);
        }
    """,
}


class StepError(Exception):
    """A tool's error, or a missing part of this environment."""


def outcome(step: Callable[[], Any], folder: Path) -> str:
    """Return the result of *step*, "works" if it returns nothing, or the first sentence of its error."""
    try:
        return str(step() or "works")
    except Exception as error:  # noqa: BLE001 - any error is an outcome
        message = re.sub(f"({folder}|{HERE})/", "", str(error)).strip().partition("\n")[0].partition(". ")[0]
        return message if isinstance(error, StepError) else f"{type(error).__name__}: {message}"


def compiler() -> Path:
    """Return the wheel's nvcc, in a layout that it finds its libraries in."""
    wheels = [path for folder in sys.path for path in Path(folder).glob("nvidia/*/bin/nvcc")]
    if not wheels:
        raise StepError("no nvcc in the wheels")
    root = wheels[0].parents[1]
    # The wheels have libnvvm.so.4 in lib, and nvlink loads libnvvm.so from nvvm/lib64.
    link = root / "nvvm" / "lib64" / "libnvvm.so"
    link.parent.mkdir(exist_ok=True)
    if not link.exists():
        (library,) = (root / "lib").glob("libnvvm.so.*")
        link.symlink_to(library)
    return wheels[0]


def run(*command: str | Path) -> None:
    """Run a tool."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if "warning" not in line.lower()]
        message = next(
            (line for line in lines if re.search("error|fatal", line, re.IGNORECASE)), "\n".join(lines)
        )
        raise StepError(message)


def nvcc(headers: Path, *flags: str | Path) -> None:
    """Run nvcc with the headers of a folder."""
    tool = compiler()
    library = tool.parents[1] / "lib"
    run(tool, f"-arch={ARCH.sm}", f"-I{headers}", f"-I{INCLUDE_DIR}", f"-L{library}", *flags)


def device_link(folder: Path, name: str, kind: str) -> None:
    """Hand an artifact to nvcc as its users do, and link it with a caller."""
    artifact = artifact_of(folder, name, kind)
    lto = ("-dlto",) if kind == "ltoir" else ()
    source, caller = folder / f"{name}_caller.cu", folder / f"{name}_caller_{kind}.o"
    source.write_text(CALLERS[name])
    nvcc(folder / kind, "-dc", *lto, source, "-o", caller)
    if kind in ("ptx", "cubin"):
        wrapped = folder / f"{name}_{kind}.o"
        nvcc(folder / kind, "-dc", artifact, "-o", wrapped)
        artifact = wrapped
    nvcc(folder / kind, "-dlink", *lto, caller, artifact, "-o", folder / f"{name}_{kind}_linked.o")


def artifact_of(folder: Path, name: str, kind: str) -> Path:
    """Return the path of an artifact that was exported."""
    path = folder / kind / (f"{name}.fatbin" if kind == "fatbin" else f"{name}.{ARCH.sm}.{kind}")
    if not path.exists():
        raise StepError("not exported")
    return path


def export(folder: Path, name: str, kind: str) -> None:
    """Export a module to one kind of artifact, in a separate folder."""
    pl.export(HERE / f"{name}.py", folder / kind, arch=[ARCH], emit=[kind])


def export_both(folder: Path) -> str:
    """Return which of two files that one command exports has LTO-IR."""
    files = HERE / "plain.py", HERE / "halves.py"
    run(sys.executable, "-m", "numba_ptxlink", "export", *files, "-o", folder, "--arch", ARCH.sm)
    return " and ".join(sorted(path.name for path in folder.glob("*.ltoir")))


def link(folder: Path, name: str, kind: str) -> None:
    """Link an artifact with CUDA C++."""
    pl.link(CALLERS[name], artifact_of(folder, name, kind), arch=ARCH, include_dirs=[folder / kind])


def link_bare(folder: Path, name: str, kind: str) -> None:
    """Compile the caller with NVRTC and link it with nvJitLink, as a program without this package would."""
    code = artifact_of(folder, name, kind).read_bytes()
    options = nvrtc.SourceOptions((folder / kind, INCLUDE_DIR, *nvrtc.toolkit_include_dirs()))
    caller_kind = "ltoir" if kind == "ltoir" else "cubin"
    caller = nvrtc.compile_source(CALLERS[name], "caller.cu", ARCH, options, output=caller_kind).code
    lto = ["-lto"] if kind == "ltoir" else []
    nvjitlink.link([(caller_kind, "caller", caller), (kind, "artifact", code)], [f"-arch={ARCH.sm}", *lto])


def jit(cc: tuple[int, int]) -> str:
    """Compile a kernel of Python's with nothing to link; return which tool made it, and its ELF's ABI."""
    import fakedevice
    from numba.cuda import types

    def double(values: Any) -> None:
        values[0] *= 2

    fakedevice.install(cc=cc)
    before = pl.status()
    _, cubin = fakedevice.compile_kernel(double, (types.float32[::1],))
    after = pl.status()
    tool = "nvPTXCompiler" if after.assembled > before.assembled else "nvJitLink"
    os_abi, version = bytes(cubin.code)[7:9]
    return f"works: {tool}, ELF ABI {os_abi:#x}.{version}"


def compile_door() -> None:
    """Compile, by numba.cuda.compile, functions that call CUDA C++ of Numba and of the test."""
    from numba import cuda

    source = cuda.CUSource('extern "C" __device__ float twice(float x) { return 2 * x; }')
    twice = cuda.declare_device("twice", "float32(float32)", abi="c", link=source)
    for output in ("ptx", "ltoir"):
        for function, ty in (
            (lambda x: x * x, "float16"),
            (lambda x: x + x, "bfloat16"),
            (lambda x: twice(x), "float32"),  # noqa: PLW0108 - a Python function
        ):
            cuda.compile(function, f"{ty}({ty})", cc=ARCH.cc, abi="c", abi_info={}, output=output)


def doctor() -> None:
    """Fail where tools do not fit together, or a cure is of another major version of CUDA."""
    diagnosis = pl.diagnose()
    if not diagnosis.active:
        raise StepError(diagnosis.reason)
    for problem in diagnosis.problems:
        if problem.code in ("tool-missing", "nvjitlink-older", "nvptxcompiler-older"):
            raise StepError(problem.what)
    other = "cu12" if pl.toolchain().nvrtc >= (13, 0) else "cu13"
    for problem in diagnosis.problems:
        if f"[{other}]" in problem.cure and "new environment" not in problem.cure:
            raise StepError(problem.cure)


def main() -> None:
    """Take the steps."""
    folder = Path(sys.argv[1])
    outcomes: dict[str, str] = {}

    def step(name: str, function: Callable[..., Any], *arguments: Any) -> None:
        outcomes[name] = outcome(lambda: function(*arguments), folder)

    step("a Python kernel for sm_80", jit, (8, 0))
    step("a Python kernel for sm_70", jit, (7, 0))
    step("numba-ptxlink doctor", doctor)
    step("numba.cuda.compile of halves and of functions with link files", compile_door)
    verbs = {
        "export {}": export,
        "link {} by link()": link,
        "link {} by NVRTC and nvJitLink": link_bare,
        "link {} by nvcc": device_link,
    }
    for name in CALLERS:
        for verb, function in verbs.items():
            for kind in KINDS:
                step(f"{name}: {verb.format(kind)}", function, folder, name, kind)
    step("LTO-IR of both files in one command", export_both, folder)
    print(json.dumps(outcomes))  # noqa: T201 - its answer


if __name__ == "__main__":
    main()
