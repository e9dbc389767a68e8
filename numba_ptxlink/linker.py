"""
Link many inputs to one cubin: `link` reads the inputs, compiles CUDA C++ and UDFs, checks, plans and runs.

Each step is a module of `_link/`. Nothing here needs a driver.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._arch import Arch, ArchLike
from ._config import CHECKS, INLINE, config
from ._export.marks import Udf
from ._formats.kinds import CU, LTOIR
from ._front_end import registry
from ._link import backends, run, single_ptx
from ._link.compile import PythonCode, SourceOptions, compile_sources
from ._link.plan import LinkOptions
from ._link.read import Input, read
from ._link.run import Linked
from ._tools import includes, nvrtc
from ._tools.nvrtc import INCLUDE_DIR
from ._tools.options import AssembleOptions, as_texts, link_flags
from .errors import ConfigError, LinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._artifacts.consumer import Consumer
    from ._config import Backend, Checks, FrontEndName, Inline

__all__ = ["INCLUDE_DIR", "Linked", "link"]


def __getattr__(name: str) -> Any:
    # A part of one front end, which links need not; it is imported when it is asked for.
    if name == "PtxLinker":
        return registry.get("numba-cuda").linker()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def link(
    *inputs: Any,
    arch: ArchLike,
    lto: bool | None = None,
    debug: bool = False,
    lineinfo: bool = False,
    max_registers: int | None = None,
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
        include_dirs: Directories that `#include` searches, or one, before the toolkit's and this package's.
            Before them, `#include "..."` searches the directory of a source given as a path; text searches
            the working directory.
        headers: Headers held in memory, by the name that `#include` uses.
        defines: Macros for CUDA C++ and their values; None defines without one.
        cxx_standard: The C++ standard, such as "c++20"; NVRTC's own by default.
        name_expressions: C++ names of functions, variables and template instances, such as "scale<float>":
            templates are instantiated, and the result's `lowered_names` has the symbols. Each CUDA C++ input
            has to know all of them.
        nvrtc_flags: Further options for NVRTC; none for which there is a parameter here, but macros and
            folders.
        extra_flags: Further arguments for the tool that links; none for which there is a parameter here.
        backend: "auto", "nvptxcompiler", "nvjitlink" or "pynvjitlink"; NUMBA_PTXLINK_BACKEND's by default. It
            is never replaced by another.
        checks: What is compared before the link: "all" PTX with each other, and the manifests of exports
            with what is linked with them; or "none", which refuses only what spoils NVIDIA's libraries for
            the process: PTX that is too new, and cubins for another architecture. NUMBA_PTXLINK_CHECKS's by
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
    consumer = None
    if cuda is not None or ptx_isa is not None:
        # Deferred: most links are for this environment, and it parses PTX.
        from ._artifacts.consumer import Consumer

        consumer = Consumer.of(cuda, ptx_isa)
    target = Arch.of(arch)
    _check_options(checks, inline, {"defines": defines, "headers": headers}, lto=lto)
    # What a single PTX may have, whatever tool links.
    AssembleOptions(debug=debug, lineinfo=lineinfo, max_registers=max_registers)
    passed = link_flags("extra_flags", extra_flags)
    if not inputs:
        raise LinkError("link() needs at least one input.")
    files = [read(each, number) for number, each in enumerate(inputs, start=1) if not _is_python(each)]
    scripts = [source for source in inputs if _is_python(source)]
    lto = _wants_lto(files, len(scripts), asked=lto, consumer=consumer)
    options = LinkOptions(lto, debug, lineinfo, max_registers, passed, backend, checks, inline)
    # Asked for where it is needed alone: it searches the packages.
    toolkit = map(str, nvrtc.toolkit_include_dirs() if any(each.kind == CU for each in files) else ())
    source_options = SourceOptions(
        include_dirs=(*map(str, includes.folders(include_dirs)), str(INCLUDE_DIR), *toolkit),
        headers=tuple((headers or {}).items()),
        defines=tuple((defines or {}).items()),
        cxx_standard=cxx_standard,
        name_expressions=as_texts("name_expressions", name_expressions),
        flags=(*options.for_sources, *link_flags("nvrtc_flags", nvrtc_flags)),
    )
    python = _python(scripts, files, target, front_end, lto=lto)
    program = compile_sources(files, python, target, source_options, lto=lto, compares=options.compares)
    linked = run.link(program.inputs, target, options)
    if consumer is not None:
        linked = _for_consumer(linked, target, options, consumer)
    return replace(
        linked,
        log="\n".join(filter(None, (program.log, linked.log))),
        lowered_names=program.lowered_names,
    )


def _check_options(
    checks: str | None, inline: str | None, mappings: Mapping[str, Any], *, lto: object
) -> None:
    if lto is not None and not isinstance(lto, bool):
        raise ConfigError(f"lto is {lto!r}, of type {type(lto).__name__}; pass True, False or None.")
    for option, chosen, choices in (("checks", checks, CHECKS), ("inline", inline, INLINE)):
        if chosen is not None and chosen not in choices:
            raise ConfigError(f"{option}={chosen!r} is unknown; choose {', '.join(choices)}.")
    for option, given in mappings.items():
        if given is not None and not isinstance(given, Mapping):
            raise ConfigError(
                f"{option}={given!r} is a {type(given).__name__}; give a dict, from each name to its text."
            )
    for name, text in (mappings["headers"] or {}).items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise ConfigError(
                f"headers[{name!r}] is a {type(text).__name__}; give a str for each name: the text."
            )


def _for_consumer(linked: Linked, arch: Arch, options: LinkOptions, consumer: Consumer) -> Linked:
    """Return *linked* as the driver of *consumer* loads it."""
    if not linked.ptx:
        release = backends.linker(linked.backend).version()
        if release[0] != consumer.release[0]:
            raise LinkError(
                f"{', '.join(linked.inputs)} were linked by a tool of CUDA {release[0]} ({linked.reason}), "
                f"whose machine code is not for {consumer.asked}; give PTX, CUDA C++ or Python alone, and "
                "leave backend, inline, debug, lineinfo and extra_flags out, or link in an environment of "
                f"CUDA {consumer.release[0]}.",
                inputs=linked.inputs,
            )
        return linked
    if options.max_registers is not None or options.extra_flags:
        raise LinkError(
            f"max_registers and extra_flags are for the tools of this environment, and not for "
            f"{consumer.asked}; leave them out."
        )
    ptx = consumer.lowered(linked.ptx.encode(errors="surrogateescape"), arch)
    asked = AssembleOptions(debug=options.debug, lineinfo=options.lineinfo, opt_level=options.opt_level)
    cubin, tool = single_ptx.compile_ptx(ptx, arch, asked, consumer.release)
    reason = f"{linked.reason}; {tool}, for {consumer.asked}"
    return replace(linked, cubin=cubin, ptx=ptx.decode(errors="surrogateescape"), reason=reason)


def _python(
    sources: Sequence[Any], read_already: Sequence[Input], arch: Arch, front_end: str | None, *, lto: bool
) -> list[PythonCode]:
    """Compile the UDFs among *sources*, together, and each Python file."""
    groups: list[tuple[str, Any]] = [
        (Path(source).name, Path(source)) for source in sources if not isinstance(source, Udf)
    ]
    if udfs := [source for source in sources if isinstance(source, Udf)]:
        groups.append(("<udfs>", udfs))
    beside = {source.code for source in read_already if source.kind == LTOIR}
    found = []
    for name, group in groups:
        # Deferred: most links have no Python.
        from .exporter import compile_udfs

        found.append(compile_udfs(name, group, arch, lto=lto, front_end=front_end, beside=beside))
    return found


def _is_python(source: Any) -> bool:
    """Return whether *source* is a UDF, or the path of a Python file."""
    if isinstance(source, Udf):
        return True
    is_path = isinstance(source, os.PathLike) or (isinstance(source, str) and "\n" not in source)
    return is_path and Path(source).suffix == ".py"


def _wants_lto(files: Sequence[Input], python: int, *, asked: bool | None, consumer: Consumer | None) -> bool:
    """Return whether a link optimises: by default where an input is LTO-IR, or several can all become it."""
    ltoir = ", ".join(source.name for source in files if source.kind == LTOIR)
    if consumer and asked:
        raise LinkError(
            f"Link-time optimisation is by the linker of this environment, and not for {consumer.asked}; "
            "leave lto out."
        )
    if ltoir and (consumer or asked is False):
        raise LinkError(
            f"{ltoir} holds LTO-IR, which can only be linked with link-time optimisation, by the linker of "
            "this environment; leave out what forbids that, or give PTX, CUDA C++ or Python in its place.",
            inputs=(ltoir,),
        )
    if consumer:
        return False
    if asked is not None:
        return asked
    return bool(ltoir) or (len(files) + python > 1 and all(source.kind == CU for source in files))
