"""The linker: which tool makes the cubin, and what is said when none can."""

from __future__ import annotations

import io
import re

import pytest
from linkcases import KERNEL, cubin, function
from ptx_kernels import for_the_debugger, make_kernel

import numba_ptxlink as pl
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
    """One PTX is compiled in process, without a linker, and the reason is kept."""
    linked = pl.link(make_kernel(), arch="sm_90")
    assert (linked.backend, linked.reason) == ("nvptxcompiler", "one PTX and nothing to link it with")
    assert linked.cubin == pl.assemble(make_kernel(), "sm_90").code
    assert linked.flags == pl.assemble(make_kernel(), "sm_90").flags
    assert linked.inputs == ("<ptx 1>",)


def test_ptx_for_the_debugger_is_linked_without_a_word():
    """What `.target` says needs no flag, alone and beside another input."""
    text = for_the_debugger(make_kernel())
    linked = pl.link(text, arch="sm_90")
    assert "nvptxcompiler" == linked.backend
    assert b".debug_abbrev" in linked.cubin
    assert b".debug_abbrev" in pl.link(text, make_kernel("other"), arch="sm_90").cubin


@pytest.mark.parametrize("kinds", [("ptx", "ptx"), ("ptx", "cubin"), ("cubin", "ptx"), ("ltoir", "ltoir")])
def test_several_inputs_are_linked(kinds):
    """PTX is assembled as one; other kinds are linked by nvJitLink, with LTO where one of them is LTO-IR."""
    linked = pl.link(compiled(CALLER, kinds[0]), compiled(CALLEE, kinds[1]), arch="sm_90")
    assert linked.backend == ("nvptxcompiler" if set(kinds) == {"ptx"} else "nvjitlink")
    assert linked.lto is ("ltoir" in kinds)
    assert ("-lto" in linked.flags) is linked.lto
    assert b"caller" in linked.cubin


def test_cuda_sources_are_optimised_together():
    """CUDA C++ sources alone are linked with LTO, unless that is declined."""
    assert pl.link(CALLER, CALLEE, arch="sm_90").reason == "link-time optimisation"
    assert pl.link(CALLER, CALLEE, arch="sm_90", lto=False).reason.startswith("2 PTX as one")


def test_a_lone_cuda_source_is_assembled():
    """One CUDA C++ source needs no linker."""
    linked = pl.link('extern "C" __global__ void empty() {}\n', arch="sm_90")
    assert linked.backend == "nvptxcompiler"


@pytest.mark.parametrize("form", ["path", "str path", "bytes", "file", "linkable code"])
def test_an_input_in_every_form(tmp_path, form):
    """The same PTX as a path, a path's text, bytes, a file object and a LinkableCode gives the same cubin."""
    path = tmp_path / "kernel.ptx"
    path.write_text(make_kernel())
    if form == "linkable code":
        from numba.cuda import PTXSource

        given = PTXSource(make_kernel().encode(), name="kernel.ptx")
    else:
        given = {
            "path": path,
            "str path": str(path),
            "bytes": path.read_bytes(),
            "file": io.StringIO(path.read_text()),
        }[form]
    assert pl.link(given, arch="sm_90").cubin == pl.assemble(make_kernel(), "sm_90").code


def test_a_udf_is_an_input():
    """A UDF is compiled and linked with the kernel that calls it."""

    @pl.udf("int32(int32)")
    def triple(x):
        return 3 * x

    linked = pl.link(CALLER, triple, arch="sm_90")
    assert linked.lto is True
    assert linked.inputs[-1] == "<udfs>"


def test_headers_defines_and_include_dirs_reach_nvrtc(tmp_path):
    """In-memory headers, include directories and further flags are NVRTC's."""
    (tmp_path / "on_disk.h").write_text("#define B 2\n")
    source = (
        '#include "on_disk.h"\n#include "in_memory.h"\n'
        'static_assert(A + B + C == 6, "");\nextern "C" __global__ void empty() {}\n'
    )
    linked = pl.link(
        source,
        arch="sm_90",
        include_dirs=[tmp_path],
        headers={"in_memory.h": "#define A 1\n"},
        nvrtc_flags=["-DC=3"],
    )
    assert b"empty" in linked.cubin


