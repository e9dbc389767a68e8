"""The outline of a PTX function: its calls, blocks and declarations, with other code unread."""

from __future__ import annotations

import pytest
from ptx_texts import by_nvrtc

from numba_ptxlink._formats import ptx
from numba_ptxlink._formats.ptx.statement_parser import read_statements


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
@pytest.mark.parametrize("flag", ["-lineinfo", "-G"])
def test_the_code_of_an_outline_read_is_the_body(arch, flag):
    """What an outline leaves unread are whole statements, and none of them is a call."""
    text = by_nvrtc(arch, flag)
    functions = [function for function in ptx.parse(text).functions if function.defined]
    assert functions
    for function in functions:
        statements: list[ptx.Statement] = []
        for statement in function.outline:
            if isinstance(statement, ptx.Code):
                code = read_statements(function.text, statement.start, statement.end)
                assert not any(isinstance(each, ptx.Call) or each.opcode == "ret" for each in code)
                statements += code
            else:
                statements.append(statement)
        assert function.body == tuple(statements)
