"""Links refused before the linker runs: contradictory PTX, and inputs that break NVIDIA's libraries."""

from __future__ import annotations

import contextlib
import itertools
from types import SimpleNamespace

import linkcases
import pytest
from linkcases import CASES, HEAD, KERNEL, cubin, function

import numba_ptxlink as pl
from numba_ptxlink._link.explain import with_cure

ARCH = pl.Arch.of("sm_80")
TOP = HEAD.format(target="sm_80")

# Parts of the error message of each case, in any order.
ERROR_PARTS = {
    "prototype in PTX": (".func (.b32) f(.b64)  defined in a.ptx:4", "f(.b32)  declared in k.ptx:4"),
    "alignment in PTX": (
        "f(.b32, .align 8 .b8[8])  defined in a.ptx:4",
        "f(.b32, .align 4 .b8[8])  declared in k.ptx",
    ),
    "definitions in PTX": ("f is defined 2 times", "defined in a.ptx:4, defined in b.ptx:4"),
    "definitions in LTO-IR": ("'f': symbol multiply defined", "Rename one, leave one out"),
    "variables in PTX": ("v is defined 2 times", "defined in a.ptx:11, defined in b.ptx:4"),
    "alias in PTX": ("f is defined 2 times", "defined in a.ptx:11, defined in b.ptx:4"),
    "undefined in PTX": ("f is undefined in k.ptx, and no input defines it", "there is ff in a.ptx"),
    "undefined in LTO-IR": ("f is undefined, and no input defines it", "Add the input that defines it"),
    "undefined variable in LTO-IR": ("vv is undefined, and no input defines it",),
    "cubin of another arch": ("a.cubin is machine code for sm_90", "does not run on sm_80"),
    "PTX of a newer arch": ("the ptx a.ptx", "for the architecture of this link or an older one"),
    "PTX of a variant": ("a.ptx", "Unsupported .target 'sm_80a'"),
    "LTO-IR of a newer arch": ("the ltoir a.ltoir", "for the architecture of this link or an older one"),
    "PTX of a newer ISA": ("a.ptx is PTX 9.99", "pip install --upgrade nvidia-nvjitlink"),
    "LTO-IR of a newer version": ("the ltoir a.ltoir", "--upgrade nvidia-nvjitlink"),
}


def named(case_input):
    """Return an input that has a name, as those of numba-cuda have."""
    kind, name, code = case_input
    return SimpleNamespace(kind=kind, name=name, data=code)


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_link_is_refused(case, capfd):
    """Each wrong link is refused, with symbols, inputs and the cure, and nothing reaches stderr."""
    inputs = CASES[case]()
    with pytest.raises(pl.LinkError) as caught:
        pl.link(*map(named, inputs), arch=ARCH, lto="-lto" in linkcases.flags(inputs))
    assert [] == [part for part in ERROR_PARTS[case] if part not in str(caught.value)]
    assert caught.value.inputs
    assert ("", "") == capfd.readouterr()


def test_too_many_constants_are_explained():
    """The error of nvJitLink about constant memory has its size, and an alternative."""
    ptx = f"{TOP}.const .b8 table[70000];\n"
    with pytest.raises(pl.LinkError, match="has 64 KiB; pass large arrays as arguments"):
        pl.link(ptx.encode(), arch=ARCH, backend="nvjitlink")


@pytest.mark.parametrize(
    ("log", "cure"),
    [
        ("Alignment of argument does not match formal parameter", "upgrade nvJitLink, or link the PTX"),
        ("debug compile units is more than 1", "pass lto=False with debug"),
    ],
)
def test_messages_of_the_linker_have_cures(log, cure):
    """A message that releases of other toolkits have is explained."""
    assert cure in str(with_cure(pl.LinkError(log, log=log), []))


@pytest.mark.parametrize("case", ["cubin of another arch", "PTX of a newer ISA"])
def test_what_spoils_nvjitlink_is_refused_without_checks(case):
    """Inputs that make later links of the process hang or fail are refused with all choices of checks."""
    with pytest.raises(pl.LinkError, match=r"does not run on sm_80|reads [\d.]+ at most"):
        pl.link(*map(named, CASES[case]()), arch=ARCH, checks="none")


