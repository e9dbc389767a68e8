"""Validate the options of an assembly and turn them into nvPTXCompiler's argument vector."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numba_ptxlink._arch import Arch

DEFAULT_LEVEL = 3
"""How much is optimised where nobody says."""

_MAX_REGISTERS = 255
_LARGEST_INT = 2**31 - 1
_WORD = 2**32

OPTION_FILES = dict.fromkeys(("optf", "options-file"), "give the flags in that file in its place")
"""The flags that read others from a file, which no key of the cache reads; and the cure."""
# These flags also set an attribute of the result, which extra_flags would contradict.
_ATTRIBUTES = {"arch": "arch", "gpu-name": "arch", "c": "relocatable", "compile-only": "relocatable"}
# Of these the compiler takes the last, or refuses both.
_PARAMETERS = {
    "O": "opt_level",
    "opt-level": "opt_level",
    "g": "debug",
    "device-debug": "debug",
    "lineinfo": "lineinfo",
    "generate-line-info": "lineinfo",
    "maxrregcount": "max_registers",
}


def _cures(parameters: Mapping[str, str]) -> dict[str, str]:
    return {flag: f"use the parameter {parameter} for it" for flag, parameter in parameters.items()}


@dataclass(frozen=True, kw_only=True)
class AssembleOptions:
    """
    The options of nvPTXCompiler, besides the architecture.

    Args:
        relocatable: Keep calls and variables open for a later link.
        opt_level: 0 to 3. Under *debug*, and for PTX whose `.target` says debug, the default means 0.
        debug: Emit full debug information; the code is not optimised.
        lineinfo: Emit line numbers. Included in *debug*.
        max_registers: The most registers a thread may use. The compiler raises a number below the
            architecture's minimum (24 for sm_90), ignores one above 255, and says so in its log.
        extra_flags: Further ptxas flags, one string each, passed on as they are.

    Raises:
        ConfigError: An option has a wrong type or value, or contradicts another.
    """

    relocatable: bool = False
    opt_level: int = DEFAULT_LEVEL
    debug: bool = False
    lineinfo: bool = False
    max_registers: int | None = None
    extra_flags: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("relocatable", "debug", "lineinfo"):
            _require_bool(name, getattr(self, name))
        _require_opt_level(self.opt_level, debug=self.debug)
        _require_max_registers(self.max_registers, _LARGEST_INT)
        flags = _require_flags(self.extra_flags)
        check_flags("extra_flags", flags, _cures(_ATTRIBUTES))
        object.__setattr__(self, "extra_flags", flags)

    def arguments(self, arch: Arch, ptx: bytes) -> tuple[str, ...]:
        """Return the argument vector with which nvPTXCompiler compiles *ptx*."""
        arguments = [f"--gpu-name={arch.sm}"]
        if self.relocatable:
            arguments.append("--compile-only")
        if self.debug:
            # The compiler fails on --device-debug with an optimisation level ("Optimized debugging not
            # supported"), and warns about it with line numbers.
            arguments.append("--device-debug")
        else:
            arguments += self.level("--opt-level=", ptx)
            if self.lineinfo:
                arguments.append("--generate-line-info")
        if self.max_registers is not None:
            arguments.append(f"--maxrregcount={self.max_registers}")
        return (*arguments, *self.extra_flags)

    def level(self, flag: str, ptx: bytes) -> tuple[str, ...]:
        """
        Return *flag* with the level at which *ptx* is optimised; nothing where the compiler chooses it.

        Of PTX whose `.target` says debug the compiler refuses each level but 0, and by itself takes that.
        """
        chosen = self.opt_level != DEFAULT_LEVEL or not _is_for_debugging(ptx)
        return (f"{flag}{self.opt_level}",) if chosen else ()


def _is_for_debugging(ptx: bytes) -> bool:
    # Nearly all PTX lacks the word, and needs no parser.
    if b"debug" not in ptx:
        return False
    from numba_ptxlink._formats.ptx.header import read_header

    return "debug" in read_header(ptx.decode(errors="replace")).target


def check_asked(max_registers: Any, extra_flags: Sequence[str] = ()) -> None:
    """
    Refuse what a compiler takes, or a front end passes on to it, and nobody means.

    Raises:
        ConfigError: The compiler would ignore *max_registers*, or one of *extra_flags* has a parameter.
    """
    _require_max_registers(max_registers, _MAX_REGISTERS)
    check_flags("extra_flags", extra_flags, {**_cures(_PARAMETERS), **OPTION_FILES})


def register_limit(asked: Any) -> Any:
    """
    Return the `max_registers` with the effect of *asked*, which a compiler would pass on unchecked.

    ptxas reads the number modulo 2**32, ignores one above 255, and raises one below the minimum. Compilers
    take 0 for no limit. What is no number is returned as it is.
    """
    if not _is_int(asked):
        return asked
    limit = asked % _WORD
    # Ignored is not the same as none: the compiler then spends registers more freely.
    return min(max(limit, 1), _MAX_REGISTERS + 1) if asked else None


def _require_bool(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r}, of type {_type(value)}; pass True or False.")


def _require_opt_level(value: object, *, debug: bool) -> None:
    # The compiler accepts any number here without a diagnostic.
    if not _is_int(value) or value not in (0, 1, 2, 3):
        raise ConfigError(f"opt_level is {value!r}; pass 0, 1, 2 or 3.")
    if debug and value in (1, 2):
        raise ConfigError(
            f"debug=True contradicts opt_level={value}: code for the debugger is not optimised; "
            "leave out opt_level, or pass lineinfo=True in place of debug."
        )


def _require_max_registers(value: object, most: int) -> None:
    if value is None:
        return
    if not _is_int(value):
        raise ConfigError(f"max_registers is {value!r}, of type {_type(value)}; pass a whole number or None.")
    if not (isinstance(value, int) and 1 <= value <= most):
        # The compiler would take a larger number modulo 2**32, and treat 0 as its minimum.
        raise ConfigError(
            f"max_registers is {value}; pass 1 to {_MAX_REGISTERS}, or None to let the compiler choose."
        )


def _require_flags(value: object) -> tuple[str, ...]:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise ConfigError(f"extra_flags is {value!r}; pass a sequence of strings, one a flag.")
    flags = tuple(value)
    for flag in flags:
        if not isinstance(flag, str):
            raise ConfigError(f"extra_flags contains {flag!r}, of type {_type(flag)}; pass strings only.")
    return flags


def check_flags(option: str, flags: Iterable[str], cures: Mapping[str, str], *, read: str = "") -> None:
    """
    Refuse flags that a compiler could not read, and those among *cures*.

    Args:
        option: The name of the parameter that they are given to.
        flags: The flags.
        cures: What to do in place of each flag, by its name without hyphens.
        read: What is looked up in place of each flag.

    Raises:
        ConfigError: There is such a flag.
    """
    for flag in flags:
        if not flag or "\0" in flag:
            raise ConfigError(
                f"{option} contains {flag!r}; a flag has at least one character and no NUL: correct it."
            )
        said = read or flag
        name = said.lstrip("-").partition("=")[0].partition(" ")[0] if said[0] == "-" else ""
        # The level follows without a sign.
        cure = cures.get(name) or (cures.get("O") if re.fullmatch(r"O\d+", name) else None)
        if cure:
            raise ConfigError(f"{option} contains {flag!r}; {cure}.")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _type(value: object) -> str:
    return type(value).__name__
