"""
Link inputs, after CUDA C++ is compiled, to a cubin: choose the tool, check the inputs, cache the result.

A single PTX needs no linker: nvPTXCompiler assembles it in this process, unless the toolkit is of an older
major version. Everything else goes to nvJitLink. Nothing here needs a driver.

What a link that is found in the cache does not need is imported where it is used: that takes longer than the
rest.
"""

from __future__ import annotations

import contextlib
import logging
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink import assembler, cache
from numba_ptxlink._config import config
from numba_ptxlink._formats.kinds import PTX
from numba_ptxlink._tools.ptxas_options import DEFAULT_LEVEL, AssembleOptions
from numba_ptxlink.errors import AssembleError, LinkError, PtxlinkError

from . import backends, undefined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numba_ptxlink._arch import Arch

    from .fusion.fuse import Fused
    from .inputs import Input

log = logging.getLogger(__name__)

# One of these is before whatever other PTX, or a driver, can reach.
_REACHED = (b".visible", b".weak", b".common")
# Device functions with a body. nvPTXCompiler's time grows with the square of their number, and faster in
# chains of calls; that of a linker, which compiles relocatable code, is shorter from 200 small ones on.
_FUNCTION = re.compile(rb"\.func\b[^;{]*\{")
_MANY = 200
# What nvPTXCompiler says after the line's number, if it names one.
_ERROR = re.compile(r"(?:error|fatal)\s*: (.+)")


@dataclass(frozen=True)
class Linked:
    """
    The result of a link.

    Args:
        cubin: Machine code that a driver can load.
        arch: The architecture that the cubin is for.
        backend: The tool that made the cubin: "nvptxcompiler", "nvjitlink" or "pynvjitlink".
        lto: Whether the cubin was optimised at link time.
        reason: Why that tool was chosen.
        flags: The exact arguments of the tool.
        inputs: The names of the inputs, in order.
        log: The messages of the tools, and the calls between PTX inputs that were not inlined.
        lowered_names: The symbol of each requested name expression.
        inlined: The calls between PTX inputs that were inlined.
        ptx: The PTX module that the cubin was compiled from, "" if a linker combined the inputs.
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
    inlined: int = 0
    ptx: str = field(default="", repr=False)

    def kernel(self, name: str) -> Any:
        """
        Load the cubin into the current context and return the `cuda.core` kernel *name*. Needs a device.

        Args:
            name: The kernel's symbol, or a requested name expression.

        Raises:
            LinkError: cuda-core is not installed.
            LaunchError: There is no driver, or it cannot be used.
        """
        try:
            from cuda.core import ObjectCode
        except ImportError as error:
            raise LinkError(
                f"Linked.kernel() loads by cuda-core ({error}); install it: python -m pip install cuda-core."
            ) from error
        from numba_ptxlink._tools import driver

        # Without one cuda.core fails in the middle of its own start.
        driver.require()
        return ObjectCode.from_cubin(self.cubin).get_kernel(self.lowered_names.get(name, name))


class LinkOptions(NamedTuple):
    """
    The options of a link.

    Args:
        lto: Whether to optimise at link time; None to decide by the inputs.
        debug: Whether to keep debug information.
        lineinfo: Whether to keep line numbers.
        max_registers: Limit on registers per thread, None for no limit.
        extra_flags: Further arguments for the tool that links.
        backend: The tool to use, None for NUMBA_PTXLINK_BACKEND's.
        checks: How much is compared before the link, None for NUMBA_PTXLINK_CHECKS's.
        inline: Which calls between PTX inputs are inlined, None for NUMBA_PTXLINK_INLINE's.
        opt_level: 0 to 3. Under *debug*, and where the `.target` of PTX says debug, an assembled PTX gets 0.
    """

    lto: bool | None = None
    debug: bool = False
    lineinfo: bool = False
    max_registers: int | None = None
    extra_flags: tuple[str, ...] = ()
    backend: str | None = None
    checks: str | None = None
    inline: str | None = None
    opt_level: int = DEFAULT_LEVEL

    @property
    def tool(self) -> str:
        """The tool to use, NUMBA_PTXLINK_BACKEND's by default; "auto" to choose it."""
        return config().backend if self.backend is None else self.backend

    @property
    def comparison(self) -> str:
        """How much is compared, by default what NUMBA_PTXLINK_CHECKS says."""
        return config().checks if self.checks is None else self.checks

    @property
    def inlined(self) -> str:
        """Which calls are inlined, by default those that NUMBA_PTXLINK_INLINE says."""
        return config().inline if self.inline is None else self.inline