@pytest.mark.parametrize(
    ("target", "arch", "accepted"),
    [
        ("sm_90a", "sm_90", False),
        ("sm_90", "sm_90a", True),
        ("sm_90a", "sm_90a", True),
        ("sm_100a", "sm_103", False),
        ("sm_100a", "sm_103a", False),
        ("sm_100f", "sm_103", True),
        ("sm_120a", "sm_120f", False),
        ("sm_103", "sm_100", False),
    ],
)
def test_machine_code_of_a_variant_is_linked_for_that_one(target, arch, accepted):
    """Code for the features of one GPU is refused for another; in nvJitLink, later links would deadlock."""
    inputs = KERNEL, cubin(function(target=target).replace(".version 8.0", ".version 9.0"), target)
    with (
        contextlib.nullcontext()
        if accepted
        else pytest.raises(pl.LinkError, match=f"{target}, which does not run")
    ):
        assert pl.link(*inputs, arch=arch, checks="none").cubin


@pytest.mark.parametrize("kind", ["ptx", "cubin"])
def test_equal_inputs_are_linked_once(kind):
    """The same content twice is one input."""
    callee = function() if kind == "ptx" else cubin(function())
    assert pl.link(KERNEL, callee, callee, arch=ARCH).cubin


def test_a_weak_definition_gives_way():
    """A weak definition beside a strong one is no conflict."""
    assert pl.link(KERNEL, function(1, linkage=".weak"), function(2), arch=ARCH).cubin


def test_a_definition_counts_behind_its_declaration():
    """A symbol that one text declares and later defines is defined there."""
    declared = ".extern .func (.param .b32 r) f(.param .b32 a);\n.visible"
    texts = [function(value).replace(".visible", declared, 1) for value in (1, 2)]
    with pytest.raises(pl.LinkError, match="f is defined 2 times"):
        pl.link(KERNEL, *texts, arch=ARCH)


@pytest.mark.parametrize("symbol", ["_Z3fooi", "foo"])
def test_a_missing_extern_c_is_recognised(symbol):
    """If only the mangling differs, the hint says so."""
    other = "foo" if symbol.startswith("_Z") else "_Z3fooi"
    with pytest.raises(pl.LinkError, match=f'there is {other} in <ptx 2>: one of the two lacks extern "C"'):
        pl.link(KERNEL.replace(" f", f" {symbol}"), function(name=other), arch=ARCH)


@pytest.mark.parametrize("bits", [32, 64])
def test_floating_point_in_ptx_is_passed_as_bits_are(bits, capfd):
    """A `.f32` is passed in the register that a `.b32` is in, and so the two are one prototype."""
    callee = function(param=f".f{bits} a")
    kernel = KERNEL.replace(".param .b32 a", f".param .b{bits} a")
    if bits == 64:
        kernel = kernel.replace("st.param.b32 [a], %r1", "st.param.b64 [a], %d1")
    assert 1 == pl.link(kernel, callee, arch=ARCH).inlined
    assert pl.link(kernel, callee, arch=ARCH, inline="none").cubin
    assert "" == capfd.readouterr().err


# A kernel that uses `s`, which is declared before it.
USER = (
    TOP + "{declared}\n.visible .entry k()\n{{\n.reg .b64 %rd<2>;\n"
    "mov.u64 %rd1, s;\nst.u64 [%rd1], %rd1;\nret;\n}}\n"
)
DECLARED = {
    "func": ".extern .func s();",
    "entry": ".extern .entry s();",
    "global": ".extern .global .align 4 .b8 s[16];",
    "managed": ".extern .global .attribute(.managed) .align 4 .b8 s[16];",
    "const": ".extern .const .align 4 .b8 s[16];",
    "shared": ".extern .shared .align 4 .b8 s[];",
}
DEFINED = {
    "func": ".visible .func s()\n{\nret;\n}\n",
    "entry": ".visible .entry s()\n{\nret;\n}\n",
    "global": ".visible .global .align 4 .b8 s[16] = {1};\n",
    "managed": ".visible .global .attribute(.managed) .align 4 .b8 s[16] = {1};\n",
    "const": ".visible .const .align 4 .b8 s[16] = {1};\n",
    "shared": ".visible .shared .align 4 .b8 s[16];\n.visible .entry q()\n{\nst.shared.b32 [s], 1;\n}\n",
}


@pytest.mark.parametrize(("declared", "defined"), list(itertools.product(DECLARED, DEFINED)))
def test_a_symbol_is_one_thing(declared, defined):
    """A symbol that is declared as one thing and defined as another is refused; the same thing is linked."""
    inputs = USER.format(declared=DECLARED[declared]), TOP + DEFINED[defined]
    if declared == defined:
        assert pl.link(*inputs, arch=ARCH).cubin
        return
    message = (
        r"s is declared in <ptx 1>:4 as a .*, and defined in <ptx 2>:4 as a .*; declare the symbol as it is"
    )
    with pytest.raises(pl.LinkError, match=message):
        pl.link(*inputs, arch=ARCH)


