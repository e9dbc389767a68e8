"""Compute the address of a cached result: a hash of its labelled, length-prefixed inputs."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SCHEMA = 1
"""Incremented whenever a part changes its meaning, or a stored result its form, so that old entries miss."""

_SHOWN = 96
_DIGEST = "source_digest.txt"


class Key(NamedTuple):
    """
    The address of one result.

    Args:
        kind: The kind of the result, such as "assemble" or "link".
        digest: SHA-256 over the kind and the parts, each labelled and length-prefixed.
        parts: By label, the part itself if it is short text, otherwise the start of its SHA-256.
    """

    kind: str
    digest: bytes
    parts: Mapping[str, str]

    @classmethod
    def of(cls, kind: str, parts: Mapping[str, bytes | str | Sequence[bytes | str]]) -> Key:
        """
        Hash *parts*. Keys are equal exactly if kind, labels, their order and contents are equal.

        Args:
            kind: The kind of the result.
            parts: By label, text, bytes or a sequence of them.
        """
        whole = hashlib.sha256()
        descriptions: dict[str, str] = {}
        _feed(whole, b"schema", str(SCHEMA).encode())
        _feed(whole, b"kind", kind.encode())
        for label, part in parts.items():
            digest = hashlib.sha256()
            if isinstance(part, (str, bytes)):
                _feed(digest, b"one", _bytes(part))
            else:
                for element in part:
                    _feed(digest, b"each", _bytes(element))
            _feed(whole, label.encode(), digest.digest())
            descriptions[label] = _show(part, digest.hexdigest())
        return cls(kind, whole.digest(), descriptions)


def _feed(digest: hashlib._Hash, label: bytes, part: bytes) -> None:
    digest.update(len(label).to_bytes(8, "little") + label + len(part).to_bytes(8, "little"))
    digest.update(part)


def _bytes(part: bytes | str) -> bytes:
    return part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part


def _show(part: bytes | str | Sequence[bytes | str], digest: str) -> str:
    text = part if isinstance(part, str) else None
    if text is None and not isinstance(part, bytes) and all(isinstance(element, str) for element in part):
        text = " ".join(map(str, part))
    return text if text is not None and len(text) <= _SHOWN and text.isprintable() else digest[:16]


@functools.cache
def package_version() -> str:
    """
    Return this package's version and a digest of its source, which are part of every key.

    Both decide flags and checks. Between two releases only the source distinguishes builds; it is hashed by
    content, so that machines with the same source share entries. A wheel brings the digest along, which the
    build wrote: reading all files takes longer than finding an entry.
    """
    from numba_ptxlink._version import __version__

    digest = _digest_of_build(Path(__file__).parent) or source_digest(Path(__file__).parents[1])
    return f"{__version__} {digest or 'of unknown source'}"


def _digest_of_build(folder: Path) -> str:
    """Return what the build wrote into *folder*; "" in a checkout, whose files change."""
    try:
        return (folder / _DIGEST).read_text()
    except OSError:
        return ""


def source_digest(package: Path) -> str:
    """Return the start of a digest of all Python files below *package*, "" if there are none."""
    whole = hashlib.sha256()
    try:
        names = sorted(_sources(package, ""))
        for name in names:
            with open(f"{package}/{name}", "rb", buffering=0) as file:  # noqa: PTH123 - it takes a third of the time
                _feed(whole, name.encode(), file.read())
    except OSError:
        return ""
    return whole.hexdigest()[:32] if names else ""


def _sources(package: Path, folder: str) -> Iterator[str]:
    with os.scandir(package / folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _sources(package, f"{folder}{entry.name}/")
            elif entry.name.endswith(".py"):
                yield folder + entry.name
