"""Variables that no input defines: refused as by a linker, whatever tool compiles them."""

from __future__ import annotations

import logging

import pytest
from linkcases import HEAD
from numba import cuda

import numba_ptxlink as pl
from numba_ptxlink._config import Config
from numba_ptxlink._formats import elf, ptx
from numba_ptxlink._tools import nvjitlink
from numba_ptxlink.assembler import may_lack_variables
from numba_ptxlink.cache import Cache

ARCH = "sm_90"
RATE = ".extern .global .align 4 .f32 rate;\n"
LOAD = "ld.global.f32 %f1, [rate];"
SHARED = "ld.shared.f32 %f1, [rate];"
USER = """
extern {space} float rate;
extern "C" __device__ float damp(float);
extern "C" __global__ void apply(float* x) {{ *x = damp(*x) * rate; }}
"""
MISTYPED = '{} float rates = 3.0f;\nextern "C" __device__ float damp(float x) {{ return x * rates; }}\n'
DEFINED = '{} float rate = 3.0f;\nextern "C" __device__ float damp(float x) {{ return x * rate; }}\n'
DAMP = 'extern __device__ float rate;\nextern "C" __device__ float damp(float x) { return x * rate; }\n'
LAUNCHED = """
extern __shared__ float rate[];
extern "C" __global__ void apply(float* x) { rate[threadIdx.x] = *x; __syncthreads(); *x = rate[0]; }
"""


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
    assert refused <= may_lack_variables(text.encode())
    if refused:
        with pytest.raises(pl.LinkError, match="rate is asked for by <ptx 1> and defined in no input"):
            pl.link(text, arch=ARCH)
    else:
        assert "nvptxcompiler" == pl.link(text, arch=ARCH).backend


def test_a_cubin_in_the_cache_is_refused_too(monkeypatch, tmp_path):
    """What `assemble` has left in the cache is no answer to a link."""
    own = Cache(Config(cache_dirs=(str(tmp_path),)))
    monkeypatch.setattr("numba_ptxlink.cache.tiered.default", lambda: own)
    monkeypatch.setattr("numba_ptxlink.cache.default", lambda: own)
    pl.assemble(FORMS["global"], ARCH)
    for _ in range(2):
        with pytest.raises(pl.LinkError, match="Undefined reference to 'rate'"):
            pl.link(FORMS["global"], arch=ARCH)


@pytest.mark.parametrize("flags", [[], ["-w"]])
def test_assembling_alone_warns(flags, caplog):
    """`assemble` is the compiler alone, which makes a new variable; a warning names it and the cure."""
    for relocatable, expected in ((False, 1), (True, 0)):
        caplog.clear()
        pl.assemble(FORMS["global"], ARCH, relocatable=relocatable, extra_flags=flags)
        said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert expected == len(said)
        assert all("only declares: rate. Link the PTX with the definition" in message for message in said)
    caplog.clear()
    pl.assemble(FORMS["defined after"], ARCH)
    pl.assemble(FORMS["shared of a launch"], ARCH)
    assert [] == caplog.records


def test_kernels_of_an_export_are_complete(tmp_path):
    """A kernel whose link file lacks a variable is exported for a linker, and not for a driver."""
    source = tmp_path / "damp.cu"
    source.write_text(DAMP)
    damp = cuda.declare_device("damp", "float32(float32)", abi="c", link=str(source))

    @pl.kernel("void(float32[::1])")
    def apply(out):
        out[0] = damp(out[0])

    export = pl.export([apply], archs=[ARCH])
    assert ("kernels", "") not in export.artifacts
    assert {"kernels": "rate is not defined"} == export.left_out
    assert {} == pl.export([apply], archs=[ARCH], emit=["ptx"]).left_out
    linked = pl.link(export.read("ptx", ARCH), "__device__ float rate = 2;\n", arch=ARCH, lto=False)
    assert 1 == [symbol.name for symbol in elf.read(linked.cubin).symbols].count("rate")
    with pytest.raises(pl.ExportError, match="rate is not defined, and code that a driver loads"):
        pl.export([apply], archs=[ARCH], emit=["kernels"])


@pytest.mark.parametrize("space", ["__device__", "__constant__"])
@pytest.mark.parametrize(
    ("options", "near"),
    [({"lto": False}, "; there is rates in <cu 2>: is that one meant?"), ({"lto": True}, ".")],
)
def test_a_mistyped_variable_of_another_input_is_refused(space, options, near):
    """Neither PTX made one nor LTO-IR is linked to a new variable of zeros; of PTX the near name is told."""
    with pytest.raises(pl.LinkError) as caught:
        pl.link(USER.format(space=space), MISTYPED.format(space), arch=ARCH, **options)
    user = "" if options["lto"] else " by <cu 1>"
    assert f"rate is asked for{user} and defined in no input{near}\n" in str(caught.value)
    assert str(caught.value).endswith("Add the input that defines it, or correct the name.")
    assert "Undefined reference to 'rate'" in str(caught.value)
    linked = pl.link(USER.format(space=space), DEFINED.format(space), arch=ARCH, **options)
    assert ["rate"] == [symbol.name for symbol in elf.read(linked.cubin).symbols if "rate" in symbol.name]


@pytest.mark.parametrize("lto", [False, True])
def test_the_shared_memory_of_a_launch_is_linked(lto):
    """It is defined nowhere, and is no variable that another input lacks."""
    assert pl.link(LAUNCHED, arch=ARCH, lto=lto).cubin


@pytest.mark.parametrize("checks", ["none", "all"])
def test_no_choice_of_checks_lets_a_variable_pass(checks):
    """A linker refuses it without having compared the inputs."""
    with pytest.raises(pl.LinkError, match="Undefined reference to 'rate'"):
        pl.link(FORMS["global"], arch=ARCH, checks=checks)
