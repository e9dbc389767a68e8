"""
Pack fat binaries with nvFatbin, by ctypes; the only module that calls it.

NVIDIA's bindings have it since 12.9.6 and 13.2 alone, and other packages pin releases before those.
"""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any

from numba_ptxlink._formats.kinds import CUBIN, PTX
from numba_ptxlink.errors import LinkError

from . import find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import Arch


_ADDRESS, _TEXT = ctypes.c_void_p, ctypes.c_char_p
_SIZE, _UINT = ctypes.c_size_t, ctypes.c_uint
# As in nvFatbin.h, which is the same from 12.4 on. Handles are passed as addresses.
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "nvFatbinCreate": (ctypes.POINTER(_ADDRESS), ctypes.POINTER(_TEXT), _SIZE),
    "nvFatbinDestroy": (ctypes.POINTER(_ADDRESS),),
    "nvFatbinAddPTX": (_ADDRESS, _TEXT, _SIZE, _TEXT, _TEXT, _TEXT),
    "nvFatbinAddCubin": (_ADDRESS, _TEXT, _SIZE, _TEXT, _TEXT),
    "nvFatbinAddLTOIR": (_ADDRESS, _TEXT, _SIZE, _TEXT, _TEXT, _TEXT),
    "nvFatbinSize": (_ADDRESS, ctypes.POINTER(_SIZE)),
    "nvFatbinGet": (_ADDRESS, _TEXT),
    "nvFatbinVersion": (ctypes.POINTER(_UINT), ctypes.POINTER(_UINT)),
}
# The first release that compresses by zstd unless it is told otherwise.
_ZSTD_SINCE = (12, 9)


def pack(
    entries: Sequence[tuple[str, Arch, str, bytes]], *, relocatable: bool = True, zstd: bool = True
) -> bytes:
    """
    Pack *entries*, each (kind, arch, name, code), into one fat binary. Needs no driver.

    Args:
        entries: Kinds are "ptx", "ltoir" and "cubin".
        relocatable: Whether the entries hold relocatable code.
        zstd: Whether readers know zstd, as those from CUDA 12.4 on do.

    Raises:
        LinkError: nvFatbin is missing or refused an entry.
    """
    library = _library()
    flags = ["-64", *(("-c",) if relocatable else ())]
    if not zstd and version() >= _ZSTD_SINCE:
        flags.append("-compress-mode=speed")  # LZ4
    names = tuple(name for _, _, name, _ in entries)

    def call(function: str, *arguments: object) -> None:
        status = getattr(library, function)(*arguments)
        if status:
            said = library.nvFatbinGetErrorString(status).decode(errors="replace")
            raise LinkError(
                f"nvFatbin failed: {said}. Inputs: {', '.join(names)}; flags: {' '.join(flags)}.",
                flags=tuple(flags),
                inputs=names,
            )

    handle, size = _ADDRESS(), _SIZE()
    call("nvFatbinCreate", handle, (_TEXT * len(flags))(*map(str.encode, flags)), len(flags))
    try:
        for kind, arch, name, code in entries:
            called = (str(arch).encode(), name.encode(errors="backslashreplace"))
            if kind == CUBIN:
                call("nvFatbinAddCubin", handle, code, len(code), *called)
            elif kind == PTX:
                # nvFatbin reads PTX as a C string.
                text = code.rstrip(b"\0") + b"\0"
                call("nvFatbinAddPTX", handle, text, len(text), *called, b"")
            else:
                call("nvFatbinAddLTOIR", handle, code, len(code), *called, b"")
        call("nvFatbinSize", handle, size)
        packed = ctypes.create_string_buffer(size.value)
        call("nvFatbinGet", handle, packed)
    finally:
        library.nvFatbinDestroy(handle)
    return packed.raw


def version() -> tuple[int, int]:
    """Return nvFatbin's version as (major, minor)."""
    major, minor = _UINT(), _UINT()
    _library().nvFatbinVersion(major, minor)
    return (major.value, minor.value)


@functools.cache
def _library() -> Any:
    try:
        # cuda-pathfinder has loaded it by then: CDLL finds the same.
        library = ctypes.CDLL(str(find.pathfinder().load_nvidia_dynamic_lib("nvfatbin").abs_path))
    except (OSError, RuntimeError) as error:
        raise find.missing("nvfatbin", error) from error
    for name, prototype in _PROTOTYPES.items():
        getattr(library, name).argtypes = prototype
    library.nvFatbinGetErrorString.restype = _TEXT
    return library
