"""Activation, each case in an interpreter of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import fakedevice
import pytest

from numba_ptxlink._config import Config
from numba_ptxlink._front_end import registry

SUPPORTED = registry.get("numba-cuda").supported
SHOW = """
s = pl.status()
print(f"{s.active}|{s.reason}|{s.trigger}|{s.links_served}")
"""
# Drives a kernel through compile and link as if there were an 8.0 device, and shows what it would load.
FAKE_DEVICE = f"""
import sys
sys.path.append({str(Path(fakedevice.__file__).parent)!r})
import fakedevice
context = fakedevice.install()
def link_one_kernel():
    @cuda.jit
    def kernel(x):
        x[0] = 1
    kernel.compile("void(float32[:])")
    return [image[:4] for image in context.images]
"""


CAUGHT = """
import warnings
_caught = warnings.catch_warnings(record=True)
_messages = _caught.__enter__()
warnings.simplefilter("always")
warned = lambda: [str(w.message) for w in _messages if w.category is RuntimeWarning]
"""


def run(*program: str, **environ: str) -> list[str]:
    """Run the parts of *program* in a fresh interpreter, with nothing on stderr; return what it prints."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA")}
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-c",
            "\n".join(map(textwrap.dedent, ("import numba_ptxlink as pl", *program))),
        ],
        capture_output=True,
        text=True,
        env={**env, **environ},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
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


def test_the_hook_waits_for_all_that_is_replaced():
    """The hook takes its list from the table, as soon as anything of numba.cuda is imported."""
    lines = run("""
        import sys
        import _numba_ptxlink_hook
        finder = _numba_ptxlink_hook.finder
        print(finder.waits_for("numpy"), finder.waits_for("numba"), finder.hooked)
        from numba_ptxlink._numba_cuda.patches import TABLE
        rows = {row.module for row in TABLE}
        print(finder.waits_for("numba.cuda.nothing"), finder.hooked)
        finder.learn("numba-cuda")
        print(finder.waits_for("numba.cuda.nothing"), rows == finder.hooked["numba-cuda"])
        print(list(finder.hooked))
        print("numba" in sys.modules)
        """)
    assert lines == ["False False {}", "True {}", "False True", "['numba-cuda']", "False"]


@pytest.mark.parametrize(
    "first",
    [
        "numba_ptxlink.linker import PtxLinker",
        pytest.param("numba_ptxlink._numba_cuda.errors import NumbaLinkError", marks=pytest.mark.slow),
    ],
)
def test_naming_the_linker_first_activates_too(first):
    """Whatever of this package is imported first, the import of numba.cuda activates the plugin."""
    lines = run(f"from {first}\nimport numba.cuda", SHOW)
    assert lines == ["True|numba-cuda is installed and supported|import hook|0"]


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
    """What a kernel is compiled with does not change while another thread compiles it."""
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


def test_the_hook_imports_nothing_of_this_package():
    """An interpreter that never imports numba.cuda never imports this package."""
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-c",
            "import sys; print([m for m in sys.modules if m[:13] == 'numba_ptxlink'])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_cpu_numba_does_not_import_numba_cuda():
    """A CPU-only program that makes Numba run its entry points imports no numba.cuda through the plugin."""
    lines = run("""
        import sys
        from numba import njit
        @njit
        def f(x):
            return x + 1
        print(f(1), "numba.cuda.cudadrv.driver" in sys.modules, pl.status().trigger)
    """)
    assert lines == ["2 False entry point"]


def test_kernels_are_linked_by_ptxlinker():
    """A kernel's cubin comes from PtxLinker, and the counter says so."""
    lines = run(
        "from numba import cuda\n",
        FAKE_DEVICE,
        "print(link_one_kernel(), pl.status().links_served, pl.status().assembled)",
    )
    assert lines == [r"[b'\x7fELF'] 1 1"]


def test_the_variable_turns_the_plugin_off():
    """NUMBA_PTXLINK=0 leaves the stock linker, which then serves the link."""
    lines = run(
        "from numba import cuda\nfrom numba.cuda.cudadrv import driver\n",
        FAKE_DEVICE,
        "print(driver._Linker.__name__, link_one_kernel())",
        SHOW,
        NUMBA_PTXLINK="0",
    )
    assert lines == [r"_Linker [b'\x7fELF']", "False|NUMBA_PTXLINK=0|import hook|0"]


