"""
The tools that make machine code, as rows of one table, and the device runtime, which a link may need.

nvPTXCompiler is a part of this package, and the other tools are those of the installed toolkit. A linker, and
a program such as cuobjdump, reads cubins of its own release and of older ones. A driver loads cubins of all
releases of its major version and of older ones.
"""

from __future__ import annotations

import importlib
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink._arch import Arch, dotted, newest_tested_isa
from numba_ptxlink._formats.kinds import ARCHIVE, OBJECT, PTX
from numba_ptxlink._tools import find, nvptxcompiler
from numba_ptxlink._tools.options import NVJITLINK, PTXAS, first_linker_flag
from numba_ptxlink.errors import LinkError

from .read import Input

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from numba_ptxlink._arch import PtxVersion
    from numba_ptxlink._tools.options import Options
    from numba_ptxlink.errors import PtxlinkError

    Release = tuple[int, int]

log = logging.getLogger(__name__)

# A driver reads cubins of all minor releases of its major version: this number is above all of them.
_ANY_MINOR = 99
_DEVICE_RUNTIME = "cudadevrt"
# Functions of the device runtime, as a linker's log names them, such as 'cudaCGGetIntrinsicHandle'. A kernel
# calls them to synchronise its grid, and to launch other kernels.
_RUNTIME_FUNCTION = r"'(?:cudaCG[A-Z]|__cudaCDP2)\w+'"
RUNTIME_CURE = f"install {find.package_name('nvidia-cuda-runtime')}"
"""How to install the device runtime."""
WRONG_STRUCTS_RELEASE = (13, 0)
"""This nvJitLink makes wrong code of PTX that passes structs of 184 bytes or more; 13.1 to 13.5 do not."""


class Target(NamedTuple):
    """
    The GPU and the CUDA release that machine code is for.

    Args:
        arch: The GPU.
        release: The CUDA release whose linker or driver reads the code; None for this environment's.
        reduce_version: Takes PTX, and returns it in a version that the release reads; None to keep
            the version.
    """

    arch: Arch
    release: Release | None = None
    reduce_version: Callable[[bytes, Arch], bytes] | None = None


class CubinReader(NamedTuple):
    """
    The linker or driver that reads a cubin, and the newest CUDA release whose cubins it accepts.

    Args:
        newest_release: The newest CUDA release whose cubins the reader accepts.
        name: The name in messages.
        release: The CUDA release that the caller requested, if drivers read the cubin; else None. Drivers
            accept cubins up to *newest_release*, but a ptxas newer than *release* is used only if no older
            one is installed.
    """

    newest_release: Release
    name: str
    release: Release | None = None

    def incompatibility(self, tool: Tool, release: Release) -> str:
        """Return why the reader may reject cubins of *tool* in *release*; "" if it accepts them."""
        return (
            f"{self.name} may not read code of {tool.title(release)}" if release > self.newest_release else ""
        )


class Tool(NamedTuple):
    """
    A tool that makes machine code.

    Args:
        name: The name, as the backend of a link.
        label: The name in messages.
        flag_syntax: The syntax of its flags, PTXAS or NVJITLINK of `_tools.options`.
        version: Returns the installed release; of several, the newest whose cubins the given reader accepts.
            Raises a `LinkError` if none is installed.
        newest_ptx: Returns the newest PTX version that a release of the tool reads; None if it is not known.
        archs: Returns the architectures that a release of the tool supports; none if they are not known.
    """

    name: str
    label: str
    flag_syntax: str
    version: Callable[[CubinReader | None], Release]
    newest_ptx: Callable[[Release], PtxVersion | None]
    archs: Callable[[Release], Collection[Arch]]

    def title(self, release: Release | None) -> str:
        """Return the label, followed by *release* if it is known, such as "ptxas 12.4"."""
        return f"{self.label} {dotted(release)}".strip()

    def release(self, reader: CubinReader | None = None) -> Release | None:
        """Return the release that `version` returns; None if the tool is not installed."""
        try:
            return self.version(reader)
        except LinkError:
            return None

    def unsupported_inputs(
        self, inputs: Sequence[Input], options: Options, *, makes_ptx: bool = False
    ) -> str:
        """
        Return what in a link needs a linker, in words such as "2 inputs"; "" if a compiler of PTX can do all.

        Args:
            inputs: The inputs of the link.
            options: The options of the link.
            makes_ptx: Whether the link makes PTX instead of machine code.
        """
        if makes_ptx:
            return "PTX as its output"
        if options.lto:
            return "link-time optimisation"
        if len(inputs) != 1:
            return f"{len(inputs)} inputs"
        if inputs[0].kind != PTX:
            article = "an" if inputs[0].kind in (ARCHIVE, OBJECT) else "a"
            return f"{article} {inputs[0].kind}"
        flag = first_linker_flag(options.extra_flags)
        return f"the flag {flag}, which only nvJitLink has" if flag else ""

    def unsupported_ptx(self, source: Input, release: Release) -> str:
        """
        Return why *release* of the tool does not read the PTX *source*; "" if it does, or *source* is no PTX.

        For example: "PTX 9.1, and ptxas 12.4 reads 8.4 at most".
        """
        version = source.header.version if source.kind == PTX else None
        newest = self.newest_ptx(release)
        if version is None or newest is None or version <= newest:
            return ""
        return f"PTX {version}, and {self.title(release)} reads {newest} at most"

    def unsupported_arch(self, arch: Arch, release: Release) -> str:
        """
        Return why *release* of the tool makes no code for *arch*; "" if it does.

        For example: "sm_120, which nvJitLink 12.4 does not support".
        """
        supported = self.archs(release)
        # The list has sm_90, and not its variant sm_90a.
        if not supported or Arch(*arch.cc) in supported:
            return ""
        return f"{arch.sm}, which {self.title(release)} does not support"


