"""Compile PTX with a toolkit's ptxas, a process of its own; the only module that runs it."""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from numba_ptxlink.errors import AssembleError

from .nvdisasm import find_tools

if TYPE_CHECKING:
    from collections.abc import Sequence

_RELEASE = re.compile(r"release (\d+)\.(\d+)")
_SECONDS = 60


def find(newest: tuple[int, int]) -> tuple[str, tuple[int, int]] | None:
    """
    Return path and release of the newest ptxas of *newest*'s major version and not newer, None without one.

    Of one release, the wheels of this environment come before PATH, which may lead to another toolkit's.
    """
    known: dict[tuple[int, int], str] = {}
    for path in find_tools("ptxas", wheels_first=True):
        match = _RELEASE.search(_version_text(path))
        release = (int(match[1]), int(match[2])) if match else None
        if release and release[0] == newest[0] and release <= newest:
            known.setdefault(release, path)
    release = max(known, default=None)
    return None if release is None else (known[release], release)


def identity(path: str) -> tuple[str, ...]:
    """Return name, version and build of the ptxas at *path*, which identify it in keys."""
    return ("ptxas", _version_text(path))


def compile_ptx(path: str, text: bytes, flags: Sequence[str]) -> bytes:
    """
    Return the cubin of the PTX *text*. Needs no driver; thread-safe.

    Raises:
        AssembleError: The ptxas at *path* refused the PTX or a flag, or could not be run. Carries its log.
    """
    with tempfile.TemporaryDirectory() as folder:
        ptx, cubin = Path(folder, "code.ptx"), Path(folder, "code.cubin")
        ptx.write_bytes(text)
        try:
            run = subprocess.run(  # noqa: S603 - NVIDIA's own tool
                [path, *flags, str(ptx), "-o", str(cubin)],
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise AssembleError(
                f"{path} could not be run ({error}); reinstall the package that it came with.",
                flags=tuple(flags),
            ) from error
        if run.returncode:
            log = run.stderr + run.stdout
            raise AssembleError(
                f"{path} refused the PTX:\n{log.strip()}\nCorrect the PTX, or upgrade the toolkit.",
                flags=tuple(flags),
                log=log,
            )
        return cubin.read_bytes()


@functools.cache
def _version_text(path: str) -> str:
    try:
        run = subprocess.run(  # noqa: S603 - NVIDIA's own tool
            [path, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout
