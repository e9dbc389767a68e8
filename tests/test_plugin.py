"""Activation, each case in a new interpreter."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import processes
import pytest

from numba_ptxlink._front_end import registry

SUPPORTED = registry.get("numba-cuda").supported
SHOW = """
s = pl.status()
print(f"{s.active}|{s.reason}|{s.trigger}|{s.links_served}")
"""
CAUGHT = """
import warnings
_caught = warnings.catch_warnings(record=True)
_messages = _caught.__enter__()
warnings.simplefilter("always")
warned = lambda: [str(w.message) for w in _messages if w.category is RuntimeWarning]
"""


def run(*program: str, **environ: str) -> list[str]:
    """Run the parts of *program* in a new interpreter, with nothing on stderr; return its lines."""
    done = processes.run(
        sys.executable,
        "-c",
        "\n".join(map(textwrap.dedent, ("import numba_ptxlink as pl", *program))),
        env=processes.environ(**environ),
        cwd=Path(__file__).parent,
        quiet=True,
    )
    return done.stdout.splitlines()


def test_importing_numba_cuda_activates():
    """The import hook alone activates the plugin, before any code can bind the stock linker."""
    lines = run(
        SHOW,
        "from numba import cuda\nfrom numba.cuda.cudadrv.driver import _Linker\nprint(_Linker.__name__)",
        SHOW,
    )
    assert lines == [
        "False|numba.cuda has not been imported yet|None|0",
        "PtxLinker",
        "True|numba-cuda is installed and supported|import hook|0",
    ]


@pytest.mark.numba_cuda
def test_the_hook_wraps_each_module_that_is_patched():
    """The hook takes its list from the table, as soon as anything of numba.cuda is imported."""
    lines = run("""
        import sys
        import _numba_ptxlink_hook
        finder = _numba_ptxlink_hook.finder
        print(finder.may_patch("numpy"), finder.may_patch("numba"), finder.hooked_modules)
        from numba_ptxlink._numba_cuda.patches import TABLE
        rows = {row.module for row in TABLE}
        print(finder.may_patch("numba.cuda.nothing"), finder.hooked_modules)
        finder.load_hooked_modules("numba-cuda")
        print(finder.may_patch("numba.cuda.nothing"), rows == finder.hooked_modules["numba-cuda"])
        print(list(finder.hooked_modules))
        print("numba" in sys.modules)
        """)
    assert lines == ["False False {}", "True {}", "False True", "['numba-cuda']", "False"]


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param("from numba import njit\nprint(njit(lambda x: x + 1)(1))", marks=pytest.mark.slow),
        "pl.enable()\nprint(2)",
        pytest.param("print(2)", marks=pytest.mark.slow),
    ],
)
def test_threads_import_and_activate_at_one_time(meanwhile):
    """While one thread imports numba.cuda, another may enable the plugin, or load Numba's extensions."""
    lines = run(
        """
        import faulthandler, sys, threading, time
        faulthandler.dump_traceback_later(100, exit=True)
        def load():
            import numba.cuda
        thread = threading.Thread(target=load)
        thread.start()
        while "numba.cuda.cudadrv.driver" not in sys.modules:
            time.sleep(0)
        """,
        meanwhile,
        """
        thread.join()
        from numba_ptxlink._numba_cuda.patches import TABLE
        print(pl.status().active, len(pl._plugin._activations["numba-cuda"].applied) == len(TABLE))
        """,
    )
    assert lines == ["2", "True True"]


def test_enable_and_disable_wait_for_other_threads_kernels():
    """The linker of a kernel does not change while another thread compiles the kernel."""
    lines = run(
        """
        import threading, time
        from numba import cuda
        from numba.cuda.core.compiler_lock import global_compiler_lock
        compiling, seen = threading.Event(), []
        def compile_slowly():
            with global_compiler_lock:
                compiling.set()
                for _ in range(100):
                    time.sleep(0.005)
                    seen.append(pl._plugin._activations["numba-cuda"].active)
        thread = threading.Thread(target=compile_slowly)
        thread.start()
        compiling.wait()
        print(pl.disable().active, len(seen), set(seen))
        thread.join()
        """
    )
    assert lines == ["False 100 {True}"]


