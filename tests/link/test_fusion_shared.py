"""Shared memory that a device function declares: one variable, wherever its code is put."""

from __future__ import annotations

import re

from linkcases import HEAD, KERNEL

import numba_ptxlink as pl
from numba_ptxlink._formats import ptx
from numba_ptxlink._link.fusion.shared import hoisted

TOP = HEAD.format(target="sm_80")
COUNTER = """\
.visible .func (.param .b32 r) {name}(.param .b32 a)
{{
    .reg .b32 %r<4>;
    .shared .align 4 .b32 {variable}[2];
    ld.param.u32 %r1, [a];
    ld.shared.u32 %r2, [{variable}];
    add.s32 %r3, %r1, %r2;
    st.shared.u32 [{variable}], %r3;
    st.param.b32 [r], %r3;
    ret;
}}
"""
CALL = re.search(r"    \{\n.*?    \}\n", KERNEL, re.DOTALL)[0]
TWICE = KERNEL.replace(CALL, CALL * 2)


def test_two_calls_share_the_variable_of_the_function():
    """Both are inlined, and four bytes twice are all the memory there is."""
    linked = pl.link(TWICE, TOP + COUNTER.format(name="f", variable="count"), arch="sm_80")
    assert (2, 1, []) == (
        linked.inlined,
        linked.ptx.count(".shared .align"),
        re.findall(r"\bcall\b", linked.ptx),
    )
    (report,) = pl.inspect(linked.cubin, sass=False).symbols
    assert ("k", 8) == (report.name, report.shared)


def test_private_variables_of_one_name_stay_apart():
    """Two inputs that both have one keep both."""
    other = COUNTER.format(name="g", variable="count")
    second = TWICE.replace(CALL * 2, CALL + CALL.replace(", f,", ", g,"))
    second = second.replace(
        ".visible .entry", ".extern .func (.param .b32 r) g(.param .b32 a);\n.visible .entry"
    )
    linked = pl.link(second, TOP + COUNTER.format(name="f", variable="count"), TOP + other, arch="sm_80")
    (report,) = pl.inspect(linked.cubin, sass=False).symbols
    assert (2, 16) == (linked.inlined, report.shared)


def test_a_name_that_something_else_has_stays_in_its_function():
    """Then the call stays, as its reason says."""
    taken = f"{TOP}.global .align 4 .b32 count;\n" + COUNTER.format(name="f", variable="count")
    module = ptx.parse(taken)
    assert module is hoisted(module)
    linked = pl.link(TWICE, taken, arch="sm_80")
    assert (0, True) == (linked.inlined, "it declares count" in linked.log)
