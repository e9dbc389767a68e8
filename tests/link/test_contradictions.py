"""Symbols that inputs take for different things."""

from __future__ import annotations

import itertools

import pytest
from linkcases import CALLER, HEAD, KERNEL, archive, cubin, function, ltoir, object_of

import numba_ptxlink as pl
from numba_ptxlink._formats import elf, llvm_ir
from numba_ptxlink._formats.ptx import parse
from numba_ptxlink._link import symbols

TOP = HEAD.format(target="sm_80")
# What uses `s`, which is declared before it.
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
CLASHES = [pair for pair in itertools.product(DECLARED, DEFINED) if len(set(pair)) == 2]
CXX = {
    "spaces": (
        'extern __constant__ float s[4]; extern "C" __global__ void k(float* o) { *o = s[2]; }\n',
        "__device__ float s[4] = {1};\n",
        (
            "s is a variable in constant memory (__constant__), declared in ",
            "global memory (__device__), defined",
        ),
    ),
    "managed": (
        'extern __managed__ int s; extern "C" __global__ void k(int* o) { *o = s; }\n',
        "__device__ int s = 3;\n",
        ("s is a managed variable (__managed__), declared in ", "global memory (__device__), defined"),
    ),
    "kernel": (
        CALLER,
        'extern "C" __global__ void f(int x) {}\n',
        ("f is a device function, declared in ", "and a kernel (__global__), defined in "),
    ),
    "variable": (
        CALLER,
        'extern "C" { __device__ int f[4] = {1, 2, 3}; }\n',
        ("f is a device function, declared in ", "and a variable in global memory (__device__), defined in "),
    ),
}


def refusal(*inputs, **options):
    """Return the message of a link that is refused for what the inputs take a symbol for."""
    with pytest.raises(pl.LinkError) as caught:
        pl.link(*inputs, arch="sm_80", **options)
    assert "Declare the symbol as it is defined, or rename one of the two." in str(caught.value)
    assert caught.value.inputs
    return str(caught.value)


@pytest.mark.parametrize(("declared", "defined"), CLASHES)
def test_a_symbol_is_one_thing(declared, defined):
    """A symbol that is declared as one thing and defined as another is refused, in text and machine code."""
    user, owner = USER.format(declared=DECLARED[declared]), TOP + DEFINED[defined]
    said = refusal(user, owner)
    assert ", declared in <ptx 1>:4, and " in said
    assert "defined in <ptx 2>:4" in said
    assert "declared in <cubin 1>" in refusal(cubin(user), cubin(owner))
    refusal(owner, cubin(user))


@pytest.mark.parametrize("form", DEFINED)
def test_what_agrees_is_linked(form):
    """The same thing on both sides is linked, in text and machine code."""
    user, owner = USER.format(declared=DECLARED[form]), TOP + DEFINED[form]
    assert pl.link(user, owner, arch="sm_80").cubin
    assert pl.link(cubin(user), owner, arch="sm_80").cubin


@pytest.mark.parametrize("case", CXX)
def test_cuda_cxx(case):
    """CUDA C++ is refused as source and as LTO-IR."""
    user, owner, said = CXX[case]
    parts = [(code, ltoir(code)) for code in (user, owner)]
    for inputs in itertools.product(*parts):
        message = refusal(*inputs)
        assert [] == [part for part in said if part not in message]


@pytest.mark.slow
@pytest.mark.parametrize("case", CXX)
def test_host_objects(case, tmp_path):
    """Objects and libraries are refused beside each other and beside LTO-IR."""
    user, owner, said = CXX[case]
    objects = [object_of(code, tmp_path) for code in (user, owner)]
    forms = [(one, archive(one), ltoir(code)) for one, code in zip(objects, (user, owner), strict=True)]
    for inputs in itertools.product(*forms):
        message = refusal(*inputs)
        assert [] == [part for part in said if part not in message]
    refusal(archive(*objects))


def test_what_may_be_replaced_is_compared():
    """A weak or common definition does not stand in for something else."""
    kernel = TOP + DEFINED["entry"].replace(" s(", " f(")
    assert "f is a device function, defined in" in refusal(function(linkage=".weak"), kernel)
    refusal(TOP + ".common .global .align 4 .b8 s[16];\n", TOP + DEFINED["const"])


def test_two_declarations_are_compared():
    """Without a definition, two declarations contradict each other all the same."""
    users = [USER.format(declared=DECLARED[form]) for form in ("global", "const")]
    assert "declared in <ptx 2>" in refusal(users[0], users[1].replace(" k()", " k2()"))


@pytest.mark.parametrize(
    "owner",
    [
        ".global .align 4 .b8 s[16] = {1};\n.visible .entry q()\n{\nst.global.u32 [s], 1;\nret;\n}\n",
        ".const .align 4 .b8 s[16] = {1};\n",
        ".func s()\n{\nret;\n}\n",
        ".visible .entry q()\n{\n.shared .align 4 .b8 s[16];\nst.shared.u32 [s], 1;\nret;\n}\n",
    ],
)
def test_private_symbols_are_nobody_elses(owner):
    """What a module keeps to itself may have any name."""
    whole = TOP + DEFINED["shared" if "shared" not in owner else "global"]
    assert pl.link(whole, TOP + owner.replace(" q()", " q2()"), arch="sm_80").cubin


def test_a_function_that_is_only_declared_is_nothing():
    """Machine code does not have functions that nothing calls, and it does have variables, as with nvlink."""
    unused = TOP + DECLARED["func"] + "\n.visible .entry k()\n{\nret;\n}\n"
    assert pl.link(unused, TOP + DEFINED["global"], arch="sm_80").cubin
    refusal(unused.replace(DECLARED["func"], DECLARED["const"]), TOP + DEFINED["global"])


def test_references_are_found_in_tables_and_aliases():
    """A function is used where a variable holds its address."""
    table = TOP + DECLARED["func"] + "\n.visible .global .align 8 .u64 t[1] = {s};\n"
    refusal(table, TOP + DEFINED["global"])


@pytest.mark.slow
def test_members_that_nobody_needs_contradict_nobody(tmp_path):
    """Of a library that has the symbol as something else, only members that are needed count."""
    own = object_of('extern "C" __device__ int s(int x) { return x; }\n', tmp_path)
    other = object_of('extern "C" { __device__ int s[4] = {1}; }\n', tmp_path)
    used = object_of('extern "C" __device__ int f(int x) { return x; }\n', tmp_path)
    assert pl.link(KERNEL, own, archive(other, used), arch="sm_80").cubin


def test_spaces_are_read_alike():
    """PTX, its machine code and LLVM IR tell the same of each variable."""
    text = TOP + "".join(DEFINED[form].replace(" s", f" {form}") for form in ("global", "managed", "const"))
    expected = {"global": "global", "managed": "managed", "const": "const"}
    assert expected == {each.name: each.space for each in symbols.of_ptx(parse(text))}
    image = elf.read(cubin(text))
    assert expected == {each.name: each.space for each in symbols.of_image(image)}
    llvm = (
        "@global = addrspace(1) global i32 1\n@managed = external addrspace(1) global i32\n"
        '@"const" = addrspace(4) constant i32 1\n@shared = internal addrspace(3) global i32 undef\n'
        "@plain = global i32 1\n"
        '!nvvm.annotations = !{!0}\n!0 = !{i32 addrspace(1)* @managed, !"managed", i32 1}\n'
    )
    found = {each.name: each.space for each in llvm_ir.symbols(llvm, pl.Arch.of("sm_80"))}
    assert {**expected, "plain": ""} == found
