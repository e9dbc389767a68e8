"""PTX of one function or kernel as a cubin or a fat binary, for `cuda.compile` of a front end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_ptxlink._formats.kinds import CUBIN, LTOIR, PTX
from numba_ptxlink._formats.ptx import parse
from numba_ptxlink._link import single_ptx
from numba_ptxlink._tools import nvfatbin
from numba_ptxlink._tools.options import AssembleOptions

from . import externs

if TYPE_CHECKING:
    from numba_ptxlink._arch import Arch


def binary(
    ptx: bytes, arch: Arch, output: str, *, device: bool, ltoir: bytes | None = None, **options: Any
) -> bytes:
    """
    Return *ptx* as a cubin, or as a fat binary with that and, where there is any, *ltoir*.

    Args:
        ptx: One module.
        arch: The GPU.
        output: `CUBIN` or `FATBIN`.
        device: Whether it is a function, which is always linked.
        ltoir: The same as LTO-IR.
        options: Those of `AssembleOptions` but `relocatable`.
    """
    # A kernel without undefined symbols can be loaded without linking.
    relocatable = device or not externs.is_complete(parse(ptx.decode()))
    cubin, _ = single_ptx.compile_ptx(ptx, arch, AssembleOptions(relocatable=relocatable, **options))
    if output == CUBIN:
        return cubin
    entries = [(PTX, arch, PTX, ptx), (CUBIN, arch, CUBIN, cubin)]
    return nvfatbin.pack([*entries, (LTOIR, arch, LTOIR, ltoir)] if ltoir else entries)
