"""
Link two PTX modules, or two LTO-IR modules, to a cubin: by `link()`, or by nvJitLink only.

Each pair is linked once in a process, after a link that loads the tool. `prepare` writes the inputs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import texts
import timing

import tools

ARCH = "sm_90"
LTO_PAIR = "LTO-IR, 10 functions"


def main(tool: str) -> None:
    """Link all pairs by *tool*."""
    inputs = {
        name: tuple(Path(f"{number}.{side}").read_bytes() for side in "ab")
        for number, name in enumerate((*texts.PAIRS, LTO_PAIR))
    }

    def link(name: str) -> object:
        is_lto = name == LTO_PAIR
        if tool == "nvJitLink":
            return tools.link_by_nvjitlink(inputs[name], ARCH, lto=is_lto)
        import numba_ptxlink

        return numba_ptxlink.link(*inputs[name], arch=ARCH, lto=is_lto).cubin

    names = [*inputs]
    first_link = timing.time_call(lambda: link(names[0]))
    if tool != "nvJitLink":
        import numba_ptxlink

        # link() links PTX without nvJitLink. Load nvJitLink now, so that the link of LTO-IR need not.
        numba_ptxlink.link(*inputs[names[0]], arch=ARCH, backend="nvjitlink")
    figures = {name: timing.time_call(lambda name=name: link(name)) for name in names[1:]}
    timing.print_figures({"1 function, the tool's first link": first_link, **figures})


def prepare() -> None:
    """Write the inputs."""
    for number, name in enumerate((*texts.PAIRS, LTO_PAIR)):
        pair = texts.make_pair("10 functions" if name == LTO_PAIR else name, ARCH, lto=name == LTO_PAIR)
        for side, code in zip("ab", pair, strict=True):
            Path(f"{number}.{side}").write_bytes(code)


if __name__ == "__main__":
    prepare() if sys.argv[1] == "prepare" else main(sys.argv[1])
