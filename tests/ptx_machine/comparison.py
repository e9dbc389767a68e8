"""Modules executed as they are, and as the one that the package makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from cuda_cxx import ptx
from emulator import Machine, PtxError, parse

import numba_ptxlink as pl
from numba_ptxlink._link.backends import Target
from numba_ptxlink._link.fuse import fuse
from numba_ptxlink._link.read import Input
from numba_ptxlink._tools.options import Options

if TYPE_CHECKING:
    from collections.abc import Sequence

ARCH = "sm_90"
COUNT = 3


@dataclass(frozen=True)
class Launch:
    """
    How a program is executed.

    Args:
        lanes: The size of the block.
        size: Bytes of the array that the kernel `k` gets the address of, before the integer `COUNT`.
        variables: Global variables that are compared besides the array, with their sizes.
    """

    lanes: int
    size: int
    variables: tuple[tuple[str, int], ...] = ()

    def run(self, texts: Sequence[str], **options: object) -> tuple[np.ndarray, np.ndarray]:
        """Return the bytes that the modules write, and which of their bits are defined."""
        machine = Machine(*map(_parsed, texts), **options)
        array = machine.array(np.zeros(self.size, np.uint8))
        machine.launch("k", 1, self.lanes, [array, np.int32(COUNT)])
        variables = [(array, self.size), *((machine.variable(name), size) for name, size in self.variables)]
        values = np.concatenate([machine.read(address, size) for address, size in variables])
        defined = np.concatenate([machine.defined(address, size) for address, size in variables])
        # The steps refer to the machine: without them its memory is freed here, and not by a later garbage
        # collection.
        machine.steps.clear()
        return values, defined


# A program is executed more than once, and most of it is reading.
_parsed = lru_cache(8)(parse)


@cache
def compiled(source: str) -> str:
    """Return CUDA C++ as PTX."""
    return ptx(source, "sm_80", "-w")


def fused(texts: Sequence[str], *, everything: bool) -> str:
    """Return the one module that the package makes of some."""
    inputs = [Input("ptx", f"{number}.ptx", text.encode()) for number, text in enumerate(texts)]
    options = Options(inline="all" if everything else "auto", backend="auto")
    fusion = fuse(inputs, Target(pl.Arch.of(ARCH)), options)
    assert fusion.merged_names, fusion.reason
    return fusion.inputs[0].code.decode()


def certain(launch: Launch, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """
    Return the bytes that modules write, which bits are defined, and which stay so as ptxas treats them.

    None do where an address or an atomic operation hangs on the others.
    """
    values, known = launch.run(texts)
    try:
        return values, known, known & launch.run(texts, poison=True)[1]
    except PtxError:
        return values, known, np.zeros_like(known)


def difference(launch: Launch, texts: Sequence[str], text: str, *, poison: bool = True) -> str:
    """
    Return where the bits that modules define are others in the one *text* made of them, "" if nowhere.

    What nothing stored to is zeros in one execution of the fused text, and in another ones, where undefined
    registers spread as in ptxas, with *poison*.
    """
    expected, known, certainly = certain(launch, texts)
    poison = poison and certainly.any()
    second = {"fill": 255, "poison": poison}
    for options, defined_before in ({"fill": 0}, known), (second, certainly if poison else known):
        try:
            values, defined = launch.run([text], **options)
        except Exception as error:  # noqa: BLE001 - whatever it is, the modules do not
            return f"{type(error).__name__}: {error}"
        wrong_bits = {"other": (values ^ expected) & known, "undefined": defined_before & ~defined}
        for problem, wrong in wrong_bits.items():
            if wrong.any():
                offset = int(np.argmax(wrong != 0))
                return f"{problem} bits {wrong[offset]:#04x} in byte {offset}, {options}"
    return ""
