"""
Link many inputs to one cubin: `link` reads the inputs, compiles CUDA C++ and UDFs; `run.link` does the rest.

Each step is a module of `_link/`. Nothing here needs a driver.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from ._arch import Arch, ArchLike
from ._config import CHECKS, FRONT_ENDS, INLINE, config
from ._formats.kinds import CU, LTOIR
from ._link import run
from ._link.backends import Target
from ._link.option_effects import check_compile_options
from ._link.read import read
from ._link.run import Linked
from ._tools.options import ARITHMETIC, NVRTC, Options, as_texts, given_choices, link_flags, source_flags
from .errors import ConfigError, LinkError, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._artifacts.target_release import TargetRelease
    from ._config import Backend, Checks, FrontEndName, Inline
    from ._link.compile import PythonCode
    from ._link.read import Input
    from ._tools.nvrtc import INCLUDE_DIR

__all__ = ["INCLUDE_DIR", "Linked", "link"]

_CHOICES = {"checks": CHECKS, "inline": INLINE, "front_end": FRONT_ENDS}


def __getattr__(name: str) -> Any:
    # Parts that links of PTX need not; they are imported when they are asked for.
    if name == "PtxLinker":
        from ._front_end import registry

        return registry.get("numba-cuda").package_module("linker").PtxLinker
    if name == "INCLUDE_DIR":
        from ._tools import nvrtc

        return nvrtc.INCLUDE_DIR
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def link(
    *inputs: Any,
    arch: ArchLike,
    lto: bool | None = None,
    debug: bool = False,
    lineinfo: bool = False,
    max_registers: int | None = None,
    fma: bool | None = None,
    ftz: bool | None = None,
    prec_div: bool | None = None,
    prec_sqrt: bool | None = None,
    fast_math: bool | None = None,
    include_dirs: Sequence[Path | str] | Path | str = (),
    headers: Mapping[str, str] | None = None,
    defines: Mapping[str, str | None] | None = None,
    cxx_standard: str | None = None,
    name_expressions: Sequence[str] = (),
    nvrtc_flags: Sequence[str] = (),
    extra_flags: Sequence[str] = (),
    backend: Backend | None = None,
    checks: Checks | None = None,
    inline: Inline | None = None,
    cuda: str | tuple[int, int] | None = None,
    ptx_isa: str | tuple[int, int] | None = None,
    front_end: FrontEndName | None = None,
) -> Linked:
    """
    Link *inputs* to one cubin. Needs neither a GPU nor a driver. Thread-safe; other threads run meanwhile.

    Args:
        inputs: Each a path; PTX or CUDA C++ text, which a `str` is if it has a line break, or reads as such
            and names no file; bytes of PTX, LTO-IR, a cubin, an object, a fat binary or an archive; a file
            object; a `LinkableCode` of numba-cuda; a UDF; or the path of a Python file, for its UDFs. The
            device runtime is added where one of them calls it.
        arch: The GPU to generate code for, such as "sm_90".
        lto: Whether to optimise at link time. By default where an input is LTO-IR, and where several inputs
            are all CUDA C++ or Python. With True, nvJitLink takes the LTO-IR in fat binaries, objects and
            archives too, and otherwise the machine code or PTX in them.
        debug: Whether to keep debug information.
        lineinfo: Whether to keep line numbers.
        max_registers: Limit on registers per thread, 1 to 255.
        fma: Whether multiplications and additions become fused ones; the default of all tools is True. Fused
            ones that PTX has already stay. This and the next four hold for what the link compiles, CUDA C++,
            Python and LTO-IR, and *fma* for PTX as well. An option that no input obeys is refused; inputs
            that keep what they were compiled with beside others that obey are named in the log.
        ftz: Whether subnormal floats become zero.
        prec_div: Whether divisions of floats are rounded as IEEE 754 says.
        prec_sqrt: Whether square roots of floats are. LTO-IR keeps those that it was compiled with.
        fast_math: Whether arithmetic is fast: *ftz* and *fma*, but neither *prec_div* nor *prec_sqrt*, where
            these are None, and in CUDA C++ and Python approximate functions.
        include_dirs: Directories that `#include` searches, or one, before the toolkit's and this package's.
            Before them, `#include "..."` searches the directory of a source given as a path; text searches
            the working directory.
        headers: Headers held in memory, by the name that `#include` uses.
        defines: Macros for CUDA C++ and their values; None defines without one.
        cxx_standard: The C++ standard, such as "c++20"; NVRTC's own by default.
        name_expressions: C++ names of kernels and variables, such as "scale<float>" and "ns::count":
            templates are instantiated, and the result's `lowered_names` has the symbols. Each CUDA C++ input
            has to know all of them.
        nvrtc_flags: Further options for NVRTC; none for which there is a parameter here, but macros, folders,
            and those of arithmetic: "--fmad=false" is fma=False.
        extra_flags: Further flags of ptxas, such as "--verbose", or of nvJitLink, such as "-Xnvvm=...",
            whatever tool links; none for which there is a parameter here.
        backend: "auto", "nvptxcompiler", "nvjitlink" or "pynvjitlink"; NUMBA_PTXLINK_BACKEND's by default. It
            is never replaced by another.
        checks: What is compared before the link: "all" PTX and CUDA C++ with each other, and the manifests of
            exports with what is linked with them; or "none", which refuses only what spoils NVIDIA's
            libraries for the process: PTX that is too new, and cubins for another architecture. CUDA C++ that
            becomes LTO-IR is compiled once more for that, in a child process. NUMBA_PTXLINK_CHECKS's by
            default, or "all".
        inline: Which calls between PTX inputs are inlined, where all inputs are PTX: "auto", those of small
            functions and of functions with one caller; "all", those within one input too; or "none", which
            leaves the link to nvJitLink. NUMBA_PTXLINK_INLINE's by default, or "auto".
        cuda: The CUDA release of the driver that loads the cubin, such as "12.4", as for `export`. PTX, CUDA
            C++ and UDFs are linked without LTO, `Linked.ptx` has the lowest version that its text allows, and
            a compiler of that release makes the cubin. A link of anything else is for drivers of its linker's
            major release.
        ptx_isa: The same by the newest PTX that is read, such as "8.4".
        front_end: What compiles UDFs whose decorator names none, as for `export`.

    Raises:
        ExportError: The PTX needs a newer version than the one asked for.
        LinkError: An input could not be read, compiled or linked, the inputs contradict each other, or the
            backend cannot do it. Carries inputs, flags and log.
        AssembleError: A single PTX could not be assembled.
        ConfigError: *arch* is no GPU architecture, *cuda* or *ptx_isa* is not known, or *backend*, *checks*
            or *inline* is none of its choices, or another option is of the wrong type.
    """
    config()
    requested = (fma, ftz, prec_div, prec_sqrt, fast_math)
    target_release = None
    if cuda is not None or ptx_isa is not None:
        # Deferred: most links are for this environment, and it parses PTX.
        from ._artifacts.target_release import TargetRelease

        target_release = TargetRelease.of(cuda, ptx_isa)
    target = Arch.of(arch)
    _check_choices({"checks": checks, "inline": inline, "front_end": front_end})
    _check_texts("headers", headers, (str,))
    _check_texts("defines", defines, (str, NoneType))
    if cxx_standard is not None and not (isinstance(cxx_standard, str) and cxx_standard):
        raise ConfigError(f'cxx_standard is {shown(cxx_standard)}; pass text such as "c++20".')
    given_choices({"lto": lto})
    flags, arithmetic = source_flags(nvrtc_flags, dict(zip(ARITHMETIC, requested, strict=True)))
    options = Options(
        debug=debug,
        lineinfo=lineinfo,
        max_registers=max_registers,
        **arithmetic,
        extra_flags=link_flags("extra_flags", extra_flags),
        backend=backend,
        checks=checks,
        inline=inline,
    ).checked()
    if not inputs:
        raise LinkError("link() needs at least one input.")
    files = [read(each, number) for number, each in enumerate(inputs, start=1) if not _is_python(each)]
    scripts = [source for source in inputs if _is_python(source)]
    lto = _wants_lto(files, len(scripts), requested=lto, target_release=target_release)
    options = options._replace(lto=lto)
    option_warnings = check_compile_options(files, options, compiles_source=bool(scripts))
    for_sources = {
        "headers": tuple((headers or {}).items()),
        "defines": tuple((defines or {}).items()),
        "cxx_standard": cxx_standard,
        "name_expressions": as_texts("name_expressions", name_expressions),
        "flags": (*options.to_flags(NVRTC), *flags),
    }
    code, log, names = _compiled(
        files,
        scripts,
        target,
        options,
        include_dirs=include_dirs,
        for_sources=for_sources,
        front_end=front_end,
    )
    reader = (target_release.release, target_release.lower_version) if target_release else ()
    linked = run.link(code, Target(target, *reader), options)
    return replace(
        linked, log="\n".join(filter(None, (log, linked.log, *option_warnings))), lowered_names=names
    )


def _compiled(
    files: Sequence[Input],
    scripts: Sequence[Any],
    arch: Arch,
    options: Options,
    *,
    include_dirs: Any,
    for_sources: Mapping[str, Any],
    front_end: str | None,
) -> tuple[Sequence[Input], str, dict[str, str]]:
    """Compile the CUDA C++ and Python of a link; return the inputs, NVRTC's log and the lowered names."""
    if not scripts and not include_dirs and all(each.kind != CU and each.path is None for each in files):
        # Neither sources, nor files with manifests.
        return files, "", {}
    # Deferred, as all else that one PTX needs not.
    from ._link.compile import compile_sources
    from ._tools import includes, nvrtc

    # It searches the packages.
    toolkit = nvrtc.toolkit_include_dirs() if any(each.kind == CU for each in files) else ()
    folders = (*includes.folders(include_dirs), nvrtc.INCLUDE_DIR, *toolkit)
    python = _python(scripts, files, arch, front_end, options) if scripts else []
    how = nvrtc.SourceOptions(include_dirs=tuple(map(str, folders)), **for_sources)
    return compile_sources(files, python, arch, how, lto=options.lto, compares=options.compares)


