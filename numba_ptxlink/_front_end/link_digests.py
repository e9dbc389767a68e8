"""Digest the files that kernels link, with what CUDA C++ includes, for the keys of kernels on disk."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    SearchPath = Callable[[Path | None], tuple[str, ...]]


def of_file(path: str, search_path: SearchPath) -> str | None:
    """
    Return a digest of the file at *path* and, for CUDA C++, of its includes; None on failure.

    Args:
        path: The file.
        search_path: Returns where NVRTC searches for headers, by the folder of the source.
    """
    try:
        content = Path(path).read_bytes()
    except OSError:
        return None
    digest = hashlib.sha256(content).hexdigest()
    if Path(path).suffix != ".cu":
        return digest
    return _with_includes(digest, content, search_path(Path(path).parent))


def of_item(item: Any, search_path: SearchPath) -> str | None:
    """Return a digest of a path or of a front end's `LinkableCode`, with its name; None on failure."""
    if isinstance(item, (str, os.PathLike)):
        digest = of_file(os.fspath(item), search_path)
        return None if digest is None else f"{Path(item).name} {digest}"
    content = item.data
    content = content.encode() if isinstance(content, str) else bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    complete = _with_includes(digest, content, search_path(None)) if item.kind == "cu" else digest
    return None if complete is None else f"{item.kind} {item.name} {complete}"


def _with_includes(digest: str, content: bytes, search_path: tuple[str, ...]) -> str | None:
    from numba_ptxlink._tools import include_scan

    # NVRTC receives the file's name without its directory, so the working directory is searched first.
    included = include_scan.manifest(content, Path(), search_path, {})
    return None if included is None else f"{digest} {hashlib.sha256(repr(included).encode()).hexdigest()}"
