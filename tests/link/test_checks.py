"""Wrong links: what plain nvJitLink does with each, and what is said here before it is asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import linkcases
import pytest
from linkcases import CASES, HEAD, KERNEL, cubin, function

import numba_ptxlink as pl
from numba_ptxlink import linker
from numba_ptxlink._formats import elf
from numba_ptxlink._formats.ptx import Param, Prototype
from numba_ptxlink._link import checks, explain
from numba_ptxlink._link import inputs as link_inputs
from numba_ptxlink._link import symbols as link_symbols
from numba_ptxlink._tools import nvfatbin, nvjitlink

ARCH = pl.Arch.of("sm_80")

# What each error says; the parts of it, in any order.
SAID = {
    "prototype in PTX": (".func (.b32) f(.b64)  defined in a.ptx:4", "f(.b32)  declared in k.ptx:4"),
    "prototype in cubins": (".func (.b32) f(.b64)  defined in a.cubin", "f(.b32)  declared in k.cubin"),
    "prototype in LTO-IR": (".func (.b32) f(.b64)  defined in a.ltoir", "f(.b32)  declared in k.ltoir"),
    "prototype in LTO-IR and PTX": ("f(.b64)  defined in a.ptx:4", "f(.b32)  declared in k.ltoir"),
    "alignment in PTX": (
        "f(.b32, .align 8 .b8[8])  defined in a.ptx:4",
        "f(.b32, .align 4 .b8[8])  declared in k.ptx",
    ),
    "definitions in PTX": ("f is defined 2 times", "a.ptx:4, b.ptx:4"),
    "definitions in cubins": ("f is defined 2 times", "a.cubin, b.cubin"),
    "definitions in LTO-IR": ("f is defined 2 times, ", "a.ltoir, b.ltoir", "abi_info={'abi_name': ...}"),
    "definitions in LTO-IR and PTX": ("f is defined 2 times", "a.ltoir, b.ptx:4"),
    "variables in LTO-IR": ("v is defined 2 times", "a.ltoir, b.ltoir"),
    "variables in LTO-IR and PTX": ("v is defined 2 times", "a.ltoir, b.ptx:4"),
    "variables in PTX": ("v is defined 2 times", "a.ptx:11, b.ptx:4"),
    "alias in PTX": ("f is defined 2 times", "a.ptx:11, b.ptx:4"),
    "undefined in PTX": ("f is asked for by k.ptx and defined in no input", "there is ff in a.ptx"),
    "undefined in LTO-IR": ("f is asked for by k.ltoir and defined in no input", "there is ff in a.ltoir"),
    "undefined variable in LTO-IR": (
        "vv is asked for by k.ltoir and defined in no input",
        "there is v in a.ltoir: is that one meant?",
    ),
    "cubin of another arch": ("a.cubin holds machine code for sm_90", "does not run on sm_80"),
    "PTX of a newer arch": ("a.ptx holds PTX for sm_90", "does not run on sm_80"),
    "PTX of a variant": ("a.ptx holds PTX for sm_80a", "does not run on sm_80,"),
    "LTO-IR of a newer arch": ("a.ltoir holds LTO-IR for sm_90", "does not run on sm_80"),
    "PTX of a newer ISA": ("a.ptx is PTX 9.99", "pip install --upgrade nvidia-nvjitlink"),
    "LTO-IR of a newer version": ("a.ltoir is LTO-IR of container version", "--upgrade nvidia-nvjitlink"),
}


def test_plain_nvjitlink():
    """What nvJitLink itself does with each wrong link is on record: most of them it makes."""
    command = [sys.executable, Path(linkcases.__file__), *CASES]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {}
    for case, (status, said) in json.loads(run.stdout).items():
        expected = CASES[case][1]
        if status == 0:
            found[case] = "links, stderr" if said else "links"
        else:
            refused = status == 1 and not expected.startswith("links") and expected in said
            found[case] = expected if refused else f"{status}: {said}"
    assert {case: done for case, (_, done) in CASES.items()} == found


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


def test_equal_inputs_are_linked_once():
    """The same cubin twice is one cubin."""
    callee = cubin(function())
    assert pl.link(KERNEL, callee, callee, arch="sm_80").cubin


def test_a_weak_definition_gives_way():
    """A weak definition beside a strong one is no conflict."""
    assert pl.link(KERNEL, function(1, linkage=".weak"), function(2), arch="sm_80").cubin


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
    prototype = Prototype("f", None, (Param(align=8, size=size),))
    tables = [link_symbols.Table(name, kind, None) for name in ("caller", "callee")]
    several = {"f": [(n, link_symbols.Symbol("f", "func", bool(n), prototype=prototype)) for n in (0, 1)]}
    checks._warn_of_large_structs(several, tables, release, "nvidia-nvjitlink")
    assert warned == (f"f takes or returns a struct of {size} bytes" in caplog.text)


@pytest.mark.parametrize(
    ("before", "size", "alignments", "result", "right"),
    [
        ((32, 64), 16, (4, 16), 4, True),  # What nvcc makes of f(int, int*, V): V lies in the same registers.
        ((64, 32), 16, (4, 16), 4, False),
        ((32, 64), 4, (4, 8), 4, False),  # It fills the gap before the pointer.
        ((), 48, (8, 16), 48, True),
        ((), 4, (4, 8), 52, False),  # The result goes to an address, which is in the first register.
        ((), 52, (4, 16), 4, False),  # It lies on the stack.
    ],
)
def test_alignments_that_differ(before, size, alignments, result, right):
    """Two alignments of one struct are refused where it would lie elsewhere, or perhaps."""
    sections = []
    for align in alignments:
        scalars = "".join(f".param .b{bits} p{bits}, " for bits in before)
        loads = "".join(
            f"ld.param.b32 %r1, [a+{at}]; st.volatile.global.b32 [g], %r1;" for at in range(0, size, 4)
        )
        text = (
            f"{linkcases.HEAD.format(target='sm_80')}.visible .global .b32 g;\n"
            f".visible .func (.param .align 4 .b8 r[{result}]) f\n"
            f"({scalars}.param .align {align} .b8 a[{size}])\n"
            f"{{ .reg .b32 %r<2>;\n{loads}\nst.param.b32 [r], %r1;\nret; }}\n"
        )
        code = pl.assemble(text, ARCH, relocatable=True).code
        sections.append(elf.read(code, "f").section(".text.f").content)
        table = link_symbols.table(link_inputs.Input("ptx", f"{align}.ptx", text.encode()), ARCH)
        sections.append(table)
    first, one, second, other = sections
    if right:
        assert first == second
        checks.check_prototypes([one, other])
    else:
        with pytest.raises(pl.LinkError, match="f has two prototypes"):
            checks.check_prototypes([one, other])


def test_lost_types_are_explained():
    """What an old nvJitLink says when it mistakes one struct for another comes with the cure."""
    said = explain.explain("line 9; error   : Alignment of argument does not match formal parameter '_'", [])
    assert "pip install --upgrade nvidia-nvjitlink" in said
    assert explain.explain("error   : something else", []) == ""


@pytest.mark.parametrize(
    "second",
    [
        ".visible .global .align 4 .u32 x;\n",
        ".visible .global .align 4 .u32 y, x = 3;\n",
    ],
)
def test_each_name_of_a_declaration_is_a_variable(second):
    """A variable that another module defines too is refused, also in a declaration of several."""
    first = KERNEL + ".visible .global .align 4 .u32 x, z;\n"
    with pytest.raises(pl.LinkError, match="x is defined 2 times"):
        pl.link(first, HEAD + second, arch=ARCH)


def test_floating_point_that_ptx_names_is_told_how_compilers_spell_it():
    """CUDA C++ cannot declare a parameter .f32, so the cure is in the PTX; other mismatches have another."""
    with pytest.raises(pl.LinkError, match=r"f\(\.f32\) .*\n.*\n +CUDA's compilers declare floating point"):
        pl.link(KERNEL, function(param=".f32 a"), arch=ARCH)
    with pytest.raises(pl.LinkError, match="two prototypes") as caught:
        pl.link(KERNEL, function(param=".b64 a"), arch=ARCH)
    assert "compilers declare" not in str(caught.value)


def test_a_function_with_attributes_is_compared():
    """An attribute of a function hides neither its definition nor its prototype."""
    attributed = ".visible .func .attribute(.unified(1, 2)) f(.param .b64 a)\n{\nret;\n}\n"
    with pytest.raises(pl.LinkError, match="f has two prototypes"):
        pl.link(KERNEL, HEAD + attributed, arch=ARCH)


@pytest.mark.parametrize("linkage", [".visible", ".weak", ""])
def test_an_alias_is_a_definition(linkage):
    """A name that is an alias in one module and defined in another is refused, as if both defined it."""
    alias = function(name="g") + f"{linkage} .func (.param .b32 r) f(.param .b32 a);\n.alias f, g;\n"
    with pytest.raises(pl.LinkError, match="f is defined 2 times"):
        pl.link(KERNEL, alias, function(), arch=ARCH)
    assert pl.link(KERNEL, alias, function(linkage=".weak"), arch=ARCH).cubin


FAMILIES = [
    ("sm_100f", "sm_103"),
    ("sm_100f", "sm_110"),
    ("sm_103f", "sm_100f"),
    ("sm_103f", "sm_103a"),
    ("sm_120f", "sm_121"),
    ("sm_120a", "sm_120"),
]


@pytest.mark.parametrize(("target", "arch"), FAMILIES)
def test_where_ptx_of_a_family_runs_is_told_as_the_linker_takes_it(target, arch):
    """PTX for a family runs on each later device of its major version, by any variant of its name."""
    source = link_inputs.Input("ptx", "a.ptx", function(target=target).replace("8.0", "9.0").encode())
    try:
        nvjitlink.link([(source.kind, source.name, source.code)], (f"-arch={arch}",))
        said = ""
    except pl.LinkError as error:
        said = str(error)
    misfit = explain.cure("", [source], pl.Arch.of(arch), nvjitlink.version(), "nvidia-nvjitlink")
    assert bool(said) == (f"a.ptx holds PTX for {target}, which does not run on {arch}" in misfit)


@pytest.mark.parametrize("spelled", [".visible .func f.noreturn", ".visible .func f .noreturn"])
def test_a_directive_that_touches_the_name_hides_no_definition(spelled):
    """A function whose first directive follows its name without a space is defined all the same."""
    bodies = [f"{spelled}\n{{\n{statement};\nexit;\n}}\n" for statement in ("exit", "trap")]
    with pytest.raises(pl.LinkError, match="f is defined 2 times"):
        pl.link(*(HEAD + body for body in bodies), arch=ARCH)


def test_a_container_without_code_for_the_link_says_what_it_has():
    """A fat binary that nvJitLink refuses as bad input is told to be for other architectures."""
    entries = [("cubin", pl.Arch.of(sm), "f", cubin(function(), sm)) for sm in ("sm_80", "sm_90")]
    fatbin = link_inputs.Input("fatbin", "f.fatbin", nvfatbin.pack(entries))
    said = r"f\.fatbin holds no code for sm_100.* it has sm_80 \(cubin\), sm_90 \(cubin\)\. Compile it for"
    with pytest.raises(pl.LinkError, match=said):
        pl.link(KERNEL, fatbin, arch="sm_100")
    library = link_inputs.Input("archive", "lib.a", linkcases.archive(fatbin.code))
    told = explain.cure("ERROR 3: bad input", [library], pl.Arch.of("sm_75"), (13, 0), "nvidia-nvjitlink")
    assert told.startswith("lib.a(0.o) holds no code for sm_75")
    assert not explain.cure("", [library], pl.Arch.of("sm_86"), (13, 0), "nvidia-nvjitlink", checks="none")
