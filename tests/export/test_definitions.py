"""Marked functions of a module: those that an export has, and those that it refuses to leave out."""

from __future__ import annotations

import functools

import pytest
from numba import cuda

import numba_ptxlink as pl

HEAD = "import functools\nfrom numba_ptxlink import udf\n\n\n"
MARK = "@udf('int32(int32)')\n"
FUNCTION = "def f(x):\n    return x + {}\n\n\n"
CLASS = (
    "class Shapes:\n    class Inner:\n        {}\n        {}\n        def f({}x):\n            return x + 1\n"
)
STATIC = CLASS.format("@staticmethod", MARK.strip(), "")


def abs_of(x):
    """Return the absolute value."""
    return abs(x)


def written(folder, text):
    """Write a Python file and return its path."""
    path = folder / "udfs.py"
    path.write_text(HEAD + text)
    return path


FACTORY = (
    "def made(offset, name):\n    @udf('int32(int32)', name=name)\n"
    "    def f(x):\n        return x + offset\n\n"
    "    return f\n\n\n"
)


def test_functions_without_a_name_in_the_module_are_exported(tmp_path):
    """Functions of a factory are exported, wherever they are kept and defined, in the order of marking."""
    (tmp_path / "plain.py").write_text("def plain(x):\n    return x\n")
    text = (
        FACTORY
        + "import plain\nudf('int32(int32)')(plain.plain)\nlisted = [made(i, f'a{i}') for i in range(2)]\n"
        "one = made(7, 'one')\nmade(8, 'lost')\n"
    )
    exported = pl.export(written(tmp_path, text), emit=["ptx"])
    assert ["plain", "a0", "a1", "one", "lost"] == [signature.name for signature in exported.signatures]


def test_static_methods_are_exported(tmp_path):
    """A static method is exported by its own name, in the order of definition."""
    text = MARK + FUNCTION.format(2).replace("f(", "first(") + STATIC
    path = written(tmp_path, text + "\n\n" + MARK + "def last(x):\n    return first(x)\n")
    exported = pl.export(path, emit=["ptx"])
    assert [signature.name for signature in exported.signatures] == ["first", "f", "last"]


def test_the_mark_is_below_the_staticmethod(tmp_path):
    """The wrong order of decorators is an error that shows the right one."""
    text = CLASS.format(MARK.strip(), "@staticmethod", "")
    with pytest.raises(pl.ExportError, match="and write @staticmethod above @udf"):
        pl.export(written(tmp_path, text))


def test_a_function_that_wraps_another_is_itself():
    """`functools.wraps` copies the attribute by which a decorated function has its Python function."""
    wrapper = functools.wraps(pl.udf("int32(int32)")(abs_of))(lambda x: abs_of(x) + 1)
    assert pl.udf("int32(int32)")(wrapper).function is wrapper


def test_options_of_numba_are_no_options_of_a_mark(caplog):
    """Options of Numba's decorator have no effect, with a warning."""
    pl.kernel("void(int32)")(cuda.jit(launch_bounds=64, fastmath=True)(abs_of))
    assert "abs_of has fastmath=True, launch_bounds=64 of Numba's decorator, which an export" in caplog.text
