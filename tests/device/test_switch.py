"""The CPU as the CUDA device of a process: how it is selected, and its cost in processes that do not."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import processes
import pytest

import numba_ptxlink as pl
from numba_ptxlink import _config
from numba_ptxlink._cpu import device

USED = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"


def python(program: str, **variables: str) -> Any:
    """Run a program in a process of its own."""
    return processes.run(sys.executable, "-c", program, env=processes.environ(**variables))


def test_the_environment_variable_makes_the_cpu_the_device():
    """With NUMBA_PTXLINK_DEVICE=cpu, libcuda.so.1 is this package's."""
    assert python(USED, NUMBA_PTXLINK_DEVICE="cpu").stdout == "0\n"


def test_nothing_is_loaded_without_the_variable():
    """Neither the device nor ctypes is imported at the start of the interpreter."""
    program = "import sys; print([name for name in ('ctypes', 'numba_ptxlink') if name in sys.modules])"
    assert python(program).stdout == "[]\n"


def test_a_static_runtime_is_reported():
    """A package that contains NVIDIA's static runtime, which does not run here, is named with the cure."""
    pytest.importorskip("cuda.bindings")
    done = python(
        "from cuda.bindings import runtime; import numba_ptxlink\n"
        "numba_ptxlink.use_cpu(); print(int(runtime.cudaFree(0)[0]))"
    )
    assert done.stdout == "801\n"
    assert "runtime.cpython" in done.stderr
    assert "set NUMBA_PTXLINK_DEVICE=cpu before Python starts" in done.stderr


def test_use_cpu():
    """`use_cpu` chooses architecture and number of devices; the same again does nothing."""
    program = (
        "import ctypes, numba_ptxlink as pl\n"
        "for _ in range(2): pl.use_cpu(arch='9.0', devices=3)\n"
        "cuda, n, m = ctypes.CDLL('libcuda.so.1'), ctypes.c_int(), ctypes.c_int(); cuda.cuInit(0)\n"
        "cuda.cuDeviceGetCount(ctypes.byref(n)); cuda.cuDeviceGetAttribute(ctypes.byref(m), 75, 2)\n"
        "print(n.value, m.value)\n"
        "try: pl.use_cpu(arch='8.0')\n"
        "except pl.ActivationError as error: print(error)"
    )
    lines = python(program).stdout.splitlines()
    assert lines[0] == "3 9"
    assert "CUDA is initialised" in lines[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": True}, "devices is True; pass a number from 1 to 16"),
        ({"devices": 2.0}, "devices is 2.0; pass a number from 1 to 16"),
        ({"checks": 5}, "checks is 5; pass a tuple of memcheck"),
        ({"checks": "memcheck"}, "checks is 'memcheck'; pass a tuple of memcheck"),
    ],
)
def test_options_of_another_type_are_errors(options, message):
    """Nothing is loaded for them."""
    with pytest.raises(pl.ConfigError, match=message):
        pl.use_cpu(**options)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"NUMBA_PTXLINK_DEVICE": "gpu"}, "NUMBA_PTXLINK_DEVICE='gpu' is unknown; set it to cpu."),
        (
            {"NUMBA_PTXLINK_DEVICE": "cpu", "NUMBA_PTXLINK_CPU_ARCH": "new"},
            "NUMBA_PTXLINK_CPU_ARCH: 'new' is",
        ),
        (
            {"NUMBA_PTXLINK_DEVICE": "cpu", "NUMBA_PTXLINK_CPU_DEVICES": "0"},
            "set it to a number from 1 to 16.",
        ),
        (
            {"NUMBA_PTXLINK_DEVICE": "cpu", "NUMBA_PTXLINK_CPU_CHECKS": "all"},
            "NUMBA_PTXLINK_CPU_CHECKS='all' is",
        ),
    ],
)
def test_unknown_values_end_the_program(variables, message):
    """A program whose device is misspelt does not start: it would run on another one."""
    with pytest.raises(AssertionError, match=message.replace("(", r"\(")):
        python("print('started')", **variables)


@pytest.mark.parametrize(
    ("value", "checks"), [("NONE", ()), ("MemCheck, RaceCheck", ("memcheck", "racecheck"))]
)
def test_checks_ignore_case(value, checks):
    """The names of checks may have capitals, as the values of all variables may."""
    assert checks == _config.Config.from_environ({"NUMBA_PTXLINK_CPU_CHECKS": value}).cpu_checks


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ([], ()),
        (["racecheck"], ("memcheck", "racecheck")),
        (["initcheck", "memcheck"], ("memcheck", "initcheck")),
    ],
)
def test_memcheck_runs_with_other_checks(checks, expected):
    """An overrun is reported under each check, and would end the process without memcheck."""
    assert expected == device.checked_settings(checks=checks).checks


def test_numba_cuda_is_imported_already():
    """numba-cuda looks for a driver once, when it is imported."""
    program = (
        "from numba import cuda; import numba_ptxlink as pl\n"
        "try: pl.use_cpu()\n"
        "except pl.ActivationError as error: print(error)"
    )
    pytest.importorskip("numba")
    assert "numba.cuda is imported already" in python(program).stdout


def test_another_driver_is_loaded(tmp_path):
    """A driver that the process has loaded already cannot be replaced."""
    (tmp_path / "cuda.c").write_text("int cuInit(unsigned flags) { return 0; }")
    driver = tmp_path / "libcuda.so.1"
    command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", driver, tmp_path / "cuda.c"]
    subprocess.run(list(map(str, command)), check=True)
    program = (
        f"import ctypes, numba_ptxlink as pl; ctypes.CDLL({str(driver)!r})\n"
        "try: pl.use_cpu()\n"
        "except pl.ActivationError as error: print(error)"
    )
    assert "NVIDIA's libcuda.so.1 is loaded in this process already" in python(program).stdout


def test_a_kernel_comes_from_the_cache(tmp_path):
    """The second process of a program compiles nothing, and computes the same."""
    program = (
        "import driver_api as api, numba_ptxlink as pl; api.start(); address = api.allocate(16)\n"
        "print(api.launch(api.kernel(), api.POINTER(address), api.ctypes.c_uint32(5), block=4))\n"
        "print(api.read(address, 4), pl.status().cache_misses == 0)"
    )
    variables = {"NUMBA_PTXLINK_DEVICE": "cpu", "NUMBA_PTXLINK_CACHE": str(tmp_path)}
    runs = [python(program, **variables).stdout.splitlines() for _ in range(2)]
    assert runs == [["0", "[5, 6, 7, 8] False"], ["0", "[5, 6, 7, 8] True"]]


def test_a_killed_program_leaves_nothing_behind(tmp_path):
    """After `kill -9` in an endless kernel, the next program runs, and finds other code in the cache."""
    program = (
        "import driver_api as api, numba_ptxlink as pl; api.start()\n"
        "address = api.POINTER(api.allocate(16))\n"
        "code = api.launch(api.kernel(), address, api.ctypes.c_uint32(5), block=4)\n"
        "print(code, api.read(address.value, 4), pl.status().cache_misses > 0, flush=True)\n"
        "api.launch(api.kernel(name=b'spin'), block=64)"
    )
    environ = processes.environ(NUMBA_PTXLINK_DEVICE="cpu", NUMBA_PTXLINK_CACHE=str(tmp_path))
    command, lines = [sys.executable, "-c", program], []
    for _ in range(2):
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as started:
            lines.append(started.stdout.readline())
            started.kill()
    assert lines == ["0 [5, 6, 7, 8] True\n", "0 [5, 6, 7, 8] False\n"]


def test_the_command_runs_a_program_on_the_cpu():
    """`numba-ptxlink cpu` returns the program's exit status, and its options reach child processes."""
    program = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', sys.argv[1]]))"
    inner = (
        "import numba_ptxlink as pl, ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)\n"
        "print(pl.status().device); raise SystemExit(3)"
    )
    command = [
        "-m",
        "numba_ptxlink",
        "cpu",
        "--arch",
        "9.0",
        "--devices",
        "2",
        "--",
        sys.executable,
        "-c",
        program,
    ]
    done = subprocess.run(
        [sys.executable, *command, inner],
        env=processes.environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "CPU, sm_90, 2 devices, memcheck\n")
