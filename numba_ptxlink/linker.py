"""
Link many inputs to one cubin: `link`.

It reads the inputs, compiles CUDA C++ and UDFs, adds the device runtime where it is called, and passes the
result to `_link.engine`. Nothing here needs a driver.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._arch import Arch, ArchLike
from ._config import CHECKS, INLINE, config
from ._export.marks import Udf
from ._formats.kinds import CU, LTOIR, PTX
from ._front_end import registry
from ._link import backends, device_runtime, manifests, single_ptx
from ._link.declarations import Declared, check_types, compile_as_declared, declaration, declarations_of
from ._link.engine import Linked, LinkOptions, link_inputs, source_flags
from ._link.inputs import Input, read
from ._link.packed_ltoir import Reason, reason_for_lto
from ._link.sources import SourceOptions
from ._tools import include_scan, link_flags, nvrtc
from ._tools.nvrtc import INCLUDE_DIR
from ._tools.ptxas_options import AssembleOptions, check_asked
from .errors import AssembleError, ConfigError, LinkError, PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._link.consumer import Consumer

__all__ = ["INCLUDE_DIR", "Linked", "link"]

log = logging.getLogger(__name__)


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
    backend: str | None = None,
    checks: str | None = None,
    inline: str | None = None,
    cuda: str | tuple[int, int] | None = None,
    ptx_isa: str | tuple[int, int] | None = None,
    front_end: str | None = None,
) -> Linked:
    """
    Link *inputs* to one cubin. Needs neither a GPU nor a driver. Thread-safe; other threads run meanwhile.

    Args:
        inputs: Each a path; PTX or CUDA C++ text, which a `str` is if it has a line break, or reads as such
            and names no file; bytes of PTX, LTO-IR, a cubin, an object, a fat binary or an archive; a file
            object; a `LinkableCode` of numba-cuda; a UDF; or the path of a Python file, for its UDFs. The
            device runtime is added where one of them calls it.
        arch: The GPU to generate code for, such as "sm_90".
        lto: Whether to optimise at link time. By default where an input is LTO-IR, where several inputs
            can all become LTO-IR, and where LTO-IR in a fat binary, object or archive meets such inputs or is
            all that fits *arch* in it. What nvJitLink does not read of that is linked as PTX or machine code.
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
        checks: How much is compared before the link: "all", "cheap" or "none"; NUMBA_PTXLINK_CHECKS's by
            default, or "cheap". "cheap" reads all symbols except those of LTO-IR of more than 8 KiB in total,
            which has to be compiled to read them; "all" compiles that as well. "none" compares nothing, and
            refuses only inputs that crash NVIDIA's libraries or corrupt their state: damaged containers, PTX
            that is too new, and cubins for another architecture.
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
    consumer = _consumer(cuda, ptx_isa)
    if consumer is not None:
        lto = _without_lto(consumer, asked=lto)
    target = Arch.of(arch)
    _check_options(checks, inline, {"defines": defines, "headers": headers}, lto=lto)
    # What a single PTX may have, whatever tool links.
    AssembleOptions(debug=debug, lineinfo=lineinfo)
    check_asked(max_registers)
    passed = link_flags.check("extra_flags", extra_flags)
    if not inputs:
        raise LinkError("link() needs at least one input.")
    options = LinkOptions(lto, debug, lineinfo, max_registers, passed, backend, checks, inline)
    source_options = SourceOptions(
        include_dirs=(*map(str, include_scan.folders(include_dirs)), str(INCLUDE_DIR)),
        headers=tuple((headers or {}).items()),
        defines=tuple((defines or {}).items()),
        cxx_standard=cxx_standard,
        name_expressions=link_flags.as_texts("name_expressions", name_expressions),
        flags=(*source_flags(options), *link_flags.check("nvrtc_flags", nvrtc_flags)),
    )
    sources = [
        source if isinstance(source, Udf) or _is_python(source) else read(source, number)
        for number, source in enumerate(inputs, start=1)
    ]
    if consumer is not None:
        linked = _linked(
            sources,
            target,
            options,
            source_options,
            front_end,
            lto=_wants_lto(sources, asked=lto, consumer=consumer),
        )
        return _for_consumer(sources, linked, target, options, consumer)
    wants_lto = _wants_lto(sources, asked=lto)
    packed = Reason() if wants_lto or lto is False or debug else _packed_ltoir(sources, target)
    if packed.text:
        try:
            linked = _linked(sources, target, options, source_options, front_end, lto=True)
        except (LinkError, AssembleError) as error:
            if packed.needed:
                raise
            log.info("no link-time optimisation for the %s: %s", packed.text, error)
        else:
            return replace(linked, reason=f"{linked.reason}, for the {packed.text}")
    return _linked(sources, target, options, source_options, front_end, lto=wants_lto)


