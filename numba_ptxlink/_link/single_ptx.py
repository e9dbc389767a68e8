"""
Compile a single PTX to a cubin that the linker and the drivers of this environment read.

A linker refuses machine code of a release newer than its own: nvJitLink 13.0 and 12.4 refuse that of
nvPTXCompiler 13.5. Where the toolkit is older than nvPTXCompiler, its own tools make relocatable cubins.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from numba_ptxlink import assembler, cache
from numba_ptxlink._arch import dotted
from numba_ptxlink._formats.kinds import PTX
from numba_ptxlink._formats.ptx.header import sure_isa
from numba_ptxlink._tools import find, programs
from numba_ptxlink.errors import AssembleError, LinkError, converted

from . import backends
from .plan import LinkOptions, for_one_ptx
from .read import Input
from .run import link

if TYPE_CHECKING:
    from numba_ptxlink._arch import Arch
    from numba_ptxlink._tools.options import AssembleOptions

log = logging.getLogger(__name__)

_ANY_MINOR = 99


def compile_ptx(
    ptx: bytes, arch: Arch, options: AssembleOptions, release: tuple[int, int] | None = None
) -> tuple[bytes, str]:
    """
    Return the cubin of *ptx*, and name and release of the tool that compiled it.

    Args:
        ptx: One PTX module.
        arch: The GPU to generate code for.
        options: The options; `opt_level` is 0 or 3.
        release: The CUDA release that is to read the cubin; None for this environment's.

    Raises:
        AssembleError: The tool refused *ptx*, or there is none for *release*. Carries its log.
    """
    source = Input(PTX, "code.ptx", ptx)
    if release is not None:
        return _for_release(source, arch, options, release)
    if not options.relocatable:
        return _loadable(source, arch, options)
    linker = backends.installed()
    if linker is None or linker[1] >= assembler.compiler_version():
        return _by_nvptxcompiler(ptx, arch, options)
    declared, own = source.header.version, programs.newest_ptxas(linker[1])
    newest = sure_isa(own[1]) if own else None
    if own and (declared is None or newest is None or declared <= newest):
        return _by_ptxas(own, ptx, arch, options)
    log.warning(
        "nvPTXCompiler %s makes the relocatable cubin for %s, which nvJitLink %s may refuse: no tool of "
        "that toolkit compiles the PTX; `pip install '%s'` installs its ptxas",
        dotted(assembler.compiler_version()),
        arch.sm,
        dotted(linker[1]),
        find.package_of_ptxas(linker[1]),
    )
    return _by_nvptxcompiler(ptx, arch, options)


def _loadable(source: Input, arch: Arch, options: AssembleOptions) -> tuple[bytes, str]:
    for_debugger = options.debug or options.lineinfo
    backend, reason = for_one_ptx(source, arch, for_debugger=for_debugger)
    if backend == "nvptxcompiler":
        return _by_nvptxcompiler(source.code, arch, options)
    log.info("cubin for %s: %s, %s", arch.sm, backend, reason)
    return _by_linker(backend, source, arch, options)


def unavailable(release: tuple[int, int], *, relocatable: bool = True) -> str:
    """
    Return why no tool of this environment makes cubins for CUDA *release*, "" where one does.

    A linker reads relocatable machine code of its own release and of older ones; a driver loads that of all
    releases of its major version.
    """
    if _tool_for(release, relocatable=relocatable):
        return ""
    older = "or an older one" if relocatable else "or another one of its major version"
    wheel = find.package_of_ptxas(release)
    install = f"install its ptxas by `pip install '{wheel}'`, or " if wheel else ""
    return (
        f"it takes a compiler of CUDA {dotted(release)} {older}, and nvPTXCompiler is of "
        f"{dotted(assembler.compiler_version())}; {install}let PATH "
        "or CUDA_HOME lead to that toolkit; or leave the machine code out, since PTX holds the same functions"
    )


def _tool_for(release: tuple[int, int], *, relocatable: bool) -> tuple[str, str, tuple[int, int]] | None:
    """Return kind, path and release of a tool whose cubins CUDA *release* reads, None without one."""
    newest = release if relocatable else (release[0], _ANY_MINOR)
    own = assembler.compiler_version()
    if own[0] == newest[0] and own <= newest:
        return "nvptxcompiler", "", own
    found = programs.newest_ptxas(release) or programs.newest_ptxas(newest)
    if found is not None:
        return "ptxas", *found
    linker = backends.installed()
    if linker is None or linker[1][0] != newest[0] or linker[1] > newest:
        return None
    return None if relocatable else (linker[0], "", linker[1])


def _for_release(
    source: Input, arch: Arch, options: AssembleOptions, release: tuple[int, int]
) -> tuple[bytes, str]:
    tool = _tool_for(release, relocatable=options.relocatable)
    if tool is None:
        cause = unavailable(release, relocatable=options.relocatable)
        raise AssembleError(f"No cubin for CUDA {dotted(release)}: {cause}.")
    name, path, version = tool
    if name == "nvptxcompiler":
        return _by_nvptxcompiler(source.code, arch, options)
    if name == "ptxas":
        return _by_ptxas((path, version), source.code, arch, options)
    return _by_linker(name, source, arch, options)


def _by_nvptxcompiler(ptx: bytes, arch: Arch, options: AssembleOptions) -> tuple[bytes, str]:
    cubin = assembler.assembled(ptx, arch, options)
    return cubin.code, f"nvPTXCompiler {dotted(assembler.compiler_version())}"


def _by_linker(backend: str, source: Input, arch: Arch, options: AssembleOptions) -> tuple[bytes, str]:
    linker = LinkOptions(
        debug=options.debug,
        lineinfo=options.lineinfo and not options.debug,
        max_registers=options.max_registers,
        extra_flags=tuple(f"-Xptxas={flag}" for flag in options.extra_flags),
        backend=backend,
        checks="none",
        opt_level=options.opt_level,
    )
    try:
        cubin = link([source], arch, linker).cubin
    except LinkError as error:
        raise converted(error, AssembleError) from error
    return cubin, f"nvJitLink {dotted(backends.linker(backend).version())}"


def _by_ptxas(
    own: tuple[str, tuple[int, int]], ptx: bytes, arch: Arch, options: AssembleOptions
) -> tuple[bytes, str]:
    path, release = own
    flags = options.arguments(arch, ptx)
    key = cache.Key.of(
        "assemble",
        {
            "package": cache.key.package_version(),
            "tool": ("ptxas", programs.version_text(path)),
            "flags": flags,
            "ptx": ptx,
        },
    )
    entry = cache.cached(key, lambda: cache.Entry({"log": ""}, programs.compile_ptx(path, ptx, flags)))
    return entry.code, f"ptxas {dotted(release)}"
