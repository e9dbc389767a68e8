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
        ({"debug": True, "opt_level": 0}, ("--device-debug",)),
        ({"max_registers": 1}, ("--opt-level=3", "--maxrregcount=1")),
        ({"extra_flags": ["-v", "-w"]}, ("--opt-level=3", "-v", "-w")),
    ],
)
def test_arguments(options: dict[str, object], expected: tuple[str, ...]) -> None:
    """The argument vector begins with the architecture and ends with the extra flags."""
    arguments = AssembleOptions(**options).arguments(SM_90A, b"")  # type: ignore[arg-type]
    assert ("--gpu-name=sm_90a", *expected) == arguments


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"relocatable": 1}, "relocatable is 1; pass True or False."),
        ({"opt_level": -1}, "opt_level is -1; pass 0, 1, 2 or 3."),
        ({"opt_level": "3"}, "opt_level is '3'; pass 0, 1, 2 or 3."),
        ({"max_registers": 0}, "max_registers is 0; pass 1 to 255, or None to let the compiler choose."),
        (
            {"extra_flags": ["-v\0"]},
            "extra_flags contains '-v\\x00'; a flag has at least one character and no NUL: correct it.",
        ),
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
    "max_registers": ["-maxrregcount=32", "--maxrregcount", "-Xptxas=-maxrregcount=32"],
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
