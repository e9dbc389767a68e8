"""
Plan a link: choose the tool that makes the machine code, its flags, and the reason. Nothing is run.

A tool is taken if it can compile or link the inputs, reads their PTX, supports the GPU, and makes code that
the reader (a driver, linker or debugger) accepts: the first such tool of `backends.TOOLS`. nvPTXCompiler
comes first; it compiles one PTX module. Cubins of nvPTXCompiler may be too new: drivers of an older major
version reject them, and cuobjdump 13.0 and 13.2 fail on line numbers of 13.5. In these cases the nvJitLink of
the environment is taken.
"""

from __future__ import annotations

import enum
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

    from .backends import CubinReader, Environment, Release, Target, Tool
    from .fuse import Fusion
    from .read import Input

SINGLE_PTX = "one PTX and nothing to link it with"
"""The reason for nvPTXCompiler if the choice was free."""
REQUESTED = "requested"
"""The reason for a tool that the caller or NUMBA_PTXLINK_BACKEND names."""
# A device function with a body. nvPTXCompiler's time grows with the square of the number of functions: from
# 200 on, compiling relocatable code and linking is faster.
_FUNCTION = rb"\.func\b[^;{]*\{"
_MAX_FUNCTIONS = 200


class Rank(enum.IntEnum):
    """How bad it is to use a rejected tool all the same."""

    SLOWER = 1
    MAY_BE_UNREADABLE = 2
    UNUSABLE = 3


class Rejection(NamedTuple):
    """
    A tool that is not the first choice.

    Args:
        tool: The tool.
        release: The release of the tool; None if the rejection did not depend on it.
        rank: How bad it is to take the tool all the same, if no better tool is installed.
        reason: The reason, for messages.
    """

    tool: Tool
    release: Release | None
    rank: Rank
    reason: str


class Choice(NamedTuple):
    """
    The tool of a link.

    Args:
        tool: The tool.
        release: The release of the tool; None if the choice did not depend on it.
        rejections: The tools that were rejected, in the order of preference. The chosen tool is among them if
            no better tool is installed.
        default_reason: The reason for the choice if no other tool was rejected.
    """

    tool: Tool
    release: Release | None
    rejections: tuple[Rejection, ...] = ()
    default_reason: str = SINGLE_PTX

    @property
    def reason(self) -> str:
        """Why the first rejected tool, other than the chosen one, was rejected; else the default reason."""
        reasons = (rejection.reason for rejection in self.rejections if rejection.tool != self.tool)
        return next(reasons, self.default_reason)

    @property
    def compatibility_warning(self) -> str:
        """Why the reader may not accept the code; "" if it accepts it."""
        return next(
            (
                rejection.reason
                for rejection in self.rejections
                if rejection.tool == self.tool and rejection.rank == Rank.MAY_BE_UNREADABLE
            ),
            "",
        )


class Plan(NamedTuple):
    """
    The way in which machine code, or PTX, is made.

    Args:
        tool: The tool, a row of `backends.TOOLS`.
        release: The release of the tool; None if the choice did not depend on it.
        flags: The arguments of the tool.
        reason: The reason for the choice.
        fusion: The inputs.
        target: The GPU and the CUDA release that the code is for.
        options: The options of the link.
        compatibility_warning: Why the reader may not accept the code; "" if it accepts it.
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
        """The inputs of the tool."""
        return self.fusion.inputs

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs of the link."""
        return tuple(source.name for source in self.fusion.sources)

    def __str__(self) -> str:
        merged = f"; as one: {', '.join(self.fusion.merged_names)}" if self.fusion.merged_names else ""
        return (
            f"link {', '.join(self.names)} for {self.target.arch.sm}: {self.tool.name}, {self.reason}"
            f"{merged}; flags: {' '.join(self.flags)}"
        )


def plan(
    fusion: Fusion,
    target: Target,
    options: Options,
    environment: Environment = CURRENT_ENVIRONMENT,
    *,
    makes_ptx: bool = False,
) -> Plan:
    """
    Return the plan of a link.

    Args:
        fusion: The inputs, compiled, checked and fused.
        target: The GPU and the CUDA release that the code is for.
        options: The options of the link.
        environment: The installed tools.
        makes_ptx: Whether to make PTX instead of machine code.

    Raises:
        AssembleError: No tool makes code that the release of *target* reads. Names the cure.
        ConfigError: The requested tool does not exist.
        LinkError: The tool cannot link the inputs, would ignore a flag, or would give wrong results in later
            links. Names the cure.
    """
    if options.tool not in BACKENDS:
        raise ConfigError(f"There is no backend {options.tool!r}; choose {', '.join(BACKENDS)}.")
    choice = _choose_tool(fusion, target, options, environment, makes_ptx=makes_ptx)
    reason = choice.reason
    if fusion.merged_names:
        reason = fusion.summary if reason == SINGLE_PTX else f"{fusion.summary}; {reason}"
    if target.release:
        reader = environment.reader(target.release, options)
        _check_reader(reader, choice, reason, fusion, target.release)
        reason += f"; for CUDA {dotted(target.release)}"
    if choice.tool.flag_syntax == NVJITLINK:
        _check_linker_inputs(fusion.inputs, choice.tool, options)
    flags = _flags(choice.tool, fusion.inputs, target.arch.sm, options, makes_ptx=makes_ptx)
    warning = choice.compatibility_warning
    return Plan(choice.tool, choice.release, flags, reason, fusion, target, options, warning)


