"""Options of floating-point arithmetic mean the same for each tool that compiles or links."""

from __future__ import annotations

import functools
import math
import re

import pytest

import numba_ptxlink as pl
from numba_ptxlink._config import FRONT_ENDS

ARCH = "sm_90"
F = 'extern "C" __device__ float f(float a, float b, float c) { return a * b + c; }\n'
DECLARED = 'extern "C" __device__ float f(float a, float b, float c);\n'
K = 'extern "C" __global__ void k(float* x) { x[0] = f(x[1], x[2], x[3]); }\n'
DIVISION = 'extern "C" __device__ float f(float a, float b, float c) { return a / b; }\n'
# Written by hand: NVRTC's and NVVM's has no multiplication that an assembler may fuse.
PTX = f""".version 8.0
.target {ARCH}
.address_size 64
.visible .func (.param .f32 r) f(.param .f32 a, .param .f32 b, .param .f32 c)
{{
.reg .f32 %f<6>;
ld.param.f32 %f1, [a];
ld.param.f32 %f2, [b];
ld.param.f32 %f3, [c];
mul.f32 %f4, %f1, %f2;
add.f32 %f5, %f4, %f3;
st.param.f32 [r], %f5;
ret;
}}
"""
FORMS = ("one source", "two sources", "two PTX", "nvjitlink", "python", "python by LTO", "ltoir", "ptx")


# The disassembler takes longer than a link, and many of these make the same.
disassembled = functools.cache(lambda cubin: pl.inspect(cubin).sass)


def instructions(*inputs, **options):
    """Return the kinds of arithmetic instructions in a link of *inputs*."""
    sass = disassembled(pl.link(*inputs, arch=ARCH, **options).cubin)
    if not sass:
        pytest.skip("there is no nvdisasm")
    return set(re.findall(r"\b(?:FFMA|FMUL|FADD|MUFU)[.\w]*", sass))


def inputs(form, front_end):
    """Return inputs that compute `a * b + c`, and options of the link."""

    @pl.udf("float32(float32, float32, float32)", front_end=front_end)
    def f(a, b, c):
        return a * b + c

    if form in ("ltoir", "ptx"):
        return (DECLARED + K, pl.export(f, arch=ARCH, emit=form, fma=False).read(form)), {}
    return {
        "one source": ((F + K,), {}),
        "two sources": ((F, DECLARED + K), {}),
        "two PTX": ((PTX, DECLARED + K), {}),
        "nvjitlink": ((PTX, DECLARED + K), {"backend": "nvjitlink"}),
        "python": ((DECLARED + K, f), {"lto": False}),
        "python by LTO": ((DECLARED + K, f), {"lto": True}),
    }[form]


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_fused_where_that_is_asked(form, front_end):
    """With `fma=False` no tool emits an FFMA, whatever its input; without, all tools do."""
    sources, options = inputs(form, front_end)
    assert {"FMUL", "FADD"} == instructions(*sources, fma=False, **options)
    assert {"FFMA"} == instructions(*sources, **options) or form == "ptx"


@pytest.mark.parametrize(
    ("sources", "options", "message"),
    [
        (
            (PTX,),
            {"ftz": True},
            "ftz=True has no effect on <ptx 1>, which is compiled already; pass it to the compiler of",
        ),
        (
            (F,),
            {"nvrtc_flags": ["--fmad=false"]},
            "nvrtc_flags contains '--fmad=false'; use the parameter fma",
        ),
        ((F,), {"nvrtc_flags": ["-use_fast_math"]}, "use the parameter fast_math for it"),
        ((F,), {"nvrtc_flags": ["-Xptxas=-v"]}, "which NVRTC ignores; pass flags of ptxas as extra_flags"),
        ((F,), {"nvrtc_flags": ["-fdevice-syntax-only"]}, "link() makes only cubins that a driver loads"),
        ((F,), {"extra_flags": ["-fma=0"]}, "use the parameter fma for it"),
        ((F,), {"extra_flags": ["--apply-controls=a"]}, "no cache key contains that file"),
        ((F,), {"extra_flags": ["--verbose -O1"]}, "pass each flag as a separate item"),
        ((F,), {"fma": 0}, "fma is 0; pass True, False or None"),
    ],
)
def test_what_cannot_hold_is_refused(sources, options, message):
    """An option that no input obeys, a contradiction and a flag that is ignored are errors that say why."""
    with pytest.raises(pl.PtxlinkError, match=re.escape(message)):
        pl.link(*sources, arch=ARCH, **options)


def test_what_holds_in_part_is_said():
    """The log names an input that was compiled before, beside one that the option applies to."""
    log = pl.link(DECLARED + K, PTX, arch=ARCH, ftz=True).log
    assert (
        "ftz=True applies only to what this link compiles; compiled already, with their own arithmetic: <ptx "
        "2>" in log
    )
    fused = PTX.replace("mul.f32 %f4, %f1, %f2", "mad.rn.f32 %f4, %f1, %f2, %f3")
    assert "fma=False applies only to what this link compiles" in pl.link(fused, arch=ARCH, fma=False).log
    assert "" == pl.link(PTX, arch=ARCH, fma=False).log
    code = pl.assemble(PTX, ARCH, relocatable=True).code
    log = pl.link(code, arch=ARCH, lineinfo=True).log
    assert "lineinfo=True applies only to what this link compiles; compiled already: <cubin 1>" in log


@pytest.mark.parametrize("form", ["ltoir", "fatbin"])
def test_square_roots_of_ltoir_stay(form):
    """The compiler of LTO-IR fixes its square roots; a link applies the rest of fast arithmetic."""
    f = pl.udf("float32(float32, float32, float32)", name="f")(lambda a, b, c: math.sqrt(a * b + c))
    sources = DECLARED + K, pl.export(f, arch=ARCH, emit=form).read(form)
    options = {"arch": ARCH, "lto": True}
    log = pl.link(*sources, **options, fast_math=True).log
    assert f"compiled already, with their own arithmetic: <{form} 2>" in log
    assert "prec_sqrt=False applies only to what this link compiles" in log
    with pytest.raises(pl.LinkError, match="prec_sqrt=False has no effect on"):
        pl.link(sources[1], **options, prec_sqrt=False)
    assert (form == "fatbin") == ("compiled already" in pl.link(sources[1], **options, ftz=True).log)
    assert "MUFU.SQRT" not in instructions(*sources, lto=True, fast_math=True)


@pytest.mark.parametrize(
    ("flag", "knows"), [("-ftz=1", "pass ftz= to export"), ("-Xnvvm=-opt=0", "a flag of nvJitLink")]
)
def test_assemble_names_the_tool_that_knows_a_flag(flag, knows):
    """A flag of another tool than ptxas is refused with its name."""
    with pytest.raises(pl.ConfigError, match=knows):
        pl.assemble(PTX, ARCH, extra_flags=[flag])


@pytest.mark.parametrize("backend", ["nvptxcompiler", "nvjitlink"])
@pytest.mark.parametrize("flag", ["-v", "-verbose", "--verbose", "-Xptxas=-v"])
def test_a_flag_of_ptxas_reaches_it_by_either_tool(flag, backend):
    """The compiler of PTX reports the memory that it uses, whichever tool links."""
    linked = pl.link(PTX, arch=ARCH, backend=backend, extra_flags=[flag])
    assert "bytes gmem" in linked.log
