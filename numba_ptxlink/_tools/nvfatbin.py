"""Pack fat binaries with nvFatbin; the only module that calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_ptxlink._formats.kinds import CUBIN, PTX
from numba_ptxlink.errors import LinkError

from . import packages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import Arch


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
    binding = _binding()
    flags = ["-64", *(("-c",) if relocatable else ())]
    if not zstd and version() >= _ZSTD_SINCE:
        flags.append("-compress-mode=speed")  # LZ4
    names = tuple(name for _, _, name, _ in entries)
    try:
        handle = binding.create(flags, len(flags))
        try:
            for kind, arch, name, code in entries:
                number = str(arch)
                if kind == CUBIN:
                    binding.add_cubin(handle, code, len(code), number, name)
                elif kind == PTX:
                    # nvFatbin reads PTX as a C string.
                    text = code.rstrip(b"\0") + b"\0"
                    binding.add_ptx(handle, text, len(text), number, name, "")
                else:
                    binding.add_ltoir(handle, code, len(code), number, name, "")
            packed = bytearray(binding.size(handle))
            binding.get(handle, packed)
        finally:
            binding.destroy(handle)
    except binding.nvFatbinError as error:
        raise LinkError(
            f"nvFatbin failed: {error}. Inputs: {', '.join(names)}; flags: {' '.join(flags)}.",
            flags=tuple(flags),
            inputs=names,
        ) from error
    return bytes(packed)


def version() -> tuple[int, int]:
    """Return nvFatbin's version as (major, minor)."""
    major, minor = _binding().version()
    return (int(major), int(minor))


def _binding() -> Any:
    try:
        packages.check("nvfatbin")
        from cuda.bindings import nvfatbin

        nvfatbin.version()
    except Exception as error:
        raise packages.missing("nvFatbin", "nvidia-nvfatbin", error) from error
    return nvfatbin
