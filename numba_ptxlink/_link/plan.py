"""
Plan a link: which tool makes the cubin, with which flags, and what of the PTX becomes one module before.

nvPTXCompiler is inside this package, whatever toolkit is installed, and makes a cubin of PTX alone. A driver
loads machine code of every release of its own major version and of older ones. So under a toolkit of an older
major version, whose drivers may be as old, the toolkit's own nvJitLink takes its place, as far as it knows
device and PTX. So it does under any older toolkit where line numbers are kept: cuobjdump 13.0 and 13.2 stop
at those of 13.5.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink import assembler
from numba_ptxlink._arch import Arch, dotted
from numba_ptxlink._config import BACKENDS, config
from numba_ptxlink._formats.kinds import PTX
from numba_ptxlink._tools.options import DEFAULT_LEVEL, AssembleOptions
from numba_ptxlink.errors import ConfigError, LinkError, PtxlinkError

from . import backends

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import PtxVersion

    from .fuse import Fused
    from .read import Input

USUAL = "one PTX and nothing to link it with"
ASKED = "asked for"
# Device functions with a body. nvPTXCompiler's time grows with the square of their number, and faster in
# chains of calls; that of a linker, which compiles relocatable code, is shorter from 200 small ones on.
_FUNCTION = re.compile(rb"\.func\b[^;{]*\{")
_MANY = 200
# What a compiler says after the line's number, if it names one.
_ERROR = re.compile(r"(?:error|fatal)\s*: (.+)")


class LinkOptions(NamedTuple):
    """
    The options of a link.

    Args:
        lto: Whether to optimise at link time.
        debug: Whether to keep debug information.
        lineinfo: Whether to keep line numbers.
        max_registers: Limit on registers per thread, None for no limit.
        extra_flags: Further arguments for the tool that links.
        backend: The tool to use, None for NUMBA_PTXLINK_BACKEND's.
        checks: How much is compared before the link, None for NUMBA_PTXLINK_CHECKS's.
        inline: Which calls between PTX inputs are inlined, None for NUMBA_PTXLINK_INLINE's.
        opt_level: 0 to 3. Under *debug*, and where the `.target` of PTX says debug, an assembled PTX gets 0.
    """

    lto: bool = False
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
    def compares(self) -> bool:
        """Whether inputs are compared, by default what NUMBA_PTXLINK_CHECKS says."""
        return (config().checks if self.checks is None else self.checks) != "none"

    @property
    def inlined(self) -> str:
        """Which calls are inlined, by default those that NUMBA_PTXLINK_INLINE says."""
        return config().inline if self.inline is None else self.inline

    @property
    def for_assembler(self) -> AssembleOptions:
        """The options of nvPTXCompiler."""
        return AssembleOptions(
            opt_level=0 if self.debug else self.opt_level,
            debug=self.debug,
            lineinfo=self.lineinfo,
            max_registers=self.max_registers,
            extra_flags=self.extra_flags,
        )

    @property
    def for_sources(self) -> tuple[str, ...]:
        """The options of NVRTC."""
        return ("--device-debug",) if self.debug else ("--generate-line-info",) * self.lineinfo


@dataclass(frozen=True)
class Plan:
    """
    How a link is made.

    Args:
        tool: What makes the cubin: "nvptxcompiler", "nvjitlink" or "pynvjitlink".
        flags: Its arguments.
        inputs: What it gets.
        fused: The names of the PTX that became one of these inputs.
        reason: Why it is done so, as one sentence.
        sources: What the inputs were before PTX became one.
        arch: The architecture of the link.
        options: The options of the link.
        cubin: What the tool makes, where the cache has it already.
        inlined: How many calls between PTX are inlined.
        remarks: The calls that are not, and why.
    """

    tool: str
    flags: tuple[str, ...]
    inputs: tuple[Input, ...] = field(repr=False)
    fused: tuple[str, ...]
    reason: str
    sources: tuple[Input, ...] = field(repr=False)
    arch: Arch
    options: LinkOptions
    cubin: assembler.Cubin | None = field(default=None, repr=False)
    inlined: int = 0
    remarks: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs of the link."""
        return tuple(source.name for source in self.sources)

    def __str__(self) -> str:
        fused = f"; as one: {', '.join(self.fused)}" if self.fused else ""
        return (
            f"link {', '.join(self.names)} for {self.arch.sm}: {self.tool}, {self.reason}{fused}; "
            f"flags: {' '.join(self.flags)}"
        )


