"""The linker: the tool that makes the cubin, and the errors if none can."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ptx_kernels import make_kernel

import numba_ptxlink as pl
from numba_ptxlink._link.backends import Target
from numba_ptxlink._tools import nvrtc

CALLEE = 'extern "C" __device__ int triple(int x) { return 3 * x; }\n'
CALLER = (
    'extern "C" __device__ int triple(int x);\n'
    'extern "C" __global__ void caller(int* p) { *p = triple(*p); }\n'
)
ARCH = pl.Arch.of("sm_90")


def compiled(source: str, output: str) -> bytes:
    """Return *source* compiled by NVRTC."""
    return nvrtc.compile_source(source, "source.cu", ARCH, output=output).code


def test_a_lone_ptx_is_assembled():
    """A single PTX is compiled in process, without a linker, and the reason is kept."""
    linked = pl.link(make_kernel(), arch="sm_90")
    assert (linked.backend, linked.reason) == ("nvptxcompiler", "one PTX and nothing to link it with")
    assert linked.cubin == pl.assemble(make_kernel(), "sm_90").code
    assert linked.flags == pl.assemble(make_kernel(), "sm_90").flags
    assert linked.inputs == ("<ptx 1>",)


@pytest.mark.parametrize("kinds", [("ptx", "ptx"), ("ptx", "cubin"), ("cubin", "ptx"), ("ltoir", "ltoir")])
def test_several_inputs_are_linked(kinds):
    """PTX is assembled as one; other kinds are linked by nvJitLink, with LTO where one of them is LTO-IR."""
    linked = pl.link(compiled(CALLER, kinds[0]), compiled(CALLEE, kinds[1]), arch="sm_90")
    assert linked.backend == ("nvptxcompiler" if set(kinds) == {"ptx"} else "nvjitlink")
    assert linked.lto is ("ltoir" in kinds)
    assert ("-lto" in linked.flags) is linked.lto
    assert b"caller" in linked.cubin


def test_cuda_sources_are_optimised_together():
    """CUDA C++ sources are linked with LTO if there are no other inputs, unless lto=False."""
    assert pl.link(CALLER, CALLEE, arch="sm_90").reason == "link-time optimisation"
    assert pl.link(CALLER, CALLEE, arch="sm_90", lto=False).reason.startswith("2 PTX as one")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "Input 1 is empty text; pass a path, PTX or CUDA C++."),
        (make_kernel().encode("utf-16"), "Input 1 is of no known kind; pass PTX"),
        (b"", "Input 1 is empty; pass PTX, LTO-IR, a cubin"),
        (b"!<thin>\n", "Input 1 is a thin archive, which has no code (create it by `ar rcs`); pass PTX"),
        (7, "Input 1 is a int; pass a path, PTX or CUDA C++ text, bytes"),
    ],
)
def test_inputs_that_are_none(source, message):
    """An input that is missing, empty, unknown or of a wrong type is refused with the right form."""
    with pytest.raises(pl.LinkError) as caught:
        pl.link(source, arch="sm_90")
    assert message in str(caught.value)


def test_no_input_is_an_error():
    """A link needs something to link."""
    with pytest.raises(pl.LinkError, match="needs at least one input"):
        pl.link(arch="sm_90")


@pytest.mark.parametrize("options", [{}, {"lineinfo": True}, {"debug": True}], ids=str)
def test_a_removed_working_directory_is_not_needed(tmp_path, monkeypatch, options):
    """CUDA C++ is compiled in a removed directory, with line numbers, too; a Python file is refused."""
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    source = 'extern "C" __global__ void k(int* p) { *p = 1; }\n'
    assert pl.link(source, arch="sm_90", **options).cubin
    with pytest.raises(pl.ConfigError, match="The working directory was removed; change to a folder"):
        pl.link(source, Path(__file__), arch="sm_90", **options)


def test_declining_lto_for_ltoir_is_an_error():
    """LTO-IR cannot be linked with lto=False, and the error names the input."""
    with pytest.raises(pl.LinkError, match="<ltoir 1> is LTO-IR, which is linked only with link-time"):
        pl.link(compiled(CALLER, "ltoir"), compiled(CALLEE, "ptx"), arch="sm_90", lto=False)


def test_an_error_about_several_inputs_in_ltoir_lists_each_of_them():
    """The attribute `inputs` has one name for each input."""
    with pytest.raises(pl.LinkError) as caught:
        pl.link(compiled(CALLER, "ltoir"), compiled(CALLEE, "ltoir"), arch="sm_90", lto=False)
    assert ("<ltoir 1>", "<ltoir 2>") == caught.value.inputs


def test_a_source_that_does_not_compile_carries_nvrtcs_log():
    """NVRTC's log and flags are in the error."""
    with pytest.raises(pl.LinkError, match=r"NVRTC could not compile <cu 1>") as caught:
        pl.link("SYNTAX error;\n", arch="sm_90")
    assert 'identifier "SYNTAX" is undefined' in caught.value.log
    assert "--gpu-architecture=compute_90" in caught.value.flags
    assert caught.value.inputs == ("<cu 1>",)


