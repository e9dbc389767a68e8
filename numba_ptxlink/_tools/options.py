"""
The options of NVIDIA's compilers and linkers, and their flags for each tool.

An option has the same effect whichever tool is chosen; `_FLAG_FORMATS` has its flag for each tool. Further
flags are passed as ptxas or nvJitLink spells them, and `to_flags` converts them for the chosen tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink._config import config
from numba_ptxlink._formats.ptx_header import read_header
from numba_ptxlink.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_LEVEL = 3
"""The default of `opt_level`."""

# Tools that flags are written for; nvPTXCompiler has the flags of ptxas. nvJitLink silently ignores LTO flags
# without -lto, so it has two entries.
NVRTC, PTXAS, NVJITLINK, LTO, NVVM = "NVRTC", "ptxas", "nvJitLink", "nvJitLink with LTO", "NVVM"
# The flags of the options, in the order in which a tool gets them. {value} is the value of the option;
# of a bool, {word} is true or false, and {bit} is 1 or 0. A blank separates two flags.
_NVJITLINK_FORMATS = {
    "opt_level": "-O{value}",
    "debug": "-g",
    "lineinfo": "-lineinfo",
    "max_registers": "-maxrregcount={value}",
}
_LLVM_FORMATS = {
    "ftz": "-ftz={bit}",
    "prec_div": "-prec-div={bit}",
    "prec_sqrt": "-prec-sqrt={bit}",
    "fma": "-fma={bit}",
}
_FLAG_FORMATS: dict[str, dict[str, str]] = {
    NVRTC: {
        "debug": "--device-debug",
        "lineinfo": "--generate-line-info",
        "ftz": "--ftz={word}",
        "prec_div": "--prec-div={word}",
        "prec_sqrt": "--prec-sqrt={word}",
        "fma": "--fmad={word}",
        "fast_math": "--use_fast_math",
    },
    PTXAS: {
        "relocatable": "--compile-only",
        "opt_level": "--opt-level={value}",
        "debug": "--device-debug",
        "lineinfo": "--generate-line-info",
        "max_registers": "--maxrregcount={value}",
        "fma": "--fmad={word}",
    },
    NVJITLINK: {**_NVJITLINK_FORMATS, "fma": "-Xptxas=--fmad={word}"},
    # nvJitLink compiles LTO-IR itself, and PTX by ptxas.
    LTO: {**_NVJITLINK_FORMATS, **_LLVM_FORMATS, "fma": "-fma={bit} -Xptxas=--fmad={word}"},
    NVVM: {"opt_level": "-opt={value}", **_LLVM_FORMATS},
}
ARITHMETIC = ("fma", "ftz", "prec_div", "prec_sqrt", "fast_math")
"""The options of floating-point arithmetic: True, False, or None for the tool's default."""
# The meaning of fast_math for tools without such a flag, from NVRTC's manual.
_FAST_MATH = {"ftz": True, "prec_div": False, "prec_sqrt": False, "fma": True}

_MAX_REGISTERS = 255  # of a thread
# The parameter that stands for a flag, by the flag's name without hyphens. Such flags are refused: if a flag
# and a parameter contradict each other, a tool uses the last one, at most with a warning in its log.
_PARAMETERS = {
    **dict.fromkeys(("arch", "gpu-name", "gpu-architecture"), "arch"),
    **dict.fromkeys(("c", "compile-only"), "relocatable"),
    **dict.fromkeys(("O", "opt-level"), "opt_level"),
    **dict.fromkeys(("g", "G", "device-debug"), "debug"),
    **dict.fromkeys(("lineinfo", "generate-line-info"), "lineinfo"),
    **dict.fromkeys(("lto", "dlto", "dlink-time-opt"), "lto"),
    "maxrregcount": "max_registers",
    "std": "cxx_standard",
    **dict.fromkeys(("fma", "fmad"), "fma"),
    "ftz": "ftz",
    "prec-div": "prec_div",
    "prec-sqrt": "prec_sqrt",
    "use_fast_math": "fast_math",
}
# Refused: these flags name a file whose content would be missing from the cache key.
_FILE_FLAGS = ("optf", "options-file", "apply-controls")
# With these flags, the output is no cubin that a driver loads.
_NO_CUBIN_FLAGS = ("r", "c", "compile-only", "rdc", "relocatable-device-code", "ptx", "fdevice-syntax-only")
# Flags that only nvJitLink accepts, and only with -lto: not --split-compile, which ptxas has, too.
_LTO_FLAGS = (
    "Xnvvm",
    "kernels-used",
    "variables-used",
    "optimize-unused-variables",
    "split-compile-extended",
    "jump-table-density",
)
_LINKER_FLAGS = ("time", "no-cache")  # Other flags that only nvJitLink accepts.
# Flags that ptxas and nvJitLink accept; nvJitLink has no -O1 and -O2. A flag in none of these lists
# is one of ptxas.
_COMMON_FLAGS = ("verbose", "O0", "O3")
# The prefix of a flag for a tool inside nvJitLink, as in "-Xptxas=--fmad=true".
_INNER_TOOL = "-X(?:ptxas|nvvm)="
# NVRTC passes the values of these flags to ptxas, so it ignores them if it makes PTX or LTO-IR.
_PTXAS_FLAGS = ("Xptxas", "ptxas-options")