def _check_options(
    checks: str | None, inline: str | None, mappings: Mapping[str, Any], *, lto: object
) -> None:
    if lto is not None and not isinstance(lto, bool):
        raise ConfigError(f"lto is {lto!r}, of type {type(lto).__name__}; pass True, False or None.")
    if checks is not None and checks not in CHECKS:
        raise ConfigError(f"checks={checks!r} is unknown; choose {', '.join(CHECKS)}.")
    if inline is not None and inline not in INLINE:
        raise ConfigError(f"inline={inline!r} is unknown; choose {', '.join(INLINE)}.")
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


def _consumer(cuda: str | tuple[int, int] | None, ptx_isa: str | tuple[int, int] | None) -> Consumer | None:
    if cuda is None and ptx_isa is None:
        return None
    # Deferred: most links are for this environment, and it parses PTX.
    from ._link.consumer import Consumer

    return Consumer.of(cuda, ptx_isa)


def _without_lto(consumer: Consumer, *, asked: bool | None) -> bool:
    if asked:
        raise LinkError(
            f"Link-time optimisation is by the linker of this environment, and not for {consumer.asked}; "
            "leave lto out."
        )
    return False


def _for_consumer(
    sources: Sequence[Any], linked: Linked, arch: Arch, options: LinkOptions, consumer: Consumer
) -> Linked:
    """Return *linked* as the driver of *consumer* loads it."""
    if not linked.ptx:
        release = backends.linker(linked.backend).version()
        if release[0] != consumer.release[0]:
            raise LinkError(
                f"{', '.join(linked.inputs)} were linked by a tool of CUDA {release[0]} ({linked.reason}), "
                f"whose machine code is not for {consumer.asked}; "
                + _to_become_ptx(sources, linked, options)
                + f", or link in an environment of CUDA {consumer.release[0]}.",
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


def _to_become_ptx(sources: Sequence[Any], linked: Linked, options: LinkOptions) -> str:
    """Return what makes one PTX of *sources*, which a linker has combined."""
    if any(isinstance(source, Input) and source.kind not in (PTX, CU) for source in sources):
        return "give PTX, CUDA C++ or Python alone"
    cures = {
        "pass backend='auto'": options.tool not in ("auto", "nvptxcompiler"),
        "pass inline='auto'": options.inlined == "none",
        "leave debug out": options.debug,
        "leave lineinfo out": options.lineinfo and linked.reason.endswith("line numbers are kept"),
        "leave extra_flags out": bool(options.extra_flags),
    }
    return " and ".join(cure for cure, helps in cures.items() if helps) or "give PTX that can become one"


def _linked(
    sources: Sequence[Any],
    target: Arch,
    options: LinkOptions,
    source_options: SourceOptions,
    front_end: str | None,
    *,
    lto: bool,
) -> Linked:
    """Compile what is CUDA C++ or Python among *sources*, and link all of it."""
    kind = LTOIR if lto else PTX
    compares = options.comparison != "none"
    exports = _manifests(sources, source_options) if compares else []
    from_python, known, called = _compile_python(sources, target, front_end, lto=lto)
    for manifest in exports:
        known += declarations_of(manifest)
    for extern in called if compares else ():
        check_types(extern.origin, [(extern.name, extern.types)], known)
    remarks: list[str] = []
    lowered: dict[str, str] = {}
    ready: list[Input] = []
    for source in sources:
        if isinstance(source, Input) and source.kind == CU:
            toolkit = tuple(map(str, nvrtc.toolkit_include_dirs()))
            compiled = compile_as_declared(
                source,
                target,
                kind,
                replace(source_options, toolkit_dirs=toolkit),
                known if compares else (),
                wanted=called if compares else (),
            )
            remarks.append(compiled.log)
            lowered.update(compiled.lowered_names)
            ready.append(Input(kind, source.name, compiled.code, compiled=True))
        elif isinstance(source, Input):
            ready.append(source)
    ready += from_python
    if compares and any(source.kind not in (PTX, LTOIR) for source in ready):
        from ._link import left_out

        left_out.refuse_left_out(ready, target, lto=lto, checks=options.comparison)
    try:
        linked = link_inputs(ready, target, options, lto=lto)
    except (LinkError, AssembleError) as error:
        runtime = _device_runtime(error, ready)
        if runtime is None:
            raise
        linked = link_inputs([*ready, runtime], target, options, lto=lto)
    remarks.append(linked.log)
    return replace(linked, log="\n".join(filter(None, remarks)), lowered_names=lowered)


def _is_python(source: Any) -> bool:
    """Return whether *source* is the path of a Python file."""
    is_path = isinstance(source, os.PathLike) or (isinstance(source, str) and "\n" not in source)
    return is_path and Path(source).suffix == ".py"


def _compile_python(
    sources: Sequence[Any], arch: Arch, front_end: str | None, *, lto: bool
) -> tuple[list[Input], list[Declared], list[Declared]]:
    """Compile the UDFs, together, and each Python file; return these, and what they define and declare."""
    groups: list[tuple[str, Any]] = [
        (Path(source).name, Path(source)) for source in sources if not isinstance(source, (Input, Udf))
    ]
    if udfs := [source for source in sources if isinstance(source, Udf)]:
        groups.append(("<udfs>", udfs))
    beside = {source.code for source in sources if isinstance(source, Input) and source.kind == LTOIR}
    inputs: list[Input] = []
    defined: list[Declared] = []
    called: list[Declared] = []
    for name, group in groups:
        from .exporter import compile_udfs

        compiled = compile_udfs(group, arch, lto=lto, front_end=front_end, beside=beside)
        inputs.append(Input(compiled.kind, name, compiled.code, compiled=True))
        defined += [declaration(each, name) for each in compiled.signatures if not each.kernel]
        called += [declaration(signature, caller) for caller, signature in compiled.externs]
    return inputs, defined, called


def _manifests(sources: Sequence[Any], options: SourceOptions) -> list[manifests.Manifest]:
    """Return the manifests beside *sources*; refuse what disagrees with them."""
    listed = [manifests.of(source) for source in sources if isinstance(source, Input)]
    exports = list(filter(None, listed))
    names = {manifest.header for manifest in exports}
    for source in sources:
        if names and isinstance(source, Input) and source.kind == CU:
            found = include_scan.included(
                source.code, source.folder, names, options.include_dirs, dict(options.headers)
            )
            manifests.check_headers(exports, found.items())
    return exports


def _device_runtime(error: PtxlinkError, inputs: Sequence[Input]) -> Input | None:
    """Return the device runtime where a link failed because it lacks it; nvcc adds it by default."""
    if not device_runtime.is_missing(error, inputs):
        return None
    library = device_runtime.find()
    if library is not None:
        log.info("%s is linked too: the device runtime is called", library.name)
    return library


def _packed_ltoir(sources: Sequence[Any], arch: Arch) -> Reason:
    """Return why *sources* are optimised at link time for LTO-IR inside of one, or that they are not."""
    files = [source for source in sources if isinstance(source, Input)]
    return reason_for_lto(files, arch, python=len(files) < len(sources))


def _wants_lto(inputs: Sequence[Any], *, asked: bool | None, consumer: Consumer | None = None) -> bool:
    kinds = [source.kind if isinstance(source, Input) else "udf" for source in inputs]
    if asked is False and LTOIR in kinds:
        names = ", ".join(
            source.name for source in inputs if isinstance(source, Input) and source.kind == LTOIR
        )
        raise LinkError(
            f"{names} holds LTO-IR, which can only be linked with link-time optimisation"
            + (
                f", and that is not for {consumer.asked}; give PTX, CUDA C++ or Python in its place."
                if consumer
                else "; leave lto out, or give PTX or a cubin in its place."
            ),
            inputs=(names,),
        )
    if asked is not None:
        return asked
    return LTOIR in kinds or (len(kinds) > 1 and set(kinds) <= {CU, "udf"})
