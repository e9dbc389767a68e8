"""
Make the object file of an export: what any C++ build links.

It holds the fat binary for device links of every architecture, the host functions that launch kernels, and
their registration with the CUDA runtime.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from numba_ptxlink._cabi import existing, host_code
from numba_ptxlink._formats.kinds import CUBIN, OBJECT, PTX
from numba_ptxlink._tools import host_compiler, nvfatbin, nvrtc

from . import single_ptx

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cabi.signatures import Signature
    from numba_ptxlink._tools.options import AssembleOptions

    from .consumer import Consumer

LIBRARY = "library"
EXTENSIONS = {OBJECT: "o", LIBRARY: "a"}
"""The kinds of artifact that hold host code, and the extensions of their files."""


def build(
    stem: str,
    header: str,
    kernels: Sequence[Signature],
    packed: Sequence[tuple[str, Arch, str, bytes]],
    options: AssembleOptions | None,
    *,
    consumer: Consumer | None = None,
    include_dirs: Sequence[Path] = (),
) -> tuple[bytes, str]:
    """
    Return the object `STEM.o`, and name and release of the compiler of its host code. Needs no driver.

    Args:
        stem: The stem of the export's files.
        header: The text of its header.
        kernels: The kernels that it declares.
        packed: Its code, each (kind, arch, name, code).
        options: How to compile the kernels as a whole program too, so that they can be launched without a
            device link; None where they call what C++ defines, and cannot.
        consumer: The toolkit and driver it is for; None for those of this environment.
        include_dirs: Where headers are that the header includes.

    Raises:
        AssembleError: The PTX could not be assembled.
        ExportError: There is no compiler, or it failed. Carries its log.
        LinkError: nvFatbin is missing or refused an entry.
    """
    zstd = consumer is None or consumer.reads_zstd
    linkable = nvfatbin.pack(packed, zstd=zstd)
    files = {"linkable.fatbin": linkable}
    if kernels:
        files["declared.h"] = header.encode()
    if kernels and options is not None:
        files["whole.fatbin"] = nvfatbin.pack(_whole(packed, options, consumer), relocatable=False, zstd=zstd)
    digest = hashlib.sha256(b"".join(files.values())).hexdigest()[:16]
    source = host_code.render(
        host_code.module_name(stem, digest),
        kernels,
        header="declared.h",
        like_cuda=existing.is_in(header),
        linkable="linkable.fatbin",
        whole="whole.fatbin" if "whole.fatbin" in files else None,
    )
    searched = (*include_dirs, nvrtc.INCLUDE_DIR, *nvrtc.toolkit_include_dirs()) if kernels else ()
    return host_compiler.compile_object(source, f"{stem}.cpp", files, searched)


def as_kinds(stem: str, code: bytes, kinds: Collection[str]) -> dict[str, bytes]:
    """
    Return the object *code* of the export *stem* as each of *kinds* that is one of `EXTENSIONS`.

    Raises:
        ExportError: There is no ar to make a library, or it failed.
    """
    files = {OBJECT: code} if OBJECT in kinds else {}
    return files | ({LIBRARY: host_compiler.archive(f"{stem}.o", code)} if LIBRARY in kinds else {})


def _whole(
    packed: Sequence[tuple[str, Arch, str, bytes]], options: AssembleOptions, consumer: Consumer | None
) -> list[tuple[str, Arch, str, bytes]]:
    release = consumer.release if consumer else None
    # Without such a compiler the driver compiles the PTX.
    compiles = release is None or not single_ptx.unavailable(release, relocatable=False)
    entries = []
    for kind, arch, name, code in packed:
        if kind == PTX:
            if compiles:
                cubin, _ = single_ptx.compile_ptx(code, arch, options, release)
                entries.append((CUBIN, arch, f"{name}.cubin", cubin))
            entries.append((PTX, arch, name, code))
    return entries