def test_the_register_cap_and_line_numbers_reach_the_tool():
    """Options become the tool's arguments, and the arguments are kept."""
    linked = pl.link(make_kernel(), arch="sm_90", max_registers=32, lineinfo=True)
    assert {"--maxrregcount=32", "--generate-line-info"} <= set(linked.flags)
    linked = pl.link(
        compiled(CALLER, "ptx"),
        compiled(CALLEE, "cubin"),
        arch="sm_90",
        max_registers=32,
        lineinfo=True,
    )
    assert {"-maxrregcount=32", "-lineinfo"} <= set(linked.flags)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing.ptx", "missing.ptx not found; check the path."),
        ("", "Input 1 is empty text; give a path, PTX or CUDA C++."),
        (make_kernel().encode("utf-16"), "Input 1 is text in UTF-16, not UTF-8; give PTX"),
        (b"", "Input 1 is empty; give PTX, LTO-IR, a cubin"),
        (b"\x00\x01\x02\xff", "Input 1 is of no known kind; give PTX"),
        (7, "Input 1 is a int; give a path, PTX or CUDA C++ text, bytes"),
    ],
)
def test_inputs_that_are_none(source, message):
    """An input that is missing, empty, unknown or of a wrong type is said with what would be right."""
    with pytest.raises(pl.LinkError) as caught:
        pl.link(source, arch="sm_90")
    assert message in str(caught.value)


def test_a_file_whose_content_is_not_what_its_name_says(tmp_path):
    """A file is checked against its extension."""
    path = tmp_path / "kernel.cubin"
    path.write_text(make_kernel())
    with pytest.raises(pl.LinkError, match="its extension says cubin and its content is ptx"):
        pl.link(path, arch="sm_90")


def test_text_with_a_byte_order_mark(tmp_path):
    """PTX and CUDA C++ may begin with a BOM, as text, bytes and files."""
    ptx = "\ufeff" + make_kernel()
    (tmp_path / "k.ptx").write_text(ptx, encoding="utf-8")
    cubin = pl.link(make_kernel(), arch="sm_90").cubin
    for source in (ptx, ptx.encode(), tmp_path / "k.ptx"):
        assert cubin == pl.link(source, arch="sm_90").cubin
    assert cubin == pl.assemble(ptx, "sm_90").code
    assert pl.link("\ufeff" + 'extern "C" __global__ void k() {}\n', arch="sm_90").cubin


def test_a_file_of_zeros_is_told_from_its_beginning(tmp_path):
    """A file that begins with a NUL is of no kind, and is read no further."""
    path = tmp_path / "zeros"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(pl.LinkError, match="its content is of no known kind"):
        pl.link(path, arch="sm_90")


def test_no_input_is_an_error():
    """A link needs something to link."""
    with pytest.raises(pl.LinkError, match="needs at least one input"):
        pl.link(arch="sm_90")


def test_declining_lto_for_ltoir_is_an_error():
    """LTO-IR cannot be linked without LTO, and the error says what to give in its place."""
    with pytest.raises(pl.LinkError, match="<ltoir 1> holds LTO-IR, which can only be linked with link-time"):
        pl.link(compiled(CALLER, "ltoir"), compiled(CALLEE, "ptx"), arch="sm_90", lto=False)


def test_a_source_that_does_not_compile_carries_nvrtcs_log():
    """NVRTC's log and flags are in the error."""
    with pytest.raises(pl.LinkError, match=r"NVRTC could not compile <cu 1>") as caught:
        pl.link("SYNTAX error;\n", arch="sm_90")
    assert 'identifier "SYNTAX" is undefined' in caught.value.log
    assert "--gpu-architecture=compute_90" in caught.value.flags
    assert caught.value.inputs == ("<cu 1>",)


def test_an_undefined_symbol_carries_the_linkers_log():
    """NvJitLink's log, inputs and flags are in the error."""
    with pytest.raises(pl.LinkError) as caught:
        pl.link(compiled(CALLER, "ptx"), make_kernel(), arch="sm_90")
    assert "triple" in str(caught.value)
    assert caught.value.inputs == ("<ptx 1>", "<ptx 2>")


