"""The depfile of an export: the sources that a build tool has to watch."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import numba_ptxlink as pl
from numba_ptxlink import cli
from numba_ptxlink._artifacts import outputs
from numba_ptxlink._export import load

UDFS = """
import json, os.path
import numpy as np
from numba import cuda
from numba_ptxlink import udf
import deep.inner
from helper import half

outside = cuda.declare_device("outside", "float32(float32)", link=[PATH + "/outside.cu"], abi="c")

@udf("float32(float32)")
def quarter(value):
    return half(half(value)) + deep.inner.ONE

@udf("float32(float32)")
def shifted(value):
    return outside(value)
"""


def write(folder: Path) -> Path:
    """Write a Python file with its imports and link files, and other files beside it."""
    (folder / "deep").mkdir()
    texts = {
        "udfs.py": UDFS.replace("PATH", repr(str(folder))),
        "helper.py": "from numba import cuda\n\n@cuda.jit(device=True)\ndef half(x):\n    return x / 2\n",
        "deep/__init__.py": "",
        "deep/inner.py": "ONE = 1.0\n",
        "deep/other.py": "",
        "unused.py": "",
        "outside.cu": '#include "outside.h"\nextern "C" __device__ float outside(float x) {return x+N;}\n',
        "outside.h": "#define N 3\n",
        "unused.h": "",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder / "udfs.py"


def sources(rule: Path, target: Path) -> list[str]:
    """Return the dependencies of *target*, relative to the folder of the Python file."""
    head, *empty_rules = rule.read_text().split("\n\n")
    lines = head.replace(" \\\n", "").split()
    assert lines[0] == f"{target}:"
    assert [f"{line}:" for line in lines[1:]] == [rule.strip() for rule in empty_rules]
    return lines[1:]


def test_what_an_export_is_made_of(tmp_path):
    """The depfile lists modules, packages, link files and headers, and neither Python nor Numba's own."""
    path = write(tmp_path)
    rule, out = tmp_path / "udfs.d", tmp_path / "out"
    exported = pl.export(path, out, arch="sm_80", emit=["ptx"], depfile=rule)
    names = ["deep/__init__.py", "deep/inner.py", "helper.py", "outside.cu", "outside.h", "udfs.py"]
    assert sources(rule, exported.manifest) == [str(tmp_path / name) for name in names]


HEADERS = {
    "include/geo/point.h": '#include "geo/base.h"\nstruct Point { float x; Y y; };\n',
    "include/geo/base.h": "typedef float Y;\n",
    "link/add.cu": '#include "geo/add.h"\nextern "C" __device__ float add(float x) { return x + N; }\n',
    "link/geo/add.h": '#include "geo/n.h"\n',
    "link/geo/n.h": "#define N 3\n",
    "n/n.h": "#define N 4\n",
    "udfs.py": """
import numpy as np
from pathlib import Path
from numba import cuda
from numba_ptxlink import udf
point = np.dtype([("x", np.float32), ("y", np.float32)], align=True)
here = Path(__file__).parent
add = cuda.declare_device("add", "float32(float32)", link=str(here / "link" / "add.cu"), abi="c")
text = f'#include "{here}/n/n.h"\\nextern "C" __device__ float sub(float x) {{ return x - N; }}\\n'
sub = cuda.declare_device("sub", "float32(float32)", link=cuda.CUSource(text), abi="c")

@udf("float32(CPointer(point))", structs={point: "Point"}, include="geo/point.h")
def total(p):
    return sub(add(p[0].x + p[0].y))
""",
}


def test_headers_of_headers(tmp_path):
    """A header of a header is listed where it is found: in the folders of headers, or the link file's."""
    for name, text in HEADERS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    rule = tmp_path / "udfs.d"
    exported = pl.export(
        tmp_path / "udfs.py", tmp_path, emit=["ptx"], depfile=rule, include_dirs=[tmp_path / "include"]
    )
    assert sources(rule, exported.manifest) == sorted(str(tmp_path / name) for name in HEADERS)


READ = "a:b c#$%()[]{}~@!,+\\\\d\\é.py"