class Options(NamedTuple):
    """
    The options of tools, and of an export or link.

    A NamedTuple, since the definition of a frozen dataclass takes five times as long, and delays the first
    kernel of a process.

    Args:
        relocatable: Keep calls and variables open for a later link.
        opt_level: 0 to 3. With *debug*, and for PTX whose `.target` has debug, the default means 0.
        debug: Emit full debug information; the code is not optimised.
        lineinfo: Emit line numbers. Included in *debug*.
        max_registers: The most registers a thread may use, 1 to 255; None for no limit.
        fma: Whether a multiplication and an addition are contracted to a fused one. For this option and the
            next four, None means the tool's default.
        ftz: Whether 32-bit subnormal numbers are flushed to zero.
        prec_div: Whether 32-bit divisions are rounded as by IEEE 754.
        prec_sqrt: Whether 32-bit square roots are rounded as by IEEE 754.
        fast_math: Whether arithmetic is fast and less accurate: if they are None, *ftz* and *fma* become
            True, *prec_div* and *prec_sqrt* False; mathematical functions in CUDA C++ and Python are
            approximate.
        extra_flags: Further flags of ptxas or nvJitLink.
        lto: Whether the link optimises across its inputs.
        backend: The tool of a link, "auto" to choose one; None for NUMBA_PTXLINK_BACKEND.
        checks: "all" to compare the inputs of a link with each other first, or "none"; None for
            NUMBA_PTXLINK_CHECKS.
        inline: The calls between PTX inputs that are inlined; None for NUMBA_PTXLINK_INLINE.
    """

    relocatable: bool = False
    opt_level: int = DEFAULT_LEVEL
    debug: bool = False
    lineinfo: bool = False
    max_registers: int | None = None
    fma: bool | None = None
    ftz: bool | None = None
    prec_div: bool | None = None
    prec_sqrt: bool | None = None
    fast_math: bool | None = None
    extra_flags: tuple[str, ...] = ()
    lto: bool = False
    backend: str | None = None
    checks: str | None = None
    inline: str | None = None

    @property
    def tool(self) -> str:
        """The tool of a link, by default that of NUMBA_PTXLINK_BACKEND; "auto" to choose one."""
        return config().backend if self.backend is None else self.backend

    @property
    def checks_inputs(self) -> bool:
        """Whether inputs are compared with each other, by default as in NUMBA_PTXLINK_CHECKS."""
        return (config().checks if self.checks is None else self.checks) != "none"

    @property
    def inline_mode(self) -> str:
        """The calls to inline, "auto", "all" or "none"; by default those of NUMBA_PTXLINK_INLINE."""
        return config().inline if self.inline is None else self.inline

    @property
    def arithmetic(self) -> dict[str, bool]:
        """The options of arithmetic that are not None."""
        return {name: value for name in ARITHMETIC if (value := getattr(self, name)) is not None}

    def checked(self) -> Options:
        """
        Return these options after a check of their types and values.

        Raises:
            ConfigError: An option has a wrong type or value, or contradicts another.
        """
        for name in ("relocatable", "debug", "lineinfo"):
            if not isinstance(value := getattr(self, name), bool):
                raise ConfigError(f"{name} is {value!r}; pass True or False.")
        checked_bools(self.arithmetic)
        # The compiler accepts any number without a diagnostic.
        if not _is_int(self.opt_level) or self.opt_level not in range(DEFAULT_LEVEL + 1):
            raise ConfigError(f"opt_level is {self.opt_level!r}; pass 0, 1, 2 or 3.")
        if self.debug and self.opt_level in (1, 2):
            raise ConfigError(
                f"debug=True contradicts opt_level={self.opt_level}: code for the debugger is not optimised; "
                "leave out opt_level, or pass lineinfo=True in place of debug."
            )
        limit = self.max_registers
        if limit is not None and not (_is_int(limit) and 1 <= limit <= _MAX_REGISTERS):
            raise ConfigError(
                f"max_registers is {limit!r}; pass 1 to {_MAX_REGISTERS}, or None to let the compiler choose."
            )
        return self

    def to_flags(self, tool: str, ptx: bytes = b"") -> tuple[str, ...]:
        """
        Return the flags for *tool*, without the architecture.

        Args:
            tool: NVRTC, PTXAS, NVJITLINK, LTO or NVVM.
            ptx: The PTX, if one PTX is compiled. If its `.target` has "debug", ptxas rejects each level but
                0, which is its default then.
        """
        values = self._asdict()
        if "fast_math" not in _FLAG_FORMATS[tool] and self.fast_math:
            values |= {name: value for name, value in _FAST_MATH.items() if values[name] is None}
        # Beside --device-debug, ptxas rejects --opt-level ("Optimized debugging not supported"), and warns of
        # --generate-line-info. nvJitLink rejects -O3 beside -g, and uses level 3, or 0 with -g, by itself.
        values["lineinfo"] = self.lineinfo and not self.debug
        is_default_level = self.opt_level == DEFAULT_LEVEL
        is_level_implied = is_default_level and (tool in (NVJITLINK, LTO) or _is_for_debugging(ptx))
        if is_level_implied or (self.debug and tool == PTXAS):
            values["opt_level"] = None
        flags: list[str] = []
        for name, flag_format in _FLAG_FORMATS[tool].items():
            value = values[name]
            # Only the options of `_FAST_MATH` have a flag for False.
            if value is None or (value is False and name not in _FAST_MATH):
                continue
            flags += flag_format.format(value=value, word=str(value).lower(), bit=int(value)).split()
        if tool in (PTXAS, NVJITLINK, LTO):
            flags += _translate(self.extra_flags, tool)
        return tuple(flags)


