"""
The tools that make machine code, as rows of one table, and the device runtime, which they link.

nvPTXCompiler is inside this package, whatever toolkit is installed. A linker reads relocatable machine code
of its own release and of older ones, and so do the toolkit's programs; a driver loads that of all releases of
its major version and of older ones.
"""

from __future__ import annotations

import importlib
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink._arch import Arch, dotted, sure_isa
from numba_ptxlink._formats.kinds import ARCHIVE, PTX
from numba_ptxlink._tools import find, nvptxcompiler
from numba_ptxlink._tools.options import NVJITLINK, PTXAS, of_linker
from numba_ptxlink.errors import LinkError

from .read import Input

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from numba_ptxlink._arch import PtxVersion
    from numba_ptxlink._tools.options import Options
    from numba_ptxlink.errors import PtxlinkError

    Release = tuple[int, int]

log = logging.getLogger(__name__)

_ANY_MINOR = 99
_NAME = "cudadevrt"
# Grid-wide cooperative groups and launches from the device call these functions.
_CALL = r"'(?:cudaCG[A-Z]|__cudaCDP2)\w+'"
RUNTIME_CURE = f"install {find.package('nvidia-cuda-runtime')}"
"""How to install the device runtime."""
LOSES_STRUCTS = (13, 0)
"""The release that passes structs of 184 bytes and more wrongly where it links PTX; 13.1 to 13.5 do not."""


class Target(NamedTuple):
    """
    What machine code is for.

    Args:
        arch: The GPU.
        release: The CUDA release whose linker or driver reads it; None for this environment's.
        lowered: Returns PTX as that release reads it.
    """

    arch: Arch
    release: Release | None = None
    lowered: Callable[[bytes, Arch], bytes] | None = None


class CubinReader(NamedTuple):
    """
    Who reads machine code: its name, and the newest release whose code it reads.

    Args:
        newest: The release.
        name: The name, in messages.
        own: Its own release, where that is known: of several tools, the newest up to that comes first.
    """

    newest: Release
    name: str
    own: Release | None = None

    def incompatibility(self, tool: Tool, release: Release) -> str:
        """Return that it may not read what *release* of *tool* makes, "" where it does."""
        return f"{self.name} may not read code of {tool.of(release)}" if release > self.newest else ""


class Tool(NamedTuple):
    """
    A tool that makes machine code.

    Args:
        name: Its name, as the backend of a link.
        label: Its name in messages.
        flag_syntax: Whose options it takes, PTXAS or NVJITLINK of `_tools.options`.
        version: Returns its release, the newest that a reader takes where several are installed. Raises a
            `PtxlinkError` where it is not there.
        newest_ptx: Returns the newest PTX that a release of it reads, None where that is not known.
        archs: Returns the architectures that a release of it knows, none where nothing tells.
    """

    name: str
    label: str
    flag_syntax: str
    version: Callable[[CubinReader | None], Release]
    newest_ptx: Callable[[Release], PtxVersion | None]
    archs: Callable[[Release], Collection[Arch]]

    def of(self, release: Release | None) -> str:
        """Return its name with a *release*."""
        return f"{self.label} {dotted(release)}".strip()

    def release(self, reader: CubinReader | None = None) -> Release | None:
        """Return its release, None where it is not installed."""
        try:
            return self.version(reader)
        except LinkError:
            return None

    def unsupported_inputs(self, inputs: Sequence[Input], options: Options, *, ptx: bool = False) -> str:
        """Return why a compiler cannot make code of such *inputs* at all, or *ptx*; "" where it can."""
        if ptx:
            return "PTX output is requested"
        if options.lto:
            return "link-time optimisation"
        if len(inputs) != 1:
            return f"{len(inputs)} inputs"
        if inputs[0].kind != PTX:
            return f"{'an' if inputs[0].kind[0] in 'ao' else 'a'} {inputs[0].kind}"
        flag = of_linker(options.extra_flags)
        return flag and f"the flag {flag}, which is nvJitLink's"

    def unsupported_ptx(self, source: Input, release: Release) -> str:
        """Return why *release* of it does not read PTX, "" where it does, or *source* is of another kind."""
        declared = source.header.version if source.kind == PTX else None
        newest = self.newest_ptx(release)
        if declared is None or newest is None or declared <= newest:
            return ""
        return f"PTX {declared}, and {self.of(release)} reads {newest} at most"

    def unsupported_arch(self, arch: Arch, release: Release) -> str:
        """Return that *release* of it does not know *arch*, "" where it does."""
        known = self.archs(release)
        if not known or Arch(*arch.cc) in known:
            return ""
        return f"{arch.sm}, which {self.of(release)} does not know"


