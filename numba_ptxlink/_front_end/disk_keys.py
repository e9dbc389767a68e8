"""The key of a kernel that a front end keeps on disk: its options, link files, the settings and the tools."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from numba_ptxlink._config import config
from numba_ptxlink._tools import build_id, nvptxcompiler
from numba_ptxlink.cache.key import Key, package_version

from . import link_digests
from .describe import IndescribableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

log = logging.getLogger(__name__)


def of_kernel(
    kind: str,
    options: Mapping[str, Any],
    link: Iterable[Any],
    *,
    described: Callable[[str, Any], str],
    search_path: link_digests.SearchPath,
    tools: Sequence[str],
) -> str | None:
    """
    Return the digest of all that a kernel depends on beside its code; None where that cannot be told.

    Args:
        kind: A name that no other front end's keys have.
        options: The decorator's options, without the link files.
        link: The files that the kernel links.
        described: Returns an option as text, by name and value.
        search_path: Returns where NVRTC searches for headers, by the folder of the source.
        tools: The libraries that compile and link.
    """
    try:
        files = [link_digests.of_item(item, search_path) for item in link]
        texts = [f"{name}={_option(name, options[name], described)}" for name in sorted(options)]
        return _key(kind, texts, files, tools).digest.hex()
    except IndescribableError as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - the cache never fails a build
        reason = f"{type(error).__name__}: {error}"
    log.info("cache: a kernel is not kept: %s", reason)
    return None


def _key(kind: str, options: Sequence[str], files: Sequence[str | None], tools: Sequence[str]) -> Key:
    if None in files:
        raise IndescribableError("a link file cannot be read, or what it includes cannot be told")
    settings = config()._asdict()
    return Key.of(
        kind,
        {
            "package": package_version(),
            "config": [
                f"{name}={settings[name]!r}" for name in settings if not name.startswith(("cache", "log"))
            ],
            "tools": [*nvptxcompiler.identity(), *map(build_id.of_library, tools)],
            "options": options,
            "files": [digest for digest in files if digest],
        },
    )


def _option(name: str, value: Any, described: Callable[[str, Any], str]) -> str:
    try:
        return described(name, value)
    except IndescribableError as error:
        raise IndescribableError(f"its option {name} holds {error}") from None
