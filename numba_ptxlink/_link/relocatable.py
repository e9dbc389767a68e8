"""
Compile PTX to a relocatable cubin that the linker of this environment reads.

A linker refuses machine code of a release newer than its own: nvJitLink 13.0 and 12.4 refuse that of
nvPTXCompiler 13.5. Where the toolkit is older than nvPTXCompiler, its own tools compile.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from numba_ptxlink import assembler, cache
from numba_ptxlink._formats.kinds import PTX
from numba_ptxlink._formats.ptx import read_header
from numba_ptxlink._formats.ptx.isa import sure_isa
from numba_ptxlink._tools import nvjitlink, packages, ptxas
from numba_ptxlink._tools.ptxas_options import AssembleOptions
from numba_ptxlink.errors import AssembleError, LinkError

from . import backends
from .checks import dotted

if TYPE_CHECKING:
    from numba_ptxlink._arch import Arch

log = logging.getLogger(__name__)

# The first release whose nvJitLink has -r, and so compiles PTX without linking it.
_COMPILES_ONLY = (13, 0)


def compile_relocatable(
    ptx: bytes, arch: Arch, *, opt_level: int = 3, lineinfo: bool = False
) -> tuple[bytes, str]:
    """
    Return the relocatable cubin of *ptx*, and name and release of the tool that compiled it.

    Args:
        ptx: One PTX module.
        arch: The GPU to generate code for.
        opt_level: 0 or 3.
        lineinfo: Whether to keep line numbers.

    Raises:
        AssembleError: The tool refused *ptx*. Carries its log.
    """
    compiler = assembler.compiler_version()
    found = backends.installed()
    if found is not None and found[1] < compiler:
        name, linker = found
        if _reads(linker, ptx):
            if name == "nvjitlink" and linker >= _COMPILES_ONLY:
                log.info("relocatable cubin for %s: nvJitLink %s, the toolkit's", arch.sm, dotted(linker))
                return _by_nvjitlink(ptx, arch, opt_level, lineinfo=lineinfo), f"nvJitLink {dotted(linker)}"
            own = ptxas.find(linker)
            if own is not None:
                path, release = own
                log.info("relocatable cubin for %s: %s, the toolkit's", arch.sm, path)
                return _by_ptxas(ptx, arch, path, opt_level, lineinfo=lineinfo), f"ptxas {dotted(release)}"
        log.warning(
            "nvPTXCompiler %s makes the relocatable cubin for %s, which nvJitLink %s may refuse: no tool of "
            "that toolkit compiles the PTX; `pip install '%s==%s.*'` installs its ptxas",
            dotted(compiler),
            arch.sm,
            dotted(linker),
            packages.package("nvidia-cuda-nvcc", linker[0]),
            dotted(linker),
        )
    cubin = assembler.assemble(ptx, arch, relocatable=True, opt_level=opt_level, lineinfo=lineinfo)
    return cubin.code, f"nvPTXCompiler {dotted(compiler)}"


def _reads(linker: tuple[int, int], ptx: bytes) -> bool:
    # nvJitLink that has once refused PTX that is too new accepts undefined references.
    declared, newest = read_header(ptx.decode(errors="replace")).version, sure_isa(linker)
    return declared is None or newest is None or declared <= newest


def _by_nvjitlink(ptx: bytes, arch: Arch, opt_level: int, *, lineinfo: bool) -> bytes:
    flags = (f"-arch={arch.sm}", "-r", f"-O{opt_level}", *(("-lineinfo",) if lineinfo else ()))
    inputs = [(PTX, "code.ptx", ptx)]

    def make() -> cache.Entry:
        try:
            return cache.Entry({"log": ""}, nvjitlink.link(inputs, flags).code)
        except LinkError as error:
            raise AssembleError(str(error), flags=error.flags, inputs=error.inputs, log=error.log) from error

    return cache.cached(nvjitlink.key(inputs, flags), make).code


def _by_ptxas(ptx: bytes, arch: Arch, path: str, opt_level: int, *, lineinfo: bool) -> bytes:
    flags = AssembleOptions(relocatable=True, opt_level=opt_level, lineinfo=lineinfo).arguments(arch)
    key = cache.Key.of(
        "assemble",
        {
            "package": cache.key.package_version(),
            "tool": ptxas.identity(path),
            "flags": flags,
            "ptx": ptx,
        },
    )
    return cache.cached(key, lambda: cache.Entry({"log": ""}, ptxas.compile_ptx(path, ptx, flags))).code
