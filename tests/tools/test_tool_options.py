"""Options and flags of `assemble` and `link` that are refused."""

from __future__ import annotations

import pytest

import numba_ptxlink as pl


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"relocatable": 1}, "relocatable is 1; pass True or False."),
        ({"opt_level": -1}, "opt_level is -1; pass 0, 1, 2 or 3."),
        ({"opt_level": "3"}, "opt_level is '3'; pass 0, 1, 2 or 3."),
        (
            {"extra_flags": ["-v\0"]},
            "extra_flags contains '-v\\x00'; a flag has at least one character and no NUL: correct it.",
        ),
    ],
)
def test_refuses_with_cause_and_cure(kernel, options, expected):
    """A wrong option is refused in a sentence with its name, its value and the value to pass."""
    with pytest.raises(pl.ConfigError) as caught:
        pl.assemble(kernel, "sm_90", **options)
    assert expected == str(caught.value)


PARAMETERS = {
    "arch": ["-arch=sm_100", "-arch", "-arch sm_100", "--gpu-name=sm_100", "--gpu-architecture=sm_100"],
    "lto": ["-lto", "-dlto", "--dlink-time-opt"],
    "max_registers": ["-maxrregcount=32", "--maxrregcount", "-Xptxas=-maxrregcount=32"],
}


@pytest.mark.parametrize("option", ["extra_flags", "nvrtc_flags"])
@pytest.mark.parametrize("parameter", PARAMETERS)
def test_a_flag_with_a_parameter_is_refused(kernel, option, parameter):
    """The error has the flag in the caller's spelling, the option that contains it, and the parameter."""
    for flag in PARAMETERS[parameter]:
        with pytest.raises(pl.ConfigError) as caught:
            pl.link(kernel, arch="sm_90", **{option: ["-time", flag]})
        assert f"{option} contains {flag!r}; use the parameter {parameter} for it." == str(caught.value)
