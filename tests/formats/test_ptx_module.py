"""PTX modules, functions and variables as values."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from ptx_texts import HEAD, machine_code

from numba_ptxlink._formats import ptx_header
from numba_ptxlink._formats.ptx import (
    Function,
    Param,
    Prototype,
    UnparsedItem,
    Variable,
    address,
    parse,
    read_header,
)

DECLARATIONS: dict[str, tuple[str, list[Variable]]] = {
    "two names": (
        ".global .u32 x, y;",
        [Variable("x", "global", "u32"), Variable("y", "global", "u32")],
    ),
    "alignment and extents": (
        ".visible .global .align 16 .b8 x[2][0x10U];",
        [Variable("x", "global", "b8", "visible", 16, array_dims=(2, 16))],
    ),
    "no extent": (
        ".extern .shared .align 8 .b8 x[];",
        [Variable("x", "shared", "b8", "extern", 8, array_dims=(None,))],
    ),
    "a vector": (".const .v4 .f32 x;", [Variable("x", "const", "f32", vector_length=4)]),
    "numbered": (".global .u32 x<3>;", [Variable("x", "global", "u32", count=3)]),
    "initializers": (
        ".weak .global .u32 x[2] = {1, 2}, y = 4;",
        [
            Variable("x", "global", "u32", "weak", array_dims=(2,), initial="{1, 2}"),
            Variable("y", "global", "u32", "weak", initial="4"),
        ],
    ),
    "white space and comments in an initializer": (
        ".global .u32 x[2]={1, // ;}\n2} /* , */ , y = 1 // ;\n;",
        [
            Variable("x", "global", "u32", array_dims=(2,), initial="{1, // ;}\n2}"),
            Variable("y", "global", "u32", initial="1"),
        ],
    ),
    "common": (".common .global .u32 x;", [Variable("x", "global", "u32", "common")]),
    "attributes": (
        ".global .attribute(.managed) .s32 x;",
        [Variable("x", "global", "s32", attributes=("managed",))],
    ),
    "no white space": (
        ".visible.global.align 4 .b32 x[1]={7};",
        [Variable("x", "global", "b32", "visible", 4, array_dims=(1,), initial="{7}")],
    ),
}


@pytest.mark.parametrize("case", DECLARATIONS)
def test_variables(case):
    """Each form of a declaration becomes its variables, each of which prints as PTX by itself."""
    text, expected = DECLARATIONS[case]
    (*_, item) = parse(HEAD + text).items
    assert all(variable.line for variable in item.variables)
    assert expected == [replace(variable, line=0, start=-1, end=-1) for variable in item.variables]
    alone = "\n".join(map(item.text_of, item.variables))
    assert machine_code(HEAD + text) == machine_code(f"{HEAD}{alone}")


FUNCTIONS: dict[str, tuple[str, str, tuple[str, str, bool]]] = {
    "a kernel": (".visible .entry f(.param .u64 p) { ret; }", ".entry f(.b64)", ("visible", "entry", True)),
    "a declaration": (".extern .func f(.param .b32 a);", ".func f(.b32)", ("extern", "func", False)),
    "a result": (
        ".visible .func (.param .f32 r) f(.param .b32 a, .param .f64 b) { ret; }",
        ".func (.f32) f(.b32, .f64)",
        ("visible", "func", True),
    ),
    "byte arrays": (
        ".visible .func (.param .align 8 .b8 r[16]) f(.param .align 4 .b8 a[12]) { ret; }",
        ".func (.align 8 .b8[16]) f(.align 4 .b8[12])",
        ("visible", "func", True),
    ),
    "arrays of words": (
        ".visible .entry f(.param .u32 a[4]) { ret; }",
        ".entry f(.align 4 .b8[16])",
        ("visible", "entry", True),
    ),
    "registers": (
        ".func (.reg .b32 a, .reg .b32 b) f(.reg .b32 c) { mov.b32 a, c; mov.b32 b, c; ret; }",
        ".func (.b32) f(.b32)",
        ("", "func", True),
    ),
    "no parameters": (".func f { ret; }", ".func f()", ("", "func", True)),
    "pointers": (
        ".entry f(.param .u64 .ptr .global .align 8 a, .param .u64 .ptr b, .param .u64 .ptr c) { ret; }",
        ".entry f(.b64, .b64, .b64)",
        ("", "entry", True),
    ),
    "the alignment of a target": (
        ".entry f(.param .b8 .align 4 a[4]) { ret; }",
        ".entry f(.align 1 .b8[4])",
        ("", "entry", True),
    ),
    "variable arguments": (
        ".func f(.param .b32 a, .param .align 8 .b8 rest[]) { ret; }",
        ".func f(.b32, .align 8 .b8[0])",
        ("", "func", True),
    ),
    "attributes": (
        ".func .attribute(.unified(0xAB, 0xCD)) (.param .b32 r) f(.param .b32 a) { ret; }",
        ".func (.b32) f(.b32)",
        ("", "func", True),
    ),
    "directives": (
        ".weak .entry f()\n.maxntid 128, 1, 1\n.minnctapersm 2 .maxnreg 32 { ret; }",
        ".entry f()",
        ("weak", "entry", True),
    ),
    "a pragma before the body": (
        '.entry f() .maxntid 1,1,1 .pragma "nounroll"; .minnctapersm 2 { ret; }',
        ".entry f()",
        ("", "entry", True),
    ),
    "what does not return": (".extern .func f() .noreturn;", ".func f()", ("extern", "func", False)),
    "comments": (
        ".visible /* ; */ .func // {\n (.param .b32 /* ) */ r) f /* ( */ () { ret; }",
        ".func (.b32) f()",
        ("visible", "func", True),
    ),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_functions(case):
    """Each form of a function has its prototype, and prints as it was or in the usual spelling."""
    text, prototype, (linkage, kind, defined) = FUNCTIONS[case]
    module = parse(HEAD + text)
    (function,) = module.functions
    assert (prototype, linkage, kind, defined) == (
        str(function.prototype),
        function.linkage,
        function.kind,
        function.defined,
    )
    assert all(item.keyword for item in module.items if isinstance(item, UnparsedItem))
    assert text == module.text[function.start : function.end]
    printed = f"{function.heading} {{ {' '.join(map(str, function.body))} }}"
    printed = printed if function.defined else f"{function.heading};"
    assert machine_code(HEAD + text, relocatable=".reg" not in text) == machine_code(
        f"{HEAD}{printed}", relocatable=".reg" not in text
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (None, (), 0)),
        (".visible .func f();", (None, (), 0)),
        (".version 8.0\n.target sm_90\n.address_size 64\n", ("8.0", ("sm_90",), 64)),
        (
            "// .version 7.0\n/* .version 7.1\n*/ .version 8.10 .target sm_90a, debug //, x\n",
            ("8.10", ("sm_90a", "debug"), 0),
        ),
        (
            ".version 8.0\n.target sm_90,\n  texmode_independent\n",
            ("8.0", ("sm_90", "texmode_independent"), 0),
        ),
        ("#line 1\n.version 8.0", ("8.0", (), 0)),
        (".version\n.target\n", (None, (), 0)),
        (".version 8\n.target sm_90,", (None, ("sm_90",), 0)),
        (".version 8.0\n.visible .func f();\n.target sm_90\n", ("8.0", (), 0)),
        ('.global .b8 x; // "\n.version 8.0', (None, (), 0)),
    ],
)
def test_the_header(text, expected):
    """Version, target and address size come before everything else."""
    header = read_header(text)
    assert expected == (header.version and str(header.version), header.target, header.address_size)
    module = parse(text)
    assert (header.version, header.target, header.address_size) == (
        module.header.version,
        module.header.target,
        module.header.address_size,
    )


@pytest.mark.parametrize(
    "blank", [" ", "\n", "\r\n", "\f", "\0", " // a\n", "\n//b\n\t", "/* c */", "", "\r"]
)
def test_a_usual_header_is_read_as_the_lexer_reads_it(blank):
    """The fast path for headers of compilers returns the same as the lexer, also for similar text."""
    versions = "8.7", "8", "08.70", "8.7.1", "1234567890.1", "8.7e1"
    targets = "sm_90", "sm_90a , debug", "sm_90 debug", "90", "sm_90, debug,", "sm_90::x"
    for version, target, size in itertools.product(versions, targets, ("64", "064", "64.5", "6_4")):
        text = f".version{blank or ' '}{version}{blank}.target {target}{blank}.address_size {size}{blank}"
        for ptx_text in (text, f"{blank}{text}\n", f"// .target x\n{text}.version 1.0\n"):
            assert ptx_header._read(ptx_text) == read_header(ptx_text), ptx_text


def test_nothing_is_found_in_comments_strings_and_bodies():
    """Functions and variables are those of the module's own level."""
    module = parse(
        '// .visible .func a();\n/* .global .u32 b; */\n.file 1 ".func c(); {"\n'
        '.func d() { // }\n .shared .u32 e; .pragma "}"; /* } */ { } }\n.visible .global .u32 f;'
    )
    assert ["d"] == [function.name for function in module.functions]
    assert ["f"] == [variable.name for variable in module.variables]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("hello world", [""]),
        (".novelty 1, 2\n.visible .func f();", ["", "f"]),
        (".novelty { .func g(); }\n.func f();", ["", "f"]),
        ("; .func f();", ["", "f"]),
        (".func 1() { .func g(); }\n.func f();", ["", "f"]),
        (".visible .visible .func f(); .func g();", ["", "f", "g"]),
        (".global .u32 x = {1", [""]),
        (".global .u32 x[" + "9" * 9999 + "];", [""]),
        (".func f(", [""]),
        (".func f() { ret;", [""]),
        (".section .debug_x {", [""]),
        ('.file "a"', [""]),
        (".file 1 .func f();", ["", "f"]),
        ('.file 01 "a" , 2, 3 .func f();', ["file", "f"]),
        (".alias f; .func f();", ["", "f"]),
        ("\udcff.func f();\0", ["", "f"]),
        (".version 8.0, .func f();", ["version", "", "f"]),
    ],
)
def test_odd_text_is_kept(text, kinds):
    """Text that is not understood stays as it is, and text after it is read."""
    module = parse(text)
    assert kinds == [item.name if isinstance(item, Function) else item.keyword for item in module.items]
    joined = "".join(text[item.start : item.end] for item in module.items)
    assert "".join(text.strip("\0").split()) == "".join(joined.split())


