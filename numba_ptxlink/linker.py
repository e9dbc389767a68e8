"""
One cubin out of many inputs: `link`, and the engine that numba-cuda's linker class becomes.

A lone PTX needs no linker: nvPTXCompiler makes a cubin of it in this process. Everything else goes to
nvJitLink, with CUDA C++ compiled by NVRTC first. Nothing here needs a driver.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _backends, _checks, _explain, _inputs, _nvrtc, _symbols, assembler, cache
from ._config import CHECKS, config
from ._inputs import Input
from ._sources import SourceOptions, compile_once
from ._target import Arch, ArchLike
from .errors import AssembleError, ConfigError, LinkError, PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Linked", "link"]

log = logging.getLogger("numba_ptxlink")

INCLUDE_DIR = Path(__file__).with_name("include")

_RUNTIME = "cudadevrt"
# What groups of a whole grid, and launches from the device, call.
_RUNTIME_CALL = re.compile(r"'(?:cudaCG[A-Z]|__cudaCDP2)\w+'")


@dataclass(frozen=True)
class Linked:
    """
    What a link made.

    Args:
        cubin: Machine code that a driver can load.
        arch: The GPU it is for.
        backend: The tool that made it: "nvptxcompiler" or "nvjitlink".
        lto: Whether it was optimised at link time.
        reason: Why that tool and that choice.
        flags: The exact arguments the tool was given.
        inputs: The names of the inputs, in order.
        log: What the tools remarked.
        lowered_names: The symbol of each name expression that was asked for.
    """

    cubin: bytes = field(repr=False)
    arch: Arch
    backend: str
    lto: bool
    reason: str
    flags: tuple[str, ...]
    inputs: tuple[str, ...]
    log: str
    lowered_names: Mapping[str, str] = field(default_factory=dict)

    def kernel(self, name: str) -> Any:
        """
        Load the cubin into the current context and return the `cuda.core` kernel *name*. Needs a device.

        Args:
            name: The kernel's symbol, or a name expression that was asked for.
        """
        from cuda.core import ObjectCode

        return ObjectCode.from_cubin(self.cubin).get_kernel(self.lowered_names.get(name, name))


@dataclass(frozen=True)
class LinkOptions:
    """
    How to link.

    Args:
        lto: Whether to optimise at link time; None where the inputs decide.
        debug: Whether to keep debug information.
        lineinfo: Whether to keep line numbers.
        max_registers: Cap on registers per thread, None for none.
        extra_flags: Further arguments for the tool that links.
        backend: The tool to use, None for NUMBA_PTXLINK_BACKEND's.
        checks: How much is compared before the link, None for NUMBA_PTXLINK_CHECKS's.
    """

    lto: bool | None = None
    debug: bool = False
    lineinfo: bool = False
    max_registers: int | None = None
    extra_flags: tuple[str, ...] = ()
    backend: str | None = None
    checks: str | None = None


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
        inputs: Each a path; PTX or CUDA C++ text; bytes of PTX, LTO-IR, a cubin, an object, a fat binary or
            an archive; a file object; a `LinkableCode` of numba-cuda; or a UDF. The device runtime is added
            where one of them calls it.
        arch: The GPU to generate code for, such as "sm_90".
        lto: Whether to optimise at link time. By default where an input is LTO-IR, and where several inputs
            can all become LTO-IR.
        debug: Whether to keep debug information.
        lineinfo: Whether to keep line numbers.
        max_registers: Cap on registers per thread.
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
            is never exchanged for another.
        checks: How much is compared before the link: "all", "cheap" or "none"; NUMBA_PTXLINK_CHECKS's by
            default, or "cheap". "cheap" reads all symbols but those of LTO-IR of more than 8 KiB together,
            which only a compilation tells; "all" compiles that as well. "none" compares nothing, and refuses
            only what NVIDIA's libraries crash on or are spoilt by: damaged containers, PTX that is too new,
            and cubins for another architecture.

    Raises:
        LinkError: An input could not be read, compiled or linked, the inputs contradict each other, or the
            backend cannot do it. Carries inputs, flags and log.
        AssembleError: A lone PTX could not be assembled.
        ConfigError: *arch* is no GPU architecture, or *backend* or *checks* is none of its choices.
    """
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
    gathered = [
        source if _is_udf(source) else _inputs.read(source, number)
        for number, source in enumerate(inputs, start=1)
    ]
    wants_lto = _wants_lto(gathered, asked=lto)
    udfs = [each for each in gathered if not isinstance(each, Input)]
    remarks: list[str] = []
    lowered: dict[str, str] = {}
    ready: list[Input] = []
    kind = "ltoir" if wants_lto else "ptx"
    for each in gathered:
        if isinstance(each, Input) and each.kind == "cu":
            toolkit = tuple(map(str, _nvrtc.toolkit_include_dirs()))
            compiled = compile_once(each, target, kind, replace(source_options, toolkit_dirs=toolkit))
            remarks.append(compiled.log)
            lowered.update(compiled.lowered_names)
            ready.append(Input(kind, each.name, compiled.code))
        elif isinstance(each, Input):
            ready.append(each)
    if udfs:
        from .exporter import compile_udfs

        ready.append(Input(kind, "<udfs>", compile_udfs(udfs, target, kind)))
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
    """Return the device runtime where a link without it failed for want of it; nvcc adds it unasked."""
    if not _wants_runtime(error, inputs):
        return None
    from cuda import pathfinder

    try:
        path = Path(pathfinder.find_static_lib(_RUNTIME))
    except (AttributeError, RuntimeError) as missing:
        log.warning(
            "the device runtime is called, and lib%s.a is not found (%s); "
            "install nvidia-cuda-runtime, or give its path as another input",
            _RUNTIME,
            missing,
        )
        return None
    log.info("%s is linked too: the device runtime is called", path.name)
    return Input("archive", path.name, path.read_bytes())


