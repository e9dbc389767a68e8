"""Link with the nvJitLink that is a part of pynvjitlink, the binding for CUDA 12."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_ptxlink._arch import dotted
from numba_ptxlink.errors import LinkError

from . import find, nvjitlink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink import cache

    from .nvjitlink import Product

_PACKAGE = "pynvjitlink-cu12"
_MISSING = (
    "pynvjitlink could not be loaded ({reason}). Its import needs a driver (libcuda.so.1), which the "
    "backends nvjitlink and nvptxcompiler do without; install it with `pip install 'numba-ptxlink[cu12]'`."
)


def version() -> tuple[int, int]:
    """Return the version of the nvJitLink inside pynvjitlink as (major, minor)."""
    major, minor = _binding().nvjitlink_version()
    return (int(major), int(minor))


def package() -> str:
    """Return the package that brings this binding."""
    return _PACKAGE


def key(
    inputs: Sequence[tuple[str, str, bytes]], flags: Sequence[str], *, unread: tuple[str, ...] = ()
) -> cache.Key:
    """Return everything that the result of `link` depends on."""
    build = find.installed([_PACKAGE]).get(_PACKAGE, "")
    return nvjitlink.key(inputs, flags, tool=("pynvjitlink", build, dotted(version())), unread=unread)


def link(inputs: Sequence[tuple[str, str, bytes]], flags: Sequence[str]) -> Product:
    """
    Link *inputs*, each (kind, name, code), with nvJitLink. Needs a driver's library, but no device.

    Raises:
        LinkError: nvJitLink refused an input, a flag or the link. Carries its log.
    """
    release = version()
    # nvJitLink is a part of this file.
    from pynvjitlink import _nvjitlinklib

    return nvjitlink.link_by(_nvjitlinklib.__file__, release, inputs, flags)


def _binding() -> Any:
    try:
        from pynvjitlink import api
    except (ImportError, OSError, RuntimeError) as error:
        raise LinkError(_MISSING.format(reason=error)) from error
    return api
