"""PTX modules, functions, variables and statements as values."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import make_kernel
from ptx_texts import HEAD, machine_code
from ptx_values import imm, name

import numba_ptxlink as pl
from numba_ptxlink._formats import ptx
from numba_ptxlink._formats.ptx import (
    Alias,
    Directive,
    File,
    Immediate,
    Instruction,
    Label,
    Line,
    Param,
    Parameter,
    Pointer,
    Pragma,
    Prototype,
    Section,
    Unknown,
    Values,
    Variable,
    Word,
    flattened,
    names,
    parse,
    read_header,
    renamed,
)

DECLARATIONS: dict[str, tuple[str, list[Variable]]] = {
    "two names": (
        ".global .u32 x, y;",
        [Variable("x", "global", "u32"), Variable("y", "global", "u32")],
    ),
    "alignment and extents": (
        ".visible .global .align 16 .b8 x[2][0x10U];",
        [Variable("x", "global", "b8", "visible", 16, extents=(2, 16))],
    ),
    "no extent": (
        ".extern .shared .align 8 .b8 x[];",
        [Variable("x", "shared", "b8", "extern", 8, extents=(None,))],
    ),
    "a vector": (".const .v4 .f32 x;", [Variable("x", "const", "f32", vector="v4")]),
    "numbered": (".global .u32 x<3>;", [Variable("x", "global", "u32", count=3)]),
    "initializers": (
        ".weak .global .u32 x[2] = {1, 2}, y = 4;",
        [
            Variable("x", "global", "u32", "weak", extents=(2,), initial="{1, 2}"),
            Variable("y", "global", "u32", "weak", initial="4"),
        ],
    ),
    "white space and comments in an initializer": (
        ".global .u32 x[2]={1, // ;}\n2} /* , */ , y = 1 // ;\n;",
        [
            Variable("x", "global", "u32", extents=(2,), initial="{1, // ;}\n2}"),
            Variable("y", "global", "u32", initial="1"),
        ],
    ),
    "common": (".common .global .u32 x;", [Variable("x", "global", "u32", "common")]),
    "attributes": (
        ".global .attribute(.managed) .s32 x;",
        [Variable("x", "global", "s32", attributes=(Directive("managed"),))],
    ),
    "no white space": (
        ".visible.global.align 4 .b32 x[1]={7};",
        [Variable("x", "global", "b32", "visible", 4, extents=(1,), initial="{7}")],
    ),
}


@pytest.mark.parametrize("case", DECLARATIONS)
def test_variables(case):
    """Each form of a declaration becomes its variables, and is PTX as it was and as it is spelled again."""
    text, expected = DECLARATIONS[case]
    (*_, item) = parse(HEAD + text).items
    assert expected == [_without_line(each) for each in item.variables]
    (*_, again) = parse(HEAD + str(item)).items
    assert [each.initializer for each in expected] == [each.initializer for each in again.variables]
    assert machine_code(HEAD + text) == machine_code(f"{HEAD}{item}")


def _without_line(variable: Variable) -> Variable:
    import dataclasses

    assert variable.line
    return dataclasses.replace(variable, line=0)


@pytest.mark.parametrize(
    ("initial", "symbols"),
    [
        ("{1, 0x2U, -3}", ()),
        ("generic(a)+4", ("a",)),
        ("{f, generic(b), f, 0}", ("f", "b")),
        ("{0xff(a), 0xff00(a)}", ("a",)),
        ("{{a}, {b+4}}", ("a", "b")),
        ("{0f3F800000}", ()),
    ],
)
def test_the_symbols_of_an_initializer(initial, symbols):
    """What an initializer refers to is known, operators aside."""
    (variable,) = parse(f".global .u64 x[2] = {initial};").variables
    assert symbols == variable.symbols


@pytest.mark.parametrize(
    ("initial", "cause"),
    [("{1, {a}", "',' or '}' is expected, not the end"), ("{a} b", "one value is expected, not 'b'")],
)
def test_a_malformed_initializer_is_refused(initial, cause):
    """The error names the variable and the cause."""
    variable = Variable("x", "global", "u32", initial=initial)
    with pytest.raises(pl.LinkError, match=f"variable x cannot be read: {cause}"):
        variable.symbols  # noqa: B018


def test_modes_of_a_sampler_are_no_symbols():
    """A sampler's settings are words of the language."""
    text = ".global .samplerref s = { addr_mode_0 = clamp_to_border, filter_mode = nearest };"
    (variable,) = parse(text).variables
    assert () == variable.symbols
    assert text.replace("{ ", "{").replace(" }", "}") == str(variable)


