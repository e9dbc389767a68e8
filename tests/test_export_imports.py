"""Imports during an export: the file's own modules, as they are on disk, without a trace afterwards."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import numba_ptxlink as pl

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "from numba_ptxlink import udf\n"
UDF = HEAD + "from {module} import K\n\n@udf('int32(int32)')\ndef plus(x):\n    return x + K\n"


def tree(folder: Path, **files: str) -> Path:
    """Write *files*, whose names have "__" for "/" and no extension, into *folder*."""
    for name, text in files.items():
        inner = name.replace("____init__", "/INIT").replace("__", "/").replace("INIT", "__init__")
        path = folder / f"{inner}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def constant(path: Path, tmp_path: Path) -> int:
    """Return the number that the exported `plus` of *path* adds."""
    exported = pl.export(path, tmp_path / "out", arch="sm_75", emit=["ptx"])
    text = exported.artifacts["ptx", "sm_75"].read_text()
    lines = [line for line in text.splitlines() if "add.s32" in line]
    assert len(lines) == 1
    return int(lines[0].rstrip(";").split(",")[-1])


def test_two_folders_with_modules_of_one_name(tmp_path):
    """Each file gets the module beside it, and none of them stays."""
    before, path = set(sys.modules), list(sys.path)
    for value in (41, 42):
        tree(tmp_path / str(value), udfs=UDF.format(module="common"), common=f"K = {value}\n")
        assert constant(tmp_path / str(value) / "udfs.py", tmp_path) == value
    assert not {"common", "udfs"} & (set(sys.modules) - before)
    assert sys.path == path
    assert not any(str(tmp_path) in entry for entry in sys.path_importer_cache)


def test_an_edited_module_is_read_again(tmp_path, monkeypatch):
    """An edit of the same length within one second is seen; no byte code is left."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    tree(tmp_path, udfs=UDF.format(module="common.values"), common____init__="", common__values="K = 51\n")
    stamp = (tmp_path / "udfs.py").stat().st_mtime_ns
    constants = []
    for value in (51, 52):
        tree(tmp_path, common__values=f"K = {value}\n")
        os.utime(tmp_path / "common" / "values.py", ns=(stamp, stamp))
        constants.append(constant(tmp_path / "udfs.py", tmp_path))
    assert constants == [51, 52]
    assert list(tmp_path.rglob("*.pyc")) == []


def test_the_environment_is_the_callers(tmp_path, monkeypatch):
    """A file sees the variables that its caller has now, and so does the next one."""
    tree(tmp_path, udfs=UDF.replace("from {module} import K", "import os\n\nK = int(os.environ['VALUE'])"))
    for value in (61, 62):
        monkeypatch.setenv("VALUE", str(value))
        assert constant(tmp_path / "udfs.py", tmp_path) == value


def test_a_module_of_the_caller_stays_the_callers(tmp_path, monkeypatch):
    """A file gets the module beside it, or else the one on the path, and the caller's stays as it was."""
    tree(tmp_path / "callers", ptxlink_common="K = 1\n")
    monkeypatch.syspath_prepend(tmp_path / "callers")
    module = importlib.import_module("ptxlink_common")
    module.K = 3
    folder = tree(tmp_path / "own", udfs=UDF.format(module="ptxlink_common"))
    assert constant(folder / "udfs.py", tmp_path) == 1
    tree(folder, ptxlink_common="K = 2\n")
    assert constant(folder / "udfs.py", tmp_path) == 2
    assert sys.modules.pop("ptxlink_common") is module


def test_a_file_beside_it_does_not_shadow_what_compiles_it(tmp_path):
    """`numba.py` beside the file breaks nothing, also where Numba is imported first by the export."""
    names = ("numba", "numpy", "random", "cffi", "llvmlite")
    tree(tmp_path, udfs=UDF.format(module="common"), common="K = 71\n", **dict.fromkeys(names, "1 / 0\n"))
    assert constant(tmp_path / "udfs.py", tmp_path) == 71


def test_a_file_in_a_package_is_imported_under_its_name(tmp_path):
    """Relative imports reach the package, and a module beside the file is found as before."""
    tree(
        tmp_path,
        top__pack____init__="",
        top__pack__values="K = 30\n",
        top__pack__inner____init__="",
        top__pack__inner__beside="K = 2\n",
        top__pack__inner__udfs=HEAD
        + "from ..values import K as A\nfrom beside import K as B\n\n"
        + "@udf('int32(int32)')\ndef plus(x):\n    return x + (A + B)\n",
    )
    assert constant(tmp_path / "top" / "pack" / "inner" / "udfs.py", tmp_path) == 32
    manifest = json.loads((tmp_path / "out" / "udfs.json").read_text())
    assert manifest["name"] == "udfs"