def _is_for_debugging(ptx: bytes) -> bool:
    # Most PTX lacks the word, and parsing its header would take time.
    if b"debug" not in ptx:
        return False
    return "debug" in read_header(ptx.decode(errors="replace")).target


def _translate(flags: Iterable[str], tool: str) -> Iterable[str]:
    """Yield *flags* of ptxas and nvJitLink in the form that *tool* accepts."""
    is_for_nvjitlink_itself = False
    for flag in flags:
        # An item without a hyphen is the value of the flag before it, and belongs to the same tool.
        if name := _flag_name(flag):
            is_for_nvjitlink_itself = (
                tool_of_flag(flag) != PTXAS or name == "Xptxas" or (tool == LTO and name == "split-compile")
            )
        # A long name has two hyphens for ptxas and one for nvJitLink; each tool rejects the other form.
        if tool == PTXAS:
            yield "--verbose" if name == "verbose" else flag.removeprefix("-Xptxas=")
        else:
            yield re.sub("^--", "-", flag) if is_for_nvjitlink_itself else f"-Xptxas={flag}"


def tool_of_flag(flag: str) -> str:
    """
    Return the tool that *flag* is meant for, PTXAS, NVJITLINK or LTO; "" for a common flag or a value.

    NVJITLINK and LTO mean that no other tool accepts the flag. But flags for PTXAS include --split-compile
    and -Xptxas=, which nvJitLink accepts, too.
    """
    name = _flag_name(flag)
    if name in _LTO_FLAGS:
        return LTO
    if name in _LINKER_FLAGS:
        return NVJITLINK
    return "" if not name or name in _COMMON_FLAGS else PTXAS


def first_linker_flag(flags: Iterable[str]) -> str:
    """Return the first of *flags* that only nvJitLink accepts, with or without LTO; "" if there is none."""
    return next((flag for flag in flags if tool_of_flag(flag) in (NVJITLINK, LTO)), "")


def _flag_name(flag: str) -> str:
    """Return the name of *flag* without hyphens and value; "" if it is no flag."""
    return re.split("[= ]", flag.lstrip("-"))[0] if flag.startswith("-") else ""


