"""
Test suites of other projects on the CPU device; suites.toml has their known failures.

numba-cuda's tests are in its package, stumpy's in its source distribution, and numba-cuda-mlir's are cloned.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import environments
import pytest

if sys.version_info >= (3, 11):
    import tomllib

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="numba-cuda-mlir 0.6 needs Python 3.11"),
]

HERE = Path(__file__).resolve().parent
RECORDER = HERE.parent / "conformance"
MLIR_TESTS = "https://github.com/NVIDIA/numba-cuda-mlir"
MLIR_TAG = "v0.5.0"
STUMPY = "stumpy==1.14.1"
# Tests of numba-cuda use an option of its conftest.py, which is not in the package.
CONFTEST = """\
import pytest


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    request.cls._dump_failed_filechecks = False
"""
PYTEST_INI = """\
[pytest]
markers = libdevice: of numba-cuda-mlir
"""
_EVERY_NTH_MODULE = 3
_GOOD = ("passed", "skipped", "xfailed", "xpassed")


def known_failures(suite: str) -> list[str]:
    """Return the patterns of tests that are known to fail."""
    failures = tomllib.loads((HERE / "suites.toml").read_text())["failure"]
    return [pattern for failure in failures if failure["suite"] == suite for pattern in failure["tests"]]


def outcomes(python: Path, folder: Path, *arguments: str, path: tuple[Path, ...] = ()) -> dict[str, str]:
    """Run pytest in *folder* on the CPU device; return the outcome of each test, or its error."""
    record = folder / "record"
    record.mkdir()
    (folder / "pytest.ini").write_text(PYTEST_INI)
    if not (folder / "conftest.py").exists():
        (folder / "conftest.py").write_text(CONFTEST)
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "PYTHON"))
    }
    variables = {
        "NUMBA_PTXLINK_DEVICE": "cpu",
        "NUMBA_PTXLINK_CACHE": str(folder / "cache"),
        "PTXLINK_CONFORMANCE_DIR": str(record),
        "PYTHONPATH": os.pathsep.join(map(str, (*path, RECORDER))),
    }
    options = [
        "-q",
        "-W",
        "ignore",
        "-p",
        "ptxlink_record",
        "-p",
        "no:cacheprovider",
        "-n",
        "2",
        "--tb=short",
    ]
    done = subprocess.run(
        [str(python), "-m", "pytest", *options, "--dist", "loadscope", *arguments],
        cwd=folder,
        env=inherited | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout[-4000:] + done.stderr[-4000:]
    entries = [json.loads(file.read_text()) for file in record.iterdir()]
    outcome_by_test: dict[str, str] = {}
    # The controller has every outcome, and each worker its own.
    for entry in sorted(entries, key=lambda entry: len(entry["outcomes"])):
        outcome_by_test.update(
            {test: entry["errors"].get(test, outcome) for test, outcome in entry["outcomes"].items()}
        )
    return outcome_by_test


def check(suite: str, outcome_by_test: dict[str, str], *, least: int) -> None:
    """Check that the tests passed, except those that are known to fail, which did."""
    patterns = known_failures(suite)
    known = {
        test for test in outcome_by_test if any(fnmatch.fnmatchcase(test, pattern) for pattern in patterns)
    }
    failed = {test: error for test, error in outcome_by_test.items() if error not in _GOOD}
    assert {} == {test: error for test, error in failed.items() if test not in known}
    assert [] == sorted(test for test in known if outcome_by_test[test] in ("passed", "xpassed"))
    assert sum(outcome == "passed" for outcome in outcome_by_test.values()) >= least


@pytest.fixture(scope="module")
def python():
    """Return the interpreter of an environment with the projects."""
    try:
        with environments.environment("suites") as interpreter:
            yield interpreter
    except environments.Unavailable as reason:
        pytest.skip(f"no environment for the suites: {reason}")


def site_packages(python: Path) -> Path:
    """Return the folder of the packages of an environment."""
    return Path(sysconfig.get_path("purelib", vars={"base": str(python.parents[1])}))


def test_numba_cuda(python, tmp_path):
    """A third of the modules of numba-cuda's suite have no failures but the known ones."""
    folder = site_packages(python) / "numba_cuda" / "numba" / "cuda" / "tests"
    files = sorted(file.relative_to(folder).with_suffix("") for file in folder.rglob("test_*.py"))
    names = [
        ".".join(file.parts) for file in files if file.parts[0] not in ("cudasim", "nocuda", "benchmarks")
    ]
    modules = [f"numba.cuda.tests.{name}" for name in names[::_EVERY_NTH_MODULE]]
    # `numba` has parts in two packages.
    option = ("-o", "consider_namespace_packages=true", "--pyargs")
    check("numba-cuda", outcomes(python, tmp_path, *option, *modules), least=450)


def test_numba_cuda_mlir(python, tmp_path):
    """numba-cuda-mlir's own tests have no failures but the known ones."""
    clone = [
        "git",
        "clone",
        "--quiet",
        "--depth",
        "1",
        "--branch",
        MLIR_TAG,
        MLIR_TESTS,
        str(tmp_path / "clone"),
    ]
    done = subprocess.run(clone, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no tests of numba-cuda-mlir: {done.stderr.strip()}")
    shutil.move(tmp_path / "clone" / "tests", tmp_path / "tests")
    ignored = [f"--ignore=tests/{name}" for name in ("benchmarks", "doc_examples", "numba_cuda_tests")]
    check("numba-cuda-mlir", outcomes(python, tmp_path, "tests", *ignored), least=2750)


@pytest.fixture(scope="module")
def stumpy_tests(python, tmp_path_factory):
    """Return a folder with the tests of stumpy's source distribution."""
    folder = tmp_path_factory.mktemp("stumpy")
    try:
        environments.pip(
            python, "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(folder), STUMPY
        )
    except environments.Unavailable as reason:
        pytest.skip(f"no source distribution of stumpy: {reason}")
    (archive,) = folder.glob("stumpy-*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (unpacked,) = folder.glob("stumpy-*/tests")
    return unpacked


def test_stumpy(python, stumpy_tests, tmp_path):
    """All of stumpy's GPU tests pass."""
    shutil.copytree(stumpy_tests, tmp_path / "tests")
    files = sorted(f"tests/{file.name}" for file in stumpy_tests.glob("test_gpu_*.py"))
    check("stumpy", outcomes(python, tmp_path, *files), least=134)


def test_stumpy_moved_to_numba_cuda_mlir(python, stumpy_tests, tmp_path):
    """All of stumpy's GPU tests pass after its imports of `cuda` are changed."""
    shutil.copytree(stumpy_tests, tmp_path / "tests")
    shutil.copytree(site_packages(python) / "stumpy", tmp_path / "site" / "stumpy")
    for file in (*(tmp_path / "site").rglob("*.py"), *(tmp_path / "tests").rglob("*.py")):
        moved = re.sub(
            r"^from numba import cuda(?:, (.+))?$",
            lambda match: (
                "from numba_cuda_mlir import cuda" + (f"\nfrom numba import {match[1]}" if match[1] else "")
            ),
            file.read_text(),
            flags=re.MULTILINE,
        )
        file.write_text(moved)
    files = sorted(f"tests/{file.name}" for file in stumpy_tests.glob("test_gpu_*.py"))
    check("stumpy", outcomes(python, tmp_path, *files, path=(tmp_path / "site",)), least=134)
