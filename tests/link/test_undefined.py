"""Variables that no input defines are refused as by a linker, whichever tool compiles them."""

from __future__ import annotations

import logging

import pytest
from linkcases import HEAD

import numba_ptxlink as pl
from numba_ptxlink._formats import ptx
from numba_ptxlink._tools import nvjitlink
from numba_ptxlink.assembler import may_have_undefined_variables

ARCH = "sm_90"
RATE = ".extern .global .align 4 .f32 rate;\n"
LOAD = "ld.global.f32 %f1, [rate];"
SHARED = "ld.shared.f32 %f1, [rate];"


def kernel(declared: str, body: str = "") -> str:
    """Return PTX of a kernel after declarations."""
    return (
        f"{HEAD.format(target=ARCH)}{declared}"
        ".visible .entry k(.param .u64 p)\n{\n.reg .b64 %d<3>;\n.reg .f32 %f<3>;\n"
        f"ld.param.u64 %d1, [p];\n{body}\nst.global.f32 [%d1], %f1;\nret;\n}}\n"
    )


FORMS = {
    "global": kernel(RATE, LOAD),
    "not used": kernel(RATE),
    "const": kernel(".extern .const .align 4 .f32 rate;\n", "ld.const.f32 %f1, [rate];"),
    "array": kernel(".extern .global .align 4 .f32 rate[4];\n", LOAD),
    "managed": kernel(".extern .global .attribute(.managed) .align 4 .f32 rate;\n", LOAD),
    "initializer": kernel(f"{RATE}.visible .global .u64 place = rate;\n"),
    "shared of one size": kernel(".extern .shared .align 4 .f32 rate[4];\n", SHARED),
    "shared of a launch": kernel(".extern .shared .align 4 .f32 rate[];\n", SHARED),
    "defined before": kernel(f".visible .global .align 4 .f32 rate = 0f40400000;\n{RATE}", LOAD),
    "defined after": kernel(f"{RATE}.visible .global .align 4 .f32 rate = 0f40400000;\n", LOAD),
    "weak": kernel(".weak .global .align 4 .f32 rate;\n", LOAD),
    "common": kernel(".common .global .align 4 .f32 rate;\n", LOAD),
    "texture": kernel(".extern .global .texref rate;\n"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_single_ptx_is_refused_where_nvjitlink_refuses_it(form):
    """Declarations are no definitions for a link, though nvPTXCompiler takes them so."""
    text = FORMS[form]
    try:
        nvjitlink.link([("ptx", "k.ptx", text.encode())], (f"-arch={ARCH}",))
        refused = False
    except pl.LinkError:
        refused = True
    assert refused == ("rate" in ptx.parse(text).undefined_variables)
    assert refused <= may_have_undefined_variables(text.encode())
    if refused:
        with pytest.raises(pl.LinkError, match="rate is undefined in <ptx 1>, and no input defines it"):
            pl.link(text, arch=ARCH)
    else:
        assert "nvptxcompiler" == pl.link(text, arch=ARCH).backend


@pytest.mark.parametrize("flags", [[], ["-w"]])
def test_assembling_alone_warns(flags, caplog):
    """`assemble` runs the compiler alone, which defines a new variable; a warning has name and cure."""
    for relocatable, expected in ((False, 1), (True, 0)):
        caplog.clear()
        pl.assemble(FORMS["global"], ARCH, relocatable=relocatable, extra_flags=flags)
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert expected == len(warnings)
        assert all("only declares: rate. Link the PTX with the definition" in message for message in warnings)
    caplog.clear()
    pl.assemble(FORMS["defined after"], ARCH)
    pl.assemble(FORMS["shared of a launch"], ARCH)
    assert [] == caplog.records


@pytest.mark.parametrize("checks", ["none", "all"])
def test_no_choice_of_checks_lets_a_variable_pass(checks):
    """A linker refuses it without having compared the inputs."""
    with pytest.raises(pl.LinkError, match="no input defines 'rate', declared"):
        pl.link(FORMS["global"], arch=ARCH, checks=checks)


def test_ptx_that_lost_its_functions_is_named():
    """PTX that nvcc made without -rdc=true defines no device function, and the error says so."""
    caller = ".extern .func f();\n.visible .entry k() { call f; ret; }\n"
    head = HEAD.format(target=ARCH)
    with pytest.raises(
        pl.LinkError, match=r"<ptx 2> defines no visible symbol; compile it with nvcc -rdc=true"
    ):
        pl.link(head + caller, head, arch=ARCH)
