"""
Pack fat binaries with nvFatbin, by ctypes; no other module calls it.

NVIDIA's Python bindings contain nvFatbin only since 12.9.6 and 13.2, and other packages pin older releases.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from numba_ptxlink._formats.kinds import CUBIN, LTOIR, PTX
from numba_ptxlink.errors import LinkError

from . import find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import Arch

# The function that adds an entry, by the kind of its code.
_ADD_FUNCTIONS = {CUBIN: "nvFatbinAddCubin", PTX: "nvFatbinAddPTX", LTOIR: "nvFatbinAddLTOIR"}
# The first release of nvFatbin that compresses by zstd by default; older ones know no -compress-mode.
_ZSTD_SINCE = (12, 9)


def pack(
    entries: Sequence[tuple[str, Arch, str, bytes]],
    *,
    relocatable: bool = True,
    zstd: bool = True,
    lineinfo: bool = False,
) -> bytes:
    """
    Pack *entries* into one fat binary. Needs no driver.

    Args:
        entries: Kind ("ptx", "ltoir" or "cubin"), architecture, name and code of each.
        relocatable: Whether the entries contain relocatable code.
        zstd: Whether the programs that read the fat binary support compression by zstd, as drivers from CUDA
            12.4 on do, and nvlink from 12.9 on.
        lineinfo: Whether LTO-IR has line numbers. Its entry then gets the flag for them, as nvcc gives it:
            nvlink warns of objects whose flags differ.

    Raises:
        LinkError: nvFatbin is missing, or rejected an entry.
    """
    library = find.load_library("nvfatbin")
    library.nvFatbinGetErrorString.restype = ctypes.c_char_p
    flags = ["-64", *(("-c",) if relocatable else ())]
    if not zstd and version() >= _ZSTD_SINCE:
        flags.append("-compress-mode=speed")  # LZ4
    names = tuple(name for _, _, name, _ in entries)
    # The functions for PTX and LTO-IR have a last parameter, the flags of a later compilation.
    entry_options = {PTX: (b"",), LTOIR: (b"-generate-line-info" if lineinfo else b"",), CUBIN: ()}

    def call(function: str, *arguments: object) -> None:
        status = getattr(library, function)(*arguments)
        if status:
            error_text = library.nvFatbinGetErrorString(status).decode(errors="replace")
            raise LinkError(
                f"nvFatbin failed: {error_text}. Inputs: {', '.join(names)}; flags: {' '.join(flags)}.",
                flags=tuple(flags),
                inputs=names,
            )

    handle, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * len(flags))(*map(str.encode, flags))
    call("nvFatbinCreate", ctypes.byref(handle), options, ctypes.c_size_t(len(flags)))
    try:
        for kind, arch, name, code in entries:
            # nvFatbin reads PTX as a C string.
            content = code.rstrip(b"\0") + b"\0" if kind == PTX else code
            arch_and_name = (str(arch).encode(), name.encode(errors="backslashreplace"))
            call(
                _ADD_FUNCTIONS[kind],
                handle,
                content,
                ctypes.c_size_t(len(content)),
                *arch_and_name,
                *entry_options[kind],
            )
        call("nvFatbinSize", handle, ctypes.byref(size))
        packed = ctypes.create_string_buffer(size.value)
        call("nvFatbinGet", handle, packed)
    finally:
        library.nvFatbinDestroy(ctypes.byref(handle))
    return packed.raw


def version() -> tuple[int, int]:
    """Return nvFatbin's version as (major, minor)."""
    return find.version("nvfatbin", "nvFatbinVersion")
