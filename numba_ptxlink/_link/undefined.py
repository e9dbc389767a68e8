"""
Refuse variables that no input defines, where the tool would make them of their declarations.

nvPTXCompiler does so with PTX, and nvJitLink with LTO-IR alone: both compile a whole program, and warn.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from numba_ptxlink._formats import elf
from numba_ptxlink._formats.undefined import may_lack_variables, undefined_variables
from numba_ptxlink.errors import AssembleError, LinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import Arch

    from .inputs import Input

_MADE = re.compile(r"Unresolved extern variable '([^']+)' in whole program")
# What keeps ptxas from warning.
_SILENCE = re.compile(r"(?<![\w-])(?:-w|--disable-warnings)(?![\w-])")


def in_ptx(source: Input) -> tuple[str, ...]:
    """Return the variables that *source*, which is PTX and all of a program, declares and does not define."""
    return undefined_variables(source.module) if may_lack_variables(source.code) else ()


def refuse_in_ptx(source: Input, arch: Arch) -> None:
    """
    Refuse PTX that is all of a program and declares variables that it does not define.

    Raises:
        AssembleError: It does. Names them and the cure.
    """
    names = in_ptx(source)
    if not names:
        return
    from . import explain, symbols

    log = "\n".join(f"error   : Undefined reference to '{name}'" for name in names)
    cure = explain.explain(log, [symbols.table(source, arch)])
    raise AssembleError(f"{source.name}: {_said(names)}\n{cure}", inputs=(source.name,), log=log)


def refuse_made(cubin: bytes, log: str, inputs: Sequence[str], flags: tuple[str, ...]) -> None:
    """
    Refuse the *cubin* of a link that made variables of declarations. Shared memory holds nobody's values.

    Args:
        cubin: What was linked.
        log: What the linker logged, with the warnings of ptxas.
        inputs: The names of the inputs.
        flags: The linker's arguments.

    Raises:
        LinkError: It did. Names them; what to do is left to `explain.cure`.
    """
    told = dict.fromkeys(_MADE.findall(log))
    variables = (
        {symbol.name for symbol in elf.read(cubin).symbols if symbol.kind == "variable"} if told else ()
    )
    names = tuple(name for name in told if name in variables)
    if names:
        raise LinkError(
            f"{', '.join(inputs)}: {_said(names)}\nFlags: {' '.join(flags)}.",
            flags=flags,
            inputs=tuple(inputs),
            log=log,
        )


def with_warnings(flags: Sequence[str]) -> tuple[str, ...]:
    """Return *flags* without those that keep ptxas from warning, each replaced by a harmless one."""
    return tuple(_SILENCE.sub("-v", flag) for flag in flags)


def _said(names: Sequence[str]) -> str:
    which = ", ".join(map(repr, names))
    return f"Undefined reference to {which}, of which the compiler would make variables of its own."