def test_ptxlinker_is_found_in_the_linker_module():
    """The class that replaces numba-cuda's is where the engine is."""
    from numba_ptxlink import linker

    assert linker.PtxLinker.__name__ == "PtxLinker"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        linker.nothing  # noqa: B018


@pytest.mark.parametrize("order", [1, -1])
def test_a_kernel_may_be_launched_by_a_function(order):
    """A kernel that a function of another input launches is declared before its address is taken."""
    launcher = "__global__ void __launch_bounds__(64) child(int* p) { *p = 7; }\n"
    launcher += "__device__ void go(int* p) { child<<<1, 1>>>(p); }\n"
    caller = "__device__ void go(int* p);\n__global__ void parent(int* p) { go(p); }\n"
    linked = pl.link(*(caller, launcher)[::order], arch="sm_90", lto=False)
    assert "2 PTX as one, 1 call inlined; 2 inputs" == linked.reason
    assert "libcudadevrt.a" == linked.inputs[-1]


def test_the_architecture_walks_down():
    """A link takes `arch` through ten modules at most, and back into none."""
    ptx, rooms = compiled(CALLEE, "ptx"), []

    def note(frame, event, _):
        code, module = frame.f_code, frame.f_globals.get("__name__", "")
        named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        passed = any(isinstance(frame.f_locals.get(name), (pl.Arch, Target)) for name in named)
        # A constructor that keeps the value does not count, and neither do methods of Arch.
        step = event == "call" and passed and code.co_name != "__init__" and not module.endswith("._arch")
        if step and module.startswith("numba_ptxlink.") and module not in rooms[-1:]:
            rooms.append(module)

    sys.setprofile(note)
    try:
        pl.link(CALLER, ptx, arch="sm_90")
    finally:
        sys.setprofile(None)
    steps = ("compile", "run", "check", "fuse", "plan")
    assert set(rooms) > {"numba_ptxlink.linker", *(f"numba_ptxlink._link.{step}" for step in steps)}
    assert len(set(rooms)) == len(rooms) <= 10


def test_a_link_is_for_an_older_driver():
    """UDFs and CUDA C++ become PTX of the lowest version that its text allows, and a cubin for it."""

    @pl.udf("float16(float16)")
    def half_twice(x):
        return x + x

    source = """
        #include <cuda_fp16.h>
        extern "C" __device__ __half half_twice(__half);
        extern "C" __global__ void use(__half* p) { *p = half_twice(*p); }
    """
    linked = pl.link(source, half_twice, arch="sm_90", cuda="13.0")
    assert "for CUDA 13.0" in linked.reason
    major, minor = map(int, linked.ptx.partition(".version ")[2].split()[0].split("."))
    assert (major, minor) <= (9, 0)
    assert b"use" in linked.cubin
    same = pl.link(source, half_twice, arch="sm_90", ptx_isa="9.0")
    assert (linked.cubin, linked.ptx) == (same.cubin, same.ptx)
    with pytest.raises(pl.LinkError, match="leave lto out"):
        pl.link(source, half_twice, arch="sm_90", cuda="13.0", lto=True)


@pytest.mark.parametrize("lto", [True, False])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_registers": 0}, "max_registers is 0; pass 1 to 255, or None"),
        ({"max_registers": "16"}, "max_registers is '16'; pass 1 to 255, or None"),
        ({"debug": 1}, "debug is 1; pass True or False"),
        ({"headers": {"a.h": b"x"}}, r"headers\['a.h'\] is b'x'; pass a str"),
        ({"headers": ["a.h"]}, r"headers is \['a.h'\]; pass a dict"),
        ({"defines": {"FLAG": True}}, r"defines\['FLAG'\] is True; pass a str for each name, or None"),
        ({"defines": {"N": 4}}, r"defines\['N'\] is 4; pass a str for each name, or None"),
        ({"cxx_standard": 20}, r'cxx_standard is 20; pass text such as "c\+\+20"'),
        ({"front_end": "off"}, "front_end='off' is unknown; choose numba-cuda, numba-cuda-mlir"),
        ({"name_expressions": "k"}, "name_expressions='k' is not a list of str; pass a list"),
        ({"nvrtc_flags": "-G"}, "nvrtc_flags='-G' is not a list of str; pass a list"),
        ({"extra_flags": None}, "extra_flags=None is not a list of str; pass a list"),
        ({"max_registers": 256}, "max_registers is 256; pass 1 to 255, or None"),
        ({"extra_flags": ["-time", "-arch=sm_100"]}, "'-arch=sm_100'; use the parameter arch for it"),
        ({"nvrtc_flags": ["-arch", "sm_100"]}, "nvrtc_flags contains '-arch'; use the parameter arch"),
    ],
)
def test_options_are_checked_whatever_links(lto, options, message):
    """A wrong value is refused with the right ones, whichever tool links."""
    with pytest.raises(pl.ConfigError, match=message):
        pl.link("__global__ void k() {}\n", arch=ARCH, lto=lto, **options)
