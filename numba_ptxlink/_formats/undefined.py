"""
Find the variables that PTX takes from other code.

A compiler of whole programs makes such a variable where a linker refuses it, of zeros but in shared memory:
ptxas, nvPTXCompiler and the driver that loads PTX only warn. Observed with nvPTXCompiler 13.5 and a driver of
CUDA 13.0.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .ptx import Module

# Functions and the shared memory that a launch sizes, which most PTX declares, are no such variables.
_DECLARATION = re.compile(rb"\.extern\b(?!\s*\.func\b|\s*\.shared\b[^;,]*\[\s*\]\s*;)")
_VARIABLE_SPACES = ("global", "managed", "const", "shared")


def may_lack_variables(code: bytes) -> bool:
    """Return whether PTX has a declaration of a variable that it may not define, at a glance."""
    return _DECLARATION.search(code) is not None


def undefined_variables(module: Module) -> tuple[str, ...]:
    """Return the variables that *module* declares and a linker looks for in other code, used or not."""
    defined = {variable.name for variable in module.variables if variable.defined}
    declared = (
        variable.name
        for variable in module.variables
        if not variable.defined
        and variable.memory in _VARIABLE_SPACES
        # A launch sizes it.
        and not (variable.memory == "shared" and not variable.size)
    )
    return tuple(dict.fromkeys(name for name in declared if name not in defined))
