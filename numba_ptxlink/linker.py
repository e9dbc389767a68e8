"""
Link many inputs to one cubin: `link`.

It reads the inputs, compiles CUDA C++ and UDFs, adds the device runtime where it is called, and passes the
result to `_link.engine`. Nothing here needs a driver.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._arch import Arch, ArchLike
from ._config import CHECKS, config
from ._formats.kinds import ARCHIVE, CU, LTOIR, PTX
from ._front_end import PtxLinker
from ._link.engine import RUNTIME, Linked, LinkOptions, link_inputs, source_flags, wants_runtime
from ._link.inputs import Input, read
from ._link.sources import SourceOptions, compile_once
from ._tools import nvrtc, packages
from ._udf import Udf
from .errors import AssembleError, ConfigError, LinkError, PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Linked", "PtxLinker", "link"]

log = logging.getLogger(__name__)

INCLUDE_DIR = Path(__file__).with_name("include")


def link(
    *inputs: Any,
    arch: ArchLike,
    lto: bool | None = None,
    debug: bool = False,
    lineinfo: bool = False,
    max_registers: int | None = None,
    include_dirs: Sequence[Path | str] = (),
    headers: Mapping[str, str] | None = None,
    defines: Mapping[str, str | None] | None = None,
    cxx_standard: str | None = None,
    name_expressions: Sequence[str] = (),
    nvrtc_flags: Sequence[str] = (),
    extra_flags: Sequence[str] = (),
    backend: str | None = None,
    checks: str | None = None,
) -> Linked:
    """
    Link *inputs* to one cubin. Needs neither a GPU nor a driver. Thread-safe; other threads run meanwhile.

    Args:
        inputs: Each a path; PTX or CUDA C++ text, which a `str` is if it has a line break, or reads as such
            and names no file; bytes of PTX, LTO-IR, a cubin, an object, a fat binary or
            an archive; a file object; a `LinkableCode` of numba-cuda; or a UDF. The device runtime is added
            where one of them calls it.
        arch: The GPU to generate code for, such as "sm_90".
        lto: Whether to optimise at link time. By default where an input is LTO-IR, and where several inputs
            can all become LTO-IR.
        debug: Whether to keep debug information.
        lineinfo: Whether to keep line numbers.
        max_registers: Limit on registers per thread.
        include_dirs: Directories that `#include` searches, before the toolkit's and this package's.
        headers: Headers held in memory, by the name that `#include` uses.
        defines: Macros for CUDA C++ and their values; None defines without one.
        cxx_standard: The C++ standard, such as "c++20"; NVRTC's own by default.
        name_expressions: C++ names of functions, variables and template instances, such as "scale<float>":
            templates are instantiated, and the result's `lowered_names` has the symbols. Each CUDA C++ input
            has to know all of them.
        nvrtc_flags: Further options for NVRTC.
        extra_flags: Further arguments for the tool that links.
        backend: "auto", "nvptxcompiler", "nvjitlink" or "pynvjitlink"; NUMBA_PTXLINK_BACKEND's by default. It
            is never replaced by another.
        checks: How much is compared before the link: "all", "cheap" or "none"; NUMBA_PTXLINK_CHECKS's by
            default, or "cheap". "cheap" reads all symbols except those of LTO-IR of more than 8 KiB in total,
            which has to be compiled to read them; "all" compiles that as well. "none" compares nothing, and
            refuses only inputs that crash NVIDIA's libraries or corrupt their state: damaged containers, PTX
            that is too new, and cubins for another architecture.

    Raises:
        LinkError: An input could not be read, compiled or linked, the inputs contradict each other, or the
            backend cannot do it. Carries inputs, flags and log.
        AssembleError: A single PTX could not be assembled.
        ConfigError: *arch* is no GPU architecture, or *backend* or *checks* is none of its choices.
    """
    config()
    target = Arch.of(arch)
    if checks is not None and checks not in CHECKS:
        raise ConfigError(f"checks={checks!r} is unknown; choose {', '.join(CHECKS)}.")
    if not inputs:
        raise LinkError("link() needs at least one input.")
    options = LinkOptions(lto, debug, lineinfo, max_registers, tuple(extra_flags), backend, checks)
    source_options = SourceOptions(
        include_dirs=(*map(str, include_dirs), str(INCLUDE_DIR)),
        headers=tuple((headers or {}).items()),
        defines=tuple((defines or {}).items()),
        cxx_standard=cxx_standard,
        name_expressions=tuple(name_expressions),
        flags=(*source_flags(options), *nvrtc_flags),
    )
    sources = [
        source if isinstance(source, Udf) else read(source, number)
        for number, source in enumerate(inputs, start=1)
    ]
    wants_lto = _wants_lto(sources, asked=lto)
    udfs = [source for source in sources if not isinstance(source, Input)]
    remarks: list[str] = []
    lowered: dict[str, str] = {}
    ready: list[Input] = []
    kind = LTOIR if wants_lto else PTX
    for source in sources:
        if isinstance(source, Input) and source.kind == CU:
            toolkit = tuple(map(str, nvrtc.toolkit_include_dirs()))
            compiled = compile_once(source, target, kind, replace(source_options, toolkit_dirs=toolkit))
            remarks.append(compiled.log)
            lowered.update(compiled.lowered_names)
            ready.append(Input(kind, source.name, compiled.code))
        elif isinstance(source, Input):
            ready.append(source)
    if udfs:
        from .exporter import compile_udfs

        compiled_kind, code = compile_udfs(udfs, target, lto=wants_lto)
        ready.append(Input(compiled_kind, "<udfs>", code))
    try:
        linked = link_inputs(ready, target, options, lto=wants_lto)
    except (LinkError, AssembleError) as error:
        runtime = _device_runtime(error, ready)
        if runtime is None:
            raise
        linked = link_inputs([*ready, runtime], target, options, lto=wants_lto)
    remarks.append(linked.log)
    return replace(linked, log="\n".join(filter(None, remarks)), lowered_names=lowered)


def _device_runtime(error: PtxlinkError, inputs: Sequence[Input]) -> Input | None:
    """Return the device runtime where a link failed because it lacks it; nvcc adds it by default."""
    if not wants_runtime(error, inputs):
        return None
    from cuda import pathfinder

    try:
        path = Path(pathfinder.find_static_lib(RUNTIME))
    except (AttributeError, RuntimeError) as missing:
        log.warning(
            "the device runtime is called, and lib%s.a is not found (%s); "
            "install %s, or give its path as another input",
            RUNTIME,
            missing,
            packages.package("nvidia-cuda-runtime"),
        )
        return None
    log.info("%s is linked too: the device runtime is called", path.name)
    return Input(ARCHIVE, path.name, path.read_bytes())


def _wants_lto(inputs: Sequence[Any], *, asked: bool | None) -> bool:
    kinds = [source.kind if isinstance(source, Input) else "udf" for source in inputs]
    if asked is False and LTOIR in kinds:
        names = ", ".join(
            source.name for source in inputs if isinstance(source, Input) and source.kind == LTOIR
        )
        raise LinkError(
            f"{names} holds LTO-IR, which can only be linked with link-time optimisation; "
            "leave lto out, or give PTX or a cubin in its place.",
            inputs=(names,),
        )
    if asked is not None:
        return asked
    return LTOIR in kinds or (len(kinds) > 1 and set(kinds) <= {CU, "udf"})
