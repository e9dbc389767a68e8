"""
Link two PTX modules, or two LTO-IR modules, to a cubin: by `link()`, or by nvJitLink only.

The first pair is linked once, which also loads the tool. A process links three variants of each other pair;
the shortest link counts. `prepare` writes the inputs.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import texts
import timing

import tools

ARCH = "sm_90"
LTO_PAIR = "LTO-IR, 10 functions"
NAMES = (*texts.PAIRS, LTO_PAIR)
VARIANTS = range(3)


def main(tool: str) -> None:
    """Link all pairs by *tool*."""
    inputs = {
        (name, variant): tuple(Path(f"{number}.{variant}.{side}").read_bytes() for side in "ab")
        for number, name in enumerate(NAMES)
        for variant in VARIANTS
    }

    def link(name: str, variant: int) -> object:
        is_lto = name == LTO_PAIR
        if tool == "nvJitLink":
            return tools.link_by_nvjitlink(inputs[name, variant], ARCH, lto=is_lto)
        import numba_ptxlink

        return numba_ptxlink.link(*inputs[name, variant], arch=ARCH, lto=is_lto).cubin

    first_link = timing.time_call(lambda: link(NAMES[0], 0))
    if tool != "nvJitLink":
        import numba_ptxlink

        # link() links PTX without nvJitLink. Load nvJitLink now, so that the link of LTO-IR need not.
        numba_ptxlink.link(*inputs[NAMES[0], 0], arch=ARCH, backend="nvjitlink")
    figures = {}
    for name in NAMES[1:]:
        links = [functools.partial(link, name, variant) for variant in VARIANTS]
        figures[name] = timing.shortest([*map(timing.time_call, links)])
    timing.print_figures({"1 function, the tool's first link": first_link, **figures})


def prepare() -> None:
    """Write the inputs."""
    for number, name in enumerate(NAMES):
        is_lto = name == LTO_PAIR
        for variant in VARIANTS:
            pair = texts.make_pair("10 functions" if is_lto else name, ARCH, variant, lto=is_lto)
            for side, code in zip("ab", pair, strict=True):
                Path(f"{number}.{variant}.{side}").write_bytes(code)


if __name__ == "__main__":
    prepare() if sys.argv[1] == "prepare" else main(sys.argv[1])
