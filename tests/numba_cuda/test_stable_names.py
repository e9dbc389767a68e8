"""Names in LLVM IR: renamed and kept names, and one name for the same code everywhere."""

from __future__ import annotations

import re

import pytest

from numba_ptxlink._numba_cuda import stable_names

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


def rename(texts: dict[int, str], kept_names: tuple[str, ...] = ()) -> stable_names.Renamed:
    """Order and rename modules, of which the first is the root."""
    parsed = [stable_names.QuotedModule(text) for text in texts.values()]
    return stable_names.rename(stable_names.topologically_sorted(parsed), kept_names)


def test_counters_and_hashes_do_not_show():
    """The same functions give the same text under other counters and another hash seed."""
    expected = rename(modules(1, 2)).texts
    assert expected == rename(modules(23, 104, bytes_hash=-77)).texts


def test_kept_names_are_kept():
    """A requested name stays; its callees are renamed, to the same names whatever their counters."""
    kept_name = "_ZN1m1kB2v1B5flagsEf"
    renamed = rename(modules(1, 2), kept_names=(kept_name,))
    assert f'define void @"{kept_name}"' in renamed.texts[0]
    assert "_ZN1m1gB2v2B5flagsEf" not in renamed.texts[0]
    other = rename(modules(7, 2), kept_names=("_ZN1m1kB2v7B5flagsEf",))
    assert renamed.names["_ZN1m1gB2v2B5flagsEf"] == other.names["_ZN1m1gB2v2B5flagsEf"]


@pytest.mark.parametrize(
    "literal",
    [
        'c"_ZN1m1gB2v2B5flagsEf"',
        'c"@_ZN1m1gB2v2B5flagsEf@"',
        'c"@"',
        'c"\\22@\\22_ZN1m1gB2v2B5flagsEf\\22"',
        'c".bytes.2"',
        'c"_cudapy_smem_3"',
    ],
)
def test_constants_are_not_names(literal):
    """The content of a string constant stays, and names behind it are renamed."""
    texts = modules(1, 2)
    texts[1] = f'@"s" = internal constant [20 x i8] {literal}\n{texts[1]}'
    renamed = rename(texts).texts[0]
    assert literal in renamed
    assert renamed.count("v2B5flags") == literal.count("v2B5flags")


def test_equal_functions_stay_two():
    """Two functions of equal content have two names, in the order of their first uses."""
    caller = (
        'define void @"_ZN1m1kB2v1E"()\n{{\n  call void @"{0}"()\n  call void @"{1}"()\n'
        '  call void @"{0}"()\n}}\n'
        'declare void @"{0}"()\ndeclare void @"{1}"()\n'
    )
    texts = {}
    for first, second in (("_ZN1m1fB2v2E", "_ZN1m1fB2v3E"), ("_ZN1m1fB3v77E", "_ZN1m1fB3v11E")):
        callees = [f'define linkonce_odr void @"{name}"()\n{{ ret void }}\n' for name in (first, second)]
        parts = [caller.format(first, second), *callees]
        renamed = [
            rename(dict(enumerate(texts_in_order)))
            for texts_in_order in (parts, [parts[0], parts[2], parts[1]])
        ]
        assert renamed[0] == renamed[1]
        assert 3 == len(set(renamed[0].names.values()))
        assert 3 == len(set(renamed[0].texts))
        texts[first] = renamed[0].texts
    assert 1 == len(set(texts.values()))


def test_new_names_differ_whatever_the_old_ones_are():
    """No two symbols become one, also if all differences of their names are removed."""
    names = [
        "_ZN1m1fB2v1E6RecordILi1EE",
        "_ZN1m1fB2v1E6RecordILi2EE",
        "_ZN1m1fB2v2B4aaaaE6RecordILi1EE",
        "_ZN1m1fB2v2B4bbbbE6RecordILi1EE",
        "_ZN1m1fB2v3E20f_20at_200x7f00000001",
        "_ZN1m1fB2v3E20f_20at_200x7f00000002",
        "_Z1fB2v3",
        "_Z1fB2v4",
    ]
    text = "".join(f'define void @"{name}"()\n{{ ret void }}\n' for name in names)
    assert len(names) == len(set(rename({0: text}).names.values()))


def test_type_codes_and_addresses_do_not_show():
    """Types whose names have a counter or an address of the process are left out of names."""
    for types in ("6RecordILi{}EEf", "17at_200x7f{:06}_3eLi7E"):
        texts = [{1: f'define void @"_ZN1m1kB2v1E{types.format(code)}"()\n'} for code in (3217, 41)]
        assert rename(texts[0]).texts == rename(texts[1]).texts


