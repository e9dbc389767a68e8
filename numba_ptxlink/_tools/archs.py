"""The architectures that words stand for: those of the devices, and those that the compilers know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from numba_ptxlink._arch import Arch, ArchLike
from numba_ptxlink._formats.ptx.isa import arch_since
from numba_ptxlink.errors import ConfigError, LaunchError

from . import driver, nvrtc, nvvm

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numba_ptxlink._arch import PtxVersion

NATIVE, ALL, ALL_MAJOR = "native", "all", "all-major"
"""The words, which mean what they mean to nvcc."""


def chosen(archs: ArchLike | Iterable[ArchLike], newest: PtxVersion | None = None) -> tuple[Arch, ...]:
    """
    Return the architectures that *archs* names, each once, in order.

    Args:
        archs: One or several, or text with commas; "native" for those of the devices of this machine,
            "all" for those that the installed toolkit compiles for, "all-major" for the first one of these
            and the first of each generation.
        newest: The newest PTX that is to be written: "all" and "all-major" leave out what needs a newer one.

    Raises:
        ConfigError: A word is none of these, or there is no driver or device for "native".
        LinkError: The toolkit cannot be loaded to ask it.
    """
    listed: list[Arch] = []
    for arch in _each(archs):
        if not isinstance(arch, str):
            listed.append(Arch.of(arch))
            continue
        for word in map(str.strip, arch.split(",")):
            listed += _named(word, newest)
    return tuple(dict.fromkeys(listed))


def _each(archs: ArchLike | Iterable[ArchLike]) -> Iterable[ArchLike]:
    if isinstance(archs, (str, Arch)):
        return [archs]
    several = tuple(archs)
    # A compute capability, such as (9, 0).
    return [cast("ArchLike", several)] if isinstance((*several, "")[0], int) else cast("Any", several)


def _named(word: str, newest: PtxVersion | None) -> Sequence[Arch]:
    if word == NATIVE:
        return _native()
    if word not in (ALL, ALL_MAJOR):
        return [Arch.of(word)]
    known = [arch for arch in nvrtc.supported_archs() if nvvm.emitted_isa(arch) is not None]
    if newest is not None:
        known = [arch for arch in known if (since := arch_since(arch.sm)) is not None and since <= newest]
    if word == ALL:
        return known
    return [arch for arch in known if arch == known[0] or not arch.minor]


def _native() -> Sequence[Arch]:
    try:
        devices = driver.archs()
    except LaunchError as error:
        raise ConfigError(
            f'"{NATIVE}" asks the driver for its devices, and there is none ({error.__cause__ or error}); '
            'name an architecture, such as "sm_90", or export on a machine with the device.'
        ) from error
    if not devices:
        raise ConfigError(
            f'"{NATIVE}" needs a device, and none is visible; name an architecture, such as "sm_90".'
        )
    return devices
