"""
The options of NVIDIA's compilers and linkers: what each means, and how each tool spells it.

An option means the same whatever tool is chosen. `_FLAG_FORMATS` is the one table of spellings; flags that
callers give are ptxas's, or those of nvJitLink that `_NVJITLINK` lists, and are spelled for the tool as well.
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
"""How much is optimised where nobody says."""

# The languages that options are spelled in. nvPTXCompiler has ptxas's; nvJitLink has two sets of options, and
# ignores without a word those of link-time optimisation in a link without.
NVRTC, PTXAS, NVJITLINK, LTO, NVVM = "NVRTC", "ptxas", "nvJitLink", "nvJitLink with LTO", "NVVM"
# By tool, in the order of the arguments. {word} is true or false, {bit} is 1 or 0; a blank parts two flags.
_NVJITLINK = {
    "opt_level": "-O{value}",
    "debug": "-g",
    "lineinfo": "-lineinfo",
    "max_registers": "-maxrregcount={value}",
}
_LLVM = {
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
    NVJITLINK: {**_NVJITLINK, "fma": "-Xptxas=--fmad={word}"},
    # It compiles LTO-IR by itself and PTX by ptxas.
    LTO: {**_NVJITLINK, **_LLVM, "fma": "-fma={bit} -Xptxas=--fmad={word}"},
    NVVM: {"opt_level": "-opt={value}", **_LLVM},
}
ARITHMETIC = ("fma", "ftz", "prec_div", "prec_sqrt", "fast_math")
"""The options of floating-point arithmetic: True, False, or None for the tool's default."""
# What fast arithmetic is to tools that have no word for it, as NVRTC's manual says of its own.
_FAST = {"ftz": True, "prec_div": False, "prec_sqrt": False, "fma": True}

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
    **dict.fromkeys(("fma", "fmad"), "fma"),
    "ftz": "ftz",
    "prec-div": "prec_div",
    "prec-sqrt": "prec_sqrt",
    "use_fast_math": "fast_math",
}
# No key of the cache reads the files that these name.
_FILES = ("optf", "options-file", "apply-controls")
_NO_CUBIN = ("r", "c", "compile-only", "rdc", "relocatable-device-code", "ptx", "fdevice-syntax-only")
# The flags that nvJitLink has for link-time optimisation, where it takes --split-compile too. All but these,
# -time and -no-cache are ptxas's, and some mean the same to both.
_LTO_ALONE = (
    "Xnvvm",
    "kernels-used",
    "variables-used",
    "optimize-unused-variables",
    "split-compile-extended",
    "jump-table-density",
)
_OF_BOTH = ("verbose", "O0", "O3")
# Each is followed by flags for a tool that nvJitLink calls.
_INNER = "-X(?:ptxas|nvvm)="
# In flags of NVRTC, which makes PTX or LTO-IR here and ignores them.
_FOR_PTXAS = ("Xptxas", "ptxas-options")
_VALUES = {"true": True, "false": False}