SCALAR, WIDE = Param(bits=32), Param(bits=64)
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
    """Each form of a function has its prototype, and is PTX as it was and as it is spelled again."""
    text, prototype, (linkage, kind, defined) = FUNCTIONS[case]
    module = parse(HEAD + text)
    (function,) = module.functions
    assert (prototype, linkage, kind, defined) == (
        str(function.prototype),
        function.linkage,
        function.kind,
        function.defined,
    )
    assert not [item for item in module.items if isinstance(item, Unknown)]
    assert text == module.source(function)
    assert "f" == module.text[slice(*function.name_span)]
    assert machine_code(HEAD + text, relocatable=".reg" not in text) == machine_code(
        f"{HEAD}{function}", relocatable=".reg" not in text
    )


def test_what_stands_around_a_function():
    """Attributes, directives and parameters of a function are values."""
    (function,) = parse(
        ".entry .attribute(.unified(1, 0x2)) f(.param .u64 .ptr .global .align 8 a, .param .align 4 .b8 b[8])"
        '.maxntid 128, 1 .pragma "nounroll"; .noreturn {}'
    ).functions
    assert (Directive("unified", (imm(1), imm("0x2"))),) == function.attributes
    assert (
        Parameter("a", "param", "u64", pointer=Pointer("global", 8)),
        Parameter("b", "param", "b8", 4, extents=(8,)),
    ) == function.params
    assert (
        Directive("maxntid", (imm(128), imm(1))),
        Pragma(("nounroll",)),
        Directive("noreturn"),
    ) == function.directives


def test_items():
    """A module's other directives are values."""
    text = (
        ".version 8.0\n.target sm_90, debug\n.address_size 64\n"
        '.file 1 "C:\\dir\\"\n.file 2 "b.cu", 12, 34\n#line 1\n.pragma "nounroll";\n.alias f, g;\n'
        ".section .debug_info\n{\n.b32 .debug_abbrev\n.b8 1, 2\nL:\n.b64 k\n.b32 L-M\n.b32 .debug_line+4\n}\n"
    )
    *items, section = parse(text).items
    assert [
        Directive("version", (imm("8.0"),)),
        Directive("target", (name("sm_90"), name("debug"))),
        Directive("address_size", (imm(64),)),
        File(1, "C:\\dir\\"),
        File(2, "b.cu", (12, 34)),
        Line("#line 1"),
        Pragma(("nounroll",)),
        Alias("f", name("g")),
    ] == items
    assert isinstance(section, Section)
    assert (
        Values("b32", ((Word(".debug_abbrev"),),)),
        Values("b8", ((imm(1),), (imm(2),))),
        Label("L"),
        Values("b64", ((name("k"),),)),
        Values("b32", ((name("L"), "-", name("M")),)),
        Values("b32", ((Word(".debug_line"), "+", imm(4)),)),
    ) == section.content


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
    """Version, target and address size are what stands before everything else."""
    header = read_header(text)
    assert expected == (header.version and str(header.version), header.target, header.address_size)
    module = parse(text)
    assert (header.version, header.target, header.address_size) == (
        module.version,
        module.target,
        module.address_size,
    )