def link_inputs(inputs: Sequence[Input], arch: Arch, options: LinkOptions, *, lto: bool) -> Linked:
    """
    Link *inputs*, none of which is CUDA C++.

    Raises:
        LinkError: nvJitLink refused the link, or *inputs* define nothing.
        AssembleError: A single PTX could not be assembled.
    """
    linked = _link_inputs(inputs, arch, options, lto=lto)
    if not any(map(_defines, inputs)):
        from . import left_out

        left_out.refuse_empty(linked.cubin, inputs, arch, lto=lto)
    return linked


def _defines(source: Input) -> bool:
    """Return whether *source* is seen at a glance to define something."""
    return bool(source.witness) or (source.kind == PTX and any(word in source.code for word in _REACHED))


def _link_inputs(inputs: Sequence[Input], arch: Arch, options: LinkOptions, *, lto: bool) -> Linked:
    fused = _as_one(inputs, arch, options, lto=lto)
    if not isinstance(fused, str):
        try:
            linked = _linked(fused.among(inputs), arch, options, lto=lto)
        except (AssembleError, LinkError) as error:
            # The same of the inputs as they are tells the reason in their terms, or links them.
            log.debug("%s", error)
            fused = f"refused as one: {_first_error(error)}"
        else:
            return _of_parts(linked, fused, inputs)
    return _linked(inputs, arch, options, lto=lto, obstacle=fused)


def _linked(
    inputs: Sequence[Input], arch: Arch, options: LinkOptions, *, lto: bool, obstacle: str = ""
) -> Linked:
    kept = None if lto or obstacle else _kept(inputs, arch, options)
    if kept is not None:
        return kept
    backend, reason = backends.choose(
        inputs,
        arch,
        lto=lto,
        asked=options.tool,
        obstacle=obstacle or ("" if lto else _burden(inputs, arch, options)),
        for_debugger=options.debug or options.lineinfo,
    )
    names = tuple(source.name for source in inputs)
    log.info("link %s for %s: %s, %s", ", ".join(names), arch.sm, backend, reason)
    if backend == "nvptxcompiler":
        (ptx,) = inputs
        return _of_one(ptx, _assembled(ptx, arch, options), reason)
    flags = nvjitlink_flags(arch, options, lto=lto)
    try:
        entry = _run_nvjitlink(inputs, arch, flags, backend, options.comparison)
    except LinkError as error:
        from . import packed_ltoir

        without = packed_ltoir.replaced(inputs, arch, error.log) if lto else None
        if without is None:
            raise
        log.info("%s", without.reason)
        linked = link_inputs(without.inputs, arch, options, lto=without.lto)
        return replace(linked, reason=f"{linked.reason}; {without.reason}", inputs=names)
    if entry.log:
        log.info("%s: %s", ", ".join(names), entry.log.strip())
    return Linked(entry.code, arch, backend, lto, reason, flags, names, entry.log)


def _burden(inputs: Sequence[Input], arch: Arch, options: LinkOptions) -> str:
    """Return why a linker makes the cubin of a single PTX sooner than nvPTXCompiler, "" where it does not."""
    if len(inputs) != 1 or inputs[0].kind != PTX or options.tool != "auto" or options.extra_flags:
        return ""
    (ptx,) = inputs
    count = len(_FUNCTION.findall(ptx.code))
    if count <= _MANY or options.debug or options.lineinfo or not backends.linker_reads(ptx, arch):
        return ""
    return f"{count} functions, for which nvPTXCompiler takes longer"


