"""
Compute the address of a cached result, a hash of all its inputs, and convert results to stored bytes.

A stored result consists of metadata and code, with a SHA-256 digest and, if there is a secret, an HMAC.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA = 1
"""
The version of keys and stored results.

Incremented when the meaning of a part of a key or the form of a stored result changes: then no new key finds
an old entry.
"""

MAGIC = b"PTXLINK\x01"
"""The first bytes of a stored result."""

# A part of a key that is longer is described by its hash in messages.
_MAX_SHOWN_BYTES = 96
# MAGIC, the address, the SHA-256 digest, the HMAC, and the size of the body.
_HEADER = struct.Struct("<8s32s32s32sI")
# In place of the HMAC in the header, which the code below calls tag, if there is no secret.
_NO_TAG = bytes(32)
# The body is the size of the metadata, the metadata in JSON, and the code.
_META_SIZE = struct.Struct("<I")


class Key(NamedTuple):
    """
    The inputs of one result, by which the cache finds it: the digest determines the address of its entry.

    Args:
        kind: The kind of the result, such as "assemble" or "link".
        digest: A SHA-256 digest of the kind and of the parts, each with its label and the lengths of both.
        parts: The parts for messages, by label: a short text itself, else the start of its SHA-256 digest.
    """

    kind: str
    digest: bytes
    parts: Mapping[str, str]

    @classmethod
    def of(cls, kind: str, parts: Mapping[str, bytes | str | Sequence[bytes | str]]) -> Key:
        """
        Return the key of *parts*. Keys are equal if and only if kind, labels, their order and contents are.

        A single text counts as a sequence of only this text, and text as its bytes in UTF-8.

        Args:
            kind: The kind of the result.
            parts: The inputs of the result by label; each is text, bytes or a sequence of them.
        """
        key_hash = hashlib.sha256()
        descriptions: dict[str, str] = {}
        _hash_part(key_hash, b"schema", str(SCHEMA).encode())
        _hash_part(key_hash, b"kind", kind.encode())
        for label, part in parts.items():
            part_hash = hashlib.sha256()
            elements = [part] if isinstance(part, (str, bytes)) else part
            for element in elements:
                _hash_part(part_hash, b"each", _to_bytes(element))
            _hash_part(key_hash, label.encode(), part_hash.digest())
            descriptions[label] = part_hash.hexdigest()[:16]
            if sum(map(len, elements)) <= _MAX_SHOWN_BYTES:
                text = b" ".join(map(_to_bytes, elements)).decode(errors="replace")
                if text.isprintable():
                    descriptions[label] = text
        return cls(kind, key_hash.digest(), descriptions)


def _hash_part(sha256: hashlib._Hash, label: bytes, part: bytes) -> None:
    # With the lengths, no other pair of a label and a part gives the same bytes.
    sha256.update(len(label).to_bytes(8, "little") + label + len(part).to_bytes(8, "little"))
    sha256.update(part)


def _to_bytes(part: bytes | str) -> bytes:
    return part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part


@functools.cache
def package_version() -> str:
    """
    Return this package's version and a digest of its source, which are part of every key.

    The source determines flags and checks, and distinguishes builds between two releases. The digest is that
    of the files' contents, so that machines with the same source share entries. A wheel contains the digest
    as a file, since reading all files takes longer than finding an entry.
    """
    from numba_ptxlink._version import __version__

    try:
        digest = Path(__file__).with_name("source_digest.txt").read_text()
    except OSError:  # A checkout does not contain that file, since its source changes.
        digest = source_digest(Path(__file__).parents[1])
    return f"{__version__} {digest}"


def source_digest(package: Path) -> str:
    """Return the start of a digest of all files of Python (.py) and of LLVM IR (.ll) below *package*."""
    source_hash = hashlib.sha256()
    # The pattern matches .py and .ll; the package has no .pl and .ly.
    for path in sorted(map(str, package.rglob("*.[pl][yl]"))):
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - three times as fast
            _hash_part(source_hash, path.removeprefix(str(package)).encode(), file.read())
    return source_hash.hexdigest()[:32]


class Damaged(Exception):  # noqa: N818 - a state of an entry, never raised to callers of the package
    """The bytes are not an entry, or were altered after they were written."""


class WrongSeal(Exception):  # noqa: N818 - a state of an entry, as for Damaged
    """The entry is intact, but its HMAC is not that of this process's secret."""


class Entry(NamedTuple):
    """
    A cached result.

    Args:
        meta: JSON values stored beside the code, such as the tool's log.
        code: The cubin, PTX or LTO-IR.
    """

    meta: dict[str, Any]
    code: bytes

    @property
    def log(self) -> str:
        """The tool's messages."""
        return str(self.meta.get("log", ""))


def seal(address: bytes, entry: Entry, secret: bytes | None) -> bytes:
    """
    Serialise *entry* to bytes that `unseal` accepts only under the same *address* and *secret*.

    Args:
        address: The address of the entry, 32 bytes.
        entry: The result.
        secret: The shared secret of the HMAC; None for no HMAC.
    """
    meta = json.dumps(entry.meta, separators=(",", ":")).encode()
    body = _META_SIZE.pack(len(meta)) + meta + entry.code
    digest = _digest(address, body)
    tag = hmac.digest(secret, digest, "sha256") if secret else _NO_TAG
    return _HEADER.pack(MAGIC, address, digest, tag, len(body)) + body


def unseal(sealed: bytes, address: bytes, secret: bytes | None) -> Entry:
    """
    Verify *sealed* and return its entry.

    Args:
        sealed: The output of `seal`.
        address: The expected address.
        secret: The shared secret of the HMAC; None for no HMAC.

    Raises:
        Damaged: The bytes are truncated or altered, belong to another address, or are no entry.
        WrongSeal: The entry is intact, but its HMAC is that of another secret; or it has no HMAC although
            there is a *secret*, or an HMAC although there is none.
    """
    if len(sealed) < _HEADER.size + _META_SIZE.size:
        raise Damaged("it is truncated")
    magic, stored_address, digest, tag, body_size = _HEADER.unpack_from(sealed)
    body = memoryview(sealed)[_HEADER.size :]
    if (magic, stored_address, body_size) != (MAGIC, address, len(body)):
        raise Damaged("it is not an entry of this cache, has another address, or is incomplete")
    if _digest(stored_address, body) != digest:
        raise Damaged("its digest is wrong")
    expected_tag = hmac.digest(secret, digest, "sha256") if secret else _NO_TAG
    if not hmac.compare_digest(expected_tag, tag):
        raise WrongSeal("it has the HMAC of another secret" if any(tag) else "it has no HMAC")
    (meta_size,) = _META_SIZE.unpack_from(body)
    meta_end = _META_SIZE.size + meta_size
    # The digest proves that the bytes are unchanged, but not that this package wrote them: the metadata may
    # be no JSON.
    try:
        meta = json.loads(bytes(body[_META_SIZE.size : meta_end]))
    except ValueError as error:
        raise Damaged("its metadata is damaged") from error
    return Entry(meta, bytes(body[meta_end:]))


def _digest(address: bytes, body: bytes | memoryview) -> bytes:
    """Return the SHA-256 digest of *address* and *body*."""
    sha256 = hashlib.sha256(address)
    sha256.update(body)
    return sha256.digest()
