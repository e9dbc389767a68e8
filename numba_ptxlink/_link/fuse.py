"""Make one PTX module of the inputs of a link, with the calls between them inlined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink import cache
from numba_ptxlink._formats.kinds import PTX
from numba_ptxlink._fusion.combine import NotCombinedError, combine
from numba_ptxlink._fusion.inline import inline
from numba_ptxlink.errors import LinkError

from .read import Input

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import Arch


@dataclass(frozen=True)
class Fused:
    """
    The inputs of a link as one.

    Args:
        input: The PTX.
        inlined: How many calls were inlined.
        log: The calls that were not, and why.
    """

    input: Input
    inlined: int
    log: str

    def among(self, inputs: Sequence[Input]) -> tuple[Input, ...]:
        """Return *inputs* with this in the place of their first PTX, and without the others."""
        place = [each.kind for each in inputs].index(PTX)
        return (*inputs[:place], self.input, *(each for each in inputs[place:] if each.kind != PTX))


def fuse(
    inputs: Sequence[Input],
    arch: Arch,
    *,
    everything: bool = False,
    closed: bool = True,
) -> Fused | str:
    """
    Return PTX *inputs* as one module, or the reason why they cannot be.

    Args:
        inputs: Inputs of a link, all of them PTX.
        arch: The architecture of the link.
        everything: Whether to inline every call that can be, not only those between inputs to functions that
            are small or have one caller.
        closed: Whether they are all inputs of the link.

    """
    key = cache.Key.of(
        "fuse",
        {
            "package": cache.key.package_version(),
            "inline": "all" if everything else "auto",
            "closed": str(closed),
            "arch": arch.sm,
            "inputs": [source.code for source in inputs],
        },
    )

    try:
        entry = cache.cached(key, lambda: _fused(inputs, everything=everything, closed=closed))
    except NotCombinedError as error:
        return str(error)
    name = "+".join(source.name for source in inputs)
    return Fused(Input(PTX, name, entry.code), int(entry.meta["inlined"]), entry.log)


def _fused(inputs: Sequence[Input], *, everything: bool, closed: bool) -> cache.Entry:
    try:
        combined = combine([source.module for source in inputs])
        product = inline(combined, everything=everything, closed=closed)
    except LinkError as error:
        # A linker tells what is wrong with PTX that cannot be read here, or reads it.
        raise NotCombinedError(str(error)) from error
    left = "\n".join(f"call not inlined: {reason}" for reason in product.left)
    return cache.Entry({"log": left, "inlined": product.count}, product.text.encode(errors="surrogateescape"))
