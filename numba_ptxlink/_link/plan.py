"""
Plan a link: which tool makes the machine code, of what, with which flags, and why. Nothing is run.

A tool is taken if it can make code of the inputs, reads their PTX, knows the GPU, and makes code that the
reader reads; the first such one in the table. nvPTXCompiler, which is the first, makes a cubin of one PTX. A
driver may be as old as the toolkit: so under one of an older major version its own nvJitLink takes its place,
and under any older one where line numbers are kept: cuobjdump 13.0 and 13.2 stop at those of 13.5.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._arch import dotted
from numba_ptxlink._config import BACKENDS
from numba_ptxlink._formats.kinds import CUBIN
from numba_ptxlink._tools import find
from numba_ptxlink._tools.options import LTO, NVJITLINK, PTXAS, Options, tool_of_flag
from numba_ptxlink.errors import AssembleError, ConfigError, LinkError

from . import backends
from .backends import CURRENT_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .backends import Environment, Release, Target, Tool
    from .fuse import Fusion
    from .read import Input

SINGLE_PTX = "one PTX and nothing to link it with"
REQUESTED = "asked for"
# Device functions with a body. nvPTXCompiler's time grows with the square of their number, and faster in
# chains of calls; that of a linker, which compiles relocatable code, is shorter from 200 small ones on.
_FUNCTION = rb"\.func\b[^;{]*\{"
_MANY = 200


class Plan(NamedTuple):
    """
    How machine code, or PTX, is made.

    Args:
        tool: What makes it, a row of `backends.TOOLS`.
        release: The release of the tool, None where nobody had to ask.
        flags: Its arguments.
        reason: Why it is done so, as one sentence.
        fusion: What it is made of.
        target: What the code is for.
        options: The options of the link.
        compatibility_warning: Why what is to read the code may not, "" where it does.
    """

    tool: Tool
    release: Release | None
    flags: tuple[str, ...]
    reason: str
    fusion: Fusion
    target: Target
    options: Options
    compatibility_warning: str = ""

    @property
    def inputs(self) -> tuple[Input, ...]:
        """What the tool gets."""
        return self.fusion.inputs

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs of the link."""
        return tuple(source.name for source in self.fusion.sources)

    def __str__(self) -> str:
        names, fused = ", ".join(self.names), ", ".join(self.fusion.fused)
        return (
            f"link {names} for {self.target.arch.sm}: {self.tool.name}, {self.reason}"
            f"{fused and f'; as one: {fused}'}; flags: {' '.join(self.flags)}"
        )


class _Choice(NamedTuple):
    tool: Tool
    release: Release | None
    reason: str
    compatibility_warning: str = ""


def plan(
    fusion: Fusion,
    target: Target,
    options: Options,
    environment: Environment = CURRENT_ENVIRONMENT,
    *,
    ptx: bool = False,
) -> Plan:
    """
    Return the plan of a link.

    Args:
        fusion: The inputs, compiled, checked and fused.
        target: What the code is for.
        options: The options of the link.
        environment: What is installed.
        ptx: Whether PTX is to be made, and no machine code.

    Raises:
        AssembleError: No tool makes code for the release that is to read it. Names the cure.
        ConfigError: The tool asked for does not exist.
        LinkError: The tool cannot link the inputs, would be spoilt by one, or would ignore a flag. Names the
            cure.
    """
    inputs = fusion.inputs
    if options.tool not in BACKENDS:
        raise ConfigError(f"There is no backend {options.tool!r}; choose {', '.join(BACKENDS)}.")
    first = environment.tools[0]
    apart = fusion.reason if len(inputs) > 1 and not fusion.fused else ""
    unsupported_inputs = ", ".join(filter(None, (first.unsupported_inputs(inputs, options, ptx=ptx), apart)))
    if options.tool == first.name and unsupported_inputs:
        raise LinkError(
            f"The backend {first.name} makes a cubin of PTX alone; here is {unsupported_inputs}. "
            "The backends nvjitlink and pynvjitlink can do it, and auto chooses one: "
            "set NUMBA_PTXLINK_BACKEND=auto or backend='auto'.",
            inputs=tuple(source.name for source in inputs),
        )
    if options.tool != "auto":
        choice = next(
            _Choice(tool, None, REQUESTED) for tool in environment.tools if tool.name == options.tool
        )
    elif unsupported_inputs:
        choice = _linker(unsupported_inputs, environment)
    else:
        choice = _compiler(inputs[0], target, options, environment)
    tool, release, reason, compatibility_warning = choice
    if fusion.fused:
        reason = fusion.reason if reason == SINGLE_PTX else f"{fusion.reason}; {reason}"
    if target.release:
        reader, made_by = environment.reader(target.release, options), release or tool.version(None)
        if reader and (refused := reader.incompatibility(tool, made_by)):
            names = tuple(source.name for source in fusion.sources)
            raise LinkError(
                f"{', '.join(names)}: {refused} ({reason}); give PTX, CUDA C++ or Python alone, and leave "
                "backend, inline, debug, lineinfo and extra_flags out, or link in an environment of CUDA "
                f"{target.release[0]}.",
                inputs=names,
            )
        reason += f"; for CUDA {dotted(target.release)}"
    tool_flags: tuple[str, ...]
    if tool.flag_syntax == PTXAS:
        tool_flags = (f"--gpu-name={target.arch.sm}", *options.to_flags(PTXAS, inputs[0].code))
    else:
        _refuse_for_linker(inputs, tool, options)
        stages = (*(("-lto",) if options.lto else ()), *(("-ptx",) if ptx and options.lto else ()))
        own = options.to_flags(LTO if options.lto else NVJITLINK)
        tool_flags = (f"-arch={target.arch.sm}", *stages, *own)
    return Plan(tool, release, tool_flags, reason, fusion, target, options, compatibility_warning)


