"""
Choose the tool that makes the cubin: the one the inputs need, or exactly the one the caller names.

nvPTXCompiler is inside this package, whatever toolkit is installed. A driver loads machine code of every
release of its own major version and of older ones. So under a toolkit of an older major version, whose
drivers may be as old, the toolkit's own nvJitLink takes its place, as far as it knows device and PTX. So it
does under any older toolkit where line numbers are kept: cuobjdump 13.0 and 13.2 stop at those of 13.5.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from numba_ptxlink import assembler
from numba_ptxlink._arch import Arch, dotted
from numba_ptxlink._config import BACKENDS
from numba_ptxlink._formats.kinds import PTX
from numba_ptxlink._tools import packages
from numba_ptxlink.errors import ConfigError, LinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .inputs import Input

USUAL = "one PTX and nothing to link it with"
ASKED = "asked for"
# Imported when they are asked: one PTX needs none of them.
_LINKERS = ("nvjitlink", "pynvjitlink")


def choose(
    inputs: Sequence[Input],
    arch: Arch,
    *,
    lto: bool,
    asked: str = "auto",
    obstacle: str = "",
    for_debugger: bool = False,
) -> tuple[str, str]:
    """
    Return the tool that makes a cubin of *inputs*, and the reason for it.

    Args:
        inputs: The inputs of the link, none of them CUDA C++.
        arch: The architecture of the link.
        lto: Whether to optimise at link time.
        asked: The tool to use, or "auto" to choose by the inputs and the installed toolkit.
        obstacle: Why several PTX inputs are not made one, if that was tried.
        for_debugger: Whether debug information or line numbers are kept, which the toolkit's programs read.

    Raises:
        ConfigError: *asked* is not the name of a tool.
        LinkError: The tool *asked* cannot link *inputs*. Names those that can.
    """
    if asked not in BACKENDS:
        raise ConfigError(f"There is no backend {asked!r}; choose {', '.join(BACKENDS)}.")
    obstacle = ", ".join(filter(None, (_obstacle(inputs, lto=lto), obstacle)))
    if asked == "nvptxcompiler" and obstacle:
        raise LinkError(
            f"The backend nvptxcompiler makes a cubin of PTX alone; here is {obstacle}. "
            "The backends nvjitlink and pynvjitlink can do it, and auto chooses one: "
            "set NUMBA_PTXLINK_BACKEND=auto or backend='auto'.",
            inputs=tuple(source.name for source in inputs),
        )
    if asked != "auto":
        return asked, ASKED
    return _linker(obstacle) if obstacle else _for_one_ptx(inputs[0], arch, for_debugger=for_debugger)


def linker(name: str) -> Any:
    """Return the module of the backend *name*, which has `link`, `version` and `package`."""
    return importlib.import_module(f"numba_ptxlink._tools.{name}")


def installed() -> tuple[str, tuple[int, int]] | None:
    """Return name and version of the backend that links in this environment, None where none does."""
    for name in _LINKERS:
        try:
            return name, linker(name).version()
        except LinkError:
            continue
    return None


def is_served(release: tuple[int, int]) -> bool:
    """Return whether the drivers for this environment's toolkit load what nvPTXCompiler *release* makes."""
    return packages.major() >= release[0]


def linker_reads(ptx: Input, arch: Arch) -> bool:
    """Return whether this environment has a linker that is known to read *ptx* for *arch*."""
    found = installed()
    if found is None:
        return False
    from numba_ptxlink._formats.ptx.isa import sure_isa

    declared, newest = ptx.header.version, sure_isa(found[1])
    if declared is None or newest is None or declared > newest:
        return False
    return _toolkit_knows(arch, found[1])


def _for_one_ptx(ptx: Input, arch: Arch, *, for_debugger: bool) -> tuple[str, str]:
    """Return the tool that compiles a single PTX, and the reason for it."""
    compiler = assembler.compiler_version()
    known = Arch(*arch.cc) in assembler.supported_archs()
    # Loading nvJitLink to ask for its version takes longer than most kernels.
    found = None if known and is_served(compiler) and not for_debugger else installed()
    if found is None:
        return "nvptxcompiler", USUAL
    from numba_ptxlink._formats.ptx.isa import sure_isa

    name, release = found
    older = release[0] < compiler[0]
    ours, theirs = f"nvPTXCompiler {dotted(compiler)}", f"nvJitLink {dotted(release)}"
    # A newer release knows all devices of its major version; the next major version drops old ones.
    if (older or release > compiler) and not known:
        return name, f"{arch.sm}, which {ours} does not know"
    if release >= compiler or not (older or for_debugger):
        return "nvptxcompiler", USUAL
    declared, newest = ptx.header.version, sure_isa(release)
    if declared is not None and newest is not None and declared > newest:
        return "nvptxcompiler", f"PTX {declared}, and {theirs} reads {newest} at most"
    if not _toolkit_knows(arch, release):
        return "nvptxcompiler", f"{arch.sm}, which {theirs} does not know"
    reason = "drivers may not load" if older else "programs may not read line numbers in"
    return name, f"the toolkit is of CUDA {dotted(release)}, whose {reason} {ours}'s code"


def _toolkit_knows(arch: Arch, release: tuple[int, int]) -> bool:
    """Return whether NVRTC, which tells its devices where nvJitLink does not, knows *arch* or cannot tell."""
    from numba_ptxlink._tools import nvrtc

    try:
        return nvrtc.version() != release or Arch(*arch.cc) in nvrtc.supported_archs()
    except LinkError:
        return True


def _obstacle(inputs: Sequence[Input], *, lto: bool) -> str | None:
    """Return why nvPTXCompiler cannot make the cubin, None where it can."""
    if lto:
        return "link-time optimisation"
    if len(inputs) > 1:
        return f"{len(inputs)} inputs"
    if inputs[0].kind != PTX:
        article = "an" if inputs[0].kind[0] in "ao" else "a"
        return f"{article} {inputs[0].kind}"
    declared = inputs[0].header.version
    newest = max(assembler.supported_ptx_versions())
    if declared is not None and declared > newest:
        return f"PTX {declared}, newer than nvPTXCompiler's {newest}"
    return None


def _linker(reason: str) -> tuple[str, str]:
    try:
        linker("nvjitlink").version()
    except LinkError as missing:
        try:
            linker("pynvjitlink").version()
        except LinkError:
            raise missing from None
        return "pynvjitlink", f"{reason}, and nvJitLink is not there through cuda.bindings"
    return "nvjitlink", reason