def _ptxas_version(reader: CubinReader | None) -> Release:
    """
    Return the release of the newest installed ptxas whose cubins *reader* accepts.

    Raises:
        LinkError: There is none, or *reader* is None: no linker is installed whose release would be the
        limit.
    """
    from numba_ptxlink._tools import programs

    # The limits in the order in which they are tried.
    limits = (reader.release, reader.newest_release) if reader else ()
    max_releases = [*filter(None, limits)]
    path_and_release = next(filter(None, map(programs.newest_ptxas, max_releases)), None)
    if path_and_release is None:
        readers = reader.name if reader else "linkers"
        wheels = (find.package_of_ptxas(release) for release in max_releases)
        raise LinkError(
            f"No ptxas is installed whose cubins {readers} read; run "
            f"`pip install '{next(wheels, find.package_name('nvidia-cuda-nvcc'))}'`."
        )
    _, release = path_and_release
    return release


def _linker_version(name: str) -> Callable[[CubinReader | None], Release]:
    """Return the `version` of the linker *name*."""

    def version(_: CubinReader | None) -> Release:
        from numba_ptxlink._tools import nvjitlink

        return nvjitlink.version(linker_module(name).library())

    return version


def _nvrtc_archs(release: Release) -> Collection[Arch]:
    """Return the architectures of NVRTC *release*: nvJitLink supports the same, but cannot list them."""
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
    Tool("ptxas", "ptxas", PTXAS, _ptxas_version, newest_tested_isa, lambda _: ()),
    Tool("nvjitlink", "nvJitLink", NVJITLINK, _linker_version("nvjitlink"), newest_tested_isa, _nvrtc_archs),
    Tool(
        "pynvjitlink", "nvJitLink", NVJITLINK, _linker_version("pynvjitlink"), newest_tested_isa, _nvrtc_archs
    ),
)
"""The tools, in the order in which they are preferred: nvPTXCompiler, which is always installed, is first."""


class Environment(NamedTuple):
    """
    The installed tools.

    Args:
        tools: The tools, in the order in which they are preferred; the first is nvPTXCompiler.
        major: Returns the major version of CUDA of this environment. Drivers in this environment are at least
            as new.
    """

    tools: tuple[Tool, ...] = TOOLS
    major: Callable[[], int] = find.major

    def linker(self) -> tuple[Tool, Release] | None:
        """Return the linker of this environment and its release; None if none is installed."""
        linkers = (tool for tool in self.tools if tool.flag_syntax == NVJITLINK)
        return next(((tool, release) for tool in linkers if (release := tool.release())), None)

    def reader(self, release: Release | None, options: Options) -> CubinReader | None:
        """Return the reader of cubins for CUDA *release*, or for this environment; None if it is unknown."""
        if release:
            if options.relocatable:
                return CubinReader(release, f"linkers of CUDA {dotted(release)}")
            return CubinReader((release[0], _ANY_MINOR), f"drivers of CUDA {release[0]}", release)
        drivers = CubinReader((self.major(), _ANY_MINOR), f"drivers of CUDA {self.major()}")
        if not (options.relocatable or options.debug or options.lineinfo):
            return drivers
        _, linker_release = self.linker() or (None, None)
        if linker_release is None:
            return None if options.relocatable else drivers
        if options.relocatable:
            return CubinReader(linker_release, f"nvJitLink {dotted(linker_release)}")
        # Debuggers and cuobjdump of the toolkit read debug information of their own and older releases. The
        # result is the reader with the older limit.
        programs = CubinReader(linker_release, f"programs of CUDA {dotted(linker_release)}")
        return min(programs, drivers)

    def candidates(self, release: Release | None, options: Options) -> Iterable[Tool]:
        """Yield the tools that may compile one PTX for CUDA *release*, or this environment."""
        for tool in self.tools:
            # ptxas runs in a child process, which takes longer: use it only if nvPTXCompiler may be too new.
            if tool.name == "ptxas" and not (options.relocatable or release):
                continue
            # A linker makes no code that can be linked further.
            if tool.flag_syntax == PTXAS or not options.relocatable:
                yield tool


CURRENT_ENVIRONMENT = Environment()
"""The installed tools of this process's environment."""


def linker_module(name: str) -> Any:
    """Return the module of the linker *name*, which has the functions `library` and `package`."""
    # Deferred: a link of one PTX needs no linker.
    return importlib.import_module(f"numba_ptxlink._tools.{name}")


def lacks_runtime(error: PtxlinkError, inputs: Iterable[Input]) -> bool:
    """Return whether a link failed because it lacks the device runtime, which nvcc adds by default."""
    return bool(re.search(_RUNTIME_FUNCTION, error.log)) and not any(map(is_runtime, inputs))


def is_runtime(source: Input) -> bool:
    """Return whether *source* is the device runtime, an archive whose members are linked on demand."""
    return source.kind == ARCHIVE and _DEVICE_RUNTIME in source.name


def device_runtime() -> Input | None:
    """Return the device runtime. If it is not found, log a warning with its package, and return None."""
    try:
        path = Path(find.pathfinder().find_static_lib(_DEVICE_RUNTIME))
    except (AttributeError, RuntimeError) as missing:
        log.warning(
            "the device runtime is called, and lib%s.a is not found (%s); %s, or pass its path as another "
            "input",
            _DEVICE_RUNTIME,
            missing,
            RUNTIME_CURE,
        )
        return None
    return Input(ARCHIVE, path.name, path.read_bytes())
