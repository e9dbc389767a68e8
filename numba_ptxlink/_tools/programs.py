"""Run compilers and the toolkit's programs ptxas, nvdisasm and cuobjdump, with files in temporary folders."""

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

# A program that takes longer is taken to hang, and is killed.
_TIMEOUT_SECONDS = 300
# Fields of the ELF header (System V gABI, "ELF Header"): the offset of the table of segments, and that of the
# table of sections; then, of each table, the size of an entry and the number of entries. A cubin ends with
# one of the two tables.
_ELF_TABLES = struct.Struct("<32xQQ6xHHHH")
# A part of a line such as "Cuda compilation tools, release 13.0, V13.0.48".
_RELEASE = re.compile(r"release (\d+)\.(\d+)")
# Lines of cuobjdump's list of the pieces of device code in a file: "member code.a:b.o:", "Fatbin elf code:"
# and "arch = sm_90".
_LISTED_LINE = re.compile(r"member .*:(?P<member>.*):|Fatbin (?P<kind>\w+) code:|arch = (?P<arch>\w+)")
# Kinds of code by cuobjdump's names for them.
_KIND_NAMES = {"elf": CUBIN, "ptx": PTX, "nvvm": LTOIR}
# "Extracting ELF file    1: a.sm_90.cubin"; the pieces of each kind are numbered from 1.
_EXTRACTED_FILE = re.compile(
    r"Extracting (?P<kind>ELF|PTX) file .*?(?P<number>\d+): (?P<name>\S+\.(?:cubin|ptx))"
)
_NO_DEVICE_CODE = "does not contain device code"
NO_CUOBJDUMP = "No cuobjdump is installed, which reads the file; run `pip install nvidia-cuda-cuobjdump`."
_NO_NVDISASM = "No nvdisasm is installed, which disassembles cubins; run `pip install nvidia-cuda-nvdisasm`."


@contextmanager
def folder(error_class: type[PtxlinkError]) -> Iterator[Path]:
    """
    Yield a new folder, which is deleted after the `with` block.

    Raises:
        PtxlinkError: The folder or a file in it could not be written or read; the error is an *error_class*.
    """
    try:
        with tempfile.TemporaryDirectory() as path:
            yield Path(path)
    except OSError as error:
        temporary = tempfile.tempdir or "the directories for temporary files"
        raise error_class(
            f"A tool's file in {temporary} could not be written or read: {error.strerror or error}; make "
            "room there, or set TMPDIR to a directory of another disk."
        ) from error