@pytest.mark.parametrize(
    ("driver", "active", "relation"),
    [
        pytest.param((12, 4), True, "older than"),
        pytest.param((99, 0), False, "as new as", marks=pytest.mark.slow),
    ],
)
def test_auto_compares_driver_and_toolkit(driver, active, relation):
    """NUMBA_PTXLINK=auto is active if the driver is older than the toolkit; the reason compares them."""
    lines = run(
        f"""
        from numba_ptxlink._tools import driver, nvrtc
        driver.version = lambda: {driver}
        from numba import cuda
        s = pl.status()
        toolkit = "{{}}.{{}}".format(*nvrtc.version())
        print(s.active)
        print(s.reason.replace(toolkit, "TOOLKIT"))
        """,
        NUMBA_PTXLINK="auto",
    )
    words = f"the driver (CUDA {driver[0]}.{driver[1]}) is {relation} the toolkit (TOOLKIT)"
    assert lines == [str(active), f"NUMBA_PTXLINK=auto: {words}"]


def test_the_driver_version_needs_neither_a_fork_nor_an_initialised_driver(tmp_path):
    """A call of cuDriverGetVersion alone returns the driver's version."""
    source = tmp_path / "fake.c"
    source.write_text(
        "#include <stdlib.h>\n"
        "int cuInit(unsigned flags) { abort(); }\n"
        "int cuDriverGetVersion(int* version) { *version = 12040; return 0; }\n"
    )
    library = tmp_path / "libcuda.so.1"
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build a stand-in driver with")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    lines = run(
        """
        import os
        from numba_ptxlink._tools import driver
        os.fork = None
        print(driver.version())
        """,
        LD_LIBRARY_PATH=str(tmp_path),
    )
    assert lines == ["(12, 4)"]


@pytest.mark.numba_cuda
def test_an_unsupported_numba_cuda_is_left_alone():
    """An unsupported release of numba-cuda stays unchanged, with one warning, and status() says why."""
    lines = run(
        CAUGHT,
        """
        import numba_cuda
        numba_cuda.__version__ = "99.0"
        from numba import cuda
        from numba.cuda.cudadrv import driver
        print(driver._Linker.__name__)
        """,
        SHOW,
        """
        try:
            pl.enable()
        except pl.ActivationError as error:
            print(error)
        pl._plugin.init()
        print(warned())
        """,
    )
    reason = f"numba-cuda 99.0 is not supported; install numba-cuda{SUPPORTED}"
    assert lines == [
        "_Linker",
        f"False|{reason}|import hook|0",
        f"numba-ptxlink cannot be enabled: {reason}.",
        str([f"numba-ptxlink is inactive, so numba-cuda uses its own linker: {reason}."]),
    ]


@pytest.mark.numba_cuda
def test_enable_where_nothing_can_be_served_is_an_error():
    """The error comes before anything is imported, and the former state is restored."""
    lines = run("""
        import sys, numba_cuda
        numba_cuda.__version__ = "99.0"
        sys.modules["numba_cuda_mlir"] = None
        try:
            pl.enable()
        except pl.ActivationError as error:
            print(str(error).partition(";")[0], pl._plugin.switch.enabled)
        """)
    assert lines == ["numba-ptxlink cannot be enabled: numba-cuda 99.0 is not supported None"]


def test_an_absent_numba_cuda_is_no_error():
    """Without numba-cuda the plugin is inactive, imports no numba, and the error of enable() says so."""
    lines = run("""
        import sys
        sys.modules["numba_cuda"] = sys.modules["numba_cuda_mlir"] = None
        from numba_ptxlink import _plugin
        _plugin.init()
        print(pl.status().reason, "numba" in sys.modules)
        try:
            pl.enable()
        except pl.ActivationError as error:
            print(error)
    """)
    absent = "numba-cuda is not installed; install it with `pip install 'numba-ptxlink[cu13]'`"
    assert lines == [
        f"{absent} False",
        f"numba-ptxlink cannot be enabled: {absent}.",
    ]


def test_a_numba_cuda_that_lacks_what_is_replaced_is_left_alone():
    """If numba-cuda lacks an attribute that its version should have, all patches are undone."""
    lines = run(
        CAUGHT,
        """
        from numba_ptxlink._front_end.patch import Patch
        missing = Patch("numba.cuda.compiler", "no_such_function", lambda original: original, "")
        from numba_ptxlink._numba_cuda import patches as table
        table.TABLE = (*table.TABLE, missing)
        from numba import cuda
        from numba.cuda.cudadrv import driver
        s = pl.status()
        print(driver._Linker.__name__, s.active, len(warned()))
        print(s.reason)
        """,
    )
    reason = "numba-cuda lacks an attribute that the plugin patches (KeyError: 'no_such_function')"
    assert lines == [
        "_Linker False 1",
        f"{reason}; reinstall numba-cuda{SUPPORTED}",
    ]


