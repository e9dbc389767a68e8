"""When two definitions are one, and what becomes of the others."""

from __future__ import annotations

import pytest
from linkcases import HEAD, function

import numba_ptxlink as pl
from numba_ptxlink._formats.ptx import parse
from numba_ptxlink._link import merge

CALLS = """\
.func inner()
{{
{inner}
}}
.visible .func f()
{{
{{
call inner, ();
}}
ret;
}}
"""


def same(texts, name):
    """Return whether the PTX *texts* define the function *name* in the same way."""
    return merge.same(map(parse, texts), name)


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
    assert expected is same(texts, "f")


def test_a_private_variable_belongs_to_a_definition():
    """Functions that read different private tables are different, however equal their own text."""
    body = ".visible .func f()\n{\n.reg .b32 %r<2>;\nld.const.u32 %r1, [table];\nret;\n}\n"
    equal = [HEAD + ".const .align 4 .u32 table = 1;\n" + body] * 2
    different = [HEAD + f".const .align 4 .u32 table = {value};\n" + body for value in (1, 2)]
    assert same(equal, "f")
    assert not same(different, "f")


STATES = {
    "counter": (".global .align 4 .u32 n;\n", "atom.global.add.u32 %r1, [n], 1;"),
    "value": (".global .align 4 .u32 n = 11111;\n", "ld.global.u32 %r1, [n];"),
    "shared": (".shared .align 4 .u32 n;\n", "ld.shared.u32 %r1, [n];"),
    "local": ("", ".shared .align 4 .u32 n;\nld.shared.u32 %r1, [n];"),
}


@pytest.mark.parametrize("case", STATES)
def test_a_state_of_its_own_keeps_a_definition_apart(case):
    """Functions with equal private variables that may be written have two states, not one."""
    declared, used = STATES[case]
    body = f".func inner()\n{{\n.reg .b32 %r<2>;\n{used}\nret;\n}}\n"
    text = HEAD.format(target="sm_80") + declared + body + ".visible .func f()\n{\ncall inner, ();\nret;\n}\n"
    assert not same([text] * 2, "f")
    with pytest.raises(pl.LinkError, match=r"f is defined 2 times, .*with variables of its own"):
        pl.link(text, text + "\n", arch="sm_80")


@pytest.mark.parametrize(
    ("mine", "yours"),
    [
        (".global .align 1 .b8 $str[2] = {1, 0};\n", ".global .align 1 .b8 $str[2] = {2, 0};\n"),
        (".func $str()\n{\nret;\n}\n", ".func $str()\n{\ntrap;\n}\n"),
    ],
)
def test_what_a_private_table_points_to_belongs_to_a_definition(mine, yours):
    """Functions that read equal tables of addresses of different things are different."""
    table = (
        ".const .align 8 .u64 table[1] = {generic($str)};\n"
        if "b8" in mine
        else (".const .align 8 .u64 table[1] = {$str};\n")
    )
    body = ".visible .func f()\n{\n.reg .b64 %r<2>;\nld.const.u64 %r1, [table];\nret;\n}\n"
    assert same([HEAD + mine + table + body] * 2, "f")
    assert not same([HEAD + mine + table + body, HEAD + yours + table + body], "f")


def test_what_has_an_alias_is_not_merged():
    """A function with an alias cannot be weak, and a call of an alias goes to what that stands for."""
    body = ".visible .func f()\n{\ncall h, ();\nret;\n}\n"
    called = ".func i()\n{\nret;\n}\n.func h();\n.alias h, i;\n"
    plain = ".visible .func f()\n{\nret;\n}\n"
    assert not same([HEAD + called + body] * 2, "f")
    assert not same([HEAD + plain + ".visible .func g();\n.alias g, f;\n"] * 2, "f")


def test_names_of_targets_and_call_prototypes_are_labels():
    """What a branch or an indirect call lists its targets under may be called otherwise."""
    texts = [
        HEAD
        + f".visible .func f()\n{{\n.reg .b32 %r<2>;\n{name}: .branchtargets $L1, $L2;\n"
        + f"brx.idx %r1, {name};\n$L1:\nret;\n$L2:\nret;\n}}\n"
        for name in ("$L3", "$table")
    ]
    assert same(texts, "f")


def test_weakening_changes_the_linkage_alone():
    """A definition made weak is the same text but for one word, and the rest of the module is untouched."""
    ptx = function() + function(name="g").partition("64\n")[2]
    expected = ptx.replace(".visible .func (.param .b32 r) f", ".weak .func (.param .b32 r) f")
    assert expected.encode() == merge.weaken(parse(ptx), ["f"])


def test_a_private_function_belongs_to_a_definition():
    """Functions that call different private functions are different; what a public one does is its own."""
    texts = [HEAD + CALLS.format(inner=body) for body in ("ret;", "ret;", "trap;")]
    assert same(texts[:2], "f")
    assert not same(texts[1:], "f")
    assert same([text.replace(".func inner", ".visible .func inner") for text in texts], "f")


def test_functions_that_call_each_other_are_compared():
    """A circle of private functions comes to an end."""
    circle = CALLS.format(inner="call outer, ();\nret;") + ".func outer()\n{\ncall inner, ();\nret;\n}\n"
    assert same([HEAD + circle] * 2, "f")
    assert not same([HEAD + circle, HEAD + circle.replace("inner, ();\nret;\n}\n", "inner, ();\n}\n")], "f")


@pytest.mark.parametrize(
    "other", [function(name="g"), function().partition("{")[0].replace("visible", "extern") + ";"]
)
def test_without_a_definition_nothing_is_equal(other):
    """A text that does not define the function, or only declares it, is equal to none."""
    assert not same([function(), other], "f")


def test_only_visible_definitions_are_weakened():
    """Declarations, comments, kernels and functions of other names keep their linkage."""
    ptx = (
        HEAD.format(target="sm_80")
        + ".extern .func g();\n// .visible .func f()\n.visible .func f()\n{\nret;\n}\n"
        + ".weak .func h()\n{\nret;\n}\n.visible .entry k()\n{\nret;\n}\n"
    )
    weakened = merge.weaken(parse(ptx), ["f", "g", "h"]).decode()
    assert ptx.replace("\n.visible .func f", "\n.weak .func f") == weakened
