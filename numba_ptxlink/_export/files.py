"""Check where an export writes, write its files all or none, and delete those of the former one."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from numba_ptxlink._link import manifests, outputs
from numba_ptxlink.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

log = logging.getLogger(__name__)

# What may follow in a file name is 19 bytes, such as ".sm_100a.ltoir", and most file systems allow 255.
_LONGEST_STEM = 200
_STEM = re.compile(r"\w(?:[\w .+=@-]*[\w+=@-])?")


def write(out: Path, files: Mapping[str, bytes], manifest: Path, made_of: Iterable[Path]) -> None:
    """
    Write *files* by name into *out*, and delete what only the former export of *manifest* wrote.

    One that was killed while it wrote, and two of one name at once, leave files that the manifest disagrees
    with, which are not linked.

    Raises:
        ExportError: They cannot be written, or are another export's, or one would replace another one, or
            what the export is *made_of*.
    """
    _check_places(out, files, made_of)
    targets = {out / name: content for name, content in files.items()}
    try:
        for path in targets:
            path.parent.mkdir(parents=True, exist_ok=True)
        _check_owners(out, files, manifest)
        obsolete, stay = _former(out, files, manifest)
        stay += outputs.write(targets, obsolete)
    except OSError as error:
        raise ExportError(
            f"{error.filename or out} could not be written: {error.strerror or error}; choose another "
            "folder, or mend this one."
        ) from error
    for path in stay:
        log.warning(
            "%s is left over from the former export and was not deleted, because it was changed since or "
            "cannot be deleted; delete it, or rename it.",
            path,
        )


def _former(out: Path, files: Mapping[str, bytes], manifest: Path) -> tuple[list[Path], list[Path]]:
    """
    Return the files that the former export of *manifest* wrote and that are not in *files*.

    Returns:
        Those that have still its content, and those that have not.
    """
    former = manifests.read(manifest)
    same: list[Path] = []
    other: list[Path] = []
    for name, digest in former.digests.items() if former else ():
        path = out / name
        if name in files:
            continue
        try:
            (same if manifests.digest(path.read_bytes()) == digest else other).append(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            log.debug("%s: %s", path, error)
            other.append(path)
    return same, other


def _check_owners(out: Path, files: Mapping[str, bytes], manifest: Path) -> None:
    """Refuse to write into *out* what another export there lists."""
    for path in sorted(out.glob("*.json")) if out.is_dir() else ():
        other = manifests.read(path) if path.name != manifest.name else None
        both = sorted({*files, manifest.name}.intersection(other.digests)) if other else []
        if both or (other and path.name in files):
            raise ExportError(
                f"{out / (both or [path.name])[0]} belongs to the export {path}; no file was changed. Choose "
                "another name or folder, or delete that export."
            )


def _check_places(out: Path, files: Mapping[str, bytes], made_of: Iterable[Path]) -> None:
    """Refuse to write two files, or a file and a source, into one place."""
    sources, written = {os.path.realpath(path) for path in made_of}, set()
    for name in files:
        path = out / name
        place = os.path.realpath(path)
        if place in written or (place in sources and not _holds(path, files[name])):
            raise ExportError(
                f"{path} would replace what the export is made of, or writes beside; no file was changed. "
                "Choose another name or folder for the export, or for its depfile."
            )
        written.add(place)


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def check_stem(stem: str) -> str:
    """Return *stem*, which becomes a part of file names and of a comment in C."""
    if not isinstance(stem, str) or not _STEM.fullmatch(stem) or len(stem.encode()) > _LONGEST_STEM:
        raise ExportError(
            f"{stem!a} cannot begin file names; pass letters, digits and any of _ . + - = @, with spaces "
            f"between them, in at most {_LONGEST_STEM} bytes."
        )
    return stem


def check_out(out_dir: str | Path | None) -> Path:
    """Return the folder *out_dir*; for an export in memory, the one that leaves names as they are."""
    if out_dir is None:
        return Path()
    out = _path("out_dir", out_dir)
    if os.path.lexists(out) and not out.is_dir():
        raise ExportError(f"{out} is not a folder; give the path of a folder.")
    return out


def check_depfile(depfile: str | Path | None, out_dir: str | Path | None) -> None:
    """
    Refuse, before anything is compiled, a depfile that could not be written.

    The folder that an export writes into is created; that of one file has to exist, as for compilers.
    """
    if depfile is None:
        return
    path = _path("depfile", depfile)
    if out_dir is None:
        raise ExportError(f"{path} would not be written by an export in memory; give out_dir, or no depfile.")
    folder, out = Path(os.path.realpath(path)).parent, Path(os.path.realpath(out_dir))
    if path.is_dir() or (not folder.is_dir() and folder not in (out, *out.parents)):
        raise ExportError(f"{path} could not be written; give the path of a file in a folder that exists.")


def _path(option: str, given: str | Path) -> Path:
    """Return the path *given* as *option*."""
    if not isinstance(given, (str, os.PathLike)) or "\0" in os.fspath(given):
        raise ExportError(f"{option} is {given!r}; pass a path.")
    return Path(given)


def rule(path: str | Path | None, manifest: Path, sources: Iterable[Path]) -> dict[str, bytes]:
    """Return the depfile at *path* by its name, which lists *sources*; nothing where *path* is None."""
    return {} if path is None else {str(Path(path).absolute()): outputs.depfile(manifest, sorted(sources))}