@pytest.mark.slow
def test_auto_is_off_without_a_driver():
    """NUMBA_PTXLINK=auto stays inactive where there is no driver whose age could matter."""
    lines = run(
        """
        from numba_ptxlink._tools import driver
        driver.version = lambda: None
        from numba import cuda
        """,
        SHOW,
        NUMBA_PTXLINK="auto",
    )
    assert lines == ["False|NUMBA_PTXLINK=auto: there is no driver|import hook|0"]


@pytest.mark.parametrize(
    ("driver", "active", "relation"),
    [
        pytest.param((12, 4), True, "older than"),
        pytest.param((99, 0), False, "as new as", marks=pytest.mark.slow),
    ],
)
def test_auto_compares_driver_and_toolkit(driver, active, relation):
    """NUMBA_PTXLINK=auto is active exactly where the driver is older than the toolkit, and says so."""
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
    """The driver is asked by cuDriverGetVersion alone."""
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


@pytest.mark.parametrize("value", ["on", "TRUE", "Yes"])
def test_the_variable_has_words_for_on(value):
    """NUMBA_PTXLINK takes on, true and yes in any case for 1, and off, false and no for 0."""
    assert "1" == Config.from_environ({"NUMBA_PTXLINK": value}).mode
    opposite = {"on": "OFF", "TRUE": "false", "Yes": "No"}[value]
    assert "0" == Config.from_environ({"NUMBA_PTXLINK": opposite}).mode
    cached = Config.from_environ({"NUMBA_PTXLINK_CACHE": value})
    assert (True, ()) == (cached.cache, cached.cache_dirs)
    assert Config.from_environ({"NUMBA_PTXLINK_CACHE": opposite}).cache is False


def test_an_unsupported_numba_cuda_is_left_alone():
    """A numba-cuda of another release stays as it is, with one warning, and status() says why."""
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
        str([f"numba-ptxlink is inactive, and numba-cuda goes on without it: {reason}."]),
    ]


