"""
Start Python without and with the import hook of this package.

`prepare` writes two folders of links to the installed packages and their .pth files: "with", and "without"
this package. A process starts Python many times, since a start takes a few milliseconds.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import sysconfig
from pathlib import Path

import timing

STARTS = 20


def prepare() -> None:
    """Make the folders."""
    purelib = Path(sysconfig.get_path("purelib"))
    for name in ("without", "with"):
        Path(name).mkdir()
        for entry in purelib.iterdir():
            if name == "with" or "numba_ptxlink" not in entry.name:
                Path(name, entry.name).symlink_to(entry)


def start_python(folder: str) -> timing.Seconds:
    """Return the seconds of a start with the packages of *folder*."""
    code = f"import site; site.addsitedir({folder!r})"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall, _ = timing.time_call(
        lambda: subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True)
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare()
    else:
        timing.print_figures(
            {
                "a start": timing.median(
                    [start_python(str(Path(sys.argv[1]).resolve())) for _ in range(STARTS)]
                )
            }
        )
