"""PTX of real compilers is read whole, and means the same when its bodies are printed."""

from __future__ import annotations

import pytest
from ptx_texts import by_nvrtc, machine_code

from numba_ptxlink._formats import ptx


def check(text: str) -> ptx.Module:
    """Check everything that holds for PTX that a compiler wrote; return its module."""
    module = ptx.parse(text)
    parts = [item for item in module.items if isinstance(item, ptx.Part)]
    assert {"", "line"}.isdisjoint(part.keyword for part in parts)
    bodies = {each.body_span: ptx.block(each.body) for each in module.functions if each.defined}
    printed = module.replace(bodies)
    assert machine_code(text) == machine_code(printed)
    again = [[str(each) for each in function.body] for function in ptx.parse(printed).functions]
    assert [[str(each) for each in function.body] for function in module.functions] == again
    return module


def slow(*values: object) -> object:
    """Return a parameter of the slow tests: it shows what another one shows, for another architecture."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize("arch", [slow("sm_75"), "sm_90", slow("sm_100")])
@pytest.mark.parametrize("flags", [(), ("-lineinfo",), ("-G",)], ids=["plain", "lineinfo", "debug"])
def test_nvrtc(arch, flags):
    """So it is with NVRTC's, with line numbers and debug information."""
    text = by_nvrtc(arch, *flags)
    module = check(text)
    defined = {each.name: each for each in module.functions if each.defined}
    declared = {each.name: each.linkage for each in module.functions if not each.defined}
    kernel = defined["kernel"].prototype
    assert ".entry kernel(.b64, .b64, .b32, .align 4 .b8[48])" == str(kernel)
    assert "extern" == declared["elsewhere"]
    variables = {each.name: each for each in module.variables}
    assert ("coefficients",) == variables["pointer"].symbols
    assert ("visible", "const", (16,)) == (
        variables["coefficients"].linkage,
        variables["coefficients"].space,
        variables["coefficients"].extents,
    )
    assert ("managed",) == variables["managed"].attributes
    assert ("debug" in module.header.target) is ("-G" in flags)
    assert ptx.has_line_numbers(text) is bool(flags)
    sections = [each for each in module.items if getattr(each, "keyword", "") == "section"]
    assert bool(sections) is ("-G" in flags)
    instructions = (each for each in defined["kernel"].body if isinstance(each, ptx.Instruction))
    calls = [ptx.called(each) for each in instructions if each.opcode == "call"]
    assert "elsewhere" in {call.callee for call in calls}
    assert any(call.prototype for call in calls)