def test_an_absent_numba_cuda_is_no_error():
    """Without numba-cuda the plugin is inactive, imports no numba, and enable() says what is missing."""
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
    """Where numba-cuda's inside is not what its version says, everything goes back to stock."""
    lines = run(
        CAUGHT,
        """
        from numba_ptxlink._front_end.substitution import Substitution
        missing = Substitution("numba.cuda.compiler", "no_such_function", lambda original: original, "")
        from numba_ptxlink._numba_cuda import patches as table
        table.TABLE = (*table.TABLE, missing)
        from numba import cuda
        from numba.cuda.cudadrv import driver
        s = pl.status()
        print(driver._Linker.__name__, s.active, len(warned()))
        print(s.reason)
        """,
    )
    reason = "numba-cuda lacks what the plugin replaces (KeyError: 'no_such_function')"
    assert lines == [
        "_Linker False 1",
        f"{reason}; install numba-cuda{SUPPORTED} again",
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


def test_disable_before_the_import_keeps_the_plugin_off():
    """disable() before numba.cuda is imported is remembered when it is."""
    assert run("pl.disable()\nfrom numba import cuda", SHOW) == ["False|disable() was called|import hook|0"]


def test_enable_overrides_the_variable():
    """enable() counts for more than NUMBA_PTXLINK=0, before numba.cuda is imported and after."""
    for before, after, trigger in (("pl.enable()", "", "import hook"), ("", "pl.enable()", "enable()")):
        assert run(before, "from numba import cuda", after, SHOW, NUMBA_PTXLINK="0") == [
            f"True|enable() was called|{trigger}|0"
        ]


def test_each_front_end_has_a_group_of_entry_points():
    """The project's file names init() in the group that each compiler reads."""
    tomllib = pytest.importorskip("tomllib", reason="it is new in Python 3.11")
    project = Path(__file__).parents[1] / "pyproject.toml"
    if not project.exists():
        pytest.skip("the project's file is not beside these tests")
    groups = tomllib.loads(project.read_text())["project"]["entry-points"]
    name = {"init": "numba_ptxlink._plugin:init"}
    assert {
        "numba_extensions": name,
        "numba_cuda_extensions": name,
        "numba_cuda_mlir_extensions": name,
    } == groups


def test_the_entry_points_name_init_and_may_run_twice():
    """Both groups of entry points lead to init(), which activates once and is harmless after that."""
    lines = run("""
        from importlib.metadata import entry_points
        from numba import cuda
        from numba.cuda.cudadrv import driver
        import _numba_ptxlink_hook
        pl.disable()
        found = [
            point
            for group in ("numba_extensions", "numba_cuda_extensions")
            for point in entry_points(group=group, name="init")
            if point.module.startswith("numba_ptxlink")
        ]
        print(sorted(point.group for point in found))
        from numba_ptxlink import _plugin
        _plugin.switch.wanted = None
        for point in (*found, *found):
            point.load()()
        s = pl.status()
        print(driver._Linker.__name__, s.active, s.trigger)
    """)
    assert lines == ["['numba_cuda_extensions', 'numba_extensions']", "PtxLinker True entry point"]


@pytest.mark.slow
def test_another_finder_in_front_changes_nothing():
    """A finder that asks the whole meta path again, as numba-cuda's does, gets its module and no loop."""
    lines = run("""
        import sys
        class Asks:
            def find_spec(self, name, path=None, target=None):
                if name.startswith("numba.cuda.cudadrv") and not getattr(self, "busy", False):
                    self.busy = True
                    try:
                        for finder in sys.meta_path:
                            spec = finder is not self and finder.find_spec(name, path, target)
                            if spec:
                                return spec
                    finally:
                        self.busy = False
        sys.meta_path.insert(0, Asks())
        from numba import cuda
        from numba.cuda.cudadrv import driver
        loaders = driver.__loader__, driver.__spec__.loader
        print(driver._Linker.__name__, *(type(loader).__name__ for loader in loaders))
    """)
    assert lines == ["PtxLinker SourceFileLoader SourceFileLoader"]


@pytest.mark.slow
def test_the_log_variable_shows_the_decision():
    """NUMBA_PTXLINK_LOG=info writes the decision to stderr through logging, and nothing else."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", "from numba import cuda"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_PTXLINK_LOG": "info"},
    )
    assert done.stderr.splitlines() == [
        "numba_ptxlink INFO: active in numba-cuda: numba-cuda is installed and supported (import hook)"
    ]


COMPILE = "from numba import cuda, int32\nfrom numba.cuda import compile, compile_all, compile_ptx\n"


def test_compile_ptx_works_without_a_driver():
    """compile_ptx() without cc makes PTX of the asked name where stock numba-cuda asks for a driver."""
    lines = run(
        COMPILE,
        """
ptx, _ = compile_ptx(lambda x: x, int32(int32), device=True, abi="c", abi_info={"abi_name": "f"})
from numba_ptxlink._formats.ptx import parse, read_header
print([str(f.prototype) for f in parse(ptx).functions], read_header(ptx).target, pl.status().active)
""",
    )
    assert lines == ["['.func (.b32) f(.b32)'] ('sm_75',) True"]


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


def test_the_default_cc_is_honoured(compiled_for_the_default):
    """Without a device and cc, NUMBA_CUDA_DEFAULT_PTX_CC chooses the architecture for every output."""
    assert compiled_for_the_default[0] == "('sm_86',) ('sm_86',) True"


def test_device_functions_call_device_functions_without_a_driver(compiled_for_the_default):
    """A function that calls jitted helpers compiles without a driver, for the cc asked for or the default."""
    assert compiled_for_the_default[1:] == [f"('sm_{arch}',) []" for arch in (80, 90, 80, 86)]


CONVENIENCE = """
import os
os.environ["NUMBA_PTXLINK"] = "0"
import numba.cuda.dispatcher as dispatcher
dispatcher.CUDACache._moved = dispatcher.CUDACache._index_key
del dispatcher.CUDACache._index_key
import numba_ptxlink as pl
status = pl.enable()
from numba.cuda import codegen
from numba.cuda.cudadrv import driver
print(status.active, driver._Linker.__module__, codegen.CUDACodeLibrary._rebuild.__func__.__module__)
print(status.reason)
print(next(each.reason for each in pl.status().front_ends if each.name == "numba-cuda"))
"""


def test_a_convenience_that_moved_leaves_the_linker_active():
    """Rows that only save something switch off by themselves, together, and `status()` says so."""
    pytest.importorskip("numba.cuda")
    done = subprocess.run([sys.executable, "-c", CONVENIENCE], capture_output=True, text=True, check=True)
    first, *reasons = done.stdout.splitlines()
    assert "True numba_ptxlink._numba_cuda.linker numba.cuda.codegen" == first
    off = "the rows for the cache are off: numba.cuda.dispatcher has no CUDACache._index_key"
    assert [f"enable() was called; {off}"] * 2 == reasons