def _ptxas(reader: CubinReader | None) -> Release:
    from numba_ptxlink._tools import programs

    max_releases = filter(None, (reader.own, reader.newest) if reader else ())
    found = next(filter(None, map(programs.newest_ptxas, max_releases)), None)
    if found is None:
        raise LinkError("There is no ptxas whose code is read.")
    return found[1]


def _linker(name: str) -> Callable[[CubinReader | None], Release]:
    def version(_: CubinReader | None) -> Release:
        from numba_ptxlink._tools import nvjitlink

        return nvjitlink.version(linker(name).library())

    return version


def _toolkits_archs(release: Release) -> Collection[Arch]:
    """Return what NVRTC of *release* knows, which tells where nvJitLink does not."""
    from numba_ptxlink._tools import nvrtc

    return nvrtc.archs_of(release)


TOOLS = (
    Tool(
        "nvptxcompiler",
        "nvPTXCompiler",
        PTXAS,
        lambda _: nvptxcompiler.facts().release,
        lambda _: nvptxcompiler.facts().newest_ptx,
        lambda _: nvptxcompiler.facts().archs,
    ),
    Tool("ptxas", "ptxas", PTXAS, _ptxas, sure_isa, lambda _: ()),
    Tool("nvjitlink", "nvJitLink", NVJITLINK, _linker("nvjitlink"), sure_isa, _toolkits_archs),
    Tool("pynvjitlink", "nvJitLink", NVJITLINK, _linker("pynvjitlink"), sure_isa, _toolkits_archs),
)
"""The tools, in the order in which they are preferred."""


class Environment(NamedTuple):
    """
    What is installed.

    Args:
        tools: The tools.
        major: Returns the major version of CUDA that this environment is for, and its drivers at least.
    """

    tools: tuple[Tool, ...] = TOOLS
    major: Callable[[], int] = find.major

    def linker(self) -> tuple[Tool, Release] | None:
        """Return the tool that links in this environment, with its release; None where none does."""
        linkers = (tool for tool in self.tools if tool.flag_syntax == NVJITLINK)
        return next(((tool, release) for tool in linkers if (release := tool.release())), None)

    def reader(self, release: Release | None, options: Options) -> CubinReader | None:
        """Return who reads machine code: CUDA *release*, or this environment; None where nobody is known."""
        if release:
            if options.relocatable:
                return CubinReader(release, f"linkers of CUDA {dotted(release)}")
            return CubinReader((release[0], _ANY_MINOR), f"drivers of CUDA {release[0]}", release)
        drivers = CubinReader((self.major(), _ANY_MINOR), f"drivers of CUDA {self.major()}")
        if not (options.relocatable or options.debug or options.lineinfo):
            return drivers
        found = self.linker()
        if options.relocatable:
            return CubinReader(found[1], f"nvJitLink {dotted(found[1])}") if found else None
        programs = CubinReader(found[1], f"programs of CUDA {dotted(found[1])}") if found else drivers
        return min(programs, drivers)

    def candidates(self, release: Release | None, options: Options) -> Iterable[Tool]:
        """Yield the tools that may compile one PTX for CUDA *release*, or this environment."""
        for tool in self.tools:
            # It takes a process, where other tools do not.
            if tool.name == "ptxas" and not (options.relocatable or release):
                continue
            if tool.flag_syntax == PTXAS or not options.relocatable:
                yield tool


CURRENT_ENVIRONMENT = Environment()
"""This environment."""


def linker(name: str) -> Any:
    """Return the module of the backend *name*, which has `library` and `package`."""
    # Imported when they are asked: one PTX needs none of them.
    return importlib.import_module(f"numba_ptxlink._tools.{name}")


def lacks_runtime(error: PtxlinkError, inputs: Iterable[Input]) -> bool:
    """Return whether a link failed because it lacks the device runtime, which nvcc adds by default."""
    return bool(re.search(_CALL, error.log)) and not any(map(is_runtime, inputs))


def is_runtime(source: Input) -> bool:
    """Return whether *source* is the device runtime, a library of which a link takes what it needs."""
    return source.kind == ARCHIVE and _NAME in source.name


def device_runtime() -> Input | None:
    """Return the device runtime; None, with a warning that says what to install, where it is not found."""
    try:
        path = Path(find.pathfinder().find_static_lib(_NAME))
    except (AttributeError, RuntimeError) as missing:
        log.warning(
            "the device runtime is called, and lib%s.a is not found (%s); %s, or give its path as another "
            "input",
            _NAME,
            missing,
            RUNTIME_CURE,
        )
        return None
    return Input(ARCHIVE, path.name, path.read_bytes())
