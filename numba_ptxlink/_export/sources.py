"""Find the files that an export is made of, and tell build tools of them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._imports import python_imports, python_sources
from numba_ptxlink._link import depfile
from numba_ptxlink._tools import include_scan

from . import reached

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .marks import Udf
    from .signatures import Typed

log = logging.getLogger(__name__)


def headers(includes: Iterable[str], searched: Sequence[Path]) -> list[Path]:
    """Return the files in the folders *searched* that *includes* lead to."""
    text = "".join(f"#include {name}\n" for name in includes)
    return include_scan.files_included(text.encode(), searched)


def folders(marked: Iterable[Udf]) -> dict[Path, None]:
    """Return the folders of the Python files that define *marked*."""
    files = (Path(each.function.__code__.co_filename) for each in marked)
    return {file.parent.absolute(): None for file in files if file.is_file()}


def python_files(functions: Iterable[Typed], former: Mapping[str, Any]) -> set[Path]:
    """Return the Python files that *functions* depend on, and what the file of the export has run."""
    imported = python_imports.imported_now()
    own = [each.udf.function for each in functions]
    # Such as those that a function which it loaded from a file has made.
    called = {reached.decorated(value) for _, _, value in reached.names(own)} - {None}
    files = python_sources.of_modules({each.__module__ for each in own}, former, called)
    return {*files, *(Path(path).absolute() for path in (imported.sources if imported else ()))}


def rule(path: str | Path | None, manifest: Path, sources: Iterable[Path]) -> dict[str, bytes]:
    """Return the depfile at *path* by its name, which lists *sources*; nothing where *path* is None."""
    if path is None:
        return {}
    listed = sorted(sources)
    for reason in depfile.misread(manifest, listed):
        log.warning("%s: %s, so that an edit may not export again; choose another path.", path, reason)
    return {str(Path(path).absolute()): depfile.render(manifest, listed)}
