"""Compile PTX with a toolkit's ptxas, a process of its own."""

from __future__ import annotations

import functools
import re
import struct
from typing import TYPE_CHECKING

from numba_ptxlink.errors import AssembleError

from . import find, programs

if TYPE_CHECKING:
    from collections.abc import Sequence

# Where the tables of segments and of sections are, with the size and the number of their entries (System V
# gABI, "ELF Header"). A cubin ends with one of them.
_TABLES = struct.Struct("<32xQQ6xHHHH")
_RELEASE = re.compile(r"release (\d+)\.(\d+)")


def newest(most: tuple[int, int]) -> tuple[str, tuple[int, int]] | None:
    """
    Return path and release of the newest ptxas of *most*'s major version and not newer, None without one.

    Of one release, the wheels of this environment come before PATH, which may lead to another toolkit's.
    """
    known: dict[tuple[int, int], str] = {}
    for path in find.programs("ptxas", wheels_first=True):
        match = _RELEASE.search(_version_text(path))
        release = (int(match[1]), int(match[2])) if match else None
        if release and release[0] == most[0] and release <= most:
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
    with programs.folder(AssembleError) as folder:
        ptx, cubin = folder / "code.ptx", folder / "code.cubin"
        ptx.write_bytes(text)
        succeeded, _, log = programs.run([path, *flags, str(ptx), "-o", str(cubin)])
        if not succeeded:
            raise AssembleError(
                f"{path} refused the PTX:\n{log}\nCorrect the PTX, or upgrade the toolkit.",
                flags=tuple(flags),
                log=log,
            )
        code = cubin.read_bytes()
        # On a full disk it writes less, and succeeds.
        segments, sections, *sizes = _TABLES.unpack_from(code.ljust(_TABLES.size, b"\0"))
        ends = (segments + sizes[0] * sizes[1], sections + sizes[2] * sizes[3])
        if not 0 < max(ends) <= len(code):
            raise AssembleError(
                f"{path} wrote no whole cubin; make room in {folder.parent}.", flags=tuple(flags)
            )
        return code


@functools.cache
def _version_text(path: str) -> str:
    return programs.run([path, "--version"])[1]
