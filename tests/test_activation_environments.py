"""Activation where .pth files are not read, variables are wrong or the installation is damaged."""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path

import processes
import pytest
from ptx_kernels import make_kernel

import numba_ptxlink as pl
from numba_ptxlink._native import _nvptxcompiler

# Each test starts one process or several.
pytestmark = pytest.mark.slow
PACKAGE = Path(pl.__file__).parent
STATUS = """
import warnings
import numba_ptxlink as pl
state = pl.status()
print(state.active, state.trigger)
print(state.reason)
"""
LINKER = "from numba.cuda.cudadrv import driver; print(driver._Linker.__name__)\n"
ERRORS = ("-W", "error::RuntimeWarning")
# The imports in the .pth files of both packages.
HOOKS = "import _numba_cuda_redirector, _numba_ptxlink_hook\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return a directory as `pip install --target` leaves it: without the editable install's redirects."""
    target = tmp_path_factory.mktemp("target")
    shutil.copytree(
        PACKAGE, target / "numba_ptxlink", ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.c")
    )
    native = Path(_nvptxcompiler.__file__)
    (target / "numba_ptxlink" / "_native" / native.name).symlink_to(native)
    import _numba_ptxlink_hook

    shutil.copy(_numba_ptxlink_hook.__file__, target)
    return target


@pytest.fixture
def damaged(installed, tmp_path):
    """Return a copy of `installed` to be damaged."""
    return Path(shutil.copytree(installed, tmp_path / "damaged", symlinks=True))


def run(directory, program, *options, **environ):
    """Run *program* without .pth files, *directory* first in its path; return lines of stdout and stderr."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA", "PYTHON"))}
    paths = {str(directory), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    paths = sorted(paths, key=lambda path: path != str(directory))
    done = processes.run(
        sys.executable,
        "-S",
        *options,
        "-c",
        program,
        env={**env, "PYTHONPATH": os.pathsep.join(paths), **environ},
        cwd=directory,
    )
    return done.stdout.splitlines(), done.stderr


def test_the_package_installs_both_hooks_itself(installed):
    """Imported first, the package waits for numba.cuda, which is numba-cuda's, without a .pth file."""
    program = (
        "import sys, numba_ptxlink; print('numba' in sys.modules)\nimport numba.cuda\n" + LINKER + STATUS
    )
    assert run(installed, program) == (
        ["False", "PtxLinker", "True import hook", "numba-cuda is installed and supported"],
        "",
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(
            "1",
            ["PtxLinker", "True import of numba_ptxlink", "numba-cuda is installed and supported"],
            marks=pytest.mark.slow,
        ),
        ("0", ["_Linker", "False import of numba_ptxlink", "NUMBA_PTXLINK=0"]),
    ],
)
def test_the_package_activates_when_it_is_imported_late(installed, value, expected):
    """Imported after numba.cuda, the package activates at once, as far as NUMBA_PTXLINK allows it."""
    program = "import _numba_cuda_redirector, numba.cuda\nimport numba_ptxlink\n" + LINKER + STATUS
    assert run(installed, program, NUMBA_PTXLINK=value) == (expected, "")


def test_the_numba_cuda_of_numba_itself_is_left_alone(installed):
    """If numba.cuda was imported without numba-cuda's redirect, the reason says so and names the cure."""
    program = "import numba.cuda; print(numba.cuda.implementation)\n" + STATUS
    lines, stderr = run(installed, program)
    reason = (
        "numba.cuda is Numba's own, because Python has not read the .pth file of numba-cuda; "
        "import _numba_cuda_redirector, which does what that file does, before numba.cuda"
    )
    assert ["Built-in", "False import of numba_ptxlink", reason] == lines
    assert 1 == stderr.count(
        f"RuntimeWarning: numba-ptxlink is inactive, so numba-cuda uses its own linker: {reason}."
    )


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("NUMBA_PTXLINK", "2"),
        pytest.param("NUMBA_PTXLINK_CACHE_SIZE", "lots", marks=pytest.mark.slow),
        pytest.param("NUMBA_PTXLINK_CACHE", "here", marks=pytest.mark.slow),
    ],
)
def test_a_wrong_variable_is_a_warning(installed, variable, value):
    """A wrong variable leaves numba.cuda unchanged, with a warning and the reason; enable() raises."""
    program = (
        STATUS
        + "import numba.cuda\n"
        + LINKER
        + STATUS
        + f"for act in (pl.enable, lambda: pl.assemble({make_kernel()!r}, 'sm_80')):\n"
        + "    try: act()\n"
        + "    except pl.ConfigError as error: print(type(error).__name__)\n"
    )
    lines, stderr = run(installed, HOOKS + program, **{variable: value})
    before, *rest = lines[1:]
    assert before.startswith((f"{variable}=", f"{variable} is unknown"))
    assert "set it to" in before
    assert ["_Linker", "False import hook", before] == rest[:3]
    assert ["ConfigError"] * 2 == rest[3:]
    assert 1 == stderr.count("RuntimeWarning: numba-ptxlink is inactive")


def remove(package):
    """Remove the package, and leave its hook."""
    shutil.rmtree(package)


def lose_a_module(package):
    """Remove a module that activation imports."""
    (package / "_numba_cuda" / "linker.py").unlink()


def lose_the_native_module(package):
    """Remove the compiled module."""
    (native,) = (package / "_native").glob("*.so")
    native.unlink()


# Messages of Python for a broken package, and for one without cffi's native module.
@pytest.mark.parametrize(
    ("damage", "words", "options"),
    [
        pytest.param(remove, "numba-ptxlink is damaged", (), marks=pytest.mark.slow),
        (remove, "numba-ptxlink is damaged", ERRORS),
        pytest.param(lose_a_module, "cannot import name 'linker'", ERRORS, marks=pytest.mark.slow),
        (lose_the_native_module, "_native._nvptxcompiler is missing", ()),
    ],
)
def test_a_damaged_package_keeps_nobody_from_numba_cuda(damaged, damage, words, options):
    """Whatever is broken, numba.cuda is imported, with one message, even where warnings are errors."""
    damage(damaged / "numba_ptxlink")
    program = HOOKS + "import numba.cuda\n" + LINKER
    status = STATUS if damage is lose_the_native_module else ""
    if damage is remove:
        # The environment may have the package, too.
        program = "import sys; sys.modules['numba_ptxlink'] = None\n" + program
    lines, stderr = run(damaged, program + status, *options)
    assert "_Linker" == lines[0]
    assert 1 == stderr.count(words)
    assert "python -m pip install" in stderr
    if status:
        assert "False import hook" == lines[1]
        assert words in lines[2]


def test_a_compiled_module_for_a_newer_glibc_has_its_cure(damaged):
    """A module built on a newer Linux fails to load, with an error that says to build it on the older one."""
    (native,) = (damaged / "numba_ptxlink" / "_native").glob("*.so")
    code = native.read_bytes()
    native.unlink()
    native.write_bytes(re.sub(rb"(?<=\0GLIBC_2\.)\d\d(?=\0)", b"99", code, count=1))
    program = (
        "import numba_ptxlink as pl\n"
        f"try: pl.assemble({make_kernel()!r}, 'sm_80')\n"
        "except pl.AssembleError as error: print(error)\n"
    )
    (line,), _ = run(damaged, program)
    assert "GLIBC_2.99' not found" in line
    assert "built on a newer Linux, build it on this one" in line
