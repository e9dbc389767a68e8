"""Run the toolkit's programs in a folder of their own: ptxas, nvdisasm and cuobjdump."""

from __future__ import annotations

import functools
import re
import shutil
import struct
import subprocess
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats.kinds import CUBIN, LTOIR, PTX
from numba_ptxlink.errors import AssembleError, LinkError

from . import find

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numba_ptxlink.errors import PtxlinkError

_SECONDS = 300
# Where the tables of segments and of sections are, with the size and the number of their entries (System V
# gABI, "ELF Header"). A cubin ends with one of them.
_TABLES = struct.Struct("<32xQQ6xHHHH")
_RELEASE = re.compile(r"release (\d+)\.(\d+)")
_LINE = re.compile(r"member .*:(?P<member>.*):|Fatbin (?P<kind>\w+) code:|arch = (?P<arch>\w+)")
# What cuobjdump calls the kinds, and the extension of what it writes of each.
_KINDS = {"elf": CUBIN, "ptx": PTX, "nvvm": LTOIR}
_WRITTEN = re.compile(r"Extracting (?P<kind>ELF|PTX) file .*?(?P<number>\d+): (?P<name>\S+\.(?:cubin|ptx))")
_NOTHING = "does not contain device code"
NO_CUOBJDUMP = "There is no cuobjdump to read it; install it with `pip install nvidia-cuda-cuobjdump`."
_NO_NVDISASM = (
    "There is no nvdisasm for the machine code; install it with `pip install nvidia-cuda-nvdisasm`."
)


@contextmanager
def folder(failure: type[PtxlinkError]) -> Iterator[Path]:
    """
    Yield a new folder, which is deleted afterwards.

    Raises:
        PtxlinkError: As *failure*, that it could not be made, or a file in it not be written or read.
    """
    try:
        with tempfile.TemporaryDirectory() as path:
            yield Path(path)
    except OSError as error:
        where = tempfile.tempdir or "the directories for temporary files"
        raise failure(
            f"A tool's file in {where} could not be written or read: {error.strerror or error}; make room "
            "there, or let TMPDIR name a directory of another disk."
        ) from error


def run(command: Sequence[str], cwd: Path | None = None) -> tuple[bool, str, str]:
    """Run *command*; return whether it succeeded, its standard output, and why it failed."""
    try:
        done = subprocess.run(  # noqa: S603 - programs that the user named or installed
            list(command),
            cwd=cwd,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, "", str(error)
    log = (done.stderr + done.stdout).strip() or f"exit status {done.returncode}"
    return not done.returncode, done.stdout, log if done.returncode else ""


def version_text(program: str, *arguments: str) -> str:
    """Return what a program says of its version."""
    # PATH may lead to another one later.
    return _version_text(shutil.which(program) or program, *arguments)


@functools.cache
def _version_text(*command: str) -> str:
    return run([*command, "--version"])[1]


def release(*command: str) -> tuple[int, int] | None:
    """Return the CUDA release of a program, None where it names none."""
    match = _RELEASE.search(version_text(*command))
    return (int(match[1]), int(match[2])) if match else None


def newest_ptxas(max_release: tuple[int, int]) -> tuple[str, tuple[int, int]] | None:
    """
    Return path and release of the newest ptxas up to *max_release*, of its major version; None without one.

    Of one release, the wheels of this environment come before PATH, which may lead to another toolkit's.
    """
    known: dict[tuple[int, int], str] = {}
    for path in find.programs("ptxas", wheels_first=True):
        found = release(path)
        if found and found[0] == max_release[0] and found <= max_release:
            known.setdefault(found, path)
    newest = max(known, default=None)
    return None if newest is None else (known[newest], newest)


def compile_ptx(path: str, text: bytes, flags: Sequence[str]) -> bytes:
    """
    Return the cubin of the PTX *text*. Needs no driver; thread-safe.

    Raises:
        AssembleError: The ptxas at *path* refused the PTX or a flag, or could not be run. Carries its log.
    """
    with folder(AssembleError) as place:
        ptx, cubin = place / "code.ptx", place / "code.cubin"
        ptx.write_bytes(text)
        succeeded, _, log = run([path, *flags, str(ptx), "-o", str(cubin)])
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
                f"{path} wrote no whole cubin; make room in {place.parent}.", flags=tuple(flags)
            )
        return code


def disassemble(code: bytes) -> tuple[str, str]:
    """Return nvdisasm's text of a cubin, and the reason if there is none."""
    tool = find.program("nvdisasm")
    if tool is None:
        return "", _NO_NVDISASM
    with folder(LinkError) as place:
        (place / "code.cubin").write_bytes(code)
        succeeded, text, log = run([tool, "-c", "code.cubin"], place)
    return (text, "") if succeeded else ("", f"{tool} failed: {log}")


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
    with folder(LinkError) as place:
        (place / "code.a").write_bytes(code)
        listed = _cuobjdump([tool, "-all", "code.a"], place, name)
        told = _cuobjdump([tool, "-all", "-xelf", "all", "-xptx", "all", "code.a"], place, name)
        files = {
            (_KINDS[match["kind"].lower()], int(match["number"])): match["name"]
            for match in _WRITTEN.finditer(told)
        }
        # Of two pieces of one name, the second takes the place of the first.
        names = Counter(files.values())
        written = {key: (place / file).read_bytes() for key, file in files.items() if names[file] == 1}
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


def _cuobjdump(command: list[str], place: Path, name: str) -> str:
    succeeded, text, log = run(command, place)
    if _NOTHING in text + log:
        return ""
    if not succeeded:
        log = log.replace(str(place / "code.a"), name)
        raise LinkError(f"{name} is not read: {log}; generate or copy it again.", inputs=(name,))
    return text
