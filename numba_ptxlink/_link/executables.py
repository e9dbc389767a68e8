"""Make what a driver loads of the PTX of kernels: a fat binary of machine code, and PTX for later devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba_ptxlink._formats.kinds import CUBIN, PTX
from numba_ptxlink._tools import nvfatbin
from numba_ptxlink._tools.ptxas_options import AssembleOptions
from numba_ptxlink.errors import ExportError

from . import single_ptx

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cabi.types import Signature

    Part = tuple[Arch, bytes, Sequence[str]]
    """What is there for one architecture: its PTX, and the symbols that this does not define."""


def pack(
    stem: str, parts: Sequence[Part], signatures: Sequence[Signature], *, level: int, lineinfo: bool
) -> bytes:
    """
    Return the fat binary of *parts*. Needs no driver.

    Args:
        stem: What its members are called.
        parts: The code.
        signatures: The functions of the export.
        level: How much is optimised, 0 or 3.
        lineinfo: Whether to keep line numbers.

    Raises:
        ExportError: There is no kernel, or what the kernels call is not defined.
        AssembleError: The PTX could not be assembled.
    """
    if not any(signature.kernel for signature in signatures):
        raise ExportError("The export has no kernel to launch; mark one with @kernel(signature).")
    members = []
    for arch, ptx, undefined in parts:
        if undefined:
            raise ExportError(_incomplete(undefined))
        options = AssembleOptions(relocatable=False, opt_level=level, lineinfo=lineinfo)
        cubin, _ = single_ptx.compile_ptx(ptx, arch, options)
        members += [
            (CUBIN, arch, f"{stem}.{arch.sm}.cubin", cubin),
            # A device of a later generation compiles it when the kernel is loaded.
            (PTX, arch, f"{stem}.{arch.sm}.ptx", ptx),
        ]
    return nvfatbin.pack(members, relocatable=False)


def _incomplete(undefined: Sequence[str]) -> str:
    """Return why code with *undefined* symbols is not loaded, and what helps."""
    if all(name.startswith("cudaCG") for name in undefined):
        return (
            "A kernel that synchronises the whole grid has to be launched cooperatively, which neither "
            "load() nor a launcher does; link() the exported PTX to a cubin, and launch it by cuda.core."
        )
    return (
        f"{', '.join(sorted(undefined))} is not defined, and code that a driver loads has to be complete; "
        "name the file that defines it by link= of cuda.declare_device, or link() a cubin."
    )
