"""Compiled PTX on the CPU: PTX becomes LLVM IR, and llvmlite makes machine code of that."""

from __future__ import annotations

import importlib

from numba_ptxlink.errors import LaunchError


def require() -> None:
    """
    Import what the rest of this package needs.

    Raises:
        LaunchError: llvmlite or NumPy is not installed. Names the extra.
    """
    for package in ("numpy", "llvmlite"):
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise LaunchError(
                f"The CPU runs compiled functions by llvmlite and NumPy ({error}); install them: "
                "python -m pip install 'numba-ptxlink[cpu]'."
            ) from error
