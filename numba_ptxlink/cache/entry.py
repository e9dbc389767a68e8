"""Serialise a cached entry: metadata and code under a SHA-256 digest and, with a secret, an HMAC."""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from typing import Any, NamedTuple

MAGIC = b"PTXLINK\x01"
_HEAD = struct.Struct("<8s32s32s32sI")
_NO_TAG = bytes(32)


class Damaged(Exception):  # noqa: N818 - a state of an entry, which no caller of the package ever sees
    """The bytes are not an entry, or were altered since it was written."""


class WrongSeal(Exception):  # noqa: N818 - likewise
    """The entry is intact, but its HMAC does not match this secret."""


class Entry(NamedTuple):
    """
    One cached result.

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
    Serialise *entry* to bytes that `unseal` accepts under the same *address* and *secret* only.

    Args:
        address: Its address, 32 bytes.
        entry: The result.
        secret: The shared secret of the HMAC, None for no HMAC.
    """
    meta = json.dumps(entry.meta, separators=(",", ":")).encode()
    body = struct.pack("<I", len(meta)) + meta + entry.code
    digest = _digest(address, body)
    tag = hmac.digest(secret, digest, "sha256") if secret else _NO_TAG
    return _HEAD.pack(MAGIC, address, digest, tag, len(body)) + body


def unseal(sealed: bytes, address: bytes, secret: bytes | None) -> Entry:
    """
    Verify *sealed* and return its entry.

    Args:
        sealed: The output of `seal`.
        address: The expected address.
        secret: The shared secret of the HMAC, None for no HMAC.

    Raises:
        Damaged: It is truncated, altered or not an entry.
        WrongSeal: It is intact, but has the HMAC of another secret, or one where none is expected, or none.
    """
    stored, digest, tag = _head(sealed)
    if stored != address:
        raise Damaged("it belongs to another key")
    body = memoryview(sealed)[_HEAD.size :]
    if _digest(stored, body) != digest:
        raise Damaged("its digest is wrong")
    expected = hmac.digest(secret, digest, "sha256") if secret else _NO_TAG
    if not hmac.compare_digest(expected, tag):
        raise WrongSeal("it was sealed with another secret" if any(tag) else "it is not sealed")
    (length,) = struct.unpack_from("<I", body)
    return Entry(_meta(bytes(body[4 : 4 + length])), bytes(body[4 + length :]))


def _meta(text: bytes) -> dict[str, Any]:
    # The digest proves that the bytes are as written, not that this package wrote them.
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Damaged("its description is damaged") from error
    if not isinstance(meta, dict):
        raise Damaged("its description is damaged")
    return meta


def _digest(address: bytes, body: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(address)
    digest.update(body)
    return digest.digest()


def _head(sealed: bytes) -> tuple[bytes, bytes, bytes]:
    if len(sealed) < _HEAD.size + 4:
        raise Damaged("it is cut short" if sealed else "it is empty")
    magic, address, digest, tag, length = _HEAD.unpack_from(sealed)
    if magic != MAGIC:
        raise Damaged("it is no entry of this cache")
    if length != len(sealed) - _HEAD.size:
        raise Damaged("it is cut short" if length > len(sealed) - _HEAD.size else "it is too long")
    return address, digest, tag
