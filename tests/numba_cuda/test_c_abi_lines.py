"""Python lines and variables in the code of functions with the C ABI, of exports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from numba import cuda
from numba.cuda import types

import numba_ptxlink as pl
from numba_ptxlink._formats import elf
from numba_ptxlink._formats.ptx import read_header

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


def lines_of(ptx: str) -> set[int]:
    """Return the lines of this file that `.loc` names."""
    files = dict(re.findall(r'^\s*\.file\s+(\d+) "([^"]*)"', ptx, re.MULTILINE))
    locations = re.findall(r"^\s*\.loc\s+(\d+) (\d+)", ptx, re.MULTILINE)
    return {int(line) for file, line in locations if Path(files[file]).name == Path(__file__).name}


def test_a_debugger_is_left_to_numba_cuda():
    """Full debug information needs numba-cuda's own prototypes."""
    options = {"abi_info": {"aggregates": "value"}, "debug": True, "opt": False}
    with pytest.raises(pl.AbiError, match=r"abi_info cannot be combined with debug, .*remove one of them"):
        cuda.compile(collected, SIGNATURE, cc=(9, 0), abi="c", **options)


@ARCHS
@pytest.mark.parametrize("opt", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_an_export_has_lines(arch, opt, tmp_path):
    """Functions, kernels and functions of structs map their code to the lines of their body."""

    def store(array, index):
        array[index] = index + 5  # the line that the kernel maps to

    udfs = [
        pl.udf(SIGNATURE, name="plain")(collected),
        pl.udf(SIGNATURE, name="checks", on_error="trap", checked=True)(collected),
        pl.kernel("void(float32[::1], int32)", name="kernel")(store),
    ]
    for udf in udfs:
        exported = pl.export([udf], tmp_path, arch=[arch], emit=["ptx", "cubin"], lineinfo=True, opt=opt)
        ptx = exported.artifacts["ptx", arch].read_text()
        code = udf.function.__code__
        body = {line for _, _, line in code.co_lines() if line and line > code.co_firstlineno}
        assert len(body & lines_of(ptx)) >= min(3, len(body))
        sections = {
            section.name for section in elf.read(exported.artifacts["cubin", arch].read_bytes()).sections
        }
        assert {".debug_line", ".nv_debug_line_sass"} <= sections
        without = pl.export([udf], tmp_path / "bare", arch=[arch], emit=["ptx"], opt=opt)
        bare = without.artifacts["ptx", arch].read_text()
        assert not lines_of(bare)
        assert exported.signatures == without.signatures
        assert read_header(ptx).version == read_header(bare).version