def run(command: Sequence[str], cwd: Path | None = None) -> tuple[bool, str, str]:
    """Run *command*; return whether it succeeded, its standard output, and its log if it failed, else ""."""
    try:
        process = subprocess.run(  # noqa: S603 - programs that the user named or installed
            list(command),
            cwd=cwd,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, "", str(error)
    log = (process.stderr + process.stdout).strip() or f"exit status {process.returncode}"
    return not process.returncode, process.stdout, log if process.returncode else ""


def version_text(program: str, *arguments: str) -> str:
    """Return what a program prints for --version; "" if it cannot be run."""
    # Cached by the path of the program, since a name on PATH may mean another program later.
    return _version_text(shutil.which(program) or program, *arguments)


@functools.cache
def _version_text(*command: str) -> str:
    return run([*command, "--version"])[1]


def release(*command: str) -> tuple[int, int] | None:
    """Return the CUDA release of a program; None if it prints none."""
    match = _RELEASE.search(version_text(*command))
    return (int(match[1]), int(match[2])) if match else None


def newest_ptxas(max_release: tuple[int, int]) -> tuple[str, tuple[int, int]] | None:
    """
    Return the path and the release of the newest suitable ptxas; None if there is none.

    A ptxas is suitable if it has the major version of *max_release* and is not newer. If a wheel and PATH
    have the same release, the ptxas in the wheel is returned.
    """
    paths_by_release: dict[tuple[int, int], str] = {}
    for path in find.programs("ptxas", wheels_first=True):
        ptxas_release = release(path)
        if ptxas_release and ptxas_release[0] == max_release[0] and ptxas_release <= max_release:
            paths_by_release.setdefault(ptxas_release, path)
    newest = max(paths_by_release, default=None)
    return None if newest is None else (paths_by_release[newest], newest)


def run_ptxas(path: str, text: bytes, flags: Sequence[str]) -> bytes:
    """
    Return the cubin of the PTX *text*. Needs no driver; thread-safe.

    Raises:
        AssembleError: The ptxas at *path* rejected the PTX or a flag, or could not be run. The error has the
            log.
    """
    with folder(AssembleError) as directory:
        ptx, cubin = directory / "code.ptx", directory / "code.cubin"
        ptx.write_bytes(text)
        succeeded, _, log = run([path, *flags, str(ptx), "-o", str(cubin)])
        if not succeeded:
            raise AssembleError(
                f"{path} rejected the PTX:\n{log}\nCorrect the PTX, or upgrade the toolkit.",
                flags=tuple(flags),
                log=log,
            )
        code = cubin.read_bytes()
        # On a full disk, ptxas writes a part of the cubin and reports success.
        header = code.ljust(_ELF_TABLES.size, b"\0")
        segment_offset, section_offset, segment_size, segment_count, section_size, section_count = (
            _ELF_TABLES.unpack_from(header)
        )
        segments_end = segment_offset + segment_size * segment_count
        sections_end = section_offset + section_size * section_count
        if not 0 < max(segments_end, sections_end) <= len(code):
            raise AssembleError(
                f"{path} wrote an incomplete cubin; make room in {directory.parent}.", flags=tuple(flags)
            )
        return code


def disassemble(code: bytes) -> tuple[str, str]:
    """Return nvdisasm's text of a cubin and ""; or, if it fails or is missing, "" and the reason."""
    tool = find.program("nvdisasm")
    if tool is None:
        return "", _NO_NVDISASM
    with folder(LinkError) as directory:
        (directory / "code.cubin").write_bytes(code)
        succeeded, text, log = run([tool, "-c", "code.cubin"], directory)
    return (text, "") if succeeded else ("", f"{tool} failed: {log}")


class Piece(NamedTuple):
    """
    A piece of device code.

    Args:
        member: The member of a library (.a) that contains the code; "" if the file is no library.
        kind: "cubin", "ptx" or "ltoir"; for another kind, cuobjdump's name.
        arch: The architecture of the code, such as "sm_90".
        code: The code; None if cuobjdump does not write it to a file, or overwrites that file.
    """

    member: str
    kind: str
    arch: str
    code: bytes | None


def pieces(code: bytes, name: str) -> list[Piece] | None:
    """
    Return the device code in a fat binary, an object or program of the host, or a library.

    Return None if no cuobjdump is installed.

    Args:
        code: The content.
        name: The name in messages.

    Raises:
        LinkError: cuobjdump does not read the file.
    """
    tool = find.program("cuobjdump")
    if tool is None:
        return None
    with folder(LinkError) as directory:
        # cuobjdump goes by the content of a file, not by its suffix.
        (directory / "code.a").write_bytes(code)
        listing = _run_cuobjdump([tool, "-all", "code.a"], directory, name)
        extraction_log = _run_cuobjdump(
            [tool, "-all", "-xelf", "all", "-xptx", "all", "code.a"], directory, name
        )
        files = {
            (_KIND_NAMES[match["kind"].lower()], int(match["number"])): match["name"]
            for match in _EXTRACTED_FILE.finditer(extraction_log)
        }
        # If two pieces have one file name, cuobjdump overwrites the first by the second.
        names = Counter(files.values())
        contents = {key: (directory / file).read_bytes() for key, file in files.items() if names[file] == 1}
    result: list[Piece] = []
    counts: Counter[str] = Counter()
    member = kind = ""
    # Each line with an architecture stands for a piece, whose member and kind are in lines above: in the
    # nearest line with a member, and the nearest line with a kind.
    for match in _LISTED_LINE.finditer(listing):
        member = match["member"] or member
        kind = match["kind"] or kind
        if match["arch"]:
            piece_kind = _KIND_NAMES.get(kind, kind)
            counts[piece_kind] += 1
            content = contents.get((piece_kind, counts[piece_kind]))
            result.append(Piece(member, piece_kind, match["arch"], content))
    return result


def _run_cuobjdump(command: list[str], directory: Path, name: str) -> str:
    """Return the output of cuobjdump for the file *name*; "" if the file has no device code."""
    succeeded, text, log = run(command, directory)
    if _NO_DEVICE_CODE in text + log:
        return ""
    if not succeeded:
        log = log.replace(str(directory / "code.a"), name)
        raise LinkError(f"{name} is not read: {log}; generate or copy it again.", inputs=(name,))
    return text
