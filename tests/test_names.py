"""Names in LLVM IR: what is renamed, what is kept, and that the same code gets the same name everywhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from numba_ptxlink import _names

HERE = Path(__file__).parent

CALLER = """\
; ModuleID = "k${0}"
@"_ZN08NumbaEnv1m1kB{0}v{1}B5flagsEf" = common global i8* null
define void @"_ZN1m1kB{0}v{1}B5flagsEf"(float %"x")
{{
  call i32 @"_ZN1m1gB{2}v{3}B5flagsEf"(float %"x")
  ret void
}}
declare i32 @"_ZN1m1gB{2}v{3}B5flagsEf"(float %".1")
"""
CALLEE = """\
define linkonce_odr i32 @"_ZN1m1gB{0}v{1}B5flagsEf"(float %"x")
{{
  store [2 x i8]* @".bytes.{2}", [2 x i8]** %"y"
  ret i32 {3}
}}
@".bytes.{2}" = internal constant [2 x i8] c"x\\00"
"""


def modules(caller: int, callee: int, bytes_hash: int = 1, returned: int = 0) -> dict[int, str]:
    """Return a caller and a callee as numba-cuda would write them under these counters."""
    return {
        1: CALLER.format(len(f"v{caller}"), caller, len(f"v{callee}"), callee),
        2: CALLEE.format(len(f"v{callee}"), callee, bytes_hash, returned),
    }


def rename(texts: dict[int, str], **options) -> _names.Canonical:
    """Rename a caller and a callee."""
    made = _names.canonical(texts, {1: [2]}, [1], **options)
    assert made is not None
    return made


def test_counters_and_hashes_do_not_show():
    """The same functions give the same text under other counters and another hash seed."""
    expected = rename(modules(1, 2)).texts
    assert expected == rename(modules(23, 104, bytes_hash=-77)).texts


def test_other_code_has_another_name():
    """A callee that does something else has another name, and so does its caller."""
    ours, theirs = rename(modules(1, 2)).names, rename(modules(1, 2, returned=1)).names
    assert set(ours) == set(theirs)
    assert not set(ours.values()) & set(theirs.values())


def test_names_stay_mangled():
    """A new name is the old one with another counter, its length before it."""
    new = rename(modules(1, 2)).names["_ZN1m1kB2v1B5flagsEf"]
    digest = new.removeprefix("_ZN1m1kB21v").removesuffix("B5flagsEf")
    assert (20, True) == (len(digest), digest.isalnum())


def test_kept_names_are_kept():
    """A name that is asked for stays, while what it calls is renamed."""
    kept = "_ZN1m1kB2v1B5flagsEf"
    made = rename(modules(1, 2), kept=[kept])
    assert f'define void @"{kept}"' in made.texts[0]
    assert "_ZN1m1gB2v2B5flagsEf" not in made.texts[0]


def test_constants_are_not_names():
    """What a string constant holds stays, since its length stands elsewhere."""
    texts = modules(1, 2)
    texts[1] += '@"s" = internal constant [20 x i8] c"_ZN1m1gB2v2B5flagsEf"\n'
    assert 'c"_ZN1m1gB2v2B5flagsEf"' in rename(texts).texts[0]


def test_callers_come_first_and_texts_once():
    """Roots lead, callees follow in the order of their content, and equal texts are one."""
    texts = {**modules(1, 2), 3: CALLEE.format(2, 3, 1, 0), 4: CALLEE.format(2, 4, 1, 7)}
    callees = {1: [2, 3, 4]}
    made = _names.canonical(texts, callees, [1])
    other = _names.canonical(dict(reversed(texts.items())), {1: [4, 3, 2]}, [1])
    assert made is not None
    assert made == other
    assert 3 == len(made.texts)
    assert "1m1k" in made.texts[0]


def test_a_circle_is_left_alone():
    """Modules that call each other get no new names."""
    assert _names.canonical(modules(1, 2), {1: [2], 2: [1]}, [1]) is None


def test_type_codes_do_not_show():
    """The counter that stands for a record type is left out of names."""
    texts = [{1: f'define void @"_ZN1m1kB2v1E6RecordILi{code}EE"()\n'} for code in (3217, 41)]
    made = [_names.canonical(each, {}, [1]) for each in texts]
    assert made[0] is not None
    assert made[1] is not None
    assert made[0].texts == made[1].texts


def test_names_that_would_be_one_are_left_alone():
    """Two functions that only differ in a type code keep their names."""
    text = 'define void @"_ZN1m1kB2v1E6RecordILi1EE"()\n{{ {} }}\n'
    both = {1: text.format("ret"), 2: text.format("trap").replace("Li1E", "Li2E")}
    assert _names.canonical(both, {}, [1, 2]) is None


def test_numbers_come_back():
    """A text without its counters can be given them back, in PTX too."""
    texts = list(modules(23, 104).values())
    bare, numbers = _names.without_numbers(texts)
    assert bare == _names.without_numbers(list(modules(42, 999).values()))[0]
    assert "_ZN1m1kB3v23B5flagsEf_param_0" == _names.with_numbers("_ZN1m1kB3vn0B5flagsEf_param_0", numbers)
    assert texts == [_names.with_numbers(text, numbers) for text in bare]


def test_visible_functions_are_those_others_can_see():
    """Functions with internal linkage are not visible."""
    text = 'define internal void @"_ZN1aE"()\ndefine linkonce_odr void @"_ZN1bE"()\ndefine void @"_ZN1cE"()\n'
    assert ("_ZN1bE", "_ZN1cE") == _names.visible(text)


@pytest.fixture(scope="module")
def kernels_of_numba(request, tmp_path_factory):
    """
    Compile kernels of Numba's own tests in two processes, in two orders; return what each counted.

    The first has numba-cuda's front end as it is, the second has what the plugin replaces of it.
    """
    pytest.importorskip("numba.cuda")
    environ = {
        **os.environ,
        "NUMBA_PTXLINK_CACHE": str(tmp_path_factory.mktemp("cache")),
        "NUMBA_PTXLINK": "1",
    }
    environ["NUMBA_CUDA_LOG_LEVEL"] = "CRITICAL"
    number = request.config.getoption("--numba-tests")
    counts = []
    for seed in (1, 2):
        command = [sys.executable, str(HERE / "numba_kernels.py"), str(number), str(seed)]
        run = subprocess.run(
            command, env={**environ, "PYTHONHASHSEED": str(seed)}, capture_output=True, text=True, check=True
        )
        counts.append(json.loads(run.stdout.splitlines()[-1]))
    return number, counts


def test_another_process_in_another_order_finds_everything(kernels_of_numba):
    """Of all that is compiled and linked for Numba's own tests, a second process finds 99 of 100."""
    number, (first, second) = kernels_of_numba
    # About one for each test; were the tests not found, or skipped, there would be hardly any.
    assert first["kernels"] >= number // 2
    assert first["misses"] >= number
    assert second["kernels"] == first["kernels"]
    assert 0.99 <= second["hits"] / (second["hits"] + second["misses"])


def test_shared_arrays_keep_names_that_end_in_a_number():
    """A shared array's name still ends in a number, as tools that read the IR expect."""
    text = (
        '@"_cudapy_smem_38" = addrspace(3) global [1 x i8] undef, align 16\n'
        '@"_cudapy_smem_39" = addrspace(3) global [2 x i8] undef, align 16\n'
    )
    made = _names.canonical({1: text}, {}, [1])
    names = re.findall(r'@"(_cudapy_smem_\d+)"', made.texts[0])
    assert len(set(names)) == 2
    assert names == re.findall(r'@"(_cudapy_smem_\d+)"', _names.canonical({1: text}, {}, [1]).texts[0])
