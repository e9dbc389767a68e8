"""PTX by Triton and by Warp is read whole, and means the same when it is spelled out."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import cubins
import environments
import pytest
from test_thirdparty import HERE, execute

import numba_ptxlink as pl
from numba_ptxlink._formats import ptx

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the compilers' PTX."""
    path = tmp_path_factory.mktemp("ptx")
    with contextlib.ExitStack() as stack:
        try:
            environments.driver()
            python = stack.enter_context(environments.environment("compilers"))
        except environments.Unavailable as reason:
            pytest.skip(f"no environment: {reason}")
        execute(python, path, "0", "prepare", str(path), str(HERE / "programs" / "assembly.py"))
    return path


@pytest.mark.parametrize("name", ["triton_add", "triton_softmax", "triton_multiply", "warp_kernels"])
def test_ptx_of_others(folder: Path, name: str) -> None:
    """Nothing in it is unknown, and its machine code stays what it is."""
    text = (folder / f"{name}.ptx").read_text()
    module = ptx.parse(text)
    parts = [item for item in module.items if isinstance(item, ptx.Part)]
    assert {"", "line"}.isdisjoint(part.keyword for part in parts)
    assert any(function.kind == "entry" and function.defined for function in module.functions)
    bodies = {each.body_span: ptx.block(each.body) for each in module.functions if each.defined}
    codes = [pl.assemble(each, module.header.target[0]).code for each in (text, module.replace(bodies))]
    assert cubins.code(codes[0]) == cubins.code(codes[1])
