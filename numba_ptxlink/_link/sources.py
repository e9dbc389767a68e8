"""Compile CUDA C++ inputs, and memoize the results: once per process, not once per kernel."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numba_ptxlink._locks import Lock
from numba_ptxlink._tools import include_scan, nvrtc

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._tools.nvrtc import Compiled

    from .inputs import Input

log = logging.getLogger(__name__)

_REMEMBERED = 256


@dataclass(frozen=True)
class SourceOptions:
    """
    The options for compiling CUDA C++.

    Args:
        include_dirs: Directories that `#include` searches, before the toolkit's.
        headers: Headers held in memory, as pairs of the name that `#include` uses and the text.
        defines: Macros, as pairs of name and value; None defines without a value.
        cxx_standard: The C++ standard, such as "c++20"; None for NVRTC's default.
        name_expressions: Names of functions, variables and template instances whose symbols to return.
        flags: Further NVRTC options.
        toolkit_dirs: Toolkit directories that `#include` searches; they do not change during the process.
        toolkit_first: Whether to search *toolkit_dirs* before *include_dirs*, which is numba-cuda's order.
    """

    include_dirs: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    defines: tuple[tuple[str, str | None], ...] = ()
    cxx_standard: str | None = None
    name_expressions: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    toolkit_dirs: tuple[str, ...] = ()
    toolkit_first: bool = False

    def search_path(self) -> tuple[str, ...]:
        """Return the directories that `#include` searches, in order."""
        if self.toolkit_first:
            return (*self.toolkit_dirs, *self.include_dirs)
        return (*self.include_dirs, *self.toolkit_dirs)

    def arguments(self) -> tuple[str, ...]:
        """Return the options for NVRTC, without include directories."""
        return (
            *((f"--std={self.cxx_standard}",) if self.cxx_standard else ()),
            *(
                f"--define-macro={name}" + ("" if value is None else f"={value}")
                for name, value in self.defines
            ),
            *self.flags,
        )


def kernel_options(
    flags: Sequence[str], folder: Path | None, *, home: Path, toolkit: str | None, own: Path, extra: str
) -> SourceOptions:
    """
    Return the options for CUDA C++ that kernels link: *flags* and the search path of Numba's compilers.

    They search the working directory for `#include "..."`, then the toolkit; so that the same headers are
    included, *folder*, which the source was read from, comes last.

    Args:
        flags: Further NVRTC options.
        folder: Where the source was read from, None for code in memory.
        home: The compiler's package of CUDA's headers, which has them by the major version.
        toolkit: The include directory of the toolkit that the compiler found, None or "" for none.
        own: The directory of the compiler's own headers.
        extra: The directories that the user named, separated by colons.
    """
    major, _ = nvrtc.version()
    others = [str(path) for path in nvrtc.toolkit_include_dirs() if str(path) != str(toolkit)]
    return SourceOptions(
        flags=tuple(flags),
        include_dirs=(*filter(None, extra.split(":")), *((str(folder),) if folder else ())),
        toolkit_dirs=(str(home / str(major)), *((str(toolkit),) if toolkit else ()), *others, str(own)),
        toolkit_first=True,
    )


@dataclass
class _Slot:
    lock: Lock = field(default_factory=Lock)
    compiled: Compiled | None = None


_slots: OrderedDict[tuple[object, ...], _Slot] = OrderedDict()
_slots_lock = Lock()


def compile_once(source: Input, arch: Arch, output: str, options: SourceOptions) -> Compiled:
    """
    Compile *source*, or return the memoized result of an equal call in this process.

    The key is the text, name, folder, architecture, output, options and the files that it can include from
    its folder and the caller's directories. What flags let NVRTC read besides is not known, so a source with
    such flags is compiled each time. Thread-safe and single flight: a second thread waits for the first one's
    result.

    Raises:
        LinkError: NVRTC refused the source or an option. Carries its log.
    """
    if nvrtc.reaches_further(options.flags):
        return _compile(source, arch, output, options)
    folder = source.folder
    included = include_scan.manifest(source.code, folder, options.include_dirs, dict(options.headers))
    if included is None:
        return _compile(source, arch, output, options)
    key = (source.code, source.name, str(folder.absolute()), arch, output, options, included)
    with _slots_lock.held:
        slot = _slots.setdefault(key, _Slot())
        _slots.move_to_end(key)
        while len(_slots) > _REMEMBERED:
            _slots.popitem(last=False)
    with slot.lock.held:
        if slot.compiled is None:
            slot.compiled = _compile(source, arch, output, options)
        return slot.compiled


def _compile(source: Input, arch: Arch, output: str, options: SourceOptions) -> Compiled:
    compiled = nvrtc.compile_source(
        source.code,
        source.name,
        arch,
        output=output,
        flags=options.arguments(),
        include_dirs=options.search_path(),
        headers=dict(options.headers),
        name_expressions=options.name_expressions,
        folder=source.path and source.path.parent,
    )
    if compiled.log:
        log.warning("%s: %s", source.name, compiled.log)
    return compiled
