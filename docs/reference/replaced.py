"""Writes `replaced.md` out of the tables of replacements: `python docs/reference/replaced.py`."""

import itertools
import sys
from pathlib import Path

from numba_ptxlink._front_end import registry

PAGE = Path(__file__).with_suffix(".md")
HEAD = """\
<!-- Written by docs/reference/replaced.py. -->
# Replaced functions

While the plugin is active, it replaces these attributes of numba-cuda and numba-cuda-mlir, all or none. Most
wrap the original function. `numba_ptxlink.disable()` restores them.

| switch | effect |
| --- | --- |
| `NUMBA_PTXLINK=0`, `disable()` | nothing is replaced |
| `NUMBA_PTXLINK=auto` | nothing is replaced unless the driver is older than the toolkit |
| `NUMBA_PTXLINK_CACHE=0` | all is replaced, and NVVM runs each time |

With a release outside of the ranges below, or one that lacks an attribute, the plugin stays inactive, with a
warning. `status()` has the reason. Exports work without the plugin: during a call they use the rows with an
asterisk.
"""
# The constants of `patches` that an export applies.
EXPORTED = ("C_ABI", "DRIVERLESS", "OPTIMIZE")

COLUMNS = "| module | attribute | for | effect |\n| --- | --- | --- | --- |"


def page() -> str:
    """Return the page's text."""
    parts = [HEAD]
    for front_end in registry.front_ends():
        parts.append(f"## {front_end.name} {front_end.supported}\n")
        for module, rows in itertools.groupby(front_end.table(), key=lambda row: row.wrap.__module__):
            home = sys.modules[module]
            title = (home.__doc__ or "").strip().partition("\n")[0].rstrip(".")
            file = "/".join(module.split(".")[-3:]) + ".py"
            parts.append(f"### {title}\n\nIn `{file}`.\n\n{COLUMNS}")
            exported = [row for name in EXPORTED for row in getattr(home, name, ())]
            for row in rows:
                mark = " \\*" if row in exported else ""
                parts.append(f"| `{row.module}` | `{row.path}`{mark} | {row.purpose} | {row.reason} |")
            parts[-1] += "\n"
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