def test_debug_information_follows():
    """Debug information names a function as the code does."""
    text = (
        'define void @"_ZN1m1fB2v{0}E"()\n{{ ret void }}\n'
        '!1 = distinct !DISubprogram(linkageName: "_ZN1m1fB2v{0}E", name: "f")\n'
        '!4 = !DIFile(filename: "/a c", directory: "123")\n'
    )
    renamed = rename({0: text.format(4)})
    assert renamed.texts == rename({0: text.format(5)}).texts
    new = renamed.names["_ZN1m1fB2v4E"]
    assert f'linkageName: "{new}"' in renamed.texts[0]
    assert 'directory: "123"' in renamed.texts[0]


VALUES = """\
define void @"f"(i32 %"{0}")
{{
entry:
  %"{1}" = add i32 %"{0}", 1
  br label %"{2}"
{4}:
  %"{3}" = phi i32 [%"{1}", %"entry"]
  ret void
B{5}:
  ret void
"odd label":
  ret void
}}
"""


def test_names_of_values_and_labels_mean_nothing():
    """Other names for values and labels mean the same, as long as those that are two stay two."""

    def meaning(*names):
        return stable_names.QuotedModule(VALUES.format(*names)).normalized_text({})

    one = meaning("x", "f_v3_y", "B1", "z", "B1", 2)
    assert one == meaning("a", "f_v77_y", "B14", "c", "B14", 9)
    other_names = [
        ("x", "y", "B2", "z", "B1", 2),
        ("x", "y", "odd label", "z", "B1", 2),
        ("x", "x", "B1", "z", "B1", 2),
        ("x", "y", "B1", "y", "B1", 2),
        ("x", "y", "B1", "x", "B1", 2),
    ]
    assert 1 + len(other_names) == len({one, *(meaning(*names) for names in other_names)})


def test_labels_without_quotes_keep_their_names():
    """Other writers jump to unquoted labels, and programs with other targets of jumps differ."""
    text = (
        'define i32 @"f"(i1 %x) {{\n  br i1 %x, label %a, label %b\n{}:\n  ret i32 1\n{}:\n  ret i32 2\n}}\n'
    )
    one, other = (
        stable_names.QuotedModule(text.format(*labels)).normalized_text({}) for labels in ("ab", "ba")
    )
    assert one != other


def test_labels_with_and_without_quotes_are_the_same():
    """A module with both kinds of labels, as with numba-cuda's atomics, keeps the targets of its jumps."""
    text = (
        "define i64 @atomic() {{\n  br label %a\na:\n  br i1 true, label %a, label %b\nb:\n  ret i64 0\n}}\n"
        'define i32 @"f"(i1 %".1") {{\n  br i1 %".1", label %"{}", label %"{}"\na:\n  ret i32 1\n'
        "b:\n  ret i32 2\n}}\n"
    )
    one, other = (
        stable_names.QuotedModule(text.format(*labels)).normalized_text({}) for labels in ("ab", "ba")
    )
    assert one != other


def test_a_module_has_one_text_in_all_programs():
    """Named apart, a callee has the same text under any caller, so that programs can share it."""

    def rename_by_module(texts, salt=""):
        parsed = [stable_names.QuotedModule(text) for text in texts.values()]
        return stable_names.rename_by_module(stable_names.topologically_sorted(parsed), salt=salt).texts

    one, other = modules(1, 2), modules(7, 8)
    other[1] = other[1].replace("ret void", "unreachable")
    assert rename_by_module(one)[1] == rename_by_module(other)[1]
    assert rename_by_module(one)[0] != rename_by_module(other)[0]
    # The caller refers to the callee's new name, and other options give the callee another one.
    name = re.search(r'define linkonce_odr i32 @"([^"]+)"', rename_by_module(one)[1])[1]
    assert f'call i32 @"{name}"' in rename_by_module(one)[0]
    assert rename_by_module(one)[1] != rename_by_module(one, salt="-opt=0")[1]
    assert rename_by_module(modules(1, 2, returned=1))[0] != rename_by_module(one)[0]


def test_functions_that_call_each_other_are_named_together():
    """If modules form a cycle, the names are those of the whole program."""
    texts = modules(1, 2)
    texts[2] += 'declare void @"_ZN1m1kB2v1B5flagsEf"(float %"x")\n'
    parsed = [stable_names.QuotedModule(text) for text in texts.values()]
    ordered = stable_names.topologically_sorted(parsed)
    assert stable_names.rename(ordered).texts == stable_names.rename_by_module(ordered).texts
