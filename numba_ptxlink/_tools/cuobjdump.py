"""Take the device code out of fat binaries, host files and libraries with cuobjdump."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats.kinds import CUBIN, LTOIR, PTX
from numba_ptxlink.errors import LinkError

from . import find, programs

if TYPE_CHECKING:
    from pathlib import Path

MISSING = "There is no cuobjdump to read it; install it with `pip install nvidia-cuda-cuobjdump`."
_LINE = re.compile(r"member .*:(?P<member>.*):|Fatbin (?P<kind>\w+) code:|arch = (?P<arch>\w+)")
# What it calls the kinds, and the extension of what it writes of each.
_KINDS = {"elf": CUBIN, "ptx": PTX, "nvvm": LTOIR}
_WRITTEN = re.compile(r"Extracting (?P<kind>ELF|PTX) file .*?(?P<number>\d+): (?P<name>\S+\.(?:cubin|ptx))")
_NOTHING = "does not contain device code"


class Piece(NamedTuple):
    """
    A piece of device code.

    Args:
        member: The member of a library that it is in, or "".
        kind: "cubin", "ptx" or "ltoir", or what cuobjdump calls it.
        arch: The architecture it is for.
        code: It, None for what cuobjdump does not write.
    """

    member: str
    kind: str
    arch: str
    code: bytes | None


def pieces(code: bytes, name: str) -> list[Piece] | None:
    """
    Return the device code in a fat binary, a host file or a library; None where there is no cuobjdump.

    Args:
        code: Its content.
        name: Its name in messages.

    Raises:
        LinkError: cuobjdump does not read it.
    """
    tool = find.program("cuobjdump")
    if tool is None:
        return None
    with programs.folder(LinkError) as folder:
        (folder / "code.a").write_bytes(code)
        listed = _run([tool, "-all", "code.a"], folder, name)
        told = _run([tool, "-all", "-xelf", "all", "-xptx", "all", "code.a"], folder, name)
        files = {
            (_KINDS[match["kind"].lower()], int(match["number"])): match["name"]
            for match in _WRITTEN.finditer(told)
        }
        # Of two pieces of one name, the second takes the place of the first.
        names = Counter(files.values())
        written = {key: (folder / file).read_bytes() for key, file in files.items() if names[file] == 1}
    found: list[Piece] = []
    counts: Counter[str] = Counter()
    member = kind = ""
    for match in _LINE.finditer(listed):
        member = match["member"] or member
        kind = match["kind"] or kind
        if match["arch"]:
            named = _KINDS.get(kind, kind)
            counts[named] += 1
            found.append(Piece(member, named, match["arch"], written.get((named, counts[named]))))
    return found


def _run(command: list[str], folder: Path, name: str) -> str:
    succeeded, text, log = programs.run(command, folder)
    if _NOTHING in text + log:
        return ""
    if not succeeded:
        log = log.replace(str(folder / "code.a"), name)
        raise LinkError(f"{name} is not read: {log}; generate or copy it again.", inputs=(name,))
    return text
