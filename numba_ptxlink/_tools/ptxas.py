"""Compile PTX with a toolkit's ptxas, a process of its own; the only module that runs it."""

from __future__ import annotations

import functools
import re
import subprocess
from typing import TYPE_CHECKING

from numba_ptxlink._formats import elf
from numba_ptxlink.errors import AssembleError, LinkError

from .nvdisasm import find_tools, shortage, tool_folder, write_input

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
    with tool_folder(AssembleError) as folder:
        ptx, cubin = folder / "code.ptx", folder / "code.cubin"
        write_input(ptx, text)
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
                f"{path} refused the PTX:\n{log.strip()}\n"
                f"{shortage(folder) or 'Correct the PTX, or upgrade the toolkit.'}",
                flags=tuple(flags),
                log=log,
            )
        code = cubin.read_bytes()
        try:
            # On a full disk it writes less, and succeeds.
            elf.check_sections(code, "The cubin")
        except elf.UnfamiliarError:
            pass
        except LinkError as error:
            cause = shortage(folder) or "Reinstall the package that it came with."
            raise AssembleError(f"{path} wrote no whole cubin. {cause}", flags=tuple(flags)) from error
        return code


@functools.cache
def _version_text(path: str) -> str:
    try:
        run = subprocess.run(  # noqa: S603 - NVIDIA's own tool
            [path, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout
