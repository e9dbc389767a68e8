"""Names of the standard libraries: a generated header compiles after any of their headers."""

from __future__ import annotations

import subprocess

import compiler_names
import numpy as np
import pytest
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype

import numba_ptxlink as pl
from numba_ptxlink._cabi import names
from numba_ptxlink._tools import nvrtc
from numba_ptxlink.linker import INCLUDE_DIR

F32 = types.float32
# Macros that are replaced wherever they stand, with and without parentheses behind them.
MACROS = (
    *(
        "errno",
        "EINVAL",
        "DBL_MAX",
        "FLT_EPSILON",
        "FLT_RADIX",
        "I",
        "complex",
        "noreturn",
        "SIGINT",
        "SIG_DFL",
    ),
    # POSIX, by way of NVTX in CUB.
    *("st_mtime", "O_RDONLY", "F_GETFL", "S_IRUSR", "LOCK_EX", "AT_FDCWD"),
    *("PRId32", "SCNu64", "FE_DIVBYZERO", "LC_ALL", "WEOF", "ATOMIC_INT_LOCK_FREE", "TSS_DTOR_ITERATIONS"),
)
FUNCTIONS = (
    *("signal", "raise", "setjmp", "longjmp", "setlocale", "localeconv", "wcslen", "wmemcpy", "iswctype"),
    *("call_once", "mtx_lock", "cnd_wait", "thrd_yield", "tss_get", "atomic_load", "atomic_thread_fence"),
    *("mbrtoc16", "imaxdiv", "feholdexcept", "jmp_buf", "lconv", "mbstate_t", "kill_dependency"),
    # POSIX, by way of <thread> and <semaphore> in libstdc++.
    *("read", "write", "close", "link", "pipe", "access", "environ", "getopt", "sleep", "pause", "sync"),
    *("sched_yield", "sem_wait", "pthread_create", "getpid", "dup", "nice", "swab"),
    # And by way of NVTX in CUB.
    *("open", "creat", "openat", "fcntl", "splice", "tee", "fallocate", "readahead", "posix_fadvise"),
    *("nvtxMark", "nvtxRangePushA", "NVTX_VERSION"),
)


@pytest.fixture(scope="module")
def toolkit():
    """Return the installed toolkit, with nvcc."""
    try:
        return compiler_names.installed()
    except StopIteration:
        pytest.skip("the packages of CUDA's compilers are not installed")


@pytest.mark.parametrize("name", [*MACROS, *FUNCTIONS])
def test_a_function_does_not_take_a_standard_name(name):
    """A function of the name of a macro, function or type of the standard library is refused."""
    assert names.problem(name) is not None
    assert names.problem(names.propose(name)) is None


@pytest.mark.parametrize("name", MACROS)
def test_a_field_does_not_take_the_name_of_a_macro(name):
    """A macro that is replaced wherever it stands names no parameter or field."""
    assert names.legal(name) == f"{name}_"


@pytest.mark.parametrize("name", ["read", "signal", "link", "atomic_load", "setjmp"])
def test_a_field_keeps_the_name_of_a_function(name):
    """A function, or a macro with parameters, is a name like any other for a field."""
    assert names.legal(name) == name


@pytest.mark.slow
def test_a_header_compiles_after_every_standard_header(tmp_path, toolkit):
    """A header of functions, parameters, fields and structs of such names, after those of C, C++ and CUDA."""
    words = [*MACROS, *(name for name in FUNCTIONS if name not in {"raise", "environ"})]
    record = from_dtype(np.dtype([(name, np.float32) for name in words], align=True))
    scope: dict[str, object] = {}
    exec(f"def f(p, {', '.join(words)}): return p.errno + {' + '.join(words)}", scope)  # noqa: S102
    marked = [pl.udf(F32(record, *[F32] * len(words)), name="all_of_them")(scope["f"])]
    marked += [
        pl.udf(F32(F32), name=names.propose(name))(lambda value: value) for name in (*MACROS, *FUNCTIONS)
    ]
    pl.export(marked, tmp_path, archs=["sm_90"], emit=["ptx"], name="udfs")
    where = [f"-I{tmp_path}"]
    for path in (INCLUDE_DIR, *nvrtc.toolkit_include_dirs()):
        where += ["-isystem", str(path)]
    nvcc = [
        str(toolkit.nvcc),
        "-std=c++20",
        "-arch=sm_90",
        "-rdc=true",
        "-cuda",
        "-o",
        str(tmp_path / "out.ii"),
    ]
    for command, suffix, headers in (
        (["gcc", "-fsyntax-only"], ".c", compiler_names.standard_headers(".c")),
        (["g++", "-std=c++20", "-fsyntax-only"], ".cpp", compiler_names.standard_headers(".cpp")),
        (nvcc, ".cu", ("cerrno", "cfloat", "csetjmp", "csignal", "string", "clocale", "cwchar")),
        (nvcc, ".cu", compiler_names.OF_CUDA),
    ):
        source = tmp_path / f"source{suffix}"
        source.write_text("".join(f"#include <{header}>\n" for header in headers) + '#include "udfs.h"\n')
        run = subprocess.run([*command, *where, str(source)], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr[:4000]


@pytest.mark.parametrize(
    "index", [pytest.param(0, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.slow), 2]
)
def test_the_names_of_the_standard_headers_are_listed(tmp_path, toolkit, index):
    """Whatever nvcc and GCC know at global scope after all standard headers is refused or replaced."""
    compiler, preprocess = compiler_names.standard_compilers(toolkit, tmp_path)[index]
    answer = compiler_names.ask_standard(compiler, preprocess)
    assert len(answer.outside) > 1000
    assert [] == [name for name in sorted(answer.outside | answer.everywhere) if names.problem(name) is None]
    assert [] == [name for name in sorted(answer.everywhere) if names.legal(name) == name]
