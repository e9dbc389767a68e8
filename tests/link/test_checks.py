"""Wrong links: what plain nvJitLink does with each, and what is said here before it is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import linkcases
import pytest
from linkcases import CASES, HEAD, KERNEL, archive, cubin, function, ltoir, object_of

import numba_ptxlink as pl
from numba_ptxlink import linker
from numba_ptxlink._formats import elf, ptx_isa, ptx_text
from numba_ptxlink._formats import ltoir as ltoir_format
from numba_ptxlink._link import checks, explain, merge
from numba_ptxlink._link import inputs as link_inputs
from numba_ptxlink._link import symbols as link_symbols

ARCH = pl.Arch.of("sm_80")

# What each error says; the parts of it, in any order.
SAID = {
    "prototype in PTX": (".func (.b32) f(.b64)  defined in a.ptx:4", "f(.b32)  declared in k.ptx:4"),
    "prototype in cubins": (".func (.b32) f(.b64)  defined in a.cubin", "f(.b32)  declared in k.cubin"),
    "prototype in LTO-IR": (".func (.b32) f(.b64)  defined in a.ltoir", "f(.b32)  declared in k.ltoir"),
    "prototype in LTO-IR and PTX": ("f(.b64)  defined in a.ptx:4", "f(.b32)  declared in k.ltoir"),
    "alignment in PTX": ("f(.align 8 .b8[8])  defined in a.ptx:4", "f(.align 4 .b8[8])  declared in k.ptx"),
    "definitions in PTX": ("f is defined 2 times", "a.ptx:4, b.ptx:4"),
    "definitions in cubins": ("f is defined 2 times", "a.cubin, b.cubin"),
    "definitions in LTO-IR": ("f is defined 2 times", "a.ltoir, b.ltoir"),
    "definitions in LTO-IR and PTX": ("f is defined 2 times", "a.ltoir, b.ptx:4"),
    "variables in PTX": ("v is defined 2 times", "a.ptx:11, b.ptx:4"),
    "undefined in PTX": ("f is asked for by k.ptx and defined in no input", "there is ff in a.ptx"),
    "undefined in LTO-IR": ("f is asked for by k.ltoir and defined in no input", "there is ff in a.ltoir"),
    "cubin of another arch": ("a.cubin holds machine code for sm_90", "does not run on sm_80"),
    "PTX of a newer arch": ("a.ptx holds PTX for sm_90", "does not run on sm_80"),
    "PTX of a variant": ("a.ptx holds PTX for sm_80a", "does not run on sm_80,"),
    "LTO-IR of a newer arch": ("a.ltoir holds LTO-IR for sm_90", "does not run on sm_80"),
    "PTX of a newer ISA": ("a.ptx is PTX 9.99", "pip install --upgrade nvidia-nvjitlink"),
    "LTO-IR of a newer version": ("a.ltoir is LTO-IR of container version", "--upgrade nvidia-nvjitlink"),
}


@pytest.mark.parametrize("case", CASES)
def test_plain_nvjitlink(case):
    """What nvJitLink itself does with a wrong link is on record: most of them it makes."""
    run = subprocess.run(
        [sys.executable, Path(linkcases.__file__), case], capture_output=True, text=True, check=False
    )
    expected = CASES[case][1]
    if expected.startswith("links"):
        assert (0, expected) == (run.returncode, "links, stderr" if run.stderr else "links")
    else:
        assert 1 == run.returncode
        assert expected in run.stderr


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_link_is_refused(case):
    """Each wrong link is refused, with symbols, inputs and the cure."""
    inputs = CASES[case][0]()
    with pytest.raises(pl.LinkError) as caught:
        linker.link_inputs(
            [link_inputs.Input(*each) for each in inputs],
            ARCH,
            linker.LinkOptions(),
            lto="-lto" in linkcases.flags(inputs),
        )
    assert [] == [part for part in SAID[case] if part not in str(caught.value)]
    assert caught.value.inputs


def test_nothing_reaches_stderr(capfd):
    """The links that nvJitLink complains about on stderr are refused before it can."""
    for case, (make, done) in CASES.items():
        if done == "links, stderr":
            with pytest.raises(pl.LinkError):
                pl.link(*(code for _, _, code in make()), arch="sm_80")
            assert ("", "") == capfd.readouterr(), case


def test_equal_definitions_are_merged(capfd):
    """One function in two inputs, instruction by instruction the same, is linked once."""
    other = function().replace("{\n", "{\n    // another comment\n\n").replace("mov.u32 ", "mov.u32     ")
    linked = pl.link(KERNEL, function(), other, arch="sm_80")
    names = [each.name for each in elf.read(linked.cubin).symbols]
    assert 1 == names.count("f")
    assert ("", "") == capfd.readouterr()


def test_equal_inputs_are_linked_once():
    """The same cubin twice is one cubin."""
    callee = cubin(function())
    assert pl.link(KERNEL, callee, callee, arch="sm_80").cubin


@pytest.mark.parametrize(
    ("mine", "yours", "expected"),
    [
        ("bra $L__BB0_1;\n$L__BB0_1:\nret;", "bra $L__BB7_9;\n$L__BB7_9:\nret;", True),
        (
            "bra $L__BB0_1;\n$L__BB0_1:\nret;\n$L__BB0_2:",
            "bra $L__BB0_2;\n$L__BB0_1:\nret;\n$L__BB0_2:",
            False,
        ),
        (".loc 1 2 3\nret;", ".loc 1 9 9\nret;", True),
        ("ret;", "exit;", False),
    ],
    ids=["labels are renamed", "labels are exchanged", "line numbers", "instructions"],
)
def test_what_makes_definitions_equal(mine, yours, expected):
    """Labels and line numbers may differ, instructions may not."""
    texts = [HEAD + f".visible .func f()\n{{\n{body}\n}}\n" for body in (mine, yours)]
    assert expected is merge.same(texts, "f")


def test_a_private_variable_belongs_to_a_definition():
    """Functions that read different private tables are different, however equal their own text."""
    body = ".visible .func f()\n{\n.reg .b32 %r<2>;\nld.global.u32 %r1, [table];\nret;\n}\n"
    same = [HEAD + ".global .align 4 .u32 table = 1;\n" + body] * 2
    different = [HEAD + f".global .align 4 .u32 table = {value};\n" + body for value in (1, 2)]
    assert merge.same(same, "f")
    assert not merge.same(different, "f")


def test_weakening_changes_the_linkage_alone():
    """A definition made weak is the same text but for one word, and the rest of the module is untouched."""
    ptx = function() + function(name="g").partition("64\n")[2]
    expected = ptx.replace(".visible .func (.param .b32 r) f", ".weak .func (.param .b32 r) f")
    assert expected.encode() == merge.weaken(ptx.encode(), ["f"])


def test_a_weak_definition_gives_way():
    """A weak definition beside a strong one is no conflict."""
    assert pl.link(KERNEL, function(1, linkage=".weak"), function(2), arch="sm_80").cubin


def test_a_library_gives_only_what_nobody_defines():
    """A definition that an archive has too is no conflict."""
    table = link_symbols.Table("lib.a", "archive", (link_symbols.Symbol("f", "func", True),))
    own = link_symbols.Table("a.ptx", "ptx", link_symbols.table(link_inputs.read(function()), ARCH).symbols)
    several = {"f": [(0, table.symbols[0]), (1, own.symbols[0])]}
    assert set() == checks._check_definitions(several, [table, own], [])


@pytest.mark.parametrize("symbol", ["_Z3fooi", "foo"])
def test_a_missing_extern_c_is_recognised(symbol):
    """Where only the mangling differs, the hint says so."""
    other = "foo" if symbol.startswith("_Z") else "_Z3fooi"
    tables = [
        link_symbols.Table("k.ptx", "ptx", (link_symbols.Symbol(symbol, "func", False),)),
        link_symbols.Table("a.ptx", "ptx", (link_symbols.Symbol(other, "func", True),)),
    ]
    said = explain.explain(f"error   : Undefined reference to '{symbol}' in 'k.ptx'", tables)
    assert f'there is {other} in a.ptx: one of the two lacks extern "C".' in said


@pytest.mark.parametrize(
    ("kind", "size", "release", "warned"),
    [
        ("ptx", 184, (13, 0), True),
        ("ptx", 184, (13, 1), False),
        ("ptx", 128, (13, 0), False),
        ("ltoir", 184, (13, 0), False),
    ],
)
def test_an_nvjitlink_that_passes_large_structs_wrongly(kind, size, release, warned, caplog):
    """With nvJitLink 13.0, a function of a large struct is warned of, unless LTO inlines it."""
    prototype = ptx_text.Prototype("f", None, (ptx_text.Param(align=8, size=size),))
    tables = [link_symbols.Table(name, kind, None) for name in ("caller", "callee")]
    several = {"f": [(n, link_symbols.Symbol("f", "func", bool(n), prototype=prototype)) for n in (0, 1)]}
    checks._warn_of_large_structs(several, tables, release, "nvidia-nvjitlink")
    assert warned == (f"f takes or returns a struct of {size} bytes" in caplog.text)


def test_lost_types_are_explained():
    """What an old nvJitLink says when it mistakes one struct for another comes with the cure."""
    said = explain.explain("line 9; error   : Alignment of argument does not match formal parameter '_'", [])
    assert "pip install --upgrade nvidia-nvjitlink" in said
    assert explain.explain("error   : something else", []) == ""


@pytest.mark.parametrize("kind", ["ptx", "cubin", "ltoir", "fatbin"])
def test_symbols_of_every_kind(kind):
    """Definitions and references with their prototypes are read out of every kind of input."""
    from numba_ptxlink._tools import nvfatbin

    source = (
        'extern "C" __device__ int outside(float, long long);\n'
        "struct Pair { double a, b; };\n"
        'extern "C" __device__ float inside(Pair p, short s) { return p.a + s + outside(p.b, s); }\n'
        'extern "C" __global__ void k(float* p) { *p = inside({1, 2}, 3); }\n'
    )
    from numba_ptxlink._tools import nvrtc

    output = "cubin" if kind == "fatbin" else kind
    code = nvrtc.compile_source(source, "source.cu", ARCH, output=output).code
    if kind == "fatbin":
        code = nvfatbin.pack([("cubin", ARCH, "source", code)])
    symbols = {each.name: each for each in link_symbols.table(link_inputs.read(code), ARCH).symbols}
    assert {"k", "inside", "outside"} == set(symbols)
    assert ("entry", True) == (symbols["k"].kind, symbols["k"].defined)
    assert (True, False) == (symbols["inside"].defined, symbols["outside"].defined)
    inside, outside = symbols["inside"].prototype, symbols["outside"].prototype
    assert (32, 2, 16) == (inside.result.bits, len(inside.params), inside.params[0].size)
    assert [32, 64] == [param.bits for param in outside.params]


def test_symbols_of_objects_and_libraries(tmp_path):
    """Host objects with device code, and the members of a static library, are read together."""
    codes = []
    for name in ("f", "g"):
        source = f'extern "C" __device__ int {name}(int a) {{ return a; }}\n'
        codes.append(object_of(source, tmp_path))
        assert [name] == [each.name for each in link_symbols.table(link_inputs.read(codes[-1]), ARCH).symbols]
    library = link_inputs.read(archive(*codes))
    assert {"f", "g"} == {each.name for each in link_symbols.table(library, ARCH).symbols}


def test_what_cannot_be_read_is_left_to_the_linker():
    """A fat binary without code for the architecture has no readable symbols, and nvJitLink says why."""
    from numba_ptxlink._tools import nvfatbin

    packed = nvfatbin.pack([("cubin", pl.Arch.of("sm_90"), "f", cubin(function(), "sm_90"))])
    assert link_symbols.table(link_inputs.read(packed), ARCH).symbols is None
    with pytest.raises(pl.LinkError, match="nvJitLink failed to read the fatbin"):
        pl.link(KERNEL, packed, arch="sm_80")


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        ("#v", ".func f()"),
        ("#vi", ".func f(.b32)"),
        ("#fdl", ".func (.f32) f(.f64, .b64)"),
        ("#b24b8h", ".func (.b8[24]) f(.b8[8], .b16)"),
        ("#ill|12p4", ".func (.b32) f(.b64, .b64)"),
    ],
)
def test_the_compilers_notes_on_prototypes(signature, expected):
    """The note that ptxas leaves about a prototype is read back."""
    assert expected == str(link_symbols.prototype("f", signature))


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_100", "sm_120"])
def test_the_architecture_of_an_image(arch):
    """A cubin says which architecture it is for, and whether it can be linked further."""
    ptx = function(target=arch).replace("8.0", "8.8" if arch >= "sm_90" or len(arch) > 5 else "8.0")
    target = pl.Arch.of(arch)
    relocatable = elf.read(pl.assemble(ptx, arch, relocatable=True).code)
    assert (target.number, True) == (relocatable.sm, relocatable.relocatable)


def test_the_header_of_ltoir():
    """LTO-IR says which architecture it is for; anything else says nothing."""
    assert 80 == ltoir_format.read(ltoir(linkcases.CALLER)).sm
    assert ltoir_format.read(b"\xedCN\x7f") is None
    assert ltoir_format.read(function().encode()) is None


@pytest.mark.parametrize("size", [4, 60, 200, 600])
def test_a_truncated_image_is_refused(size):
    """A cubin that ends early is refused by name before a linker sees it."""
    code = cubin(function())
    with pytest.raises(pl.LinkError, match=r"a\.cubin is not a whole ELF image"):
        elf.read(code[:size], "a.cubin")


def test_variables_of_ptx():
    """Variables that other modules can see are found with their space, type and linkage."""
    ptx = HEAD + (
        ".visible .global .align 4 .u32 counter = 1;\n"
        ".extern .shared .align 16 .b8 buffer[];\n"
        "// .visible .global .u32 commented;\n"
        ".weak .const .align 8 .b8 table[16] = {1, 2};\n"
        ".global .align 4 .u32 private;\n"
    )
    found = [(each.name, each.space, each.linkage, each.line) for each in ptx_text.variables(ptx)]
    assert [
        ("counter", "global", "visible", 4),
        ("buffer", "shared", "extern", 5),
        ("table", "const", "weak", 7),
    ] == found


@pytest.mark.parametrize(("release", "isa"), [((12, 6), (8, 5)), ((12, 9), (8, 8)), ((13, 0), (9, 0))])
def test_the_newest_isa_of_a_release(release, isa):
    """The newest PTX ISA of a CUDA release is known; of an unknown release nothing is said."""
    assert isa == (ptx_isa.newest_isa(release).major, ptx_isa.newest_isa(release).minor)
    assert ptx_isa.newest_isa((99, 0)) is None
