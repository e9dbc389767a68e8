"""Link with nvJitLink through pynvjitlink, the binding for CUDA 12; the only module that calls it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from numba_ptxlink._arch import dotted
from numba_ptxlink._formats.kinds import KINDS
from numba_ptxlink.errors import LinkError

from . import find, nvjitlink
from .nvjitlink import Product

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink import cache

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
    api = _binding()
    names = tuple(name for _, name, _ in inputs)
    nvjitlink.check_arch(version(), names, flags)
    raised = (api.NvJitLinkError, RuntimeError, ValueError)
    failing = functools.partial(nvjitlink.explaining, names=names, flags=flags, errors=raised)
    with failing("accept its flags", str):
        linker = api.NvJitLinker(*flags)
    # nvJitLink keeps the addresses of the names alone.
    shown = [nvjitlink.encodable(name) for name in names]
    with failing("link", lambda: _text(linker.error_log)):
        for (kind, _, code), name in zip(inputs, shown, strict=True):
            getattr(linker, f"add_{KINDS[kind].nvjitlink.lower()}")(code, name)
        linked = linker.get_linked_ptx() if "-ptx" in flags else linker.get_linked_cubin()
    return Product(bytes(linked), _text(linker.info_log), _text(linker.error_log))


def _text(log: Any) -> str:
    # None while the log is empty.
    text = log if isinstance(log, str) else bytes(log or b"").decode(errors="replace")
    return text.rstrip("\0")


def _binding() -> Any:
    try:
        from pynvjitlink import api
    except (ImportError, OSError, RuntimeError) as error:
        raise LinkError(_MISSING.format(reason=error)) from error
    return api
