"""Python lines and variables in the code of functions with the C ABI, held against numba-cuda's own."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from pathlib import Path

import pytest
from numba import cuda
from numba.cuda import types

import numba_ptxlink as pl
from numba_ptxlink._formats import elf
from numba_ptxlink._formats.ptx import parse, read_header

ARCHS = pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
SIGNATURE = types.float32(types.float32[::1], types.int32, types.float32)


@pytest.fixture(autouse=True)
def _active():
    pl.enable()


def collected(array, count, start):
    """Loop and branch."""
    total = start
    for number in range(count):
        total += array[number]
        if total > 100:
            total -= 7
    return total * (start + 2)


LINES, FIRST = inspect.getsourcelines(collected)


def lines_of(ptx: str) -> Counter[int]:
    """Return how often `.loc` names each line of this file."""
    files = dict(re.findall(r'^\s*\.file\s+(\d+) "([^"]*)"', ptx, re.MULTILINE))
    found = re.findall(r"^\s*\.loc\s+(\d+) (\d+)", ptx, re.MULTILINE)
    return Counter(int(line) for file, line in found if Path(files[file]).name == Path(__file__).name)


def compiled(arch, **options) -> str:
    """Return the PTX of `collected` with the C ABI."""
    return cuda.compile(collected, SIGNATURE, cc=pl.Arch.of(arch).cc, abi="c", **options)[0]


def stock(arch, **options) -> str:
    """Return numba-cuda's own PTX."""
    pl.disable()
    try:
        return compiled(arch, **options)
    finally:
        pl.enable()


@ARCHS
def test_compiled_code_has_the_lines_that_stock_has(arch):
    """Every line has at least as many locations as in numba-cuda's PTX, and the prototype stays."""
    abi_info, options = {"aggregates": "value"}, {"lineinfo": True}
    wanted, ptx = lines_of(stock(arch, **options)), compiled(arch, abi_info=abi_info, **options)
    lines = lines_of(ptx)
    assert set(wanted) <= set(lines)
    assert wanted.total() <= lines.total()
    assert lines.total() >= 10
    prototypes = {each.prototype for each in parse(ptx).functions if each.linkage == "visible"}
    bare = compiled(arch, abi_info=abi_info)
    assert prototypes == {each.prototype for each in parse(bare).functions if each.linkage == "visible"}
    assert not lines_of(bare)


def test_a_debugger_is_left_to_numba_cuda():
    """Full debug information goes with numba-cuda's own prototypes alone."""
    with pytest.raises(pl.AbiError, match=r"abi_info does not go with debug, .*leave one of them out"):
        compiled("sm_90", abi_info={"aggregates": "value"}, debug=True, opt=False)


@ARCHS
@pytest.mark.parametrize("opt", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_an_export_has_lines(arch, opt, tmp_path):
    """Functions, kernels and those with structs map their code to the lines of their body."""

    def store(array, index):
        array[index] = index + 5  # the line that the kernel maps to

    udfs = [
        pl.udf(SIGNATURE, name="plain")(collected),
        pl.udf(SIGNATURE, name="checks", on_error="trap", checked=True)(collected),
        pl.kernel("void(float32[::1], int32)", name="kernel")(store),
    ]
    for udf in udfs:
        exported = pl.export([udf], tmp_path, archs=[arch], emit=["ptx", "cubin"], lineinfo=True, opt=opt)
        ptx = exported.artifacts["ptx", arch].read_text()
        code = udf.function.__code__
        body = {line for _, _, line in code.co_lines() if line and line > code.co_firstlineno}
        assert len(body & set(lines_of(ptx))) >= min(3, len(body))
        sections = {
            section.name for section in elf.read(exported.artifacts["cubin", arch].read_bytes()).sections
        }
        assert {".debug_line", ".nv_debug_line_sass"} <= sections
        without = pl.export([udf], tmp_path / "bare", archs=[arch], emit=["ptx"], opt=opt)
        bare = without.artifacts["ptx", arch].read_text()
        assert not lines_of(bare)
        assert exported.signatures == without.signatures
        assert read_header(ptx).version == read_header(bare).version
