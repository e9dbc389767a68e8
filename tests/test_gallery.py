"""The programs of the gallery, without a device; and their page."""

from __future__ import annotations

import re
import runpy

import cuda_toolkit
import gallery
import pytest

import numba_ptxlink as pl
from numba_ptxlink._cpu import device


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in gallery.PROGRAMS if name not in ("cub", "jit")])
def test_a_program_links_without_a_device(name, tmp_path):
    """A program links, compares results of the CPU or says that it did not run, and exits with 0."""
    output = gallery.run(name, tmp_path, "sm_90", CUDA_VISIBLE_DEVICES="")
    assert re.search(f"^{gallery.PROGRAMS[name].on_cpu}", output, re.MULTILINE), output
    assert re.search(gallery.PROGRAMS[name].linked, output), output


@pytest.mark.slow
def test_the_program_that_links_at_run_time(tmp_path):
    """The kernel is complete, and link-time optimisation inlines the function that it calls."""
    output = gallery.run("jit", tmp_path, "sm_90", CUDA_VISIBLE_DEVICES="")
    assert re.search(gallery.PROGRAMS["jit"].linked, output), output
    for kind in ("lto", "ptx"):
        symbols = {symbol.name: symbol for symbol in pl.inspect(tmp_path / "out" / f"{kind}.cubin").symbols}
        assert symbols["apply"].kind == "entry"
        assert all(symbol.defined for symbol in symbols.values()), symbols
        assert ("transform" in symbols) is (kind == "ptx")


def test_the_program_that_links_at_run_time_runs_on_the_cpu(tmp_path):
    """The program links to PTX, which the CPU device runs, and finds no wrong element."""
    if not device._libpython():
        pytest.skip("this Python has no shared library")
    output = gallery.run("jit", tmp_path, "sm_90", target="cpu")
    assert re.search(r"\nLTO-IR for sm_90: \d+ bytes of PTX\n0 elements are wrong\n$", output), output


@pytest.mark.slow
def test_functions_are_inlined_into_the_kernels_of_cub(tmp_path):
    """The program with CUB's algorithms is built, and all Python functions are inlined."""
    output = gallery.run("cub", tmp_path, "sm_90", CUDA_VISIBLE_DEVICES="")
    assert output.endswith("\nNot run: there is no GPU\n")
    (functions,) = cuda_toolkit.linked_functions(tmp_path / "out" / "main").values()
    assert any("transform_kernel" in function for function in functions)
    assert not {"squash", "farther"} & functions


@pytest.mark.slow
def test_a_kernel_of_triton_is_linked_again_after_an_edit(tmp_path, monkeypatch):
    """Triton's cache serves the same function to another process, and not one that has been edited."""
    script = tmp_path / "damped.py"
    monkeypatch.setitem(gallery.PROGRAMS, "triton", gallery.PROGRAMS["triton"]._replace(file=str(script)))
    links = []
    for divisor in ("(1 + abs(x))", "(1 + abs(x))", "(2 + abs(x))"):
        source = (gallery.EXAMPLES / "triton" / "damped.py").read_text()
        script.write_text(source.replace("(1 + abs(x))", divisor))
        output = gallery.run("triton", tmp_path, "sm_90", CUDA_VISIBLE_DEVICES="")
        links.append("2 calls inlined" in output)
    assert [True, False, True] == links


def test_the_page_lists_each_program():
    """The table of the gallery has the program of each folder of examples, and a sentence about it."""
    table = runpy.run_path(str(gallery.ROOT / "docs" / "tables.py"))["gallery"]()
    rows = re.findall(r"^\| `examples/(\w+)/\S+` \| (.+)\. \|$", table, re.MULTILINE)
    assert [folder.name for folder in sorted(gallery.EXAMPLES.iterdir())] == [name for name, _ in rows]
    assert all(len(sentence.split()) > 5 for _, sentence in rows)