class Options(NamedTuple):
    """
    The options of tools, and of the export or link that takes them.

    A frozen dataclass takes five times as long to define, and the first kernel of a process waits for it.

    Args:
        relocatable: Keep calls and variables open for a later link.
        opt_level: 0 to 3. Under *debug*, and for PTX whose `.target` says debug, the default means 0.
        debug: Emit full debug information; the code is not optimised.
        lineinfo: Emit line numbers. Included in *debug*.
        max_registers: The most registers a thread may use, 1 to 255; None for no limit.
        fma: Whether multiplications and additions become fused ones.
        ftz: Whether subnormal numbers of 32 bits become zero.
        prec_div: Whether divisions of 32 bits are rounded as IEEE 754 says.
        prec_sqrt: Whether square roots of 32 bits are.
        fast_math: Whether arithmetic is fast: *ftz* and *fma* but neither *prec_div* nor *prec_sqrt*, where
            these are None, and in CUDA C++ and Python approximate functions.
        extra_flags: Further flags, of ptxas or of nvJitLink.
        lto: Whether the link optimises.
        backend: The tool to use, None for NUMBA_PTXLINK_BACKEND's.
        checks: How much is compared before the link, None for NUMBA_PTXLINK_CHECKS's.
        inline: Which calls between PTX inputs are inlined, None for NUMBA_PTXLINK_INLINE's.
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
        """The tool to use, NUMBA_PTXLINK_BACKEND's by default; "auto" to choose it."""
        return config().backend if self.backend is None else self.backend

    @property
    def compares(self) -> bool:
        """Whether inputs are compared, by default what NUMBA_PTXLINK_CHECKS says."""
        return (config().checks if self.checks is None else self.checks) != "none"

    @property
    def inlined(self) -> str:
        """Which calls are inlined, by default those that NUMBA_PTXLINK_INLINE says."""
        return config().inline if self.inline is None else self.inline

    @property
    def arithmetic(self) -> dict[str, bool]:
        """The options of arithmetic that are not left to the tool."""
        return {name: value for name in ARITHMETIC if (value := getattr(self, name)) is not None}

    def checked(self) -> Options:
        """
        Return these options, given by a caller.

        Raises:
            ConfigError: An option has a wrong type or value, or contradicts another.
        """
        for name in ("relocatable", "debug", "lineinfo"):
            if not isinstance(value := getattr(self, name), bool):
                raise ConfigError(f"{name} is {value!r}; pass True or False.")
        given_choices(self.arithmetic)
        # The compiler accepts any number here without a diagnostic.
        if not _is_int(self.opt_level) or self.opt_level not in range(DEFAULT_LEVEL + 1):
            raise ConfigError(f"opt_level is {self.opt_level!r}; pass 0, 1, 2 or 3.")
        if self.debug and self.opt_level in (1, 2):
            raise ConfigError(
                f"debug=True contradicts opt_level={self.opt_level}: code for the debugger is not optimised; "
                "leave out opt_level, or pass lineinfo=True in place of debug."
            )
        most = self.max_registers
        if most is not None and not (_is_int(most) and 1 <= most <= _MAX_REGISTERS):
            raise ConfigError(
                f"max_registers is {most!r}; pass 1 to {_MAX_REGISTERS}, or None to let the compiler choose."
            )
        return self

    def to_flags(self, tool: str, ptx: bytes = b"") -> tuple[str, ...]:
        """
        Return the arguments for *tool*, one of the languages above, but the architecture.

        Args:
            tool: Whose.
            ptx: What is compiled, where that is one PTX. Of PTX whose `.target` says debug ptxas refuses each
                level but 0, and by itself takes that.
        """
        values = self._asdict()
        if "fast_math" not in _FLAG_FORMATS[tool] and self.fast_math:
            values |= {name: value for name, value in _FAST.items() if values[name] is None}
        # ptxas fails on --device-debug with a level ("Optimized debugging not supported"), and warns about
        # it with line numbers.
        values["lineinfo"] &= not self.debug
        if self.opt_level == DEFAULT_LEVEL and (tool in (NVJITLINK, LTO) or _is_for_debugging(ptx)):
            values["opt_level"] = None
        if tool == PTXAS and self.debug:
            values["opt_level"] = None
        flags: list[str] = []
        for name, spelling in _FLAG_FORMATS[tool].items():
            value = values[name]
            if value is None or (value is False and name not in _FAST):
                continue
            flags += spelling.format(value=value, word=str(value).lower(), bit=int(value)).split()
        return (*flags, *(_translated(self.extra_flags, tool) if tool in (PTXAS, NVJITLINK, LTO) else ()))


def _is_for_debugging(ptx: bytes) -> bool:
    # Nearly all PTX lacks the word.
    if b"debug" not in ptx:
        return False
    return "debug" in read_header(ptx.decode(errors="replace")).target


def _translated(flags: Iterable[str], tool: str) -> Iterable[str]:
    """Yield flags that callers give as *tool* takes them."""
    own = False
    for flag in flags:
        # What is no flag is the value of the one before.
        if name := _name(flag):
            own = tool_of_flag(flag) != PTXAS or name == "Xptxas" or (tool == LTO and name == "split-compile")
        # A long name has two hyphens for ptxas, and one for nvJitLink; each refuses the other.
        if tool == PTXAS:
            yield "--verbose" if name == "verbose" else flag.removeprefix("-Xptxas=")
        else:
            yield re.sub("^--", "-", flag) if own else f"-Xptxas={flag}"


def tool_of_flag(flag: str) -> str:
    """Return which tool alone takes *flag*: PTXAS, NVJITLINK or, for link-time optimisation, LTO; else ""."""
    name = _name(flag)
    if name in _LTO_ALONE:
        return LTO
    if name in ("time", "no-cache"):
        return NVJITLINK
    return "" if not name or name in _OF_BOTH else PTXAS


