"""What is read out of PTX text."""

from __future__ import annotations

from linkcases import HEAD

from numba_ptxlink._formats import ptx_text


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
