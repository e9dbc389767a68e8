"""
Extend the keys of a front end's disk cache of kernels by options, link files, settings and tools.

A kernel is looked up before it is compiled, and stored afterwards: only if its key describes all files that
it has linked, and if none of these files was written to since the look-up.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from numba_ptxlink._config import config
from numba_ptxlink._cpu import device
from numba_ptxlink._tools import find, includes, nvptxcompiler
from numba_ptxlink.cache.key import Key, package_version
from numba_ptxlink.errors import PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

log = logging.getLogger(__name__)

# Errors for a link file or an option that no key can describe.
_KEY_ERRORS = (PtxlinkError, OSError, ValueError)


class _LinkItem(NamedTuple):
    """
    The state of a link file.

    Args:
        description: The name of the file, and the digest of its content and of the headers that it includes.
        versions: The results of `includes.version` for the file and the headers, which differ after each
            write. Empty for code in memory without headers.
    """

    description: str
    versions: tuple[tuple[int, ...], ...] = ()


class _LookUp(NamedTuple):
    """
    A look-up of a kernel.

    Args:
        link: The files of the decorator's `link=`.
        source_options: The argument of `look_up`.
        items: The state of each file in *link* at the look-up.
        digest: The digest of the parts that the front end's own key lacks.
    """

    link: tuple[Any, ...]
    source_options: Callable[..., Any]
    items: list[_LinkItem]
    digest: str


class _LookUps(threading.local):
    """The last look-up of this thread in each cache; the thread that looks up also compiles and stores."""

    def __init__(self) -> None:
        self.by_cache: WeakKeyDictionary[Any, _LookUp] = WeakKeyDictionary()


_look_ups = _LookUps()


def look_up(
    cache: Any, options: Mapping[str, Any] | None, link: Sequence[Any], source_options: Callable[..., Any]
) -> None:
    """
    Record the inputs of the next kernel of *cache*, for `extend_key` and `describes_kernel`.

    If an input is unknown, nothing is recorded, and `describes_kernel` keeps the kernel from being stored.

    Args:
        cache: The front end's cache of the kernels of one function.
        options: The decorator's options without `link=`; None if they are unknown.
        link: The files of the decorator's `link=`.
        source_options: Returns the options to compile a CUDA C++ file with. The argument `folder` is the
            file's folder, or None for code in memory.
    """
    _look_ups.by_cache.pop(cache, None)
    if options is None:
        return
    try:
        items = [_link_item(link_file, source_options) for link_file in link]
        # Leave out the settings of the cache and of the log, on which no compiled code depends.
        settings = {
            name: value for name, value in config()._asdict().items() if not name.startswith(("cache", "log"))
        }
        parts = {
            "package": package_version(),
            "config": [f"{name}={value!r}" for name, value in settings.items()],
            "tools": [*nvptxcompiler.identity(), *map(find.library_build_id, ("nvvm", "nvJitLink", "nvrtc"))],
            # The CPU device stores PTX, a GPU cubins.
            "device": str(device.is_active()),
            "options": [f"{name}={_option_text(options[name])}" for name in sorted(options)],
            "files": [item.description for item in items],
        }
    except _KEY_ERRORS as error:
        log.info("cache: a kernel is not kept: %s: %s", type(error).__name__, error)
        return
    _look_ups.by_cache[cache] = _LookUp(tuple(link), source_options, items, Key.of("jit", parts).digest.hex())


def extend_key(key: tuple[Any, ...], cache: Any) -> tuple[Any, ...]:
    """Return a front end's *key* of a kernel in *cache*, extended by the digest of its look-up."""
    lookup = _look_ups.by_cache.get(cache)
    # Without a look-up, the key contains None, and no kernel is stored under it: see `describes_kernel`.
    return (*key, ("numba-ptxlink", lookup and lookup.digest))


def describes_kernel(cache: Any, linked: Iterable[Any]) -> bool:
    """
    Return whether the key by which a kernel was looked up in *cache* describes the kernel that was compiled.

    Args:
        cache: The front end's cache of the kernels of one function.
        linked: The files that the kernel has linked: paths, or objects of the front end's class
            `LinkableCode`, which contain code.
    """
    lookup = _look_ups.by_cache.get(cache)
    if lookup is None:
        return False
    for link_file in linked:
        callbacks = (getattr(link_file, f"{name}_callback", None) for name in ("setup", "teardown"))
        # The key has the decorator's files, but not those that called functions link. Callbacks are Python
        # functions, which cannot be stored with the kernel.
        if link_file not in lookup.link or any(callbacks):
            log.info(
                "cache: a kernel is not kept: %s is not in link= of the kernel's decorator, or has callbacks",
                link_file,
            )
            return False
    try:
        unchanged = lookup.items == [
            _link_item(link_file, lookup.source_options) for link_file in lookup.link
        ]
    except _KEY_ERRORS:
        unchanged = False
    if not unchanged:
        log.info("cache: a kernel is not kept: its link files were changed while it was compiled")
    return unchanged


def _option_text(value: Any) -> str:
    """
    Return the text of an option's value for the key.

    Raises:
        ValueError: Another process would have another text.
    """
    # Sort sets: their order differs from process to process.
    text = repr(sorted(value) if isinstance(value, (set, frozenset)) else value)
    # The text "<object at 0x7f12>", for example, contains an address of this process.
    if " at 0x" in text:
        raise ValueError(f"an option has no stable text: {text}")
    return text


def _link_item(link_file: Any, source_options: Callable[..., Any]) -> _LinkItem:
    """
    Return the state of a link file: a path, or a front end's `LinkableCode`.

    Raises:
        OSError: A file cannot be read.
        ValueError: The included headers cannot be determined.
    """
    if isinstance(link_file, (str, os.PathLike)):
        path = Path(link_file)
        # A symbolic link may get another target (lstat), and the target another content (stat).
        versions = tuple(map(includes.version, (path.lstat(), path.stat())))
        # The path is a part of the key, since the line information in the compiled code contains it.
        name, is_source, folder = str(path.absolute()), path.suffix == ".cu", path.parent
        content = path.read_bytes()
    else:
        data, versions, folder = link_file.data, (), None
        name, is_source = f"{link_file.kind} {link_file.name}", link_file.kind == "cu"
        content = data.encode() if isinstance(data, str) else bytes(data)
    digest = hashlib.sha256(content)
    if is_source:
        # NVRTC gets the file's name without its directory, and so searches headers first in the working
        # directory, `Path()`.
        included = includes.find_includes(content, Path(), source_options(folder=folder).include_dirs)
        if included.key is None:
            raise ValueError(f"the headers that {name} includes are unknown")
        digest.update(repr(included.key).encode())
        versions += included.versions
    return _LinkItem(f"{name} {digest.hexdigest()}", versions)