def _linker(reason: str, environment: Environment) -> _Choice:
    """Return the linker that is installed, for a *reason*; raise what says how to install the first one."""
    found = environment.linker()
    first, *_ = (tool for tool in environment.tools if tool.flag_syntax == NVJITLINK)
    if found is None:
        return _Choice(first, first.version(None), reason)
    tool, release = found
    if tool != first:
        reason += ", and libnvJitLink is not found"
    return _Choice(tool, release, reason)


def _compiler(ptx: Input, target: Target, options: Options, environment: Environment) -> _Choice:
    """Return what compiles one PTX."""
    reader = environment.reader(target.release, options)
    rejections: list[str] = []
    fallback: _Choice | None = None
    for tool in environment.candidates(target.release, options):
        release = tool.release(reader)
        if release is None:
            continue
        compatibility_warning = reader.incompatibility(tool, release) if reader else ""
        # nvPTXCompiler stands in where nothing else does. What a toolkit knows, its libraries tell last.
        unfit = tool.unsupported_ptx(ptx, release) or (tool != environment.tools[0] and compatibility_warning)
        unfit = unfit or tool.unsupported_arch(target.arch, release)
        slow = (
            ""
            if unfit or compatibility_warning or rejections or target.release
            else _slow(ptx, tool, options)
        )
        if not (unfit or compatibility_warning or slow):
            return _Choice(tool, release, rejections[0] if rejections else SINGLE_PTX)
        rejections.append(unfit or compatibility_warning or slow)
        if fallback is None and not unfit:
            fallback = _Choice(tool, release, SINGLE_PTX, compatibility_warning)
    if target.release is not None:
        cause = unavailable(target.release, options, environment) or "; ".join(rejections)
        raise AssembleError(f"No cubin for CUDA {dotted(target.release)}: {cause}.")
    if fallback is None:
        # It tells best what nothing here reads or knows.
        return _Choice(environment.tools[0], None, SINGLE_PTX)
    return fallback._replace(reason=rejections[1]) if len(rejections) > 1 else fallback


def _slow(ptx: Input, tool: Tool, options: Options) -> str:
    if tool.flag_syntax != PTXAS or options.relocatable or options.debug or options.lineinfo:
        return ""
    # Patterns are compiled where they are used: here, where there are so many words.
    count = len(re.findall(_FUNCTION, ptx.code)) if ptx.code.count(b".func") > _MANY else 0
    return f"{count} functions, for which {tool.label} takes longer" if count > _MANY else ""


def _refuse_for_linker(inputs: Sequence[Input], tool: Tool, options: Options) -> None:
    """Refuse what spoils nvJitLink, and flags that it would ignore."""
    release = tool.version(None)
    for source in inputs:
        # After refusing it once, nvJitLink accepts undefined references.
        if unsupported_ptx := tool.unsupported_ptx(source, release):
            from .explain import upgrade

            package = backends.linker(tool.name).package()
            raise LinkError(f"{source.name} is {unsupported_ptx}; {upgrade(package)}", inputs=(source.name,))
    flags = options.extra_flags
    compiles = any(source.kind != CUBIN for source in inputs)
    if options.max_registers and not compiles:
        raise LinkError(
            f"max_registers={options.max_registers} is for what is compiled, and all inputs are machine "
            "code; give it to what compiles them."
        )
    for flag in () if options.lto else flags:
        if tool_of_flag(flag) == LTO:
            raise LinkError(
                f"extra_flags contains {flag!r}, which {tool.label} ignores without link-time optimisation; "
                "pass lto=True, or leave it out."
            )
        if tool_of_flag(flag) == PTXAS and not compiles:
            raise LinkError(
                f"extra_flags contains {flag!r}, which is ptxas's, and there is no PTX to compile; give it "
                "to what compiles the inputs."
            )


def unavailable(release: Release, options: Options, environment: Environment = CURRENT_ENVIRONMENT) -> str:
    """Return why no tool of this environment makes code for CUDA *release*, "" where one does."""
    reader = environment.reader(release, options)
    found = (tool.release(reader) for tool in environment.candidates(release, options))
    if reader is None or any(each and each <= reader.newest for each in found):
        return ""
    older = "or an older one" if options.relocatable else "or another one of its major version"
    wheel = find.package_of_ptxas(release)
    install = f"install its ptxas by `pip install '{wheel}'`, or " if wheel else ""
    first = environment.tools[0]
    return (
        f"it takes a compiler of CUDA {dotted(release)} {older}, and {first.label} is of "
        f"{dotted(first.version(None))}; {install}let PATH "
        "or CUDA_HOME lead to that toolkit; or leave the machine code out, since PTX holds the same functions"
    )