def test_the_simulator_is_left_alone():
    """Under the CUDA simulator the plugin is inactive, and kernels simulate."""
    lines = run(
        """
        import numpy as np
        from numba import cuda
        from numba_ptxlink import _plugin
        @cuda.jit
        def fill(x):
            x[cuda.grid(1)] = 7
        x = np.zeros(4)
        fill[1, 4](x)
        print(x.tolist())
        _plugin.init()
        """,
        SHOW,
        NUMBA_ENABLE_CUDASIM="1",
    )
    assert lines == [
        "[7.0, 7.0, 7.0, 7.0]",
        "False|the CUDA simulator is in use; unset NUMBA_ENABLE_CUDASIM|entry point|0",
    ]


def test_disable_restores_exactly_what_was_there():
    """disable() puts back every object that the plugin replaced, and enable() takes over again."""
    lines = run(
        """
        pl.disable()
        from numba import cuda
        import numba.cuda.cudadrv.driver as driver
        import numba.cuda.memory_management.nrt as nrt
        from numba_ptxlink._numba_cuda.patches import TABLE
        def bound():
            places = [vars(each.owner())[each.attribute] for each in TABLE]
            return [driver._Linker, nrt._Linker, cuda.compile, *places]
        stock = bound()
        pl.enable()
        ours = bound()
        print(sum(a is b for a, b in zip(stock, ours)))
        pl.disable()
        print(all(a is b for a, b in zip(stock, bound())))
        pl.enable()
        pl.enable()
        pl.disable()
        print(all(a is b for a, b in zip(stock, bound())))
        """,
        SHOW,
    )
    assert lines == ["0", "True", "True", "False|disable() was called|disable()|0"]


def test_enable_overrides_the_variable():
    """enable() counts for more than NUMBA_PTXLINK=0, before numba.cuda is imported and after."""
    for before, after, trigger in (("pl.enable()", "", "import hook"), ("", "pl.enable()", "enable()")):
        assert run(before, "from numba import cuda", after, SHOW, NUMBA_PTXLINK="0") == [
            f"True|enable() was called|{trigger}|0"
        ]


def test_enable_serves_what_was_imported_without_the_hook():
    """A compiler imported without the hook is not patched, as status() says, until enable() is called."""
    lines = run(
        "import _numba_ptxlink_hook\n_numba_ptxlink_hook.remove()\nfrom numba import cuda",
        SHOW,
        "pl.enable()",
        SHOW,
    )
    assert lines == [
        "False|numba.cuda has been imported without the import hook; call enable()|None|0",
        "True|enable() was called|enable()|0",
    ]


def test_each_front_end_has_a_group_of_entry_points():
    """The project's file names init() in the group that each compiler reads."""
    tomllib = pytest.importorskip("tomllib", reason="it is new in Python 3.11")
    project = Path(__file__).parents[1] / "pyproject.toml"
    if not project.exists():
        pytest.skip("the project's file is not beside these tests")
    groups = tomllib.loads(project.read_text())["project"]["entry-points"]
    groups = {group: names for group, names in groups.items() if not group.startswith("cmake.")}
    name = {"init": "numba_ptxlink._plugin:init"}
    assert {
        "numba_extensions": name,
        "numba_cuda_extensions": name,
        "numba_cuda_mlir_extensions": name,
    } == groups


COMPILE = "from numba import cuda, int32\nfrom numba.cuda import compile, compile_all, compile_ptx\n"


@pytest.fixture(scope="module")
def compiled_for_the_default():
    """Return the lines of a program without a driver whose default is sm_86."""
    return run(
        COMPILE,
        """
from numba_ptxlink._formats.ptx import parse, read_header
ptx, _ = compile(lambda x: x, int32(int32))
many, _ = compile_all(lambda x: x, int32(int32), output="ptx")
ltoir, _ = compile(lambda x: x, int32(int32), output="ltoir")
print(read_header(ptx).target, read_header(many[0]).target, len(ltoir) > 0)
from numba import njit
@cuda.jit(device=True)
def helper(x):
    return x + 1
@njit
def cpu_helper(x):
    return helper(x) * 2
def f(x):
    return cpu_helper(x)
for cc in ((8, 0), (9, 0), (8, 0), None):
    ptx, _ = compile(f, int32(int32), cc=cc) if cc else compile_ptx(f, int32(int32), device=True, abi="c")
    print(read_header(ptx).target, [g.prototype.name for g in parse(ptx).functions if not g.defined])
""",
        NUMBA_CUDA_DEFAULT_PTX_CC="8.6",
    )


def test_device_functions_call_device_functions_without_a_driver(compiled_for_the_default):
    """A function that calls jitted helpers compiles without a driver, for the given cc or the default."""
    assert compiled_for_the_default == [
        "('sm_86',) ('sm_86',) True",
        *(f"('sm_{arch}',) []" for arch in (80, 90, 80, 86)),
    ]
