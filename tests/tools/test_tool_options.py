"""Options and flags, and the argument vectors made of them."""

from __future__ import annotations

import pytest

from numba_ptxlink._arch import Arch
from numba_ptxlink._tools.options import AssembleOptions, link_flags
from numba_ptxlink.errors import ConfigError

SM_90A = Arch(9, 0, "a")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("--opt-level=3",)),
        ({"opt_level": 0}, ("--opt-level=0",)),
        ({"relocatable": True}, ("--compile-only", "--opt-level=3")),
        ({"lineinfo": True}, ("--opt-level=3", "--generate-line-info")),
        ({"debug": True}, ("--device-debug",)),
        ({"debug": True, "opt_level": 0}, ("--device-debug",)),
        ({"debug": True, "lineinfo": True}, ("--device-debug",)),
        ({"max_registers": 1}, ("--opt-level=3", "--maxrregcount=1")),
        ({"max_registers": 255}, ("--opt-level=3", "--maxrregcount=255")),
        ({"max_registers": 256}, ("--opt-level=3", "--maxrregcount=256")),
        ({"extra_flags": ["-v", "-w"]}, ("--opt-level=3", "-v", "-w")),
        ({"extra_flags": ("-e", "c")}, ("--opt-level=3", "-e", "c")),
    ],
)
def test_arguments(options: dict[str, object], expected: tuple[str, ...]) -> None:
    """The argument vector begins with the architecture and ends with the extra flags."""
    arguments = AssembleOptions(**options).arguments(SM_90A, b"")  # type: ignore[arg-type]
    assert ("--gpu-name=sm_90a", *expected) == arguments


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"relocatable": 1}, "relocatable is 1, of type int; pass True or False."),
        ({"debug": None}, "debug is None, of type NoneType; pass True or False."),
        ({"lineinfo": "yes"}, "lineinfo is 'yes', of type str; pass True or False."),
        ({"opt_level": 4}, "opt_level is 4; pass 0, 1, 2 or 3."),
        ({"opt_level": -1}, "opt_level is -1; pass 0, 1, 2 or 3."),
        ({"opt_level": "3"}, "opt_level is '3'; pass 0, 1, 2 or 3."),
        ({"opt_level": True}, "opt_level is True; pass 0, 1, 2 or 3."),
        (
            {"opt_level": 2, "debug": True},
            (
                "debug=True contradicts opt_level=2: code for the debugger is not optimised; "
                "leave out opt_level, or pass lineinfo=True in place of debug."
            ),
        ),
        ({"max_registers": 0}, "max_registers is 0; pass 1 to 255, or None to let the compiler choose."),
        (
            {"max_registers": 2**32 + 1},
            "max_registers is 4294967297; pass 1 to 255, or None to let the compiler choose.",
        ),
        ({"max_registers": 32.0}, "max_registers is 32.0, of type float; pass a whole number or None."),
        ({"max_registers": True}, "max_registers is True, of type bool; pass a whole number or None."),
        ({"extra_flags": "-v"}, "extra_flags='-v' is no list of str; give one, even of a single one."),
        ({"extra_flags": None}, "extra_flags=None is no list of str; give one, even of a single one."),
        ({"extra_flags": [b"-v"]}, "extra_flags=[b'-v'] is no list of str; give one, even of a single one."),
        (
            {"extra_flags": ["-v\0"]},
            "extra_flags contains '-v\\x00'; a flag has at least one character and no NUL: correct it.",
        ),
        (
            {"extra_flags": [""]},
            "extra_flags contains ''; a flag has at least one character and no NUL: correct it.",
        ),
        (
            {"extra_flags": ["--gpu-name=sm_80"]},
            "extra_flags contains '--gpu-name=sm_80'; use the parameter arch for it.",
        ),
        ({"extra_flags": ["-arch", "sm_80"]}, "extra_flags contains '-arch'; use the parameter arch for it."),
        ({"extra_flags": ["-c"]}, "extra_flags contains '-c'; use the parameter relocatable for it."),
    ],
)
def test_refuses_with_cause_and_cure(options: dict[str, object], expected: str) -> None:
    """A wrong option is refused in a sentence that names it, its value and what to pass instead."""
    with pytest.raises(ConfigError) as caught:
        AssembleOptions(**options)  # type: ignore[arg-type]
    assert expected == str(caught.value)


PARAMETERS = {
    "arch": ["-arch=sm_100", "-arch", "-arch sm_100", "--gpu-name=sm_100", "--gpu-architecture=sm_100"],
    "lto": ["-lto", "-dlto", "--dlink-time-opt"],
    "debug": ["-g", "-G", "--device-debug", "-Xptxas=-g", "-Xnvvm=-g"],
    "lineinfo": ["-lineinfo", "--generate-line-info", "-Xptxas=--generate-line-info"],
    "max_registers": ["-maxrregcount=32", "--maxrregcount", "-Xptxas=-maxrregcount=32"],
    "cxx_standard": ["-std=c++20", "--std=c++20"],
}


@pytest.mark.parametrize("option", ["extra_flags", "nvrtc_flags"])
@pytest.mark.parametrize(
    ("flag", "parameter"), [(flag, name) for name, flags in PARAMETERS.items() for flag in flags]
)
def test_a_flag_with_a_parameter_is_refused(option, flag, parameter):
    """Whatever spelling a tool takes, the answer names the flag, where it is, and the parameter."""
    with pytest.raises(ConfigError) as caught:
        link_flags(option, ["-time", flag])
    assert f"{option} contains {flag!r}; use the parameter {parameter} for it." == str(caught.value)


@pytest.mark.parametrize("flag", ["-r", "-c", "--compile-only", "-Xptxas=-c", "-rdc=false"])
def test_a_flag_that_makes_no_cubin_is_refused(flag):
    """The result of a link is a cubin that a driver loads."""
    with pytest.raises(ConfigError, match=r"leave it out: link\(\) makes a cubin that a driver loads"):
        link_flags("extra_flags", [flag])