def test_a_file_that_leaves_is_an_error(tmp_path):
    """A file that calls `exit` is an error that names it, and the state is as before."""
    tree(tmp_path, udfs="raise SystemExit(3)")
    # The first export imports modules that all exports need.
    for _ in range(2):
        before = dict(sys.modules), list(sys.path), list(sys.path_hooks)
        with pytest.raises(pl.ExportError, match=r"udfs\.py failed while it was imported: SystemExit: 3"):
            pl.export(tmp_path / "udfs.py", tmp_path / "out")
    assert before == (dict(sys.modules), list(sys.path), list(sys.path_hooks))


MISSPELT = HEAD + "\n\n@udf('int32(int32)', nmae='g')\ndef f(x):\n    return x\n"
FAILS = {
    "here": ("x = 1\n1 / 0\n", "", "udfs.py:2: error: .*ZeroDivisionError"),
    "in a helper": (
        "from helper import f\nf()\n",
        "def f():\n    [][1]\n",
        "helper.py:2: error: .*IndexError",
    ),
    "in a package": ("import json\njson.loads('{')\n", "", "udfs.py:2: error: .*JSONDecodeError"),
    "keyword": (MISSPELT, "", "udfs.py:4: error: udf\\(\\) has no option nmae; it has name, on_error, "),
    "syntax": ("import helper\n", "x = 1\ny = (\n", "helper.py:2: error: .*SyntaxError"),
}


@pytest.mark.parametrize("case", FAILS)
def test_a_failure_names_the_innermost_line_of_the_users(tmp_path, case):
    """An exception of a package is reported at the user's call, and one of a helper in the helper."""
    udfs, helper, message = FAILS[case]
    tree(tmp_path, udfs=udfs, helper=helper)
    with pytest.raises(pl.ExportError, match=re.escape(str(tmp_path)) + f"/{message}") as error:
        pl.export(tmp_path / "udfs.py")
    # A decorator has the cure itself.
    assert ("udfs.py failed while it was imported" in str(error.value)) is (case != "keyword")


def test_a_helper_whose_name_is_taken_is_renamed(tmp_path):
    """The error of a helper that the standard library hides names its file."""
    tree(tmp_path, udfs="from random import scale\n", random="scale = 3\n")
    with pytest.raises(pl.ExportError, match=r"udfs\.py:1: error: .*; rename random\.py beside the file"):
        pl.export(tmp_path / "udfs.py")


def test_a_file_that_ends_its_process_is_an_error(tmp_path):
    """A crash of an imported module is an error, and the next export works."""
    tree(tmp_path, udfs="import os\nos._exit(3)\n", good=UDF.replace("from {module} import K", "K = 4"))
    with pytest.raises(pl.ExportError, match="process that imports and compiles the functions has died"):
        pl.export(tmp_path / "udfs.py")
    assert constant(tmp_path / "good.py", tmp_path) == 4


@pytest.mark.slow
@pytest.mark.parametrize("call", ["pl.export(__file__)", "pl.link(__file__, arch='sm_80')"])
def test_a_file_that_exports_itself(tmp_path, call):
    """A file whose body exports the file itself is an error that says where to move the call."""
    path = tmp_path / "udfs.py"
    text = "import numba_ptxlink as pl\n\n@pl.udf('int32(int32)')\ndef f(x):\n    return x\n\n"
    path.write_text(f"{text}{call}\n")
    with pytest.raises(pl.ExportError, match=r"that call below `if __name__ == \"__main__\":`") as error:
        pl.export(path)
    assert str(error.value).count("failed while") <= 1
    path.write_text(f"{text}if __name__ == '__main__':\n    {call}\n")
    assert pl.export(path, emit=["ptx"]).signatures


EXPORT = "import sys, numba_ptxlink as pl; pl.export('udfs.py', 'out', emit='ptx')"
# As an assertion does, which numba-cuda does not compile with Python 3.14.
CHECKED = f"""{HEAD}
@udf('int32(int32)')
def f(x):
    if __debug__ and x < 1:
        raise ValueError
    return x
"""


@pytest.mark.parametrize(("flags", "raises"), [([], 1), (["-O"], 0)])
def test_a_file_is_run_with_the_interpreters_options(tmp_path, flags, raises):
    """With `-O` it raises nothing that depends on `__debug__`, as in a module that is passed."""
    tree(tmp_path, udfs=CHECKED)
    subprocess.run([sys.executable, *flags, "-c", EXPORT], cwd=tmp_path, check=True)
    (function,) = json.loads((tmp_path / "out" / "udfs.json").read_text())["functions"]
    assert raises == len(function["raises"])


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_process_without_standard_streams_exports(tmp_path, closed):
    """Streams that are opened in their place receive nothing that others print."""
    tree(
        tmp_path,
        udfs=HEAD + "@udf('int32(int32)')\ndef f(x):\n    print('said')\n    return x\nprint('said')\n",
    )
    command = ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, EXPORT]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "out" / "udfs.json").is_file()