def plan(
    sources: Sequence[Input], arch: Arch, options: LinkOptions, *, apart: str = "", ptx: bool = False
) -> Plan:
    """
    Return the plan of a link.

    Args:
        sources: The inputs, compiled and checked.
        arch: The architecture of the link.
        options: The options of the link.
        apart: Why several PTX are not made one, where that is known.
        ptx: Whether PTX is to be made, and no cubin.

    Raises:
        ConfigError: The tool asked for does not exist.
        LinkError: The tool asked for cannot link *sources*, or would be spoilt by one. Names the cure.
    """
    if options.tool not in BACKENDS:
        raise ConfigError(f"There is no backend {options.tool!r}; choose {', '.join(BACKENDS)}.")
    inputs = sources = tuple(sources)
    fused = None if apart or ptx else _fused(sources, arch, options)
    if isinstance(fused, str):
        apart = fused
    elif fused is not None:
        inputs = fused.among(sources)
    cubin = None
    if ptx:
        # nvPTXCompiler does not output PTX.
        tool, reason = _linker("PTX output is requested") if options.tool == "auto" else (options.tool, ASKED)
        _refuse_compiler(tool, "PTX to be made", sources)
    elif cubin := None if apart else _kept(inputs, arch, options):
        tool, reason = "nvptxcompiler", USUAL if options.tool == "auto" else ASKED
    else:
        tool, reason = choose(inputs, arch, options, apart=apart)
    if tool == "nvptxcompiler":
        flags = options.for_assembler.arguments(arch, inputs[0].code)
    else:
        _refuse_too_new(inputs, tool)
        flags = nvjitlink_flags(arch, options, ptx=ptx)
    if fused is None or isinstance(fused, str):
        return Plan(tool, flags, inputs, (), reason, sources, arch, options, cubin)
    names = tuple(source.name for source in sources if source.kind == PTX)
    joined = f"{len(names)} PTX as one, {fused.inlined} call{'s' * (fused.inlined != 1)} inlined"
    reason = joined if reason == USUAL else f"{joined}; {reason}"
    made = Plan(tool, flags, inputs, names, reason, sources, arch, options, cubin)
    return replace(made, inlined=fused.inlined, remarks=fused.log)


def second(failed: Plan, error: PtxlinkError) -> Plan | None:
    """
    Return another plan for a link that failed, None where there is none.

    It has the device runtime, which nvcc adds by default, where that is called and missing; or leaves apart
    the PTX that became one, since an error then tells the cause in its terms.
    """
    runtime = backends.device_runtime() if backends.lacks_runtime(error, failed.sources) else None
    if runtime is not None:
        return plan((*failed.sources, runtime), failed.arch, failed.options)
    if not failed.fused or failed.options.tool == "nvptxcompiler":
        return None
    cause = next(iter(_ERROR.findall(error.log)), str(error).partition("\n")[0])
    return plan(failed.sources, failed.arch, failed.options, apart=f"refused as one: {cause}")


