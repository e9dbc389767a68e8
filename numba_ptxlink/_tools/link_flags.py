"""
Check the flags that a caller of `link` passes on to the tools.

A tool takes the last of two flags that contradict each other, at most with a warning in its log: a flag for
what a parameter says would make something else than the result tells. The tables have the spellings that
nvJitLink, nvPTXCompiler and NVRTC take.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numba_ptxlink.errors import ConfigError

from .ptxas_options import OPTION_FILES, check_flags

_PARAMETERS = {
    "arch": "arch",
    "gpu-name": "arch",
    "gpu-architecture": "arch",
    "lto": "lto",
    "dlto": "lto",
    "dlink-time-opt": "lto",
    "g": "debug",
    "G": "debug",
    "device-debug": "debug",
    "lineinfo": "lineinfo",
    "generate-line-info": "lineinfo",
    "maxrregcount": "max_registers",
    "std": "cxx_standard",
}
_NO_CUBIN = ("r", "c", "compile-only", "rdc", "relocatable-device-code")
_CURES = {
    **{flag: f"use the parameter {parameter} for it" for flag, parameter in _PARAMETERS.items()},
    **dict.fromkeys(_NO_CUBIN, "leave it out: link() makes a cubin that a driver loads, and nothing else"),
    "ptx": "use Linked.ptx or --emit ptx for it",
    **OPTION_FILES,
}
# Each is followed by flags for a tool that nvJitLink calls.
_INNER = ("-Xptxas=", "-Xnvvm=")


def check(option: str, given: Any) -> tuple[str, ...]:
    """
    Return the flags *given* for the parameter *option*.

    Raises:
        ConfigError: They are no list of `str`, or one of them says what a parameter of `link` says.
    """
    flags = as_texts(option, given)
    check_flags(option, flags, _CURES)
    for flag in flags:
        for prefix in _INNER:
            if flag.startswith(prefix):
                check_flags(option, (flag,), _CURES, read=flag.removeprefix(prefix))
    return flags


def as_texts(option: str, given: Any) -> tuple[str, ...]:
    """
    Return the value of an option that takes several `str`.

    Raises:
        ConfigError: It is something else.
    """
    texts = (given,) if isinstance(given, bytes) or not isinstance(given, Iterable) else tuple(given)
    if isinstance(given, str) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"{option}={given!r} is no list of str; give one, even of a single one.")
    return texts