def _choose_tool(
    fusion: Fusion, target: Target, options: Options, environment: Environment, *, makes_ptx: bool
) -> Choice:
    """Return the requested tool; by default a compiler for a single PTX, and a linker for other inputs."""
    compiler = environment.tools[0]
    unsupported_inputs = compiler.unsupported_inputs(fusion.inputs, options, makes_ptx=makes_ptx)
    # If several inputs are not merged, the summary, if there is one, says why.
    if len(fusion.inputs) > 1 and not fusion.merged_names:
        unsupported_inputs = ", ".join(filter(None, (unsupported_inputs, fusion.summary)))
    if options.tool == compiler.name and unsupported_inputs:
        raise LinkError(
            f"Backend {compiler.name} compiles one PTX module, and this link has {unsupported_inputs}; pass "
            'backend="auto", "nvjitlink" or "pynvjitlink", or unset NUMBA_PTXLINK_BACKEND.',
            inputs=tuple(source.name for source in fusion.inputs),
        )
    if options.tool != "auto":
        requested = next(tool for tool in environment.tools if tool.name == options.tool)
        return Choice(requested, None, default_reason=REQUESTED)
    if unsupported_inputs:
        return _choose_linker(unsupported_inputs, environment)
    return _choose_compiler(fusion.inputs[0], target, options, environment)


def _choose_linker(reason: str, environment: Environment) -> Choice:
    """Return the installed linker; if there is none, raise the error that names nvJitLink's package."""
    nvjitlink, *_ = (tool for tool in environment.tools if tool.flag_syntax == NVJITLINK)
    tool, release = environment.linker() or (nvjitlink, nvjitlink.version(None))
    if tool != nvjitlink:
        reason += ", and libnvJitLink is not found"
    return Choice(tool, release, (Rejection(environment.tools[0], None, Rank.UNUSABLE, reason),))


def _choose_compiler(source: Input, target: Target, options: Options, environment: Environment) -> Choice:
    """Return the compiler of the single PTX module *source*."""
    reader = environment.reader(target.release, options)
    rejections: list[Rejection] = []
    for tool in environment.candidates(target.release, options):
        release = tool.release(reader)
        if release is None:
            continue
        is_always_installed = tool == environment.tools[0]
        rejection = _rejection(tool, release, source, target, reader, always_usable=is_always_installed)
        # A slow tool is rejected only if it would be the first choice.
        if rejection is None and not rejections and target.release is None:
            rejection = _slow_rejection(tool, release, source, options)
        if rejection is None:
            return Choice(tool, release, tuple(rejections))
        rejections.append(rejection)
    if target.release is not None:
        cause = unavailable_reason(target.release, options, environment)
        cause = cause or "; ".join(rejection.reason for rejection in rejections)
        raise AssembleError(f"No cubin for CUDA {dotted(target.release)}: {cause}.")
    usable = (rejection for rejection in rejections if rejection.rank < Rank.UNUSABLE)
    if fallback := next(usable, None):
        return Choice(fallback.tool, fallback.release, tuple(rejections))
    # No tool supports this PTX or GPU. Run nvPTXCompiler all the same: its error message is the clearest.
    return Choice(environment.tools[0], None)


def _rejection(
    tool: Tool,
    release: Release,
    source: Input,
    target: Target,
    reader: CubinReader | None,
    *,
    always_usable: bool,
) -> Rejection | None:
    """
    Return the rejection of a tool; None if it compiles *source* to code that *reader* accepts.

    Args:
        tool: The tool.
        release: The release of the tool.
        source: The PTX.
        target: The GPU and the CUDA release that the code is for.
        reader: The reader of the code; None if it is not known.
        always_usable: Whether the tool may be taken although *reader* may reject its code: True for
            nvPTXCompiler, which is always installed.
    """
    unreadable = reader.incompatibility(tool, release) if reader else ""
    reason = tool.unsupported_ptx(source, release) or ("" if always_usable else unreadable)
    # Query architectures last: that loads a library.
    reason = reason or tool.unsupported_arch(target.arch, release)
    if reason:
        return Rejection(tool, release, Rank.UNUSABLE, reason)
    return Rejection(tool, release, Rank.MAY_BE_UNREADABLE, unreadable) if unreadable else None