def _wants_runtime(error: PtxlinkError, inputs: Sequence[Input]) -> bool:
    return bool(_RUNTIME_CALL.search(error.log)) and not any(_RUNTIME in each.name for each in inputs)


def _is_udf(source: Any) -> bool:
    return hasattr(source, "function") and hasattr(source, "signature") and hasattr(source, "options")


def _wants_lto(inputs: Sequence[Any], *, asked: bool | None) -> bool:
    kinds = [each.kind if isinstance(each, Input) else "udf" for each in inputs]
    if asked is False and "ltoir" in kinds:
        names = ", ".join(each.name for each in inputs if isinstance(each, Input) and each.kind == "ltoir")
        raise LinkError(
            f"{names} holds LTO-IR, which can only be linked with link-time optimisation; "
            "leave lto out, or give PTX or a cubin in its place.",
            inputs=(names,),
        )
    if asked is not None:
        return asked
    return "ltoir" in kinds or (len(kinds) > 1 and set(kinds) <= {"cu", "udf"})


def link_inputs(inputs: Sequence[Input], arch: Arch, options: LinkOptions, *, lto: bool) -> Linked:
    """
    Link *inputs*, none of which is CUDA C++ any more.

    Raises:
        LinkError: nvJitLink refused the link.
        AssembleError: A lone PTX could not be assembled.
    """
    backend, reason = choose_backend(inputs, lto=lto, asked=options.backend)
    names = tuple(each.name for each in inputs)
    log.info("link %s for %s: %s, %s", ", ".join(names), arch.sm, backend, reason)
    if backend == "nvptxcompiler":
        (ptx,) = inputs
        try:
            cubin = assembler.assemble(
                ptx.code.rstrip(b"\0"),
                arch,
                opt_level=0 if options.debug else 3,
                debug=options.debug,
                lineinfo=options.lineinfo,
                max_registers=options.max_registers,
                extra_flags=options.extra_flags,
            )
        except AssembleError as error:
            cure = _explain.explain(error.log, [_symbols.table(ptx, arch)])
            message = "\n".join(filter(None, (f"{ptx.name}: {error}", cure)))
            raise AssembleError(message, flags=error.flags, inputs=names, log=error.log) from error
        if cubin.info_log:
            log.info("%s: %s", ptx.name, cubin.info_log.strip())
        return Linked(cubin.code, arch, backend, False, reason, cubin.flags, names, cubin.info_log)
    flags = nvjitlink_flags(arch, options, lto=lto)
    made = _run_nvjitlink(inputs, arch, flags, backend, options.checks)
    if made.log:
        log.info("%s: %s", ", ".join(names), made.log.strip())
    return Linked(made.code, arch, backend, lto, reason, flags, names, made.log)


