"""Find the nvJitLink inside pynvjitlink, a package that binds nvJitLink to Python for CUDA 12."""

from __future__ import annotations

from numba_ptxlink.errors import LinkError

_MISSING = (
    "pynvjitlink could not be loaded ({reason}); run `pip install 'numba-ptxlink[cu12]'`, and install a "
    "driver (libcuda.so.1), or use the backends nvjitlink or nvptxcompiler, which need none."
)


def library() -> str:
    """
    Return the file that contains nvJitLink: pynvjitlink's extension module, into which it is linked.

    Raises:
        LinkError: pynvjitlink cannot be loaded.
    """
    try:
        from pynvjitlink import _nvjitlinklib
    except (ImportError, OSError, RuntimeError) as error:
        raise LinkError(_MISSING.format(reason=error)) from error
    file: str = _nvjitlinklib.__file__
    return file


def package() -> str:
    """Return the package that contains this nvJitLink."""
    return "pynvjitlink-cu12"
