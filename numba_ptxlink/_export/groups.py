"""Compile functions to PTX in groups, so that an edit costs no more than a group; and join the PTX."""

from __future__ import annotations

import logging
import re
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink._formats.ptx import parse
from numba_ptxlink._link.fusion.combine import NotCombinedError, combine
from numba_ptxlink._tools import nvrtc, nvvm
from numba_ptxlink.errors import ExportError, LinkError

from . import lowering

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._front_end.protocol import CompileOptions, FrontEnd

    from .lowering import Lowering
    from .signatures import Typed

log = logging.getLogger(__name__)

# NVVM and the assembler take as long for a program of one function as for the next six.
_USUAL, _MOST = 8, 16
_SHARED = re.compile(r"^@.* addrspace\(3\) global ", re.MULTILINE)


@dataclass(frozen=True)
class Done:
    """
    What a group of functions became.

    Args:
        lowered: What each function was lowered to.
        ptx: The PTX of all.
    """

    lowered: tuple[Lowering, ...]
    ptx: bytes


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


def title(arch: Arch, names: Sequence[str]) -> str:
    """Return what a group is, in a few words."""
    return f"{arch.sm}: {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}"


def program(lowered: Iterable[Lowering]) -> list[str]:
    """Return the LLVM IR of functions and of all that they call, each once, callers before callees."""
    modules = [module for each in lowered for module in each.modules]
    return list(dict.fromkeys(reversed(modules)))[::-1]


def compile_group(functions: Sequence[Typed], arch: Arch, options: CompileOptions) -> Done:
    """
    Lower *functions*, which are of one front end, and compile them to PTX.

    Raises:
        PtxlinkError: A compiler refused one.
    """
    lowered = lowering.lower_each(functions, arch, options)
    return Done(lowered, compile_ptx(functions[0].front_end, lowered, arch, options))


def compile_ptx(
    front_end: FrontEnd, lowered: Sequence[Lowering], arch: Arch, options: CompileOptions
) -> bytes:
    """Return the PTX of *lowered* in one module; raises ExportError as `compile_program`."""
    ptx = compile_program(front_end, lowered, program(lowered), arch, options, lto=False)
    return ptx.rstrip(b"\0").strip() + b"\n"


def join_ptx(groups: Sequence[Done]) -> bytes | None:
    """Return the PTX of all groups as one; None where it is to be made of all functions at once."""
    if len(groups) == 1:
        return groups[0].ptx
    texts = Counter(text for group in groups for text in program(group.lowered))
    if any(count > 1 and _SHARED.search(text) for text, count in texts.items()):
        # Functions that call it share its memory.
        log.debug("a function with shared memory is called in several groups")
        return None
    try:
        return combine([parse(group.ptx.decode()) for group in groups]).text.encode()
    except NotCombinedError as error:
        log.debug("the PTX of groups is not combined: %s", error)
        return None


def compile_program(
    front_end: FrontEnd,
    lowered: Sequence[Lowering],
    modules: Sequence[str],
    arch: Arch,
    options: CompileOptions,
    *,
    lto: bool,
) -> bytes:
    """
    Compile the LLVM IR *modules*, which define the functions *lowered*, to PTX or LTO-IR.

    Raises:
        ExportError: NVVM refused it, or is missing.
    """
    try:
        code = front_end.compile_ir(modules, arch, options, lto=lto)
    except Exception as error:
        listed = ", ".join(each.signature.name for each in lowered)
        try:
            nvrtc.version()  # a front end may load it to find libdevice
            known = nvvm.emitted_isa(arch)
        except LinkError as missing:
            raise ExportError(f"{listed} cannot be compiled for {arch.sm}: {missing}") from error
        cure = "it does not know the architecture; `--arch all` stands for those that it compiles for."
        if known and len(lowered) > 1:
            cure = "export the functions one by one to see which one it refuses."
        elif known:
            cure = (
                f"{front_end.name} makes code that NVVM does not take; write what it is made of with "
                "Python's own functions, or those of `math`."
            )
        raise ExportError(f"NVVM could not compile {listed} for {arch.sm}: {error}; {cure}") from error
    return code if lto else code.rstrip(b"\0")
