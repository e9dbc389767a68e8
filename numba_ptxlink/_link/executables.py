"""Make what a driver loads of the PTX of kernels: a fat binary of machine code, and PTX for later devices."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._arch import dotted
from numba_ptxlink._formats.kinds import CUBIN, PTX
from numba_ptxlink._tools import nvfatbin
from numba_ptxlink._tools.options import AssembleOptions
from numba_ptxlink.errors import ExportError, LinkError

from . import backends, device_runtime, oldest, single_ptx
from .pipeline import link
from .plan import LinkOptions
from .read import Input

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cabi.signatures import Signature

    from .consumer import Consumer

    Part = tuple[Arch, bytes, Sequence[str]]
    """What is there for one architecture: its PTX, and the symbols that this does not define."""

log = logging.getLogger(__name__)


class Executable(NamedTuple):
    """
    What a driver loads.

    Args:
        code: The fat binary.
        needs: The oldest driver that loads it.
        tools: Name and release of what compiled machine code in it.
    """

    code: bytes
    needs: oldest.Oldest
    tools: tuple[str, ...]


def obstacle(undefined: Iterable[str], consumer: Consumer | None) -> str:
    """Return why code with *undefined* symbols cannot be made complete for *consumer*, "" where it can."""
    names = list(undefined)
    if not all(map(device_runtime.is_grid_call, names)):
        return _not_defined(names)
    if names and consumer is not None and not _has_runtime_for(consumer):
        return f"the device runtime, which synchronises a grid, is not for {consumer.asked}"
    return ""


def pack(
    stem: str,
    parts: Sequence[Part],
    signatures: Sequence[Signature],
    *,
    level: int,
    lineinfo: bool,
    consumer: Consumer | None = None,
) -> Executable:
    """
    Make the fat binary of *parts*. Needs no driver.

    Where no compiler for the consumer is installed, the driver compiles the PTX.

    Args:
        stem: What its members are called.
        parts: The code.
        signatures: The functions of the export.
        level: How much is optimised, 0 or 3.
        lineinfo: Whether to keep line numbers.
        consumer: The toolkit and driver it is for; None for those of this environment.

    Raises:
        ExportError: There is no kernel, or what the kernels call is not defined.
        AssembleError: The PTX could not be assembled.
    """
    if not any(signature.kernel for signature in signatures):
        raise ExportError("The export has no kernel to launch; mark one with @kernel(signature).")
    members: list[tuple[str, Arch, str, bytes]] = []
    needs: list[tuple[str, oldest.Oldest]] = []
    tools: dict[str, None] = {}
    release = consumer.release if consumer else None
    cause = single_ptx.unavailable(release, relocatable=False) if release else ""
    if consumer and cause:
        log.warning("no machine code of kernels for %s: %s", consumer.asked, cause)

    def add(kind: str, arch: Arch, code: bytes, tool: str) -> None:
        members.append((kind, arch, f"{stem}.{arch.sm}.{kind}", code))
        needs.append((kind, oldest.of_code(kind, arch, code, tool)))

    for arch, ptx, undefined in parts:
        cubin, tool = b"", ""
        if undefined:
            if not all(map(device_runtime.is_grid_call, undefined)):
                raise ExportError(_incomplete(undefined))
            cubin, tool = _with_runtime(stem, arch, ptx, level=level, lineinfo=lineinfo, consumer=consumer)
        elif not cause:
            options = AssembleOptions(relocatable=False, opt_level=level, lineinfo=lineinfo)
            cubin, tool = single_ptx.compile_ptx(ptx, arch, options, release)
        if cubin:
            add(CUBIN, arch, cubin, tool)
            tools[tool] = None
        if not undefined:
            # A device of a later generation compiles it when the kernel is loaded. The driver has no device
            # runtime to link it with.
            add(PTX, arch, ptx, "")
    code = nvfatbin.pack(members, relocatable=False, zstd=consumer is None or consumer.reads_zstd)
    return Executable(code, oldest.of_fatbin(needs, code, linkable=False), tuple(tools))


def _with_runtime(
    stem: str, arch: Arch, ptx: bytes, *, level: int, lineinfo: bool, consumer: Consumer | None
) -> tuple[bytes, str]:
    """Return *ptx* linked with the device runtime, and name and release of the linker."""
    what = "A kernel that synchronises its whole grid is linked with the device runtime"
    if consumer is not None and not _has_runtime_for(consumer):
        raise ExportError(
            f"{what}, which is of this environment and not for {consumer.asked}; leave kernels and launcher "
            "out, and let that toolkit link the exported PTX."
        )
    library = device_runtime.find()
    if library is None:
        raise ExportError(f"{what}, which is not found; {device_runtime.cure()}.")
    options = LinkOptions(lineinfo=lineinfo, opt_level=level)
    try:
        linked = link([Input(PTX, f"{stem}.ptx", ptx), library], arch, options)
    except LinkError as error:
        raise ExportError(str(error), flags=error.flags, inputs=error.inputs, log=error.log) from error
    release = dotted(backends.linker(linked.backend).version())
    return linked.cubin, f"nvJitLink {release}"


def _has_runtime_for(consumer: Consumer | None) -> bool:
    """Return whether drivers of *consumer* load what this environment links: that of their major version."""
    linker = backends.installed()
    return consumer is None or (linker is not None and linker[1][0] == consumer.release[0])


def _incomplete(undefined: Sequence[str]) -> str:
    """Return why code with *undefined* symbols is not loaded, and what helps."""
    said = _not_defined(undefined)
    pronoun = "it" if said.endswith(" is not defined") else "them"
    return (
        f"{said}, and code that a driver loads has to be complete; name the file that defines {pronoun} by "
        "link= of cuda.declare_device, or link() a cubin."
    )


def _not_defined(undefined: Sequence[str]) -> str:
    # The device runtime is linked with what synchronises a grid.
    names = sorted(name for name in undefined if not device_runtime.is_grid_call(name))
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not defined"
