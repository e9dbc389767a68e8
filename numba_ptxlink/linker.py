"""
One cubin out of many inputs: `link`, and the engine that numba-cuda's linker class becomes.

A lone PTX needs no linker: nvPTXCompiler makes a cubin of it in this process. Everything else goes to
nvJitLink, with CUDA C++ compiled by NVRTC first. Nothing here needs a driver.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _inputs, _nvjitlink, _nvrtc, _ptx, assembler, cache
from ._inputs import Input
from ._target import Arch, ArchLike
from .errors import LinkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Linked", "link"]

log = logging.getLogger("numba_ptxlink")

INCLUDE_DIR = Path(__file__).with_name("include")


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
    """

    cubin: bytes = field(repr=False)
    arch: Arch
    backend: str
    lto: bool
    reason: str
    flags: tuple[str, ...]
    inputs: tuple[str, ...]
    log: str

    def kernel(self, name: str) -> Any:
        """
        Load the cubin into the current context and return the `cuda.core` kernel *name*. Needs a device.

        Args:
            name: The kernel's symbol.
        """
        from cuda.core import ObjectCode

        return ObjectCode.from_cubin(self.cubin).get_kernel(name)


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
    """

    lto: bool | None = None
    debug: bool = False
    lineinfo: bool = False
    max_registers: int | None = None
    extra_flags: tuple[str, ...] = ()


def link(
    *inputs: Any,
    arch: ArchLike,
    lto: bool | None = None,
    debug: bool = False,
    lineinfo: bool = False,
    max_registers: int | None = None,
    include_dirs: Sequence[Path | str] = (),
    headers: Mapping[str, str] | None = None,
    nvrtc_flags: Sequence[str] = (),
    extra_flags: Sequence[str] = (),
) -> Linked:
    """
    Link *inputs* to one cubin. Needs neither a GPU nor a driver. Thread-safe; other threads run meanwhile.

    Args:
        inputs: Each a path; PTX or CUDA C++ text; bytes of PTX, LTO-IR, a cubin, an object, a fat binary or
            an archive; a file object; a `LinkableCode` of numba-cuda; or a UDF.
        arch: The GPU to generate code for, such as "sm_90".
        lto: Whether to optimise at link time. By default where an input is LTO-IR, and where several inputs
            can all become LTO-IR.
        debug: Whether to keep debug information.
        lineinfo: Whether to keep line numbers.
        max_registers: Cap on registers per thread.
        include_dirs: Directories that `#include` searches, before the toolkit's and this package's.
        headers: Headers held in memory, by the name that `#include` uses.
        nvrtc_flags: Further options for NVRTC.
        extra_flags: Further arguments for the tool that links.

    Raises:
        LinkError: An input could not be read, compiled or linked. Carries inputs, flags and log.
        AssembleError: A lone PTX could not be assembled.
        ConfigError: *arch* is no GPU architecture.
    """
    target = Arch.of(arch)
    if not inputs:
        raise LinkError("link() needs at least one input.")
    options = LinkOptions(lto, debug, lineinfo, max_registers, tuple(extra_flags))
    gathered = [
        source if _is_udf(source) else _inputs.read(source, number)
        for number, source in enumerate(inputs, start=1)
    ]
    wants_lto = _wants_lto(gathered, asked=lto)
    udfs = [each for each in gathered if not isinstance(each, Input)]
    remarks: list[str] = []
    ready: list[Input] = []
    for each in gathered:
        if isinstance(each, Input) and each.kind == "cu":
            compiled = _nvrtc.compile_source(
                each.code,
                each.name,
                target,
                output="ltoir" if wants_lto else "ptx",
                flags=_nvrtc_flags(options, nvrtc_flags),
                include_dirs=(*include_dirs, INCLUDE_DIR, *_nvrtc.toolkit_include_dirs()),
                headers=headers,
            )
            remarks.append(compiled.log)
            ready.append(Input("ltoir" if wants_lto else "ptx", each.name, compiled.code))
        elif isinstance(each, Input):
            ready.append(each)
    if udfs:
        from .exporter import compile_udfs

        kind = "ltoir" if wants_lto else "ptx"
        ready.append(Input(kind, "<udfs>", compile_udfs(udfs, target, kind)))
    linked = link_inputs(ready, target, options, lto=wants_lto)
    remarks.append(linked.log)
    return replace(linked, log="\n".join(filter(None, remarks)))


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
    backend, reason = choose_backend(inputs, lto=lto)
    names = tuple(each.name for each in inputs)
    log.info("link %s for %s: %s, %s", ", ".join(names), arch.sm, backend, reason)
    if backend == "nvptxcompiler":
        (ptx,) = inputs
        cubin = assembler.assemble(
            ptx.code.rstrip(b"\0"),
            arch,
            opt_level=0 if options.debug else 3,
            debug=options.debug,
            lineinfo=options.lineinfo,
            max_registers=options.max_registers,
            extra_flags=options.extra_flags,
        )
        return Linked(cubin.code, arch, backend, False, reason, cubin.flags, names, cubin.info_log)
    flags = nvjitlink_flags(arch, options, lto=lto)
    key = _nvjitlink.key([(each.kind, each.name, each.code) for each in inputs], flags)
    made = cache.cached(key, lambda: _run_nvjitlink(inputs, flags))
    return Linked(made.code, arch, backend, lto, reason, flags, names, made.log)


def _run_nvjitlink(inputs: Sequence[Input], flags: tuple[str, ...]) -> cache.Entry:
    product = _nvjitlink.link([(each.kind, each.name, each.code) for each in inputs], flags)
    text = "\n".join(filter(None, (product.info_log, product.error_log)))
    return cache.Entry({"log": text}, product.code)


def choose_backend(inputs: Sequence[Input], *, lto: bool) -> tuple[str, str]:
    """Return which tool can make a cubin of *inputs*, and why."""
    if lto:
        return "nvjitlink", "link-time optimisation"
    if len(inputs) > 1:
        return "nvjitlink", f"{len(inputs)} inputs"
    if inputs[0].kind != "ptx":
        return "nvjitlink", f"the input is a {inputs[0].kind}"
    declared = _ptx.version(inputs[0].code.decode(errors="replace"))
    newest = max(assembler.supported_ptx_versions())
    if declared is not None and declared > newest:
        return "nvjitlink", f"PTX {declared} is newer than nvPTXCompiler's {newest}"
    return "nvptxcompiler", "one PTX and nothing to link it with"


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


def _nvrtc_flags(options: LinkOptions, further: Sequence[str]) -> tuple[str, ...]:
    return (
        *(("--device-debug",) if options.debug else ()),
        *(("--generate-line-info",) if options.lineinfo else ()),
        *further,
    )


def __getattr__(name: str) -> Any:
    # PtxLinker derives its errors from numba-cuda's, so naming it imports numba-cuda.
    if name == "PtxLinker":
        from ._numba_linker import PtxLinker

        return PtxLinker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
