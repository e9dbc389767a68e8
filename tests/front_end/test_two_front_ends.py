"""Activation with a second front end, a stand-in with one class to patch; each test in a new interpreter."""

from __future__ import annotations

import sys
import textwrap

import processes
import pytest

from numba_ptxlink._front_end import registry

SUPPORTED = registry.get("numba-cuda-mlir").supported
DRIVER = "numba_cuda_mlir/numba_cuda/cudadrv/driver.py"
# The patched row, and functions that show the state of both front ends.
START = """
import sys, warnings
sys.path.insert(0, {folder!r})
caught = warnings.catch_warnings(record=True)
messages = caught.__enter__()
warnings.simplefilter("always")
import numba_ptxlink as pl
from numba_ptxlink._front_end.patch import Patch
from numba_ptxlink._numba_cuda_mlir import front_end
class Ours:
    pass
row = Patch("numba_cuda_mlir.numba_cuda.cudadrv.driver", {attribute!r}, lambda _: Ours, "A reason.")
front_end.NumbaCudaMlir.table = lambda self: (row,)
def show():
    s = pl.status()
    for each in s.front_ends:
        print(each.name, each.active, each.reason, each.trigger, sep="|")
    print(s.active, s.reason, s.trigger, sep="|")
def linkers():
    print(*(getattr(sys.modules[name], "_Linker").__name__ for name in (
        "numba.cuda.cudadrv.driver", "numba_cuda_mlir.numba_cuda.cudadrv.driver") if name in sys.modules))
"""
ACTIVE = "numba-cuda-mlir|True|numba-cuda-mlir is installed and supported|import hook"
NUMBA_CUDA = "numba-cuda|True|numba-cuda is installed and supported|import hook"
WAITING = "numba-cuda|False|numba.cuda has not been imported yet|None"


@pytest.fixture
def run(tmp_path):
    """Return a function that runs parts of a program beside a numba-cuda-mlir of a version."""

    def run(*parts, version="0.6.0", attribute="_Linker", **environ):
        driver = tmp_path / DRIVER
        driver.parent.mkdir(parents=True)
        driver.write_text("class _Linker:\n    pass\n")
        for folder in (driver.parent, driver.parents[1], driver.parents[2]):
            (folder / "__init__.py").write_text("")
        (driver.parents[2] / "__init__.py").write_text(f"__version__ = {version!r}\n")
        info = tmp_path / f"numba_cuda_mlir-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: numba-cuda-mlir\nVersion: {version}\n")
        start = START.format(folder=str(tmp_path), attribute=attribute)
        program = "\n".join(map(textwrap.dedent, (start, *parts)))
        done = processes.run(
            sys.executable, "-c", program, env=processes.environ(**environ), cwd=tmp_path, quiet=True
        )
        return done.stdout.splitlines()

    return run


THEIRS = "import numba_cuda_mlir.numba_cuda.cudadrv.driver"


def test_the_import_of_one_activates_it_alone(run):
    """The hook serves a program that never imports numba, and imports nothing of the other's wrappers."""
    lines = run(
        "show()",
        THEIRS,
        """
        show()
        linkers()
        print([name for name in sys.modules if name.startswith("numba_ptxlink._numba_cuda.patches")])
        print(pl.status().front_ends[1].versions, pl.status().versions["numba-cuda-mlir"])
        """,
    )
    assert lines == [
        WAITING,
        "numba-cuda-mlir|False|numba_cuda_mlir has not been imported yet|None",
        "False|numba.cuda has not been imported yet|None",
        WAITING,
        ACTIVE,
        ACTIVE.partition("|")[2],
        "Ours",
        "[]",
        "{'numba-cuda-mlir': '0.6.0'} 0.6.0",
    ]


@pytest.mark.parametrize("first", [THEIRS, pytest.param("import numba.cuda", marks=pytest.mark.slow)])
def test_both_are_served_in_either_order(run, first):
    """disable() puts both back, enable() replaces both."""
    lines = run(
        first,
        THEIRS,
        "import numba.cuda\nshow()\nlinkers()",
        "pl.disable()\nlinkers()\npl.enable()\nlinkers()\nprint([str(m.message) for m in messages])",
    )
    both = ["PtxLinker Ours", "_Linker _Linker", "PtxLinker Ours", "[]"]
    assert lines == [NUMBA_CUDA, ACTIVE, NUMBA_CUDA.partition("|")[2], *both]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"version": "0.5.3"},
            f"numba-cuda-mlir 0.5.3 is not supported; install numba-cuda-mlir{SUPPORTED}",
        ),
        pytest.param(
            {"attribute": "gone"},
            (
                "numba-cuda-mlir lacks an attribute that the plugin patches (KeyError: 'gone'); "
                f"reinstall numba-cuda-mlir{SUPPORTED}"
            ),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_one_that_cannot_be_served_hampers_the_other_not(run, options, reason):
    """The front end that cannot be patched stays as it is, and one warning names it; the other is active."""
    lines = run(
        THEIRS,
        "import numba.cuda\nshow()\nlinkers()\nprint(*(m.message for m in messages))",
        """
        try:
            pl.enable()
        except pl.ActivationError as error:
            print(error)
        linkers()
        """,
        **options,
    )
    assert lines == [
        NUMBA_CUDA,
        f"numba-cuda-mlir|False|{reason}|import hook",
        NUMBA_CUDA.partition("|")[2],
        "PtxLinker _Linker",
        f"numba-ptxlink is inactive, so numba-cuda-mlir uses its own linker: {reason}.",
        f"numba-ptxlink cannot be enabled: {reason}.",
        "PtxLinker _Linker",
    ]


@pytest.mark.slow
def test_a_damaged_front_end_hampers_the_other_not(run):
    """A module of this package with a syntax error makes one front end inactive, and not the other."""
    lines = run(
        """
        def broken(self):
            raise SyntaxError("invalid syntax")
        front_end.NumbaCudaMlir.table = broken
        """,
        THEIRS,
        "import numba.cuda\nshow()\nlinkers()\nprint(len(messages))",
    )
    assert lines[0] == NUMBA_CUDA
    assert lines[1].startswith("numba-cuda-mlir|False|")
    assert lines[3:] == ["PtxLinker _Linker", "1"]