def test_a_name_of_the_package_is_no_module():
    """Importing a module would put it in the place of a function that is called like it."""
    modules = {path.stem for path in Path(ptx.__file__).parent.glob("*.py")}
    assert set() == modules & {*ptx.__all__}
    assert all(getattr(ptx, name) for name in ptx.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        ptx.nothing  # noqa: B018


def test_nothing_is_found_in_comments_strings_and_bodies():
    """Functions and variables are those of the module's own level."""
    module = parse(
        '// .visible .func a();\n/* .global .u32 b; */\n.file 1 ".func c(); {"\n'
        '.func d() { // }\n .shared .u32 e; .pragma "}"; /* } */ { } }\n.visible .global .u32 f;'
    )
    assert ["d"] == [function.name for function in module.functions]
    assert ["f"] == [variable.name for variable in module.variables]


def test_lines():
    """Functions and variables know the line they stand on."""
    module = parse("\n.func a();\n.visible\n.entry b()\n{\n}\n.global .u32 c,\nd; .global .u32 e;")
    assert [2, 4] == [function.line for function in module.functions]
    assert [7, 8, 8] == [variable.line for variable in module.variables]
    assert [2, 3] == [module.line(function.start) for function in module.functions]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".func f() { .loc 1 2 3 ret; }", True),
        (".func f() { .local .u32 x; ret; }", False),
        (".func f() { // .loc 1 2 3\n ret; }", False),
        ('.func f() { .pragma ".loc 1 2 3"; ret; }', False),
        (".func f();\n.func g() { {\n.loc 1 2 3\n} ret; }", True),
        ('.file 1 ".loc 1 2 3"\n.func f();', False),
    ],
)
def test_line_numbers(text, expected):
    """A module has line numbers if a body has them."""
    assert parse(text).has_line_numbers is expected


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("hello world", ["Unknown"]),
        (".novelty 1, 2\n.visible .func f();", ["Unknown", "Function"]),
        (".novelty { .func g(); }\n.func f();", ["Unknown", "Function"]),
        ("; .func f();", ["Unknown", "Function"]),
        (".func 1() { .func g(); }\n.func f();", ["Unknown", "Function"]),
        (".visible .visible .func f(); .func g();", ["Unknown", "Function"]),
        (".global .u32 x = ; .func f();", ["Unknown", "Function"]),
        (".global .u32 x = {1", ["Unknown"]),
        (".global .u32 x[" + "9" * 9999 + "];", ["Unknown"]),
        (".func f(", ["Unknown"]),
        (".func f() { ret;", ["Function"]),
        (".section .debug_x {", ["Unknown"]),
        ('.file "a"', ["Unknown"]),
        (".alias f; .func f();", ["Unknown", "Function"]),
        ("\udcff.func f();\0", ["Unknown", "Function"]),
        (".version 8.0, .func f();", ["Directive", "Unknown", "Function"]),
    ],
)
def test_odd_text_is_kept(text, kinds):
    """What is not understood stays as it is, and what comes after it is read."""
    module = parse(text)
    assert kinds == [type(item).__name__ for item in module.items]
    assert text == str(module)


def test_a_body_that_ends_too_early_is_refused():
    """So does that of a body without its end."""
    text = make_kernel(body="bar.sync 0;").rstrip().removesuffix("}")
    (function,) = parse(text).functions
    assert function.defined
    with pytest.raises(pl.LinkError, match="line 11: '}' is expected, not the end"):
        function.body  # noqa: B018


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("mov.u32 %r1,;", "line 9: an operand is expected, not ';'"),
        ("mov.u32 %r1 %r2;", "line 9: an operator is expected, not '%r2'"),
        ("bra [%r1;", "line 9: ',' or ']' is expected, not ';'"),
        ("@1 ret;", "line 9: a name is expected, not '1'"),
        (".reg %r1;", "line 9: a type is expected"),
        (".reg .b32 %r<x>;", "line 9: a whole number is expected, not 'x'"),
        ("\n\ncall (a) f;", "line 11: ',' is expected, not 'f'"),
        (".loc 1 2", "line 10: a whole number is expected, not 'ret'"),
        (".loc 1 2 3, nonsense 1", "line 9: 'function_name' or 'inlined_at' is expected, not 'nonsense'"),
        ("mov.u32 %r1, \u00e9;", "line 9: an operand is expected"),
        ("{" * 200 + "}" * 200, "line 9: blocks are nested too deeply"),
        ("mov.b32 %r1, " + "{" * 5000 + "};" + "}" * 4999, "line 9: operands are nested too deeply"),
        ("mov.b32 %r1, ((1);", "line 9: '\\)' is expected, not ';'"),
    ],
)
def test_a_malformed_body_is_refused(body, message):
    """The error names the function, the line and the cause; the module itself is read."""
    text = make_kernel(body=body)
    (function,) = parse(text).functions
    with pytest.raises(pl.LinkError, match=f"function kernel cannot be read: {message}"):
        function.body  # noqa: B018
    assert text == str(parse(text))


def test_a_malformed_section_is_refused():
    """So does that of a section."""
    (section,) = parse("\n.section .debug_x\n{\n.b8 1,\n}").items
    with pytest.raises(
        pl.LinkError, match=r"section \.debug_x cannot be read: line 5: an operand is expected"
    ):
        section.content  # noqa: B018


def test_bodies_are_read_once():
    """A body that was asked for is kept."""
    (function,) = parse(make_kernel(body="bar.sync 0;")).functions
    assert function.body is function.body
    assert () == parse(".func f();").functions[0].body


