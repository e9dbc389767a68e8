"""The form of a cached entry: meta and code behind a digest, and a shared secret where there is one."""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from dataclasses import dataclass, field
from typing import Any

MAGIC = b"PTXLINK\x01"
_HEAD = struct.Struct("<8s32s32s32sI")
_NO_TAG = bytes(32)

PEEK = 1 << 16
"""How much of an entry `peek` wants to see."""


class Damaged(Exception):  # noqa: N818 - a state of an entry, which no caller of the package ever sees
    """The bytes are no entry, or not the entry that was written."""


class WrongSeal(Exception):  # noqa: N818 - likewise
    """The entry is whole, but was not sealed with this secret."""


@dataclass(frozen=True)
class Entry:
    """
    One cached result.

    Args:
        meta: What belongs to it besides the code, such as the tool's log. JSON values only.
        code: The cubin, PTX or LTO-IR.
    """

    meta: dict[str, Any]
    code: bytes = field(repr=False)

    @property
    def log(self) -> str:
        """What the tool remarked."""
        return str(self.meta.get("log", ""))


def described(meta: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Return the kind and the parts that *meta* names."""
    kind, parts = meta.get("kind", ""), meta.get("parts", {})
    texts = parts.items() if isinstance(parts, dict) else ()
    return str(kind), {str(label): str(part) for label, part in texts}


def seal(address: bytes, entry: Entry, secret: bytes | None) -> bytes:
    """
    Return *entry* as bytes that `unseal` accepts under *address* and *secret* only.

    Args:
        address: The 32 bytes it is kept under.
        entry: The result.
        secret: The shared secret, None for none.
    """
    meta = json.dumps(entry.meta, separators=(",", ":")).encode()
    body = struct.pack("<I", len(meta)) + meta + entry.code
    digest = _digest(address, body)
    tag = hmac.digest(secret, digest, "sha256") if secret else _NO_TAG
    return _HEAD.pack(MAGIC, address, digest, tag, len(body)) + body


def unseal(sealed: bytes, address: bytes | None, secret: bytes | None) -> Entry:
    """
    Return the entry in *sealed*.

    Args:
        sealed: What `seal` returned, once.
        address: What it was asked for under, None where that is not known.
        secret: The shared secret, None for none.

    Raises:
        Damaged: It is cut short, altered, or something else altogether.
        WrongSeal: It is whole, and sealed with another secret or none.
    """
    found, digest, tag = _head(sealed)
    if address is not None and found != address:
        raise Damaged("it belongs to another key")
    body = memoryview(sealed)[_HEAD.size :]
    if _digest(found, body) != digest:
        raise Damaged("its digest is wrong")
    expected = hmac.digest(secret, digest, "sha256") if secret else _NO_TAG
    if not hmac.compare_digest(expected, tag):
        raise WrongSeal("it was sealed with another secret" if any(tag) else "it is not sealed")
    (length,) = struct.unpack_from("<I", body)
    return Entry(_meta(bytes(body[4 : 4 + length])), bytes(body[4 + length :]))


def peek(start: bytes) -> tuple[dict[str, Any], int]:
    """
    Return the meta of an entry and the size of its code, out of its first bytes; nothing is checked.

    Args:
        start: The first `PEEK` bytes of the entry, or all of them.

    Raises:
        Damaged: It is no entry, or the meta is longer than that or no JSON.
    """
    if len(start) < _HEAD.size + 4 or not start.startswith(MAGIC):
        raise Damaged("it is no entry of this cache")
    body = _HEAD.unpack_from(start)[4]
    (length,) = struct.unpack_from("<I", start, _HEAD.size)
    return _meta(start[_HEAD.size + 4 : _HEAD.size + 4 + length]), body - 4 - length


def address_of(sealed: bytes) -> bytes:
    """
    Return what *sealed* is kept under.

    Raises:
        Damaged: It is no entry, or cut short.
    """
    return _head(sealed)[0]


def _meta(text: bytes) -> dict[str, Any]:
    # A digest says that it is what was written, not that one of us wrote it.
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
