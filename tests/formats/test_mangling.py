"""Identifiers of C++ symbols are found and replaced, and nothing else that holds digits."""

from __future__ import annotations

import pytest

from numba_ptxlink._formats import mangling


@pytest.mark.parametrize(
    ("symbol", "identifiers", "renamed"),
    [
        ("state", ["state"], "state_t"),
        ("_Z5twicef", ["twice"], "_Z7twice_tf"),
        ("_ZN5steps4nextEj", ["steps", "next"], "_ZN7steps_t6next_tEj"),
        ("_ZNK2ns1V2goEv", ["ns", "V", "go"], "_ZNK4ns_t3V_t4go_tEv"),
        ("_Zml4PairS_", ["Pair"], "_Zml6Pair_tS_"),
        ("_Zml6__half3Vec", ["__half", "Vec"], "_Zml8__half_t5Vec_t"),
        ("_ZdlPv", [], "_ZdlPv"),
        ("_Zli2_ke", [], "_Zli2_ke"),
        ("_Z3fooli3Vec", ["foo", "Vec"], "_Z5foo_tli5Vec_t"),
        ("_ZN1VC1ERKS_", ["V"], "_ZN3V_tC1ERKS_"),
        ("_ZN1VD2Ev", ["V"], "_ZN3V_tD2Ev"),
        ("_ZN1VcvfEv", ["V"], "_ZN3V_tcvfEv"),
        ("_ZZ4stepvE5count", ["step", "count"], "_ZZ6step_tvE7count_t"),
        ("_ZZ4stepvE5count_0", ["step", "count"], "_ZZ6step_tvE7count_t_0"),
        ("_Z3cntILi7EEiv", ["cnt"], "_Z5cnt_tILi7EEiv"),
        ("_Z3cntIL4Enum3EEiv", ["cnt", "Enum"], "_Z5cnt_tIL6Enum_t3EEiv"),
        ("_Z3sumRA3_4Vec2S0_", ["sum", "Vec2"], "_Z5sum_tRA3_6Vec2_tS0_"),
        ("_ZTV3Vec", ["Vec"], "_ZTV5Vec_t"),
        ("_Z5twicef_param_0", ["twice"], "_Z7twice_tf_param_0"),
        ("_Z9", [], "_Z9"),
    ],
)
def test_identifiers_of_a_symbol(symbol, identifiers, renamed):
    """Lengths are told from other numbers."""
    parts = mangling.identifiers(symbol)
    assert identifiers == [part.text for part in parts]
    assert renamed == mangling.renamed(symbol, {name: f"{name}_t" for name in identifiers})