def test_the_base_and_the_offset_of_an_address():
    """An address tells its base, and its offset where that is a number."""
    text = "".join(
        f"ld.u32 %r1, {address};"
        for address in (
            "[a]",
            "[a+4]",
            "[%rd1+-8]",
            "[%rd1-8]",
            "[16]",
            "[a+2*2]",
            "[a, {b}]",
            "a[1]",
            "[a+b]",
        )
    )
    (function,) = parse(f".func f() {{ {text} }}").functions
    addresses = [statement.operands[1] for statement in function.body]
    bases = [address.base and address.base.name for address in addresses]
    assert ["a", "a", "%rd1", "%rd1", None, "a", "a", "a", "a"] == bases
    assert [0, 4, -8, -8, None, None, None, None, None] == [address.offset for address in addresses]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12U", 12),
        ("017", 15),
        ("0x1F", 31),
        ("0b101U", 5),
        ("0", 0),
        ("1.5e3", 1500.0),
        (".5", 0.5),
        ("0f3F800000", 1.0),
        ("0dC000000000000000", -2.0),
    ],
)
def test_numbers(text, expected):
    """A number has a value."""
    number = Immediate(text).value
    assert (expected, type(expected)) == (number, type(number))


def test_names_of_statements():
    """All symbols of a statement are known, and others can take their place."""
    text = (
        ".reg .b32 %r<2>; .shared .u64 s = generic(t), u[2]; L: @!%p1 mov.u32 %r1, %tid.x; "
        "T: .branchtargets L; { .param .b32 a; call (a), f, (b, 1), P; } ld.u32 {%r1, _}, [s+4];"
        " P: .callprototype _ (.param .b32 x);"
        ' .loc 1 2 3, function_name N, inlined_at 1 2 3 .pragma "q"; mov.u64 %rd1, s[1];'
    )
    (function,) = parse(f".func f() {{ {text} }}").functions
    found = [sorted(set(names(statement))) for statement in function.body]
    assert [
        ["%r"],
        ["s", "t", "u"],
        ["L"],
        ["%p1", "%r1", "%tid"],
        ["L", "T"],
        ["P", "a", "b", "f"],
        ["%r1", "_", "s"],
        ["P", "x"],
        ["N"],
        [],
        ["%rd1", "s"],
    ] == found
    kept = ("%tid", "_")
    changed = [renamed(each, lambda name: name if name in kept else f"{name}_1") for each in function.body]
    assert [sorted(name if name in kept else f"{name}_1" for name in symbols) for symbols in found] == [
        sorted(set(names(statement))) for statement in changed
    ]
    assert ".shared .u64 s_1 = generic(t_1), u_1[2];" == str(changed[1])
    assert (-1, -1) == changed[0].span


def test_statements_in_blocks():
    """Statements in scopes can be had as one sequence."""
    (function,) = parse(".func f() { ret; { exit; { trap; } } brkpt; }").functions
    opcodes = [each.opcode for each in flattened(function.body) if isinstance(each, Instruction)]
    assert ["ret", "exit", "trap", "brkpt"] == opcodes


def test_prototypes_are_those_of_all_inputs():
    """A prototype is equal to another whatever the types of one width are called, floating-point or not."""
    (one, other) = parse(
        ".func (.param .f32 r) f(.param .u64 a);\n.func (.param .b32 r) f(.param .s64 b);"
    ).functions
    assert one.prototype == other.prototype == Prototype("f", Param(bits=32), (Param(bits=64),))
    assert ".func (.f32) f(.b64)" == str(one.prototype)


def test_the_prototype_of_an_indirect_call():
    """So has the prototype that an indirect call names."""
    (function,) = parse(
        ".func f() { P: .callprototype (.param .b32 _) _ (.param .b64 _, .param .align 4 .b8 _[8]); }"
    ).functions
    assert ".func (.b32) P(.b64, .align 4 .b8[8])" == str(function.body[0].prototype)


@pytest.mark.parametrize(
    ("spelled", "bits"),
    [
        ("b8", 8),
        ("u16", 16),
        ("s32", 32),
        ("f64", 64),
        ("b128", 128),
        ("pred", 1),
        ("f16x2", 32),
        ("bf16", 16),
        ("bf16x2", 32),
        ("texref", 0),
    ],
)
def test_widths_of_parameters(spelled, bits):
    """A parameter has the width of its type."""
    (function,) = parse(f".func f(.reg .{spelled} a);").functions
    assert bits == function.prototype.params[0].bits


@pytest.mark.slow
def test_many_initializers_and_pragmas_are_read():
    """60,000 initialized variables of one declaration, and as many pragmas, take a second and not an hour."""
    names = ", ".join(f"x{number} = {number}" for number in range(60_000))
    pragmas = '.pragma "nounroll"; ' * 60_000
    module = parse(f"{HEAD}.global .u32 {names};\n.visible .func f() {pragmas}\n{{\nret;\n}}\n")
    assert 60_000 == len(module.variables)
    assert 60_000 == len(module.functions[0].directives)
