"""Compile lowered functions in groups, and join what the groups become."""

from __future__ import annotations

import logging
import re
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink import cache
from numba_ptxlink._formats.kinds import CUBIN
from numba_ptxlink._formats.ptx import parse
from numba_ptxlink._link import single_ptx
from numba_ptxlink._link.fusion.combine import NotCombinedError, combine
from numba_ptxlink._tools import nvjitlink, nvrtc, nvvm
from numba_ptxlink._tools.options import AssembleOptions
from numba_ptxlink.errors import ExportError, LinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._front_end.protocol import CompileOptions, FrontEnd

    from .lowering import Lowering

log = logging.getLogger(__name__)

# NVVM and the assembler take as long for a program of one function as for the next six.
_USUAL, _MOST = 8, 16
_SHARED = re.compile(r"^@.* addrspace\(3\) global ", re.MULTILINE)


@dataclass(frozen=True)
class GroupCode:
    """
    The code of some functions of an export for one arch.

    Args:
        ptx: Their PTX.
        cubin: Their relocatable machine code, empty if it is made of all PTX at once.
        cubin_by: Name and release of the tool that made it.
    """

    ptx: bytes
    cubin: bytes = b""
    cubin_by: str = ""


@dataclass(frozen=True)
class Done:
    """
    What a group of functions became.

    Args:
        lowered: What each function was lowered to.
        code: The code of all.
    """

    lowered: tuple[Lowering, ...]
    code: GroupCode


def split(names: Sequence[str], options: CompileOptions) -> list[range]:
    """
    Return the groups of the functions *names*, by their positions.

    A name says whether a group ends with it, so that a function that is added or removed changes one group.
    """
    if len(names) <= _MOST or options.lineinfo:
        # Line numbers refer to a table of files that a program has one of.
        return [range(len(names))]
    groups, start = [], 0
    for place, name in enumerate(names, start=1):
        if zlib.crc32(name.encode()) % _USUAL == 0 or place - start == _MOST or place == len(names):
            groups.append(range(start, place))
            start = place
    return groups


def program(lowered: Iterable[Lowering]) -> list[str]:
    """Return the LLVM IR of functions and of all that they call, each once, callers before callees."""
    modules = [module for each in lowered for module in each.modules]
    return list(dict.fromkeys(reversed(modules)))[::-1]


def compile_group(
    front_end: FrontEnd, lowered: Sequence[Lowering], arch: Arch, options: CompileOptions, *, cubin: bool
) -> GroupCode:
    """
    Compile *lowered* to PTX, and for *cubin* to machine code, or read them from the cache.

    Raises:
        ExportError: NVVM refused them.
        AssembleError: The PTX could not be assembled.
    """
    ptx = compile_program(front_end, program(lowered), _names(lowered), arch, options, lto=False)
    ptx = ptx.rstrip(b"\0").strip() + b"\n"
    if not cubin or any(each.links for each in lowered):
        return GroupCode(ptx)
    return GroupCode(ptx, *single_ptx.compile_ptx(ptx, arch, cubin_options(options)))


def cubin_options(options: CompileOptions) -> AssembleOptions:
    """Return the options that relocatable machine code is made with."""
    return AssembleOptions(relocatable=True, opt_level=options.level, lineinfo=options.lineinfo)


def joins_cubins() -> bool:
    """Return whether the machine code of several groups can be joined."""
    try:
        return nvjitlink.merges_ltoir()
    except LinkError:
        return False


def join_ptx(groups: Sequence[Sequence[Lowering]], codes: Sequence[GroupCode]) -> bytes | None:
    """Return the PTX of all groups as one; None where it is to be made of all functions at once."""
    if len(codes) == 1:
        return codes[0].ptx
    texts = Counter(text for group in groups for text in program(group))
    if any(count > 1 and _SHARED.search(text) for text, count in texts.items()):
        # Functions that call it share its memory.
        log.debug("a function with shared memory is called in several groups")
        return None
    try:
        return combine([parse(code.ptx.decode()) for code in codes]).text.encode()
    except NotCombinedError as error:
        log.debug("the PTX of groups is not combined: %s", error)
        return None


def join_cubins(codes: Sequence[GroupCode], arch: Arch) -> tuple[bytes, str] | None:
    """Return the machine code of all groups as one, and what made it; None where it cannot be joined."""
    makers = {code.cubin_by for code in codes}
    if len(codes) == 1 or len(makers) > 1 or not all(code.cubin for code in codes):
        return None
    flags = [f"-arch={arch.sm}", "-r"]
    inputs = [(CUBIN, f"group {place}", code.cubin) for place, code in enumerate(codes)]
    try:
        joined = cache.cached(
            nvjitlink.key(inputs, flags, CUBIN),
            lambda: cache.Entry({}, nvjitlink.link(inputs, flags, output=CUBIN).code),
        )
    except LinkError as error:
        log.debug("the cubins of groups are not joined: %s", error)
        return None
    return joined.code, makers.pop()


def compile_program(
    front_end: FrontEnd,
    modules: Sequence[str],
    names: Sequence[str],
    arch: Arch,
    options: CompileOptions,
    *,
    lto: bool,
) -> bytes:
    """
    Compile the LLVM IR *modules*, which define the functions *names*, to PTX or LTO-IR.

    Raises:
        ExportError: NVVM refused it, or is missing.
    """
    try:
        code = front_end.compile_ir(modules, arch, options, lto=lto)
    except Exception as error:
        listed = ", ".join(names)
        try:
            nvrtc.version()  # a front end may load it to find libdevice
            known = nvvm.emitted_isa(arch)
        except LinkError as missing:
            raise ExportError(f"{listed} cannot be compiled for {arch.sm}: {missing}") from error
        cure = "it does not know the architecture; `--arch all` stands for those that it compiles for."
        if known and len(names) > 1:
            cure = "export the functions one by one to see which one it refuses."
        elif known:
            cure = (
                f"{front_end.name} makes code that NVVM does not take; write what it is made of with "
                "Python's own functions, or those of `math`."
            )
        raise ExportError(f"NVVM could not compile {listed} for {arch.sm}: {error}; {cure}") from error
    return code if lto else code.rstrip(b"\0")


def _names(lowered: Iterable[Lowering]) -> list[str]:
    return [each.signature.name for each in lowered]
