"""
Link wrongly and for unknown architectures with the toolkit of the environment that runs this.

Print, as JSON, what became of each step: "done", or how the error begins.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import numba_ptxlink as pl
from numba_ptxlink._tools import nvrtc

if TYPE_CHECKING:
    from collections.abc import Callable

CALLER = """
extern "C" __device__ {0} damp({0}, int);
extern "C" __global__ void k({0}* p) {{ p[0] = damp(p[0], 3); }}
"""
DAMP = 'extern "C" __device__ float damp(float x, int n) { return x * n; }\n'


def outcome(step: Callable[[], object]) -> str:
    """Return "done", or how the error of *step* begins."""
    try:
        step()
    except pl.PtxlinkError as error:
        return str(error).splitlines()[0]
    return "done"


def main() -> None:
    """Print the outcomes."""
    ltoir = nvrtc.compile_source(DAMP, "damp.cu", pl.Arch(8, 0), output="ltoir").code
    sys.stdout.write(
        json.dumps(
            {
                "right": outcome(lambda: pl.link(CALLER.format("float"), ltoir, arch="sm_80")),
                "wrong": outcome(lambda: pl.link(CALLER.format("double"), ltoir, arch="sm_80")),
                # After a link with link-time optimisation, nvJitLink 12.9 stops the process for it.
                "unknown": outcome(lambda: pl.link(ltoir, arch="sm_119")),
                "doctor": outcome(pl.diagnose),
                "note": pl.inspect(ltoir, sass=False).notes[0],
            }
        )
    )


if __name__ == "__main__":
    main()