def test_ptxlinker_is_found_in_the_linker_module():
    """The class that replaces numba-cuda's is where the engine is."""
    from numba_ptxlink import linker

    assert linker.PtxLinker.__name__ == "PtxLinker"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        linker.nothing  # noqa: B018


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


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        (
            {"cuda": "12.4"},
            pl.AssembleError,
            "install its ptxas by `pip install 'nvidia-cuda-nvcc-cu12==12.4",
        ),
        ({"cuda": "13.0", "lto": True}, pl.LinkError, "leave lto out"),
        ({"cuda": "13.0", "max_registers": 32}, pl.LinkError, "max_registers and extra_flags are for"),
        ({"cuda": "4"}, pl.ConfigError, "no CUDA release whose PTX is known"),
        ({"cuda": "13.0", "ptx_isa": "9.0"}, pl.ConfigError, "leave one of them out"),
        ({"cuda": "13.0", "arch": "sm_121"}, None, ""),
        ({"cuda": "12.4", "arch": "sm_120"}, pl.ExportError, "CUDA 12.4 reads PTX 8.4 at most"),
    ],
)
def test_what_cannot_be_linked_for_an_older_driver_says_why(options, error, reason, monkeypatch):
    """Each refusal names the release that was asked for, or what to leave out."""
    from numba_ptxlink._tools import ptxas

    monkeypatch.setattr(ptxas.find, "programs", lambda *_, **__: iter(()))
    source = 'extern "C" __global__ void use(int* p) { *p = 1; }\n'
    options = {"arch": "sm_90", **options}
    if error is None:
        assert pl.link(source, **options).cubin
        return
    with pytest.raises(error, match=re.escape(reason)):
        pl.link(source, **options)


def test_a_kernel_without_a_driver(monkeypatch):
    """`Linked.kernel` says what is missing, as `load` does, before cuda.core starts."""
    from numba_ptxlink._tools import driver

    def refuse():
        raise pl.LaunchError("Kernels need a GPU and its driver")

    pytest.importorskip("cuda.core")
    linked = pl.link('extern "C" __global__ void k() {}\n', arch="sm_80")
    monkeypatch.setattr(driver, "_api", refuse)
    with pytest.raises(pl.LaunchError, match="Kernels need a GPU"):
        linked.kernel("k")


def test_lto_of_nothing_that_is_ltoir():
    """Link-time optimisation of PTX alone is refused with what to leave out."""
    with pytest.raises(pl.LinkError, match=r"None of the inputs is LTO-IR.*leave lto out"):
        pl.link(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n",
            arch=ARCH,
            lto=True,
        )


@pytest.mark.parametrize(("option", "value"), [("defines", ["V=1"]), ("headers", ["a.h"])])
def test_macros_and_headers_are_mappings(option, value):
    """A list in place of a mapping is refused by its name, with one."""
    with pytest.raises(pl.ConfigError, match=f"{option}=.* is a list; give a dict"):
        pl.link("__global__ void k() {}\n", arch=ARCH, **{option: value})


@pytest.mark.parametrize("lto", [True, False])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_registers": -1}, "max_registers is -1; pass 1 to 255, or None"),
        ({"max_registers": 0}, "max_registers is 0; pass 1 to 255, or None"),
        ({"max_registers": "16"}, "max_registers is '16', of type str; pass a whole number"),
        ({"debug": 1}, "debug is 1, of type int; pass True or False"),
        ({"lineinfo": "no"}, "lineinfo is 'no', of type str; pass True or False"),
        ({"headers": {"a.h": b"x"}}, r"headers\['a.h'\] is a bytes; give a str"),
        ({"name_expressions": "k"}, "name_expressions='k' is no list of str; give one"),
        ({"nvrtc_flags": "-G"}, "nvrtc_flags='-G' is no list of str; give one"),
        ({"extra_flags": b"-v"}, "extra_flags=b'-v' is no list of str; give one"),
        ({"extra_flags": None}, "extra_flags=None is no list of str; give one"),
        ({"max_registers": 256}, "max_registers is 256; pass 1 to 255, or None"),
        ({"extra_flags": ["-time", "-arch=sm_100"]}, "'-arch=sm_100'; use the parameter arch for it"),
        ({"nvrtc_flags": ["-arch", "sm_100"]}, "nvrtc_flags contains '-arch'; use the parameter arch"),
    ],
)
def test_options_are_checked_whatever_links(lto, options, said):
    """A wrong value is refused with what is right, by each tool alike."""
    with pytest.raises(pl.ConfigError, match=said):
        pl.link("__global__ void k() {}\n", arch=ARCH, lto=lto, **options)