def _fused(sources: tuple[Input, ...], arch: Arch, options: LinkOptions) -> Fused | str | None:
    """Return the PTX of *sources* as one, the reason why it is not, or None where that is not expected."""
    texts = [source for source in sources if source.kind == PTX]
    fewest = 1 if options.inlined == "all" else 2
    if options.inlined == "none" or len(texts) < fewest or options.tool not in ("auto", "nvptxcompiler"):
        return None
    if options.debug or not options.opt_level:
        return "debug information is kept" if options.debug else "the code is not optimised"
    from numba_ptxlink._formats import ptx

    if options.lineinfo and any(ptx.has_line_numbers(source.text) for source in texts):
        return "line numbers are kept"
    if options.extra_flags and options.tool == "auto":
        return "the flags are nvJitLink's"
    from .fuse import fuse

    closed = len(texts) == len(sources) and not options.lto
    return fuse(texts, arch, everything=options.inlined == "all", closed=closed)


def choose(inputs: Sequence[Input], arch: Arch, options: LinkOptions, *, apart: str = "") -> tuple[str, str]:
    """
    Return the tool that makes a cubin of *inputs*, and the reason for it.

    Raises:
        LinkError: The tool asked for cannot link *inputs*. Names those that can.
    """
    obstacle = ", ".join(filter(None, (_obstacle(inputs, lto=options.lto), apart)))
    if options.tool == "nvptxcompiler":
        _refuse_compiler("nvptxcompiler", obstacle, inputs)
    if options.tool != "auto":
        return options.tool, ASKED
    if obstacle:
        return _linker(obstacle)
    (ptx,) = inputs
    for_debugger = options.debug or options.lineinfo
    count = len(_FUNCTION.findall(ptx.code))
    if count > _MANY and not for_debugger and not options.extra_flags and _linker_reads(ptx, arch):
        return _linker(f"{count} functions, for which nvPTXCompiler takes longer")
    return for_one_ptx(ptx, arch, for_debugger=for_debugger)


def _kept(inputs: Sequence[Input], arch: Arch, options: LinkOptions) -> assembler.Cubin | None:
    """Return the cubin of a single PTX that the cache has and drivers load; no tool has to be asked."""
    asked = options.tool
    if len(inputs) != 1 or inputs[0].kind != PTX or options.lto or asked not in ("auto", "nvptxcompiler"):
        return None
    if asked == "auto" and (options.debug or options.lineinfo):
        return None  # The release of the toolkit decides.
    with contextlib.suppress(PtxlinkError):  # What is wrong with the PTX is told by the tool.
        kept = assembler.kept(inputs[0].code, arch, options.for_assembler)
        if kept is not None and (asked != "auto" or backends.is_served(kept[1])):
            return kept[0]
    return None


def _refuse_compiler(tool: str, obstacle: str, inputs: Sequence[Input]) -> None:
    if tool == "nvptxcompiler" and obstacle:
        raise LinkError(
            f"The backend nvptxcompiler makes a cubin of PTX alone; here is {obstacle}. "
            "The backends nvjitlink and pynvjitlink can do it, and auto chooses one: "
            "set NUMBA_PTXLINK_BACKEND=auto or backend='auto'.",
            inputs=tuple(source.name for source in inputs),
        )


def _obstacle(inputs: Sequence[Input], *, lto: bool) -> str:
    """Return why nvPTXCompiler cannot make the cubin, "" where it can."""
    if lto:
        return "link-time optimisation"
    if len(inputs) > 1:
        return f"{len(inputs)} inputs"
    (source,) = inputs
    if source.kind != PTX:
        return f"{'an' if source.kind[0] in 'ao' else 'a'} {source.kind}"
    return ""


def _linker(reason: str) -> tuple[str, str]:
    try:
        backends.linker("nvjitlink").version()
    except LinkError as missing:
        try:
            backends.linker("pynvjitlink").version()
        except LinkError:
            raise missing from None
        return "pynvjitlink", f"{reason}, and nvJitLink is not there through cuda.bindings"
    return "nvjitlink", reason


