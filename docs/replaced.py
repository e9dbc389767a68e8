"""Writes `replaced.md` out of the table of replacements: `python docs/replaced.py`."""

import itertools
import sys
from pathlib import Path

from numba_ptxlink._numba_cuda import release
from numba_ptxlink._numba_cuda.patches.table import TABLE

PAGE = Path(__file__).with_suffix(".md")
HEAD = """\
<!-- Written by docs/replaced.py. -->
# What is replaced in numba-cuda

While the plugin is active, these attributes of numba-cuda are its own. Each is wrapped: numba-cuda's function
is called where that is of use, and `numba_ptxlink.disable()` puts back every one. This release knows
numba-cuda {low} and later, before {high}; with any other the plugin stays inactive, with a warning.

| switch | what it leaves |
| --- | --- |
| `NUMBA_PTXLINK=0`, `disable()` | nothing is replaced |
| `NUMBA_PTXLINK=auto` | nothing is replaced unless the driver is older than the toolkit |
| `NUMBA_PTXLINK_CACHE=0` | all is replaced, and NVVM runs each time |

`numba_ptxlink.export` and `numba-ptxlink export` work without the plugin. For the length of a call they need
the rows marked with an asterisk.
"""


def page() -> str:
    """Return the page's text."""
    from numba_ptxlink._numba_cuda.patches.corrections import CODE
    from numba_ptxlink._numba_cuda.patches.driverless import DRIVERLESS
    from numba_ptxlink._numba_cuda.patches.nvvm_cache import NVVM

    low, high = (".".join(map(str, bound)) for bound in (release.SUPPORTED.first, release.SUPPORTED.below))
    parts = [HEAD.format(low=low, high=high)]
    for module, rows in itertools.groupby(TABLE, key=lambda row: row.wrap.__module__):
        title = (sys.modules[module].__doc__ or "").strip().partition("\n")[0].rstrip(".")
        file = "/".join(module.split(".")[-3:]) + ".py"
        parts.append(f"## {title}\n\nIn `{file}`.\n\n| module | attribute | why |\n| --- | --- | --- |")
        for row in rows:
            mark = " \\*" if row in (*DRIVERLESS, *NVVM, *CODE) else ""
            parts.append(f"| `{row.module}` | `{row.path}`{mark} | {row.reason} |")
        parts[-1] += "\n"
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