def test_a_flag_that_the_linker_does_not_know_is_named():
    """Of several flags, the message names those that are wrong, and what to do."""
    with pytest.raises(
        pl.LinkError, match=r"does not know one of them; correct or remove it in extra_flags\.$"
    ):
        pl.link(make_kernel(), CALLEE, arch=ARCH, lto=False, extra_flags=["-foo", "-time", "-O9"])


def test_lto_is_a_truth_value():
    """What is no truth value is not taken for one."""
    with pytest.raises(pl.ConfigError, match="lto is 'x', of type str; pass True, False or None"):
        pl.link("__global__ void k() {}\n", arch=ARCH, lto="x")


@pytest.mark.parametrize(
    "given", [str, lambda path: path, lambda path: [path], lambda path: iter([str(path)])]
)
def test_one_folder_of_headers_needs_no_list(tmp_path, given):
    """A path alone is one folder, not a folder for each of its letters."""
    (tmp_path / "a.h").write_text("#define VALUE 1\n")
    source = '#include "a.h"\nextern "C" __global__ void k(int* p) { *p = VALUE; }\n'
    assert pl.link(source, arch=ARCH, include_dirs=given(tmp_path)).cubin


def test_ltoir_for_an_older_driver_is_answered_with_what_helps():
    """LTO-IR in a link for an older driver is no matter of lto, which nobody asked for."""
    code = nvrtc.compile_source("__device__ int v;\n", "v.cu", pl.Arch.of("sm_80"), output="ltoir").code
    with pytest.raises(pl.LinkError, match=r"not for .*12\.4; give PTX, CUDA C\+\+ or Python in its place"):
        pl.link(code, arch="sm_80", cuda="12.4")


@pytest.mark.parametrize(
    ("inputs", "options", "cure"),
    [
        (
            lambda: (KERNEL, function()),
            {"inline": "none"},
            r"\(2 inputs\), .*; pass inline='auto', or link in",
        ),
        (lambda: (KERNEL, function()), {"backend": "nvjitlink"}, "; pass backend='auto', or link in"),
        (lambda: (KERNEL, function()), {"debug": True}, "debug information is kept.*; leave debug out, or"),
        (lambda: (KERNEL, function(target="sm_60")), {}, "threads of sm_60 .*; give PTX that can become one"),
        (lambda: (KERNEL, cubin(function())), {"inline": "none"}, "; give PTX, CUDA C.. or Python alone, or"),
    ],
)
def test_what_is_not_one_ptx_for_an_older_driver_is_told_why(inputs, options, cure):
    """The reason why a linker combined the inputs is told, with the option that made it so."""
    with pytest.raises(pl.LinkError, match=r"by a tool of CUDA .* is not for CUDA 11\.8") as caught:
        pl.link(*inputs(), arch="sm_80", cuda="11.8", **options)
    assert re.search(cure, str(caught.value))


def test_compiled_sources_have_no_lines_of_ptx():
    """Messages about CUDA C++ name the source, and no line of the PTX that was made of it."""
    caller = 'extern "C" __device__ int f(int); extern "C" __global__ void k(int* p) { *p = f(1); }\n'
    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    callee = f"{head}.visible .func (.param .b64 r) f(.param .b64 a) {{ ret; }}\n"
    with pytest.raises(pl.LinkError, match=r"defined in <ptx 2>:4\n.*declared in <cu 1>\n"):
        pl.link(caller, callee, arch="sm_80")


def test_sources_without_code_are_refused(tmp_path):
    """CUDA C++ that defines nothing, as a header does, is an error that says what to give beside it."""
    header = tmp_path / "udfs.h"
    header.write_text('#pragma once\nextern "C" __device__ float f(float x);\n')
    with pytest.raises(pl.LinkError, match=r"udfs\.h: no kernel.* artifacts beside it") as error:
        pl.link(header, arch="sm_80")
    assert ("udfs.h",) == error.value.inputs
    template = "template <typename T> __global__ void k(T* p) { *p = 1; }"
    with pytest.raises(pl.LinkError, match="name_expressions"):
        pl.link(template, arch="sm_80")
    assert pl.link(template, arch="sm_80", name_expressions=["k<int>"]).lowered_names
    assert pl.link(header, "__device__ int value = 1;", arch="sm_80", lto=False).cubin
