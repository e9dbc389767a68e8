"""Which marked functions of a module an export has, and which it refuses to leave out."""

from __future__ import annotations

import gc
import importlib.util
import weakref

import pytest

import numba_ptxlink as pl
from numba_ptxlink._export import definitions

HEAD = "import functools\nfrom numba_ptxlink import udf\n\n\n"
MARK = "@udf('int32(int32)')\n"
FUNCTION = "def f(x):\n    return x + {}\n\n\n"
CLASS = (
    "class Shapes:\n    class Inner:\n        {}\n        {}\n        def f({}x):\n            return x + 1\n"
)
STATIC = CLASS.format("@staticmethod", MARK.strip(), "")


def written(folder, text):
    """Write a Python file and return its path."""
    path = folder / "udfs.py"
    path.write_text(HEAD + text)
    return path


@pytest.mark.parametrize(
    ("text", "has_it"),
    [
        (MARK + FUNCTION.format(1) + FUNCTION.format(2), r"f \(udfs.py:10\)"),
        ("@functools.cache\n" + MARK + FUNCTION.format(1), "functools._lru_cache_wrapper"),
        (MARK + FUNCTION.format(1) + "f = 3\n", "and 3 has its name in udfs"),
    ],
    ids=["a function", "a decorator", "a value"],
)
def test_what_takes_the_name_of_a_marked_function(tmp_path, text, has_it):
    """A marked function that would be left out, for another value has its name, is an error."""
    path = written(tmp_path, text + MARK + "def other(x):\n    return x\n")
    with pytest.raises(pl.ExportError, match=has_it) as error:
        pl.export(path)
    assert "(udfs.py:5)" in str(error.value) or "(udfs.py:6)" in str(error.value)
    assert "Rename one of the two" in str(error.value)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("g = f\nf = 3\n", ["f"]),
        ("del f\n" + MARK + "def g(x):\n    return x\n", ["f", "g"]),
        ("g = udf('int8(int8)', name='g')(plain)\n", ["f", "g"]),
    ],
    ids=["another name", "deleted", "marked by a call"],
)
def test_what_gives_up_its_name_on_purpose(tmp_path, end, expected):
    """A function with another name in the module is exported, and one that was deleted."""
    text = "def plain(x):\n    return x\n\n\n" + MARK + FUNCTION.format(1)
    exported = pl.export(written(tmp_path, text + end), emit=["ptx"])
    assert [signature.name for signature in exported.signatures] == expected


FACTORY = (
    "def made(offset, name):\n    @udf('int32(int32)', name=name)\n"
    "    def f(x):\n        return x + offset\n\n"
    "    return f\n\n\n"
)


def test_functions_without_a_name_in_the_module_are_exported(tmp_path):
    """What a factory has made is exported wherever it is kept, in the order in which it was made."""
    text = FACTORY + "listed = [made(i, f'a{i}') for i in range(2)]\none = made(7, 'one')\nmade(8, 'lost')\n"
    exported = pl.export(written(tmp_path, text), emit=["ptx"])
    assert ["a0", "a1", "one", "lost"] == [signature.name for signature in exported.signatures]


@pytest.mark.parametrize(
    "text",
    [
        FACTORY + "listed = [made(i, 'add') for i in range(2)]\n",
        (MARK + FUNCTION.format(1) + FUNCTION.format(2) + MARK + FUNCTION.format(3)).replace(" f(", " add("),
    ],
    ids=["in a list", "a function between two marked ones"],
)
def test_functions_of_one_name_clash(tmp_path, text):
    """Two marked functions with one C name are an error that proposes another, wherever they are."""
    with pytest.raises(pl.AbiError, match=r"'add', the C name of function .*is taken.*use name="):
        pl.export(written(tmp_path, text), emit=["ptx"])


def test_what_others_make_of_a_module_is_theirs(tmp_path):
    """A factory that is called later adds nothing to an export of its module, which nothing keeps alive."""
    path = written(tmp_path, FACTORY + "one = made(7, 'one')\n")
    spec = importlib.util.spec_from_file_location("udfs", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    later = module.made(8, "later")
    assert [module.one] == [*definitions.of_module(module)]
    module.named = later
    assert [module.one, later] == [*definitions.of_module(module)]
    gone = weakref.ref(spec)
    del spec, module, later
    gc.collect()
    assert gone() is None


def test_static_methods_are_exported(tmp_path):
    """A static method is exported by its own name, in the order of definition."""
    text = MARK + FUNCTION.format(2).replace("f(", "first(") + STATIC
    path = written(tmp_path, text + "\n\n" + MARK + "def last(x):\n    return first(x)\n")
    exported = pl.export(path, emit=["ptx"])
    assert [signature.name for signature in exported.signatures] == ["first", "f", "last"]


@pytest.mark.parametrize(
    ("above", "mark", "first"),
    [
        ("", MARK.strip(), "self, "),
        ("@classmethod", MARK.strip(), "cls, "),
        (MARK.strip(), "@staticmethod", ""),
    ],
    ids=["a method", "a class method", "the mark on top"],
)
def test_methods_are_refused(tmp_path, above, mark, first):
    """What is no static method is an error that says how to write one, and so is the wrong order."""
    text = MARK + FUNCTION.format(1).replace("f(", "first(") + CLASS.format(above, mark, first)
    with pytest.raises(pl.ExportError, match=r"Shapes\.Inner\.f.*write @staticmethod above"):
        pl.export(written(tmp_path, text))


def test_names_that_are_refused_are_told_together(tmp_path):
    """Each with its line and another name, whether the name is the function's or the decorator's."""
    named = "@udf('int32(int32)', name='double')\n" + FUNCTION.format(1)
    path = written(
        tmp_path, named + MARK + "def cuInit(x):\n    return x\n\n\n" + MARK + "def good(x):\n    return x\n"
    )
    with pytest.raises(pl.AbiError) as refused:
        pl.export(path)
    first, second = str(refused.value).splitlines()
    assert first.startswith(
        f"{tmp_path}/udfs.py:5: error: 'double', the C name of function f, is a reserved word"
    )
    assert second.startswith(
        f"{tmp_path}/udfs.py:10: error: 'cuInit', the C name of function cuInit, starts like"
    )
    assert second.endswith("use 'my_cuInit', for example.")


@pytest.mark.parametrize(
    ("name", "message"), [("new", "'new', the C name"), ("", "''"), (3, "must be a str")]
)
def test_a_name_is_refused_where_it_is_given(name, message):
    """Outside of an export's import, the decorator raises."""
    with pytest.raises(pl.AbiError, match=message):
        pl.udf("int32(int32)", name=name)(lambda x: x)
