"""Find the cffi extension module that contains nvPTXCompiler, and report whether it can be loaded."""

from __future__ import annotations

import sys
from pathlib import Path

EXTENSION = f"{__name__}._nvptxcompiler"
"""The name of the extension module."""

_REINSTALL = (
    "reinstall the wheel or sdist that it came from: python -m pip install --force-reinstall --no-deps FILE"
)
_BUILD_FROM_SDIST = (
    "it was built on a newer Linux, build it on this one or an older one, from the sdist: "
    "python -m pip install --force-reinstall --no-deps FILE"
)


def location() -> str | None:
    """
    Return the path of the extension module without loading it; None if it is missing. Thread-safe.

    `importlib.util.find_spec` raises ValueError for a module that another thread is importing.
    """
    return _find(EXTENSION, __path__)


def not_loadable_reason() -> str | None:
    """Return why the extension module cannot be loaded, with the cure; None if no reason is known."""
    if _find("_cffi_backend", None) is None:
        return "numba-ptxlink needs cffi, which is not installed; install it: python -m pip install cffi"
    return load_failure(f"{EXTENSION} is missing") if location() is None else None


def load_failure(reason: object) -> str:
    """Return the error for an extension module that cannot be loaded for *reason*, with the cure."""
    checkout = Path(__file__).parents[2]
    problem = f"numba-ptxlink's compiled part cannot be loaded ({reason})"
    if (checkout / "pyproject.toml").is_file():
        return f"{problem}; {checkout} is the source tree, build it: python -m pip install -e {checkout}"
    # The dynamic loader names the version that the C library lacks, such as GLIBC_2.38.
    return f"{problem}; {_BUILD_FROM_SDIST if 'GLIBC_' in str(reason) else _REINSTALL}"


def _find(name: str, path: list[str] | None) -> str | None:
    """
    Return the path of a module without loading it; None if it is missing.

    Args:
        name: The name of the module, with its packages.
        path: The folders of the package that contains the module; None for a module outside of packages.
    """
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        try:
            spec = find_spec(name, path) if find_spec else None
        except ImportError:  # A finder that blocks the module, as tests install one.
            return None
        if spec is not None:
            return str(spec.origin)
    return None