def test_a_declaration_without_extern_is_recognised():
    """The hint names the missing .extern, and not the mangling."""
    with pytest.raises(pl.LinkError, match="f is defined in <ptx 2>, and declared without"):
        pl.link(KERNEL.replace(".extern ", ""), function(), arch=ARCH)


@pytest.mark.parametrize("code", ["code = 7", "code[] = {7}"])
@pytest.mark.parametrize("linkage", [".visible", ".weak", ".extern"])
def test_a_variable_of_two_sizes_is_refused(linkage, code):
    """Code that takes a variable for larger than it is would write past its end; nvJitLink links it."""
    other_linkage = ".weak" if linkage == ".visible" else ".visible"
    first = f"{KERNEL}{other_linkage} .global .align 4 .u32 {code};\n"
    second = function() + f"{linkage} .global .align 4 .u32 code[2];\n"
    with pytest.raises(pl.LinkError, match=r"code has 8 bytes, .* and 4 bytes, "):
        pl.link(first, second, arch=ARCH)


def test_a_failed_link_tells_its_cure_once():
    """That of the compiler, or of the link."""
    newer = function(target="sm_100").replace(".version 8.0", ".version 8.6")
    with pytest.raises(pl.AssembleError) as caught:
        pl.link(newer, arch=ARCH)
    assert 1 == str(caught.value).count("enerate the PTX for")
    sources = [f'extern "C" __global__ void {name}() {{}}\n' for name in "ab"]
    with pytest.raises(pl.LinkError, match=r"number of debug compile units(.|\n)* pass lto=False with debug"):
        pl.link(*sources, arch="sm_100", debug=True)


CALLER = 'extern "C" __device__ float f(float);\nextern "C" __global__ void k(float* p) { *p = f(*p); }\n'
HALF = 'extern "C" __device__ float f(float x) { return x / 2; }\n'


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (
            'extern "C" __device__ double f(double x) { return x; }\n',
            (
                r"f has two prototypes.*In C types: the result is double, int64_t or a pointer in <cu 2>, "
                "and int or float in <cu 1>; parameter 1 is double"
            ),
        ),
        (
            'extern "C" __device__ int f;\n__device__ int* g() { return &f; }\n',
            "f is declared in .* as a variable .*, and declared in .* as a function",
        ),
        (f"{HALF}{CALLER}", "k': symbol multiply defined|k is defined 2 times"),
    ],
    ids=["types", "kinds", "kernels"],
)
@pytest.mark.parametrize("lto", [None, False])
def test_several_sources_are_compared(other, reason, lto):
    """CUDA C++ that contradicts another source is refused, with link-time optimisation, too."""
    with pytest.raises(pl.LinkError, match=f"(?s){reason}"):
        pl.link(CALLER, other, arch=ARCH, lto=lto)


def test_sources_are_compared_with_ptx_before_link_time_optimisation():
    """CUDA C++ that becomes LTO-IR is compared with PTX, unless checks are off."""
    good, bad = (pl.link(text, arch=ARCH, lto=False).ptx for text in (HALF, HALF.replace("float", "double")))
    assert pl.link(CALLER, good, arch=ARCH, lto=True).lto
    assert pl.link(CALLER, HALF, arch=ARCH).lto
    with pytest.raises(pl.LinkError, match="f is defined 2 times"):
        pl.link(CALLER, HALF, HALF.replace("2", "3"), arch=ARCH)
    with pytest.raises(pl.LinkError, match="f has two prototypes"):
        pl.link(CALLER, bad, arch=ARCH, lto=True)
    assert pl.link(CALLER, HALF.replace("float", "double"), arch=ARCH, checks="none").cubin


def test_static_kernels_belong_to_their_source():
    """Two sources may each have a static kernel of one name; link-time optimisation keeps both."""
    first, second = (
        f"static __global__ void k(int* p) {{ *p = {number}; }}\n"
        f"__global__ void {name}(int* p) {{ k<<<1, 1>>>(p); }}\n"
        for number, name in ((1, "one"), (2, "two"))
    )
    linked = pl.link(first, second, arch="sm_90")
    assert {"_Z3onePi", "_Z3twoPi"} <= {
        symbol.name for symbol in pl.inspect(linked.cubin, sass=False).symbols
    }
