"""What the key of a kernel that a front end keeps on disk lacks: options, link files, settings and tools."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from numba_ptxlink._config import config
from numba_ptxlink._tools import find, includes, nvptxcompiler
from numba_ptxlink.cache.key import Key, package_version
from numba_ptxlink.errors import PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

log = logging.getLogger(__name__)

# The digests that the kernels of each cache were looked up by, by the front end's own keys.
_digests: WeakKeyDictionary[Any, dict[Any, str]] = WeakKeyDictionary()


def completed(
    key: tuple[Any, ...],
    cache: Any,
    options: Mapping[str, Any] | None,
    link: Iterable[Any],
    source_options: Callable[..., Any],
) -> tuple[Any, ...]:
    """
    Return a front end's *key* of a kernel on disk with what it lacks, as it was at the first look-up.

    Args:
        key: What the front end finds the kernel by.
        cache: The front end's cache of the kernels of one function.
        options: The decorator's options without the link files; None where nobody noted them.
        link: The files that the decorator links.
        source_options: Returns the options for CUDA C++, by the folder of the source.
    """
    digests = _digests.setdefault(cache, {})
    # A kernel is saved by what it was looked up by, though its link files may have changed meanwhile.
    if key not in digests:
        # What cannot be told is found by this process alone.
        digests[key] = _of_kernel(options, link, source_options) or os.urandom(16).hex()
    return (*key, ("numba-ptxlink", digests[key]))


def _of_kernel(
    options: Mapping[str, Any] | None, link: Iterable[Any], source_options: Callable[..., Any]
) -> str | None:
    """Return the digest of all that a kernel depends on beside its code; None where that cannot be told."""
    if options is None:
        return None
    try:
        files = [of_item(item, source_options) for item in link]
        settings = config()._asdict().items()
        relevant = [item for item in settings if not item[0].startswith(("cache", "log"))]
        parts = {
            "package": package_version(),
            "config": [f"{name}={value!r}" for name, value in relevant],
            "tools": [*nvptxcompiler.identity(), *map(find.build_of, ("nvvm", "nvJitLink", "nvrtc"))],
            "options": [f"{name}={_spelled(options[name])}" for name in sorted(options)],
            "files": files,
        }
        return Key.of("jit", parts).digest.hex()
    except (PtxlinkError, OSError, ValueError) as error:
        log.info("cache: a kernel is not kept: %s: %s", type(error).__name__, error)
        return None


def _spelled(value: Any) -> str:
    text = repr(sorted(value) if isinstance(value, (set, frozenset)) else value)
    # Another process may have something else at this address.
    if " at 0x" in text:
        raise ValueError(f"an option has no text of its own: {text}")
    return text


def of_file(path: str, source_options: Callable[..., Any]) -> str:
    """
    Return a digest of the file at *path* and, for CUDA C++, of its includes.

    Raises:
        OSError: It cannot be read.
        ValueError: What it includes cannot be told.
    """
    content = Path(path).read_bytes()
    return _digest(content, Path(path).suffix == ".cu" and source_options(folder=Path(path).parent))


def stamps(paths: Iterable[str], source_options: Callable[..., Any]) -> dict[str, str]:
    """Return what `of_file` does of each of *paths*, "" where it cannot be told."""
    found = {}
    for path in paths:
        try:
            found[path] = of_file(path, source_options)
        except (OSError, ValueError):
            found[path] = ""
    return found


def are_fresh(noted: Mapping[str, str], source_options: Callable[..., Any]) -> bool:
    """Return whether the files still are what `stamps` has *noted* of them."""
    return all(noted.values()) and noted == stamps(noted, source_options)


def of_item(item: Any, source_options: Callable[..., Any]) -> str:
    """Return the name and digest of a path or of a front end's `LinkableCode`; raises as `of_file` does."""
    if isinstance(item, (str, os.PathLike)):
        return f"{Path(item).name} {of_file(os.fspath(item), source_options)}"
    content = item.data.encode() if isinstance(item.data, str) else bytes(item.data)
    return f"{item.kind} {item.name} {_digest(content, item.kind == 'cu' and source_options())}"


def _digest(content: bytes, options: Any) -> str:
    """Return a digest of *content* and, for CUDA C++ with its *options*, of what it includes."""
    digest = hashlib.sha256(content)
    if options:
        # NVRTC receives the file's name without its directory, so the working directory is searched first.
        included = includes.of(content, Path(), options.include_dirs).key
        if included is None:
            raise ValueError("what a link file includes is unknown")
        digest.update(repr(included).encode())
    return digest.hexdigest()
