"""`enable()` and `disable()` while other threads compile, export and link, at forks, and at exit."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import fakedevice
import processes
import pytest

# Each test starts one process or several.
pytestmark = pytest.mark.slow
EXTERNS = """
from numba import cuda, types
from numba_ptxlink import udf

notify = cuda.declare_device("notify", types.void(types.int32), abi="c")


@cuda.jit(device=True)
def helper(x):
    return x * 2


@udf("int32(int32)")
def first(x):
    notify(helper(x))
    return x


@udf("void(int32)", name="_Z6secondB2v7i")
def second(x):
    notify(x)
"""
HEAD = f"""
import os, sys, threading, time
sys.path.append({str(Path(fakedevice.__file__).parent)!r})
import numba_ptxlink as pl
from numba import cuda, types
from numba_ptxlink._numba_cuda.patches import TABLE
def bound():
    import numba.cuda.memory_management.nrt as nrt
    return [cuda.compile, cuda.compile_all, nrt._Linker, *(vars(r.owner())[r.attribute] for r in TABLE)]
def increment(x):
    return x + 1
def nothing(x):
    pass
"""


def run(program, head=HEAD):
    """Run *program* after *head* in a fresh interpreter without a cache, and return its lines."""
    done = processes.run(
        sys.executable,
        "-c",
        head + textwrap.dedent(program),
        env=processes.environ(NUMBA_PTXLINK_CACHE="0"),
        timeout=300,
        quiet=True,
    )
    return done.stdout.splitlines()


@pytest.mark.slow
def test_switching_leaves_no_half_replaced_state(tmp_path):
    """Each result of another thread is the plugin's or numba-cuda's own, and all is restored."""
    (tmp_path / "externs.py").write_text(EXTERNS)
    lines = run(f"""
        import collections, hashlib, pathlib, tempfile, traceback
        import fakedevice
        fakedevice.install()
        module = {str(tmp_path / "externs.py")!r}
        def export():
            with tempfile.TemporaryDirectory() as out:
                pl.export(module, out, arch="sm_80")
                return hashlib.sha256(next(pathlib.Path(out).glob("*.ptx")).read_bytes()).hexdigest()
        def compile_void():
            code, _ = cuda.compile(nothing, types.void(types.int32), cc=(8, 0), abi_info={{"abi_name": "f"}})
            return "(.param .b64 func_retval0)" in code
        def compile_kernel():
            try:
                options = {{"cc": (8, 0), "device": False, "abi": "c", "abi_info": {{}}}}
                code, _ = cuda.compile(nothing, types.void(types.int32), **options)
                return len(code) > 0
            except NotImplementedError:
                return "refused"
        def kernel():
            @cuda.jit
            def add(x):
                x[0] += 1
            made = add.compile("void(float32[:])")
            return made.entry_name in made.inspect_llvm()
        def link():
            return len(pl.link(KERNEL, arch="sm_80").cubin) > 0
        KERNEL = 'extern "C" __global__ void k(float* x) {{ x[0] = 1; }}\\n'
        jobs = [export, compile_void, compile_kernel, kernel, link]
        pl.disable()
        stock = bound()
        seen, stop = collections.defaultdict(set), threading.Event()
        def work(job):
            while not stop.is_set():
                try:
                    seen[job.__name__].add(job())
                except Exception:
                    seen[job.__name__].add(traceback.format_exc())
                time.sleep(0.001)
        for switch in (pl.enable, pl.disable):
            switch()
            for job in jobs:
                seen[job.__name__].add(job())
        sys.setswitchinterval(1e-5)
        threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 6
        turns = 0
        while time.monotonic() < until:
            pl.enable()
            time.sleep(0.0005)
            pl.disable()
            turns += 1
        stop.set()
        for thread in threads:
            thread.join()
        for job in jobs:
            results = sorted(map(str, seen[job.__name__]))
            print(job.__name__, len(results) if job is export else results)
        print(turns > 3, all(a is b for a, b in zip(stock, bound())), pl.status().active)
        """)
    assert [
        "export 1",
        "compile_void ['False', 'True']",
        "compile_kernel ['True', 'refused']",
        "kernel ['True']",
        "link ['True']",
        "True True False",
    ] == lines, "\n".join(lines)


def test_no_thread_that_switches_imports_numba_cuda():
    """A thread that imports numba-cuda holds no lock that an importing thread waits for, for any row."""
    lines = run("""
        import builtins, importlib
        from numba_ptxlink import _plugin
        from numba_ptxlink._front_end import patch
        imported, original, switches = [], builtins.__import__, 0
        def record(name, *args, **options):
            if any(lock.held._is_owned() for lock in (_plugin._lock, patch._lock)):
                imported.append(name)
            return original(name, *args, **options)
        builtins.__import__ = record
        for switch in (pl.disable, pl.enable, pl.status, pl.disable, _plugin.init, pl.enable):
            switch()
        for name in sorted(_plugin.hooked("numba-cuda")):
            _plugin.imported(sys.modules[name], "numba-cuda")
        print(len(imported) > 0, [name for name in imported if name.partition(".")[0] == "numba"])
        """)
    assert ["True []"] == lines


FIRST_CALL = """
import faulthandler, importlib, sys, threading, time
faulthandler.dump_traceback_later(60, exit=True)
import numba_ptxlink as pl
package, module = sys.argv[1:]
def call():
    while package not in sys.modules:
        time.sleep(0.0001)
    pl.status()
thread = threading.Thread(target=call)
thread.start()
importlib.import_module(module)
thread.join()
print(pl.status().active)
"""


@pytest.mark.parametrize(
    ("package", "module"), [("numba.cuda", "numba.cuda"), ("numba_cuda_mlir", "numba_cuda_mlir.cuda")]
)
def test_a_first_call_beside_the_import_of_a_front_end(package, module):
    """The hook imports nothing while it holds Python's import lock, which other threads need."""
    pytest.importorskip(package.partition(".")[0])
    command = [sys.executable, "-c", FIRST_CALL, package, module]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


IMPORTS = """
import faulthandler, sys, threading
faulthandler.dump_traceback_later(60, exit=True)
sys.setswitchinterval(1e-5)
import numba_ptxlink as pl
failed = []
def first():
    try:
        import numba.cuda
    except BaseException as error:
        failed.append(error)
importing = threading.Thread(target=first)
importing.start()
"""


@pytest.mark.parametrize(
    "switches", [pytest.param("pl.enable()", marks=pytest.mark.slow), "pl.disable(); pl.enable()"]
)
def test_switching_while_another_thread_imports_numba_cuda(switches):
    """A thread may switch again and again while another imports numba.cuda for the first time."""
    lines = run(
        f"""
        while importing.is_alive():
            {switches}
            importing.join(0.001)
        from numba_ptxlink._numba_cuda.patches import TABLE
        print(failed, pl.enable().active, sum(row.module in sys.modules for row in TABLE) == len(
            pl._plugin._activations["numba-cuda"].applied))
        """,
        IMPORTS,
    )
    assert ["[] True True"] == lines
