"""
Read the manifests of exports, and refuse what does not belong to one although it looks so.

An export's header, artifacts and manifest belong together: the header of one export and the code of another
disagree about types without a word. The manifest has the digest of each file.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numba_ptxlink._formats.kinds import ARTIFACTS, FATBIN
from numba_ptxlink.errors import LinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from .read import Input

FORMAT = 1
"""The format of the manifests that this release writes and reads."""

_ARTIFACT = re.compile(rf"(?P<stem>.+)\.(?:sm_\d+[af]?\.(?:{'|'.join(ARTIFACTS)})|{FATBIN}|(?P<object>[oa]))")


@dataclass(frozen=True)
class Manifest:
    """
    What an export has written into one folder.

    Args:
        path: The manifest's own path.
        header: The file name of the header.
        digests: The SHA-256 of each file, the header included, by file name.
        functions: The functions, as the manifest describes them.
        externs: What C++ defines for them, in the same way.
        artifacts: The artifacts, as the manifest describes them.
        types: The C types of the functions by name; empty in manifests that do not describe them.
    """

    path: Path
    header: str
    digests: Mapping[str, str]
    functions: Sequence[Mapping[str, Any]] = field(repr=False)
    externs: Sequence[Mapping[str, Any]] = field(repr=False)
    artifacts: Sequence[Mapping[str, Any]] = field(repr=False)
    types: Mapping[str, Mapping[str, Any]] = field(repr=False)


def read(path: Path) -> Manifest | None:
    """Return the manifest at *path*, None where there is none or it is not one of this format."""
    try:
        return parse(path.read_bytes(), path)
    except OSError:
        return None


def parse(content: bytes, path: Path) -> Manifest | None:
    """Return the manifest of *content*, which is at *path*, None where it is not one of this format."""
    try:
        fields = json.loads(content)
        if fields["format"] != FORMAT or fields["name"] != path.stem:
            return None
        entries = [fields["header"], *fields["artifacts"]]
        digests = {str(entry["file"]): str(entry["sha256"]) for entry in entries}
        manifest = Manifest(
            path,
            str(fields["header"]["file"]),
            digests,
            [dict(function) for function in fields["functions"]],
            [dict(extern) for extern in fields.get("externs", ())],
            fields["artifacts"],
            fields.get("types", {}),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    # A manifest speaks of its own folder only.
    return manifest if all(name.startswith(f"{path.stem}.") and "/" not in name for name in digests) else None


def digest(content: bytes) -> str:
    """Return the digest that a manifest has of *content*."""
    return hashlib.sha256(content).hexdigest()


def of(source: Input) -> Manifest | None:
    """
    Return the manifest that lists *source*, None where no export has written a file of that name there.

    Raises:
        LinkError: It has the name of an artifact of the export beside it, and is not one. Names the cure.
    """
    match = _ARTIFACT.fullmatch(source.path.name) if source.path else None
    manifest = read(source.path.with_name(f"{match['stem']}.json")) if source.path and match else None
    if source.path is None or match is None or manifest is None:
        return None
    recorded = manifest.digests.get(source.path.name)
    if recorded is None and match["object"]:
        # Any compiler writes objects of that name beside its sources.
        return None
    if recorded == digest(source.code):
        return manifest
    cause = (
        "does not list it, so that it is left over from another export"
        if recorded is None
        else "lists it with another content, so that one of the two is not of the last export"
    )
    raise LinkError(
        f"{source.path} has the name of an artifact of {manifest.path}, which {cause}: the header may "
        "declare other functions and types than it has. Export again, with this architecture and kind, or "
        "delete the file; move it to another folder or name to link it all the same.",
        inputs=(source.name,),
    )


def check_definitions(exports: Mapping[Input, Manifest], compiled: Iterable[Input]) -> None:
    """
    Refuse what defines a function of an export once more: nvJitLink takes one of the two, and may crash.

    Args:
        exports: The manifest of each artifact of a link.
        compiled: The PTX that the CUDA C++ and Python of the link have become.

    Raises:
        LinkError: Two have. Names them and the cure.
    """
    owners: dict[str, dict[bytes, str]] = {}
    for source, manifest in exports.items():
        for function in manifest.functions:
            owners.setdefault(function["symbol"], {})[source.code] = source.name
    for made in compiled:
        for each in made.module.functions:
            if each.defined and each.linkage == "visible" and each.name in owners:
                owners[each.name][made.code] = made.name
    for name, files in owners.items():
        if len(files) > 1:
            raise LinkError(
                f"{name} is defined {len(files)} times: in {', '.join(files.values())}. Which one a call "
                "reaches would depend on the order of the inputs: give one of them, or rename the function "
                "(name= of udf).",
                inputs=tuple(files.values()),
            )


def is_generated(path: str, content: bytes) -> bool:
    """Return whether *content*, which is at *path*, is the header of an export."""
    name = path.rpartition("/")[2]
    return content.startswith(f"/* {name}: generated by numba-ptxlink;".encode())


def check_headers(manifests: Sequence[Manifest], headers: Iterable[tuple[str, bytes]]) -> None:
    """
    Refuse headers of an export other than the one whose artifact is linked.

    Args:
        manifests: The manifests of the artifacts of a link.
        headers: Path and content of what a CUDA C++ source may include; of a name, the first is included.

    Raises:
        LinkError: A header is generated, has the name of a manifest's header, and is none of these.
    """
    digests: dict[str, set[str]] = {}
    for manifest in manifests:
        digests.setdefault(manifest.header, set()).add(manifest.digests[manifest.header])
    for path, content in headers:
        name = path.rpartition("/")[2]
        expected = digests.pop(name, None)
        if expected and is_generated(path, content) and digest(content) not in expected:
            ours = ", ".join(str(manifest.path) for manifest in manifests if manifest.header == name)
            raise LinkError(
                f"{path} is the header of another export than the artifact that is linked, which belongs to "
                f"{ours}: they may disagree about functions and types. Export again, or include the header "
                "beside that manifest.",
                inputs=(name,),
            )
