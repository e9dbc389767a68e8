"""Without numba, llvmlite and NumPy all but exports and kernels works, and an export names the extras."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

from cuda_cxx import compiled
from ptx_kernels import make_kernel

BLOCK = """
import sys
class Absent:
    names = ("numba", "numba_cuda", "numba_cuda_mlir", "llvmlite", "numpy", "cuda.core")
    def find_spec(self, name, path=None, target=None):
        if name in self.names or name.startswith(tuple(f"{absent}." for absent in self.names)):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
for name in Absent.names:
    sys.modules[name] = None
import numba_ptxlink as pl
"""
CALLER = 'extern "C" __device__ int f(int); extern "C" __global__ void k(int* x) { *x = f(*x); }\n'
CALLEE = 'extern "C" __device__ int f(int a) { return a + 1; }\n'


def run(program, *command, **environ):
    """Run *program*, or a command of the package, without those packages; return its output."""
    text = BLOCK + textwrap.dedent(program)
    env = {**{key: value for key, value in os.environ.items() if not key.startswith("NUMBA")}, **environ}
    done = subprocess.run(
        [sys.executable, "-I", "-c", text, *command], capture_output=True, text=True, env=env, check=False
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_assembling_linking_inspecting_and_caching(tmp_path):
    """PTX, CUDA C++ and LTO-IR become cubins, which are inspected and come out of the cache."""
    code, lines, stderr = run(
        f"""
        from numba_ptxlink import cache
        cubin = pl.assemble({make_kernel()!r}, "sm_80").code
        print(cubin[:4], pl.assemble({make_kernel()!r}, "sm_80").code == cubin, cache.counters().hits)
        for callee in ({compiled(CALLEE)!r}, {compiled(CALLEE, output="ltoir")!r}, {CALLEE!r}):
            linked = pl.link({CALLER!r}, callee, arch="sm_80")
            print(linked.backend, [s.name for s in pl.inspect(linked.cubin).symbols if s.name == "k"])
        print(pl.status().active, pl.status().reason)
        try:
            linked.kernel("k")
        except pl.LinkError as error:
            print(error)
        print({{"numba", "numpy", "llvmlite"}} & {{name for name, there in sys.modules.items() if there}})
        """,
        NUMBA_PTXLINK_CACHE=str(tmp_path / "cache"),
    )
    assert (code, stderr) == (0, "")
    assert lines[0] == r"b'\x7fELF' True 1"
    assert [line.partition(" ")[2] for line in lines[1:4]] == ["['k']"] * 3
    assert lines[1].startswith("nvptxcompiler")
    assert lines[2].startswith("nvjitlink")
    assert lines[4].startswith(
        "False numba-cuda is not installed; install it with `pip install 'numba-ptxlink["
    )
    assert lines[5].endswith("install it: python -m pip install cuda-core.")
    assert lines[6] == "set()"


COMMANDS = (
    "link k.ptx -o k.cubin --arch sm_80",
    "link k.ptx f.cu -o l.cubin --arch sm_80",
    "inspect k.ptx",
    "cache stats",
    "doctor",
)


def test_the_commands(tmp_path):
    """All commands work but `export`, which compiles Python in a new process."""
    (tmp_path / "k.ptx").write_text(make_kernel())
    (tmp_path / "f.cu").write_text(CALLEE)
    code, lines, stderr = run(
        f"import os; os.chdir({str(tmp_path)!r})\n"
        "from numba_ptxlink import cli\nprint([cli.main(each.split()) for each in sys.argv[1:]])",
        *COMMANDS,
        NUMBA_PTXLINK_CACHE=str(tmp_path / "cache"),
    )
    assert (code, stderr) == (0, "")
    assert lines[-1] == str([0] * len(COMMANDS))
    assert any("no compiler for Python functions is installed" in line for line in lines)