@pytest.mark.parametrize(
    ("operand", "expected"),
    [
        ("[a]", ("a", 0)),
        ("[a+4]", ("a", 4)),
        ("[%rd1 + -8]", ("%rd1", -8)),
        # Integers in octal and other notations: PTX ISA, "Integer Constants".
        ("[a+020U]", ("a", 16)),
        ("[a+ - 0x10]", ("a", -16)),
        ("[a+0B101]", ("a", 5)),
        ("[a+0]", ("a", 0)),
        ("[a+08]", None),
        ("[a+0o7]", None),
        ("[a+1_0]", None),
        ("[a+]", None),
        ("[%rd1-8]", None),
        ("[16]", None),
        ("[a+2*2]", None),
        ("[a, {b}]", None),
        ("a[1]", None),
        ("[a+b]", None),
        ("%r1", None),
    ],
)
def test_the_base_and_the_offset_of_an_address(operand, expected):
    """An address has a base and an offset if it consists of nothing else."""
    assert expected == address(operand)


def test_prototypes_are_those_of_all_inputs():
    """Prototypes are equal if their types have equal widths, floating-point or not."""
    (one, other) = parse(
        ".func (.param .f32 r) f(.param .u64 a);\n.func (.param .b32 r) f(.param .s64 b);"
    ).functions
    assert one.prototype == other.prototype == Prototype("f", Param(bits=32), (Param(bits=64),))
    assert ".func (.f32) f(.b64)" == str(one.prototype)