def for_one_ptx(  # noqa: PLR0911 - a list of rules
    ptx: Input, arch: Arch, *, for_debugger: bool
) -> tuple[str, str]:
    """
    Return the tool that compiles a single PTX, and the reason for it.

    Args:
        ptx: The PTX.
        arch: The architecture of the link.
        for_debugger: Whether debug information or line numbers are kept, which the toolkit's programs read.
    """
    declared, compiler = ptx.header.version, assembler.compiler_version()
    newest = max(assembler.supported_ptx_versions())
    ours = f"nvPTXCompiler {dotted(compiler)}"
    if declared is not None and declared > newest:
        return _linker(f"PTX {declared}, newer than nvPTXCompiler's {newest}")
    known = Arch(*arch.cc) in assembler.supported_archs()
    # Loading nvJitLink to ask for its version takes longer than most kernels.
    found = None if known and backends.is_served(compiler) and not for_debugger else backends.installed()
    if found is None:
        return "nvptxcompiler", USUAL
    name, release = found
    older, theirs = release[0] < compiler[0], f"nvJitLink {dotted(release)}"
    # A newer release knows all devices of its major version; the next major version drops old ones.
    if (older or release > compiler) and not known:
        return name, f"{arch.sm}, which {ours} does not know"
    if release >= compiler or not (older or for_debugger):
        return "nvptxcompiler", USUAL
    if (most := _newest_isa(release)) and declared is not None and declared > most:
        return "nvptxcompiler", f"PTX {declared}, and {theirs} reads {most} at most"
    if not _toolkit_knows(arch, release):
        return "nvptxcompiler", f"{arch.sm}, which {theirs} does not know"
    reason = "drivers may not load" if older else "programs may not read line numbers in"
    return name, f"the toolkit is of CUDA {dotted(release)}, whose {reason} {ours}'s code"


def _linker_reads(ptx: Input, arch: Arch) -> bool:
    """Return whether this environment has a linker that is known to read *ptx* for *arch*."""
    found = backends.installed()
    declared, newest = ptx.header.version, _newest_isa(found[1]) if found else None
    return bool(found and declared and newest and declared <= newest and _toolkit_knows(arch, found[1]))


def _newest_isa(release: tuple[int, int]) -> PtxVersion | None:
    from numba_ptxlink._formats.ptx.header import sure_isa

    return sure_isa(release)


def _toolkit_knows(arch: Arch, release: tuple[int, int]) -> bool:
    """Return whether NVRTC, which tells its devices where nvJitLink does not, knows *arch* or cannot tell."""
    from numba_ptxlink._tools import nvrtc

    try:
        return nvrtc.version() != release or Arch(*arch.cc) in nvrtc.supported_archs()
    except LinkError:
        return True


def _refuse_too_new(inputs: Sequence[Input], tool: str) -> None:
    """Refuse PTX that is too new: after refusing it once, nvJitLink accepts undefined references."""
    linker = backends.linker(tool)
    release = linker.version()
    newest = _newest_isa(release)
    for source in inputs:
        declared = source.header.version if source.kind == PTX else None
        if declared is not None and newest is not None and declared > newest:
            from .explain import upgrade

            raise LinkError(
                f"{source.name} is PTX {declared}, and nvJitLink {dotted(release)} reads {newest} at most; "
                + upgrade(linker.package()),
                inputs=(source.name,),
            )


def nvjitlink_flags(arch: Arch, options: LinkOptions, *, ptx: bool = False) -> tuple[str, ...]:
    """Return the argument vector for nvJitLink."""
    return (
        f"-arch={arch.sm}",
        *(("-lto",) if options.lto else ()),
        *(("-ptx",) if ptx and options.lto else ()),
        *((f"-O{options.opt_level}",) if options.opt_level != DEFAULT_LEVEL else ()),
        *(("-g",) if options.debug else ()),
        *(("-lineinfo",) if options.lineinfo else ()),
        *((f"-maxrregcount={options.max_registers}",) if options.max_registers else ()),
        *options.extra_flags,
    )
