"""Run compiled PTX on the CPU: translate PTX to LLVM IR, and compile the IR to machine code with llvmlite."""

from __future__ import annotations

import importlib

from numba_ptxlink.errors import LaunchError


def require_packages() -> None:
    """
    Check that NumPy and llvmlite can be imported.

    Raises:
        LaunchError: llvmlite or NumPy is not installed; the message names the extra to install.
    """
    for package in ("numpy", "llvmlite"):
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise LaunchError(
                f"Running compiled functions on the CPU needs llvmlite and NumPy ({error}); install them: "
                "python -m pip install 'numba-ptxlink[cpu]'."
            ) from error
