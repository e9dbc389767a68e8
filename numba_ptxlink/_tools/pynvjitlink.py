"""The nvJitLink that is a part of pynvjitlink, the binding for CUDA 12: which file it is in."""

from __future__ import annotations

from numba_ptxlink.errors import LinkError

_MISSING = (
    "pynvjitlink could not be loaded ({reason}). Its import needs a driver (libcuda.so.1), which the "
    "backends nvjitlink and nvptxcompiler do without; install it with `pip install 'numba-ptxlink[cu12]'`."
)


def library() -> str:
    """
    Return the file, which holds nvJitLink too.

    Raises:
        LinkError: It cannot be loaded.
    """
    try:
        from pynvjitlink import _nvjitlinklib
    except (ImportError, OSError, RuntimeError) as error:
        raise LinkError(_MISSING.format(reason=error)) from error
    file: str = _nvjitlinklib.__file__
    return file


def package() -> str:
    """Return the package that brings it."""
    return "pynvjitlink-cu12"