def link_to_ptx(
    inputs: Sequence[Input], arch: Arch, options: LinkOptions, *, lto: bool
) -> tuple[cache.Entry, tuple[str, ...]]:
    """
    Return the PTX that link-time optimisation makes of *inputs*, and the flags that made it.

    Raises:
        LinkError: nvJitLink refused the link, or the backend asked for is none that links.
    """
    # Optimised or not, PTX out of a link is nothing that nvPTXCompiler makes.
    backend, _ = _backends.choose(inputs, lto=True, asked=options.backend or config().backend)
    flags = nvjitlink_flags(arch, options, lto=lto, ptx=lto)
    return _run_nvjitlink(inputs, arch, flags, backend, options.checks), flags


def _run_nvjitlink(
    inputs: Sequence[Input], arch: Arch, flags: tuple[str, ...], backend: str, asked: str | None
) -> cache.Entry:
    tool = _backends.linker(backend)
    checks = config().checks if asked is None else asked
    plain = [(each.kind, each.name, each.code) for each in inputs]
    # What is kept has passed the checks; what they would have left out is part of the key.
    key = tool.key(plain, flags, unread=_checks.unread(inputs, checks))
    return cache.cached(key, lambda: _check_and_link(inputs, arch, flags, tool, checks))


def _check_and_link(
    inputs: Sequence[Input], arch: Arch, flags: tuple[str, ...], tool: Any, checks: str
) -> cache.Entry:
    lto = "-lto" in flags
    findings = _checks.check(inputs, arch, tool.version(), tool.PACKAGE, lto=lto, checks=checks)
    if findings.merged:
        log.info("equal definitions merged: %s", ", ".join(findings.merged))
    names = tuple(each.name for each in findings.inputs)
    try:
        product = tool.link([(each.kind, each.name, each.code) for each in findings.inputs], flags)
    except LinkError as error:
        # The link is tried again with the device runtime, so nothing is compiled to explain this.
        explained = "none" if _wants_runtime(error, inputs) else checks
        cure = _explain.cure(
            error.log, findings.inputs, arch, tool.version(), tool.PACKAGE, lto=lto, checks=explained
        )
        if not cure:
            raise
        raise LinkError(f"{error}\n{cure}", flags=error.flags, inputs=error.inputs, log=error.log) from error
    if checks != "none" and any(line.startswith("error") for line in product.error_log.splitlines()):
        # nvJitLink calls this a success.
        raise LinkError(
            f"nvJitLink linked {', '.join(names)} wrongly:\n{product.error_log.strip()}\n"
            f"Correct the inputs; flags: {' '.join(flags)}.",
            flags=flags,
            inputs=names,
            log=product.error_log,
        )
    text = "\n".join(filter(None, (product.info_log, product.error_log)))
    return cache.Entry({"log": text}, product.code)


def choose_backend(inputs: Sequence[Input], *, lto: bool, asked: str | None = None) -> tuple[str, str]:
    """
    Return which tool makes a cubin of *inputs*, and why.

    Args:
        inputs: What is to be linked.
        lto: Whether link-time optimisation is wanted.
        asked: The tool to use, None for NUMBA_PTXLINK_BACKEND's.
    """
    return _backends.choose(inputs, lto=lto, asked=config().backend if asked is None else asked)


def nvjitlink_flags(arch: Arch, options: LinkOptions, *, lto: bool, ptx: bool = False) -> tuple[str, ...]:
    """Return the argument vector for nvJitLink."""
    return (
        f"-arch={arch.sm}",
        *(("-lto",) if lto else ()),
        *(("-ptx",) if ptx else ()),
        *(("-g",) if options.debug else ()),
        *(("-lineinfo",) if options.lineinfo else ()),
        *((f"-maxrregcount={options.max_registers}",) if options.max_registers else ()),
        *options.extra_flags,
    )


def source_flags(options: LinkOptions) -> tuple[str, ...]:
    """Return the arguments for NVRTC that keep what *options* wants kept."""
    if options.debug:
        return ("--device-debug",)
    return ("--generate-line-info",) if options.lineinfo else ()


def __getattr__(name: str) -> Any:
    # PtxLinker derives its errors from numba-cuda's, so naming it imports numba-cuda.
    if name == "PtxLinker":
        from ._numba_linker import PtxLinker

        return PtxLinker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
