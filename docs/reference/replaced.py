"""Write `replaced.md` from the tables of patches of the front ends: `python docs/reference/replaced.py`."""

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
warning. `status()` has the reason. Exports work without the plugin: they apply the rows with an asterisk
during each compilation.
"""
# The tables in the modules of `patches` that an export applies.
EXPORT_TABLES = ("C_ABI", "DRIVERLESS", "CODE_CACHE")

COLUMNS = "| module | attribute | for | effect |\n| --- | --- | --- | --- |"


def page() -> str:
    """Return the page's text."""
    parts = [HEAD]
    for front_end in registry.front_ends():
        parts.append(f"## {front_end.name} {front_end.supported}\n")
        by_module = itertools.groupby(front_end.table(), key=lambda patch: patch.wrap.__module__)
        for module_name, patches in by_module:
            module = sys.modules[module_name]
            title = (module.__doc__ or "").strip().partition("\n")[0].rstrip(".")
            file = "/".join(module_name.split(".")[-3:]) + ".py"
            parts.append(f"### {title}\n\nIn `{file}`.\n\n{COLUMNS}")
            export_patches = [patch for name in EXPORT_TABLES for patch in getattr(module, name, ())]
            for patch in patches:
                asterisk = " \\*" if patch in export_patches else ""
                parts.append(
                    f"| `{patch.module}` | `{patch.path}`{asterisk} | {patch.purpose} | {patch.reason} |"
                )
            parts[-1] += "\n"
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