def _check_choices(options: Mapping[str, Any]) -> None:
    """Check that each of *options* is None or one of its choices."""
    for option, chosen in options.items():
        if chosen is not None and chosen not in _CHOICES[option]:
            raise ConfigError(f"{option}={shown(chosen)} is unknown; choose {', '.join(_CHOICES[option])}.")


def _check_texts(option: str, mapping: Any, types: tuple[type, ...]) -> None:
    """Check that *mapping* is None, or a mapping from names to values of *types*."""
    if mapping is None:
        return
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{option} is {shown(mapping)}; pass a dict, from each name to its text.")
    for name, text in mapping.items():
        if not isinstance(name, str) or not isinstance(text, types):
            cure = "pass a str for each name" + (", or None" if NoneType in types else "")
            raise ConfigError(f"{option}[{shown(name)}] is {shown(text)}; {cure}.")


def _python(
    sources: Sequence[Any], read_already: Sequence[Input], arch: Arch, front_end: str | None, options: Options
) -> list[PythonCode]:
    """Compile the UDFs among *sources*, together, and each Python file."""
    # Deferred: most links have no Python.
    from .exporter import compile_udfs

    groups: list[tuple[str, Any]] = [
        (Path(source).name, Path(source)) for source in sources if not _is_udf(source)
    ]
    if udfs := [source for source in sources if _is_udf(source)]:
        groups.append(("<udfs>", udfs))
    beside = {source.code for source in read_already if source.kind == LTOIR}
    return [
        compile_udfs(name, group, arch, options, front_end=front_end, beside=beside) for name, group in groups
    ]


