"""The flags that callers of `link` pass on to the tools."""

from __future__ import annotations

import pytest

from numba_ptxlink._tools import link_flags
from numba_ptxlink.errors import ConfigError

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
        link_flags.check(option, ["-time", flag])
    assert f"{option} contains {flag!r}; use the parameter {parameter} for it." == str(caught.value)


@pytest.mark.parametrize("flag", ["-r", "-c", "--compile-only", "-Xptxas=-c", "-rdc=false"])
def test_a_flag_that_makes_no_cubin_is_refused(flag):
    """The result of a link is a cubin that a driver loads."""
    with pytest.raises(ConfigError, match=r"leave it out: link\(\) makes a cubin that a driver loads"):
        link_flags.check("extra_flags", [flag])


@pytest.mark.parametrize("flag", ["", "-v\0"])
def test_what_is_no_flag_is_refused(flag):
    """A tool would end a flag at a NUL, and says nothing useful of an empty one."""
    with pytest.raises(ConfigError, match="a flag has at least one character and no NUL: correct it"):
        link_flags.check("extra_flags", [flag])


def test_a_file_of_flags_is_refused():
    """What is in it would be neither checked nor in the key of the result."""
    with pytest.raises(ConfigError, match="give the flags in that file in its place"):
        link_flags.check("extra_flags", ["--options-file=flags.txt"])


def test_other_flags_are_passed_on():
    """Flags without a parameter, and values that look like others, are left as they are."""
    flags = (
        "-O0",
        "-Xptxas=-O1",
        "-verbose",
        "-Xptxas=-dlcm=cg",
        "--fmad",
        "false",
        "-e",
        "arch",
        "-DG=1",
        "-w",
    )
    assert flags == link_flags.check("extra_flags", flags)
