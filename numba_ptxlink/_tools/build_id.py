"""Identify the build of a library by its ELF build ID, which distinguishes builds of one version."""

from __future__ import annotations

import functools
import hashlib
import importlib
import struct
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

_PT_NOTE = 4
_NT_GNU_BUILD_ID = 3


@functools.cache
def build_id(path: str | os.PathLike[str]) -> str:
    """
    Return the GNU build ID of the library at *path*, or a SHA-256 of the file if it has none.

    The result is the same on every machine. The format is that of note sections in the System V gABI, "Note
    Section", and of GNU ld's --build-id.

    Raises:
        OSError: The file cannot be read.
    """
    with open(path, "rb") as file:  # noqa: PTH123 - the path may be of any kind
        for kind, name, content in _notes(file):
            if kind == _NT_GNU_BUILD_ID and name == b"GNU\0":
                return content.hex()
        file.seek(0)
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
        return digest.hexdigest()


def of_library(name: str) -> str:
    """
    Return the build ID of the CUDA library that cuda.bindings uses under *name*, such as "nvJitLink".

    Raises:
        Exception: The library cannot be found.
    """
    return build_id(library_path(name))


@functools.cache
def library_path(name: str) -> str:
    """
    Return the file of the CUDA library that cuda.bindings uses under *name*, such as "nvJitLink".

    A library that is in neither the process nor a wheel nor a conda environment is loaded to find it.

    Raises:
        Exception: The library cannot be found.
    """
    from cuda import pathfinder

    return unloaded_path(name) or str(pathfinder.load_nvidia_dynamic_lib(name).abs_path)


def unloaded_path(name: str) -> str:
    """Return the file that pathfinder would load, "" where that shows only when it does, or is done."""
    # pathfinder has no public function for this, and loading takes 5 to 100 ms, which a cached kernel saves.
    try:
        loading = importlib.import_module("cuda.pathfinder._dynamic_libs.load_nvidia_dynamic_lib")
        library = loading.LIB_DESCRIPTORS[name]
        if loading.LOADER.check_if_already_loaded_from_elsewhere(library) is not None:
            return ""
        return str(loading.run_find_steps(loading.SearchContext(library), loading.EARLY_FIND_STEPS).abs_path)
    except Exception:  # noqa: BLE001 - another pathfinder may have none of these
        return ""


def _notes(file: BinaryIO) -> Iterator[tuple[int, bytes, bytes]]:
    head = file.read(64)
    if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
        return
    (table,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    for index in range(count):
        file.seek(table + index * size)
        kind, _, offset, _, _, length, _, align = struct.unpack("<IIQQQQQQ", file.read(56))
        if kind != _PT_NOTE:
            continue
        file.seek(offset)
        notes = file.read(length)
        align = 8 if align == 8 else 4
        at = 0
        while at + 12 <= len(notes):
            name_size, content_size, note = struct.unpack_from("<III", notes, at)
            name_at = at + 12
            content_at = -(-(name_at + name_size) // align) * align
            yield (
                note,
                notes[name_at : name_at + name_size],
                notes[content_at : content_at + content_size],
            )
            at = -(-(content_at + content_size) // align) * align