def _is_udf(source: Any) -> bool:
    # Where there is one, its module is imported.
    marks = sys.modules.get(f"{__package__}._export.marks")
    return marks is not None and isinstance(source, marks.Udf)


def _is_python(source: Any) -> bool:
    """Return whether *source* is a UDF, or the path of a Python file."""
    if _is_udf(source):
        return True
    is_path = isinstance(source, os.PathLike) or (isinstance(source, str) and "\n" not in source)
    return is_path and Path(source).suffix == ".py"


def _wants_lto(
    files: Sequence[Input], python: int, *, requested: bool | None, target_release: TargetRelease | None
) -> bool:
    """Return whether a link optimises: by default where an input is LTO-IR, or several can all become it."""
    ltoir = ", ".join(source.name for source in files if source.kind == LTOIR)
    if target_release and requested:
        raise LinkError(
            f"Link-time optimisation is by the linker of this environment, and not for "
            f"{target_release.description}; leave lto out."
        )
    if ltoir and (target_release or requested is False):
        raise LinkError(
            f"{ltoir} holds LTO-IR, which can only be linked with link-time optimisation, by the linker of "
            "this environment; leave out what forbids that, or give PTX, CUDA C++ or Python in its place.",
            inputs=(ltoir,),
        )
    if target_release:
        return False
    if requested is not None:
        return requested
    return bool(ltoir) or (len(files) + python > 1 and all(source.kind == CU for source in files))