def assembler_flags(extra_flags: Any) -> tuple[str, ...]:
    """
    Return *extra_flags* of `assemble` after a check.

    Raises:
        ConfigError: The value is no list of `str`, `assemble` has a parameter in place of a flag, or ptxas
            does not accept a flag.
    """
    flags = as_texts("extra_flags", extra_flags)
    parameters = ("arch", "relocatable", "opt_level", "debug", "lineinfo", "max_registers", "fma")
    check_flags("extra_flags", flags, parameters)
    for flag in flags:
        if _PARAMETERS.get(_flag_name(flag)) in ARITHMETIC:
            raise ConfigError(
                f"extra_flags contains {flag!r}, which ptxas does not accept, since the PTX fixes it; pass "
                f"{_PARAMETERS[_flag_name(flag)]}= to export() or link()."
            )
    if flag := first_linker_flag(flags):
        raise ConfigError(
            f"extra_flags contains {flag!r}, a flag of nvJitLink; pass it to link(..., backend='nvjitlink')."
        )
    return flags


def link_flags(option: str, value: Any) -> tuple[str, ...]:
    """
    Return the flags in the parameter *option* of `link` after a check.

    Raises:
        ConfigError: The value is no list of `str`, or `link` has a parameter in place of a flag.
    """
    flags = as_texts(option, value)
    parameters = ("arch", "lto", "debug", "lineinfo", "max_registers", "cxx_standard")
    check_flags(option, flags, (*parameters, *ARITHMETIC), makes_cubin=True)
    return flags


def source_flags(nvrtc_flags: Any) -> tuple[str, ...]:
    """
    Return *nvrtc_flags* of `link` after a check.

    Raises:
        ConfigError: The value is no list of `str`, `link` has a parameter in place of a flag, or NVRTC
            ignores a flag.
    """
    flags = link_flags("nvrtc_flags", nvrtc_flags)
    for flag in flags:
        if _flag_name(flag) in _PTXAS_FLAGS:
            raise ConfigError(
                f"nvrtc_flags contains {flag!r}, which NVRTC ignores; pass flags of ptxas as extra_flags."
            )
    return flags


def as_texts(option: str, value: Any) -> tuple[str, ...]:
    """
    Return the value of an option that is a list of `str`.

    Raises:
        ConfigError: The value has another type.
    """
    texts = (value,) if isinstance(value, bytes) or not isinstance(value, Iterable) else tuple(value)
    if isinstance(value, str) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"{option}={value!r} is not a list of str; pass a list, also for one item.")
    return texts


def register_limit(requested: Any) -> Any:
    """
    Return the `max_registers` for *requested*, a limit that was passed to a front end.

    The limit may be out of range, and gets the effect that it has in ptxas: no limit for 0 and for a number
    above 255, which no thread can have; a number below the minimum is raised. A value that is no number is
    returned unchanged.
    """
    if not _is_int(requested):
        return requested
    return min(max(requested, 1), _MAX_REGISTERS) if requested else None


def check_flags(
    option: str, flags: Iterable[str], parameters: Sequence[str], *, makes_cubin: bool = False
) -> None:
    """
    Refuse flags that a tool could not read, and flags that one of *parameters* stands for.

    Args:
        option: The name of the parameter that has the flags, for the message.
        flags: The flags.
        parameters: The parameters of the function that was called, by name.
        makes_cubin: Whether the function makes a cubin, so that flags for another output are refused, too.

    Raises:
        ConfigError: There is such a flag.
    """
    for flag in flags:
        if not flag or "\0" in flag:
            raise ConfigError(
                f"{option} contains {flag!r}; a flag has at least one character and no NUL: correct it."
            )
        # Two flags in one item, as in "--verbose -O1": tools ignore the second one. In nvrtc_flags, the value
        # of a macro may contain " -".
        if option == "extra_flags" and re.search(r"\s-", flag):
            raise ConfigError(f"{option} contains {flag!r}; pass each flag as a separate item.")
        name = _flag_name(re.sub(_INNER_TOOL, "", flag))
        # "-O3" has its value in its name.
        parameter = _PARAMETERS.get(re.sub(r"^O\d+$", "O", name))
        if parameter in parameters:
            raise ConfigError(f"{option} contains {flag!r}; use the parameter {parameter} for it.")
        if makes_cubin and name in _NO_CUBIN_FLAGS:
            raise ConfigError(
                f"{option} contains {flag!r}, and link() makes only cubins that a driver loads; leave it out."
            )
        if name in _FILE_FLAGS:
            raise ConfigError(
                f"{option} contains {flag!r}, and no cache key contains that file; pass its flags instead."
            )


def checked_bools(choices: Mapping[str, Any]) -> dict[str, bool]:
    """
    Return the *choices* that are not None, by the names of their options.

    Raises:
        ConfigError: A choice is neither True, False nor None.
    """
    requested = {name: value for name, value in choices.items() if value is not None}
    for name, value in requested.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{name} is {value!r}; pass True, False or None.")
    return requested


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
