"""Validate the options and flags that callers give for NVIDIA's compilers and linkers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import Arch

DEFAULT_LEVEL = 3
"""How much is optimised where nobody says."""

_MAX_REGISTERS = 255
# The parameter that says the same, by the name of a flag without hyphens. A tool takes the last of two that
# contradict each other, at most with a warning in its log.
_PARAMETERS = {
    **dict.fromkeys(("arch", "gpu-name", "gpu-architecture"), "arch"),
    **dict.fromkeys(("c", "compile-only"), "relocatable"),
    **dict.fromkeys(("O", "opt-level"), "opt_level"),
    **dict.fromkeys(("g", "G", "device-debug"), "debug"),
    **dict.fromkeys(("lineinfo", "generate-line-info"), "lineinfo"),
    **dict.fromkeys(("lto", "dlto", "dlink-time-opt"), "lto"),
    "maxrregcount": "max_registers",
    "std": "cxx_standard",
}
# No key of the cache reads the files that these name.
_FILES = ("optf", "options-file")
_NO_CUBIN = ("r", "c", "compile-only", "rdc", "relocatable-device-code", "ptx")
# Each is followed by flags for a tool that nvJitLink calls.
_INNER = re.compile("-X(?:ptxas|nvvm)=")


@dataclass(frozen=True, kw_only=True)
class AssembleOptions:
    """
    The options of nvPTXCompiler, besides the architecture.

    Args:
        relocatable: Keep calls and variables open for a later link.
        opt_level: 0 to 3. Under *debug*, and for PTX whose `.target` says debug, the default means 0.
        debug: Emit full debug information; the code is not optimised.
        lineinfo: Emit line numbers. Included in *debug*.
        max_registers: The most registers a thread may use, 1 to 255. The compiler raises a number below the
            architecture's minimum (24 for sm_90), and says so in its log.
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
            if not isinstance(value := getattr(self, name), bool):
                raise ConfigError(f"{name} is {value!r}; pass True or False.")
        _check_opt_level(self.opt_level, debug=self.debug)
        _check_max_registers(self.max_registers)
        flags = as_texts("extra_flags", self.extra_flags)
        check_flags("extra_flags", flags, ("arch", "relocatable"))
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


def link_flags(option: str, given: Any) -> tuple[str, ...]:
    """
    Return the flags *given* for the parameter *option* of `link`, which nvJitLink or NVRTC takes.

    Raises:
        ConfigError: They are no list of `str`, or one of them says what a parameter of `link` says.
    """
    flags = as_texts(option, given)
    parameters = ("arch", "lto", "debug", "lineinfo", "max_registers", "cxx_standard")
    check_flags(option, flags, parameters, cubin_alone=True)
    return flags


def as_texts(option: str, given: Any) -> tuple[str, ...]:
    """
    Return the value of an option that takes several `str`.

    Raises:
        ConfigError: It is something else.
    """
    texts = (given,) if isinstance(given, bytes) or not isinstance(given, Iterable) else tuple(given)
    if isinstance(given, str) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"{option}={given!r} is not a list of str; give a list, also of one item.")
    return texts


def register_limit(requested: Any) -> Any:
    """
    Return the `max_registers` with the effect of *requested*, which a compiler would pass on unchecked.

    ptxas ignores a number above 255, which no thread can have, and raises one below the minimum. Compilers
    take 0 for no limit. What is no number is returned as it is.
    """
    if not _is_int(requested):
        return requested
    return min(max(requested, 1), _MAX_REGISTERS) if requested else None


def _check_opt_level(value: object, *, debug: bool) -> None:
    # The compiler accepts any number here without a diagnostic.
    if not _is_int(value) or value not in (0, 1, 2, 3):
        raise ConfigError(f"opt_level is {value!r}; pass 0, 1, 2 or 3.")
    if debug and value in (1, 2):
        raise ConfigError(
            f"debug=True contradicts opt_level={value}: code for the debugger is not optimised; "
            "leave out opt_level, or pass lineinfo=True in place of debug."
        )


def _check_max_registers(value: Any) -> None:
    if value is not None and not (_is_int(value) and 1 <= value <= _MAX_REGISTERS):
        raise ConfigError(
            f"max_registers is {value!r}; pass 1 to {_MAX_REGISTERS}, or None to let the compiler choose."
        )


def check_flags(
    option: str, flags: Iterable[str], parameters: Sequence[str], *, cubin_alone: bool = False
) -> None:
    """
    Refuse flags that a tool could not read, and those for which there is one of *parameters*.

    Raises:
        ConfigError: There is such a flag.
    """
    for flag in flags:
        if not flag or "\0" in flag:
            raise ConfigError(
                f"{option} contains {flag!r}; a flag has at least one character and no NUL: correct it."
            )
        inner = _INNER.sub("", flag)
        name = re.split("[= ]", inner.lstrip("-"))[0] if inner.startswith("-") else ""
        # The level follows without a sign.
        parameter = _PARAMETERS.get(re.sub(r"^O\d+$", "O", name))
        if parameter in parameters:
            raise ConfigError(f"{option} contains {flag!r}; use the parameter {parameter} for it.")
        if cubin_alone and name in _NO_CUBIN:
            raise ConfigError(
                f"{option} contains {flag!r}; leave it out: link() makes a cubin that a driver loads, and "
                "nothing else."
            )
        if name in _FILES:
            raise ConfigError(f"{option} contains {flag!r}; give the flags in that file in its place.")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
