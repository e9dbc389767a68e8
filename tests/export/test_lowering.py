"""What is kept of a lowered function: nothing of where it was lowered."""

from __future__ import annotations

import re

import front_ends
import pytest
from caches import open_cache

import numba_ptxlink as pl
from numba_ptxlink import cache
from numba_ptxlink._export import extended, lowering
from numba_ptxlink.cache import tiered

HELPER = """\
from pathlib import Path
from {package} import cuda

g = cuda.declare_device("g", "float64(float64)", link={link}, abi="c")
"""
CALLER = """\
from numba_ptxlink import udf
from helper import g

@udf("float64(float64)")
def f(x):
    return g(x)
"""
FACTORS = {"3": "0d4008000000000000", "5": "0d4014000000000000", "7": "0d401C000000000000"}


@pytest.fixture(params=front_ends.NAMES)
def name(request):
    """Return the name of a front end."""
    return front_ends.get(request.param).name


@pytest.fixture
def lowered(tmp_path, monkeypatch):
    """Turn on a cache of the test's own; return the list of what is lowered rather than found in it."""
    mine = open_cache(tmp_path / "cache")
    # What other tests have added to the front end makes all source count.
    monkeypatch.setattr(extended, "of_program", lambda *_: iter(()))
    # First: where it was never read, it would be read from what the other one replaces, and put back.
    monkeypatch.setattr(cache, "default", lambda: mine)
    monkeypatch.setattr(tiered, "default", lambda: mine)
    names, lower = [], lowering._lower
    monkeypatch.setattr(
        lowering, "_lower", lambda each, *rest: names.append(each.udf.name) or lower(each, *rest)
    )
    return names


def program(folder, name, link, factor):
    """Write a program whose helper module links *link*, and the file "g.cu", which multiplies by *factor*."""
    folder.mkdir()
    package = front_ends.get(name).package.removesuffix(".cuda")
    (folder / "helper.py").write_text(HELPER.format(package=package, link=link))
    (folder / "udfs.py").write_text(CALLER)
    return write(folder / "g.cu", factor)


def write(path, factor):
    """Write CUDA C++ that multiplies by *factor*; return its path."""
    path.write_text(f'extern "C" __device__ double g(double x) {{ return x * {factor}; }}\n')
    return path


def export(folder, monkeypatch):
    """Export the program of *folder* there; return its factor, and which CUDA C++ the depfile lists."""
    monkeypatch.chdir(folder)
    pl.export("udfs.py", folder, archs=["sm_90"], emit=["ptx"], depfile="udfs.d")
    ptx, rule = ((folder / name).read_text() for name in ("udfs.sm_90.ptx", "udfs.d"))
    (found,) = re.findall(r"mul\.\w+\.?\w*\s+%fd\d+, %fd\d+, (\w+)", ptx)
    (factor,) = (factor for factor, digits in FACTORS.items() if digits == found)
    return factor, sorted(set(re.findall(r"\S+\.cu\b", rule)))


@pytest.mark.parametrize("link", ['"g.cu"', pytest.param('[Path("./g.cu")]', marks=pytest.mark.slow)])
def test_a_relative_link_file_is_the_one_of_each_export(name, link, lowered, tmp_path, monkeypatch):
    """A function that is found in the cache links the file that is there now, as one that is lowered."""
    first, second = (program(tmp_path / each, name, link, factor) for each, factor in (("A", 3), ("B", 5)))
    assert ("3", [str(first)]) == export(first.parent, monkeypatch)
    assert ("5", [str(second)]) == export(second.parent, monkeypatch)
    if "Path" not in link:
        assert ["f"] == lowered
    write(second, 7)
    assert ("7", [str(second)]) == export(second.parent, monkeypatch)
    second.unlink()
    with pytest.raises(pl.ExportError, match=r"^Function f \(udfs\.py:4\): .*g\.cu not found; "):
        export(second.parent, monkeypatch)
    second.symlink_to(first)
    assert ("3", [str(second)]) == export(second.parent, monkeypatch)


def test_code_in_memory_is_kept_with_the_function(name, lowered, tmp_path, monkeypatch):
    """A function that links text is found in the cache together with it."""
    text = write(tmp_path / "text.cu", 3).read_text()
    path = program(tmp_path / "A", name, f"cuda.CUSource({text!r})", 5)
    for _ in range(2):
        assert ("3", []) == export(path.parent, monkeypatch)
    assert ["f"] == lowered