def of_linker(flags: Iterable[str]) -> str:
    """Return the first of *flags* that nvJitLink alone takes, "" where there is none."""
    return next((flag for flag in flags if tool_of_flag(flag) in (NVJITLINK, LTO)), "")


def _name(flag: str) -> str:
    """Return the name of *flag* without hyphens and value, "" of what is no flag."""
    return re.split("[= ]", flag.lstrip("-"))[0] if flag.startswith("-") else ""


def assembler_flags(given: Any) -> tuple[str, ...]:
    """
    Return the flags *given* for `extra_flags` of `assemble`.

    Raises:
        ConfigError: They are no list of `str`, one of them says what a parameter of `assemble` says, or
            ptxas does not know it, but another tool.
    """
    flags = as_texts("extra_flags", given)
    parameters = ("arch", "relocatable", "opt_level", "debug", "lineinfo", "max_registers", "fma")
    check_flags("extra_flags", flags, parameters)
    for flag in flags:
        if _PARAMETERS.get(_name(flag)) in ARITHMETIC:
            raise ConfigError(
                f"extra_flags contains {flag!r}, which NVRTC, NVVM and nvJitLink know: PTX has its "
                "arithmetic in its instructions; give the option to what makes the PTX."
            )
    if flag := of_linker(flags):
        raise ConfigError(
            f"extra_flags contains {flag!r}, which is nvJitLink's: link(..., backend='nvjitlink') takes it."
        )
    return flags


def link_flags(option: str, given: Any) -> tuple[str, ...]:
    """
    Return the flags *given* for the parameter *option* of `link`, which nvJitLink or NVRTC takes.

    Raises:
        ConfigError: They are no list of `str`, or one of them says what a parameter of `link` says.
    """
    flags = as_texts(option, given)
    parameters = ("arch", "lto", "debug", "lineinfo", "max_registers", "cxx_standard")
    check_flags(option, flags, (*parameters, *ARITHMETIC), cubin_alone=True)
    return flags


def source_flags(given: Any, asked: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, bool]]:
    """
    Return the flags *given* for NVRTC but those of arithmetic, and the options that these and *asked* say.

    As options they hold under link-time optimisation, which loses what NVRTC alone is told.

    Raises:
        ConfigError: They are no list of `str`, one of them says what a parameter of `link` says, or they
            contradict *asked* or each other.
    """
    flags = list(as_texts("nvrtc_flags", given))
    options, others = given_choices(asked), []
    while flags:
        flag = flags.pop(0)
        name, _, value = flag.lstrip("-").partition("=")
        option = _PARAMETERS.get(name, "") if flag.startswith("-") else ""
        if option not in ARITHMETIC:
            others.append(flag)
            continue
        if option == "fast_math" and not value:
            says: bool | None = True
        else:
            says = _VALUES.get(value or (flags.pop(0) if flags else ""))
        if says is None:
            raise ConfigError(f"nvrtc_flags contains {flag!r}, whose value is neither true nor false.")
        if options.setdefault(option, says) != says:
            raise ConfigError(
                f"nvrtc_flags contains {flag!r}, and {option}={options[option]} is asked for, too; leave one "
                "of them out."
            )
    passed = link_flags("nvrtc_flags", others)
    for flag in passed:
        if _name(flag) in _FOR_PTXAS:
            raise ConfigError(
                f"nvrtc_flags contains {flag!r}, which NVRTC ignores; give ptxas's flags in extra_flags."
            )
    return passed, options


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
        # Tools ignore what follows "--verbose" in one text. In a flag of NVRTC a minus may be of a macro.
        if option == "extra_flags" and re.search(r"\s-", flag):
            raise ConfigError(f"{option} contains {flag!r}; give each flag as an item of its own.")
        name = _name(re.sub(_INNER, "", flag))
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
            raise ConfigError(
                f"{option} contains {flag!r}, and no cache follows that file; give its flags in its place."
            )


def given_choices(asked: Mapping[str, Any]) -> dict[str, bool]:
    """
    Return the options *asked* for that are not left to the tools.

    Raises:
        ConfigError: One is neither True, False nor None.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    for name, value in given.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{name} is {value!r}; pass True, False or None.")
    return given


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