def _kept(inputs: Sequence[Input], arch: Arch, options: LinkOptions) -> Linked | None:
    """Return the link of a single PTX that is in the cache and needs no tool to tell that it is right."""
    asked = options.tool
    if len(inputs) != 1 or inputs[0].kind != PTX or asked not in ("auto", "nvptxcompiler"):
        return None
    if asked == "auto" and (options.debug or options.lineinfo):
        return None  # The release of the toolkit decides.
    # What is wrong with the input is told below.
    with contextlib.suppress(PtxlinkError):
        (ptx,) = inputs
        kept = assembler.kept(ptx.code, arch, **_assemble_options(options))
        served = kept is not None and (asked != "auto" or backends.is_served(kept[1]))
        if kept is not None and served and not undefined.in_ptx(ptx):
            reason = backends.USUAL if asked == "auto" else backends.ASKED
            log.info("link %s for %s: nvptxcompiler, %s", ptx.name, arch.sm, reason)
            return _of_one(ptx, kept[0], reason)
    return None


def _of_one(ptx: Input, cubin: assembler.Cubin, reason: str) -> Linked:
    if cubin.info_log:
        log.info("%s: %s", ptx.name, cubin.info_log.strip())
    done = cubin.code, cubin.arch, "nvptxcompiler", False, reason, cubin.flags, (ptx.name,), cubin.info_log
    return Linked(*done, ptx=ptx.text.rstrip("\0"))


def _as_one(inputs: Sequence[Input], arch: Arch, options: LinkOptions, *, lto: bool) -> Fused | str:
    """Return the PTX of *inputs* as one, or the reason why it is not; "" where that is not to be expected."""
    asked, policy = options.tool, options.inlined
    texts = [source for source in inputs if source.kind == PTX]
    fewest = 1 if policy == "all" else 2
    if policy == "none" or len(texts) < fewest or asked not in ("auto", "nvptxcompiler"):
        return ""
    if options.debug or not options.opt_level:
        return "debug information is kept" if options.debug else "the code is not optimised"
    if options.lineinfo and any(source.module.has_line_numbers for source in texts):
        return "line numbers are kept"
    if options.extra_flags and asked == "auto":
        return "the flags are nvJitLink's"
    from .fusion.fuse import fuse

    closed = len(texts) == len(inputs) and not lto
    return fuse(texts, arch, checks=options.comparison, everything=policy == "all", closed=closed)


def _first_error(error: PtxlinkError) -> str:
    """Return the first error in the log of a tool, or what *error* itself says."""
    return next(iter(_ERROR.findall(error.log)), str(error).partition("\n")[0])


def _of_parts(linked: Linked, fused: Fused, inputs: Sequence[Input]) -> Linked:
    """Return the result of a link in terms of the inputs as they were before some of them became one."""
    if fused.log:
        log.info("%s", fused.log)
    count = sum(source.kind == PTX for source in inputs)
    calls = f"{fused.inlined} call{'' if fused.inlined == 1 else 's'}"
    joined = f"{count} PTX as one, {calls} inlined"
    return replace(
        linked,
        reason="; ".join((joined, *([linked.reason] if linked.reason != backends.USUAL else []))),
        inputs=tuple(source.name for source in inputs),
        log="\n".join(filter(None, (linked.log, fused.log))),
        inlined=fused.inlined,
        ptx=fused.input.text if count == len(inputs) else "",
    )


def _assemble_options(options: LinkOptions) -> dict[str, Any]:
    return {
        "opt_level": 0 if options.debug else options.opt_level,
        "debug": options.debug,
        "lineinfo": options.lineinfo,
        "max_registers": options.max_registers,
        "extra_flags": options.extra_flags,
    }


def _assembled(ptx: Input, arch: Arch, options: LinkOptions) -> assembler.Cubin:
    try:
        cubin = assembler.compile_ptx(ptx.code, arch, AssembleOptions(**_assemble_options(options)))
    except AssembleError as error:
        from . import explain, symbols

        cure = explain.explain(error.log, [symbols.table(ptx, arch)])
        said = str(error).removesuffix(f"\n{assembler.TO_RESOLVE}") if cure else str(error)
        message = "\n".join(filter(None, (f"{ptx.name}: {said}", cure)))
        raise AssembleError(message, flags=error.flags, inputs=(ptx.name,), log=error.log) from error
    undefined.refuse_in_ptx(ptx, arch)
    return cubin