@pytest.mark.parametrize(("tool", "idle"), [("make", "Nothing to be done"), ("ninja", "no work to do")])
@pytest.mark.parametrize(
    ("target", "source"),
    [("o:ut.json", READ), ("o~[u] t#.json", "a:b\\ c.py")],
)
def test_paths_are_read(tool, idle, target, source, tmp_path):
    """Make and Ninja run a rule again where a file of any name was edited, and not else."""
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not on PATH")
    path = tmp_path / source
    path.touch()
    # The target of make's own rule is written the same way.
    (tmp_path / "rule.d").write_bytes(outputs.depfile(Path(target), [Path(source)]))
    escaped = outputs.depfile(Path(target), []).decode().strip()
    (tmp_path / "run.sh").write_text(f"touch {shlex.quote(target)}; echo ran\n")
    makefile = f"all: {escaped.rstrip(':')}\ninclude rule.d\n{escaped}\n\tsh run.sh\n"
    (tmp_path / "Makefile").write_text(makefile)
    ninja = target.replace(" ", "$ ").replace(":", "$:")
    (tmp_path / "build.ninja").write_text(
        f"rule run\n  command = sh run.sh\n  depfile = rule.d\nbuild {ninja}: run\n"
    )

    def build() -> bool:
        run = subprocess.run([tool], cwd=tmp_path, check=False, capture_output=True, text=True)
        return run.returncode == 0 and idle not in run.stdout

    built, again = build(), build()
    if (tmp_path / target).exists():
        later = (tmp_path / target).stat().st_mtime + 5
        os.utime(path, (later, later))
    assert (built, again, build()) == (True, False, True)


def test_the_folder_of_the_cmake_package(capsys):
    """`--cmake-dir` prints where find_package finds it."""
    assert cli.main(["--cmake-dir"]) == 0
    folder = Path(capsys.readouterr().out.strip())
    assert {path.name for path in folder.iterdir()} == {
        "NumbaPtxlinkCPU.cmake",
        "NumbaPtxlinkConfig.cmake",
        "NumbaPtxlinkConfigVersion.cmake",
    }
    version = (folder / "NumbaPtxlinkConfigVersion.cmake").read_text()
    (read,) = re.findall(r'"\$\{CMAKE_CURRENT_LIST_DIR\}/(.*?)"', version)
    assert f'__version__ = "{pl.__version__}"' in (folder / read).read_text()


def test_what_is_read_while_the_file_is_imported_counts(tmp_path):
    """Data that the file reads is a dependency; data that it writes or installed packages read is not."""
    for name in ("data.txt", "table.csv"):
        (tmp_path / name).write_text("3")
    (tmp_path / "udfs.py").write_text(
        "import json, numpy as np\nfrom pathlib import Path\nfrom numba_ptxlink import udf\n"
        "K = int(open(Path(__file__).with_name('data.txt'), 'r+').read())\n"
        "T = np.loadtxt(Path(__file__).with_name('table.csv'))\n"
        "Path(__file__).with_name('written.txt').write_text('')\n\n\n"
        "@udf('int32(int32)')\ndef f(x):\n    return x + K\n"
    )
    pl.export(tmp_path / "udfs.py", tmp_path / "out", emit="ptx", depfile=tmp_path / "udfs.d")
    rule = (tmp_path / "udfs.d").read_text().partition("\n\n")[0]
    names = {word.rpartition("/")[2] for word in rule.split() if "/" in word and not word.endswith(":")}
    assert {"data.txt", "table.csv", "udfs.py"} == names


def test_a_link_is_the_file_that_it_leads_to(tmp_path, monkeypatch):
    """Sources of functions of this process are modules that are not installed, whatever their paths."""
    installed, local = folders = tmp_path / "installed", tmp_path / "own"
    monkeypatch.setattr(load, "_package_folders", lambda: frozenset([str(installed)]))
    for folder, other in zip(folders, folders[::-1], strict=True):
        folder.mkdir()
        (folder / "module.py").write_text("")
        (folder / "link.py").symlink_to(other / "module.py")
        (folder / "linked").symlink_to(other)
    expected = {
        local / "module.py",
        local / "linked/link.py",
        installed / "link.py",
        installed / "linked/module.py",
    }
    for path in (*tmp_path.glob("*/*.py"), *tmp_path.glob("*/linked/*.py")):
        module = ModuleType(str(path))
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, str(path), module)
    sources = pl.export(pl.udf("float32(float32)", name="f")(lambda x: x), arch="sm_80").sources
    assert expected == {path for path in sources if tmp_path in path.parents}


def test_a_file_of_numba_cuda_mlir_has_nothing_of_the_compiler(tmp_path):
    """The compiler that the file names is imported before it, though another one's name begins alike."""
    pytest.importorskip("numba_cuda_mlir.cuda")
    text = "from numba_cuda_mlir import types\nfrom numba_ptxlink import udf\n\n\n"
    file = tmp_path / "udfs.py"
    file.write_text(f'{text}@udf("float32(float32)")\ndef half(x):\n    return x * types.float32(0.5)\n')
    pl.export(file, tmp_path / "out", emit="ptx", depfile=tmp_path / "udfs.d")
    assert [str(file)] == (tmp_path / "udfs.d").read_text().split("\n\n")[0].split(" \\\n  ")[1:]
