"""The example that links at run time, built with g++ and what wheels bring."""

from __future__ import annotations

import jit_example
import pytest

import numba_ptxlink as pl


@pytest.mark.slow
def test_the_example_links_without_a_device(tmp_path):
    """LTO-IR and PTX of a function are linked by a C++ program, and the kernel in the cubin is complete."""
    done = jit_example.run(tmp_path, "sm_90", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stdout + done.stderr
    words = [line.partition(":")[0] for line in done.stdout.splitlines() if ": " in line]
    assert words == ["LTO-IR for sm_90", "Not run", "PTX for sm_90", "Not run"]
    for kind in ("lto", "ptx"):
        symbols = {symbol.name: symbol for symbol in pl.inspect(tmp_path / f"{kind}.cubin").symbols}
        assert symbols["apply"].kind == "entry"
        assert all(symbol.defined for symbol in symbols.values()), symbols
    # Link-time optimisation inlines the function; where nvJitLink links PTX it stays a call.
    assert b"transform" not in (tmp_path / "lto.cubin").read_bytes()
    assert b"transform" in (tmp_path / "ptx.cubin").read_bytes()