def link_to_ptx(
    inputs: Sequence[Input], arch: Arch, options: LinkOptions, *, lto: bool
) -> tuple[cache.Entry, tuple[str, ...]]:
    """
    Return the PTX that link-time optimisation makes of *inputs*, and the flags of that link.

    Raises:
        LinkError: nvJitLink refused the link, or the backend of *options* does not link.
    """
    # nvPTXCompiler does not output PTX, so a linker is needed whether or not it optimises.
    backend, _ = backends.choose(inputs, arch, lto=True, asked=options.tool)
    flags = nvjitlink_flags(arch, options, lto=lto, ptx=lto)
    return _run_nvjitlink(inputs, arch, flags, backend, options.comparison), flags


def _run_nvjitlink(
    inputs: Sequence[Input], arch: Arch, flags: tuple[str, ...], backend: str, checks: str
) -> cache.Entry:
    from .checks import unread

    tool = backends.linker(backend)
    contents = [(source.kind, source.name, source.code) for source in inputs]
    # A cached result has passed the checks, so the key includes the inputs that the checks skip.
    key = tool.key(contents, flags, unread=unread(inputs, checks))
    return cache.cached(key, lambda: _check_and_link(inputs, arch, flags, tool, checks))


def _check_and_link(
    inputs: Sequence[Input], arch: Arch, flags: tuple[str, ...], tool: Any, checks: str
) -> cache.Entry:
    from . import device_runtime, explain
    from .checks import check

    lto = "-lto" in flags
    findings = check(inputs, arch, tool.version(), tool.package(), lto=lto, checks=checks)
    if findings.merged:
        log.info("equal definitions merged: %s", ", ".join(findings.merged))
    names = tuple(source.name for source in findings.inputs)
    try:
        contents = [(source.kind, source.name, source.code) for source in findings.inputs]
        product = tool.link(contents, flags)
        if lto and "-ptx" not in flags:
            loud = undefined.with_warnings(flags)
            told = product if loud == flags else tool.link(contents, loud)
            undefined.refuse_made(product.code, told.info_log, names, flags)
    except LinkError as error:
        # The caller retries the link with the device runtime, so compile nothing to explain this error.
        explained = "none" if device_runtime.is_missing(error, inputs) else checks
        cure = explain.cure(
            error.log, findings.inputs, arch, tool.version(), tool.package(), lto=lto, checks=explained
        )
        if not cure:
            raise
        raise LinkError(f"{error}\n{cure}", flags=error.flags, inputs=error.inputs, log=error.log) from error
    if checks != "none" and any(line.startswith("error") for line in product.error_log.splitlines()):
        # nvJitLink returns success here.
        raise LinkError(
            f"nvJitLink linked {', '.join(names)} wrongly:\n{product.error_log.strip()}\n"
            f"Correct the inputs; flags: {' '.join(flags)}.",
            flags=flags,
            inputs=names,
            log=product.error_log,
        )
    text = "\n".join(filter(None, (product.info_log, product.error_log)))
    return cache.Entry({"log": text}, product.code)


def nvjitlink_flags(arch: Arch, options: LinkOptions, *, lto: bool, ptx: bool = False) -> tuple[str, ...]:
    """Return the argument vector for nvJitLink."""
    return (
        f"-arch={arch.sm}",
        *(("-lto",) if lto else ()),
        *(("-ptx",) if ptx else ()),
        *((f"-O{options.opt_level}",) if options.opt_level != DEFAULT_LEVEL else ()),
        *(("-g",) if options.debug else ()),
        *(("-lineinfo",) if options.lineinfo else ()),
        *((f"-maxrregcount={options.max_registers}",) if options.max_registers else ()),
        *options.extra_flags,
    )


def source_flags(options: LinkOptions) -> tuple[str, ...]:
    """Return the NVRTC arguments for the debug information and line numbers that *options* keeps."""
    if options.debug:
        return ("--device-debug",)
    return ("--generate-line-info",) if options.lineinfo else ()
