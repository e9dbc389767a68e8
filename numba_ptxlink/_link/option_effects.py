"""
Check which inputs of a link the compile options can still change.

A link compiles CUDA C++, Python, LTO-IR and PTX, and only copies cubins. An option that changes no input is
an error; an option that changes only some inputs is a warning.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from numba_ptxlink._formats.kinds import CU, LTOIR, PTX
from numba_ptxlink._tools.options import ARITHMETIC
from numba_ptxlink.errors import LinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._tools.options import Options

    from .read import Input

log = logging.getLogger(__name__)

# Arithmetic options that a link still applies, by kind of input: none in cubins; only fma in PTX, whose `mul`
# and `add` may be contracted; all but prec_sqrt in LTO-IR.
_HONOURED_OPTIONS = {CU: ARITHMETIC, LTOIR: {*ARITHMETIC} - {"prec_sqrt"}, PTX: ("fma",)}
# Instructions of PTX that fma=False does not split, such as `fma.rn.f32` and `mad.f32`.
_FUSED_INSTRUCTION = rb"\b(?:fma\.|mad\.(?:\w+\.)*f(?:32|64)\b)"


def check_compile_options(
    inputs: Sequence[Input], options: Options, *, compiles_source: bool = False
) -> list[str]:
    """
    Log and return a warning for each option that has no effect on an input. Example: fma=False with a cubin.

    Args:
        inputs: The inputs of a link.
        options: The options of the link.
        compiles_source: Whether the link compiles Python as well, to which all options apply.

    Raises:
        LinkError: An option has no effect on any input. Names the cure.
    """
    option_warnings = []
    requested = options.arithmetic
    # fast_math also means prec_sqrt=False.
    effective = {"prec_sqrt": False} | requested if options.fast_math else requested
    for option, value in effective.items():
        unaffected = [
            source.name for source in inputs if option not in _HONOURED_OPTIONS.get(source.kind, ())
        ]
        # Python is not among *inputs*, and objects and libraries may contain LTO-IR.
        applies_elsewhere = compiles_source or (options.lto and option in _HONOURED_OPTIONS[LTOIR])
        if len(unaffected) == len(inputs) and option in requested and not applies_elsewhere:
            names = ", ".join(unaffected)
            are, their = ("is", "its") if len(unaffected) == 1 else ("are", "their")
            raise LinkError(
                f"{option}={value} has no effect on {names}, which {are} compiled already; pass it to the "
                f"compiler of {names}, or link {their} CUDA C++ or Python source.",
                inputs=tuple(unaffected),
            )
        if option == "fma" and not value:
            unaffected += [
                source.name
                for source in inputs
                if source.kind == PTX and re.search(_FUSED_INSTRUCTION, source.code)
            ]
        if unaffected:
            option_warnings.append(
                f"{option}={value} applies only to what this link compiles; compiled already, with their own "
                f"arithmetic: {', '.join(unaffected)}"
            )
    # The kinds in `_HONOURED_OPTIONS` are those that a link compiles: the options below apply to all of them.
    if not (compiles_source or any(source.kind in _HONOURED_OPTIONS for source in inputs)):
        names = ", ".join(source.name for source in inputs)
        option_warnings += [
            f"{option}={value} applies only to what this link compiles; compiled already: {names}"
            for option in ("debug", "lineinfo", "max_registers")
            if (value := getattr(options, option))
        ]
    for line in option_warnings:
        log.warning("%s", line)
    return option_warnings