def _slow_rejection(tool: Tool, release: Release, source: Input, options: Options) -> Rejection | None:
    """Return the rejection of a compiler that takes longer for *source* than a linker; None for others."""
    if tool.flag_syntax != PTXAS or options.relocatable or options.debug or options.lineinfo:
        return None
    # Count words, declarations included, first: the pattern is slower, and few texts have so many functions.
    has_many_words = source.code.count(b".func") > _MAX_FUNCTIONS
    count = len(re.findall(_FUNCTION, source.code)) if has_many_words else 0
    if count <= _MAX_FUNCTIONS:
        return None
    return Rejection(tool, release, Rank.SLOWER, f"{count} functions, for which {tool.label} takes longer")


def _check_reader(
    reader: CubinReader | None, choice: Choice, reason: str, fusion: Fusion, target_release: Release
) -> None:
    """Refuse a tool whose code the linkers or drivers of *target_release* may reject."""
    release = choice.release or choice.tool.version(None)
    if reader and (unreadable := reader.incompatibility(choice.tool, release)):
        names = tuple(source.name for source in fusion.sources)
        raise LinkError(
            f"{', '.join(names)}: {unreadable} ({reason}); link PTX, CUDA C++ or Python alone, without "
            "backend, inline, debug, lineinfo and extra_flags, or link in an environment of CUDA "
            f"{target_release[0]}.",
            inputs=names,
        )


def _check_linker_inputs(inputs: Sequence[Input], tool: Tool, options: Options) -> None:
    """Refuse PTX after which nvJitLink makes wrong code in later links, and flags that it would ignore."""
    release = tool.version(None)
    for source in inputs:
        # After nvJitLink has rejected too new PTX once, it accepts undefined references in later links.
        if unsupported_ptx := tool.unsupported_ptx(source, release):
            from .explain import upgrade_cure

            package = backends.linker_module(tool.name).package()
            raise LinkError(
                f"{source.name} is {unsupported_ptx}; {upgrade_cure(package)}", inputs=(source.name,)
            )
    compiles = any(source.kind != CUBIN for source in inputs)
    if options.max_registers and not compiles:
        raise LinkError(
            f"max_registers={options.max_registers} has no effect on cubins, and all inputs are cubins; pass "
            "it to their compiler."
        )
    # Link-time optimisation compiles, so that the flags of LTO and of ptxas have an effect.
    flags_to_check = () if options.lto else options.extra_flags
    for flag in flags_to_check:
        if tool_of_flag(flag) == LTO:
            raise LinkError(
                f"extra_flags contains {flag!r}, which {tool.label} ignores without link-time optimisation; "
                "pass lto=True, or leave it out."
            )
        if tool_of_flag(flag) == PTXAS and not compiles:
            raise LinkError(
                f"extra_flags contains {flag!r}, a flag of ptxas, and all inputs are cubins; pass it to "
                "their compiler."
            )


def _flags(
    tool: Tool, inputs: Sequence[Input], sm: str, options: Options, *, makes_ptx: bool
) -> tuple[str, ...]:
    """Return the arguments of the tool."""
    if tool.flag_syntax == PTXAS:
        return (f"--gpu-name={sm}", *options.to_flags(PTXAS, inputs[0].code))
    if not options.lto:
        return (f"-arch={sm}", *options.to_flags(NVJITLINK))
    stages = ("-lto", "-ptx") if makes_ptx else ("-lto",)
    return (f"-arch={sm}", *stages, *options.to_flags(LTO))


def unavailable_reason(
    release: Release, options: Options, environment: Environment = CURRENT_ENVIRONMENT
) -> str:
    """Return why no tool of this environment makes code for CUDA *release*, with the cure; "" if one does."""
    reader = environment.reader(release, options)
    releases = (tool.release(reader) for tool in environment.candidates(release, options))
    if reader is None or any(installed and installed <= reader.newest_release for installed in releases):
        return ""
    needed = f"{dotted(release)} or older" if options.relocatable else f"{release[0]}"
    wheel = find.package_of_ptxas(release)
    compiler = environment.tools[0]
    install = f"run `pip install {wheel!r}`, " if wheel else ""
    return (
        f"no compiler of CUDA {needed} is installed ({compiler.label} is {dotted(compiler.version(None))}); "
        f"{install}add that toolkit to PATH or CUDA_HOME, or write PTX only, which has the same functions"
    )
