"""
Run a front end's own test-suite twice, with its own linker and with this package's, and compare.

numba-cuda's tests ship inside the installed package; the checkout lends its `testing/` folder, which holds
their pytest configuration and the sources of their binary inputs. numba-cuda-mlir's are in its checkout's
`tests/`. Both runs use the interpreter that runs this script and differ in NUMBA_PTXLINK alone; activation
goes through the `.pth` file as for every user.

    python tests/conformance/run.py ~/numba-cuda --build-binaries -n 14
    python tests/conformance/run.py ~/numba-cuda --nocuda
    python tests/conformance/run.py ~/numba-cuda-mlir --front-end numba-cuda-mlir -n 14
    python tests/conformance/run.py ~/numba-cuda-mlir --front-end numba-cuda-mlir --nocuda -n 2

Exit status: 0 where no test that passes stock fails with the plugin, 1 where one does and does so by itself,
2 where a run broke.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import os
import shutil
import site
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MLIR = "numba-cuda-mlir"
NOCUDA = ("numba.cuda.tests.nocuda", "numba.cuda.tests.cudapy.test_compiler")
PTH = "numba_ptxlink.pth"
# Tests which assert that stock refuses something that this package supports.
LIFTED = {
    "cudapy/test_caching.py::CUDACachingTest::test_cannot_cache_linking_libraries": "caching link files",
    "numba_cuda_tests/cudapy/test_caching.py::CUDACachingTest::test_cannot_cache_linking_libraries": (
        "caching link files"
    ),
}
GOOD = ("passed", "xfailed", "skipped")
UNEXPECTED = ("xfailed", "xpassed")

# Runs at start-up from PYTHONPATH, where `.pth` files are not read by themselves.
SITE_CUSTOMIZE = """\
import site
for folder in {folders!r}:
    site.addsitedir(folder)
"""


def main() -> int:
    """Run both suites, print the differences, return the exit status."""
    options = _parse()
    with tempfile.TemporaryDirectory(prefix="ptxlink-conformance-") as scratch:
        folder = Path(scratch)
        if options.front_end == MLIR:
            testing = _copy_tests(options.checkout / "tests", folder)
        else:
            testing = _copy_testing(options.checkout / "testing", folder)
        environ = _environ(options, folder)
        if options.build_binaries:
            environ["NUMBA_CUDA_TEST_BIN_DIR"] = str(_build(testing, environ, options.cc))
        stock = _run("stock", "0", testing, environ, options)
        plugin = _run("plugin", "1", testing, environ, options)
        worse = _compare(stock, plugin)
        if worse:
            worse = _again(worse, testing, environ, options)
    if not stock["outcomes"] or not plugin["outcomes"]:
        print("A run reported no test at all.")
        return 2
    if not plugin["active"] or stock["active"]:
        print(f"Activation is not what was asked for: plugin: {plugin['reasons']}; stock: {stock['reasons']}")
        return 2
    if plugin["links"] < 1000 and not (options.nocuda or options.tests):
        print(f"The plugin served {plugin['links']} links, fewer than 1000.")
        return 1
    return 1 if worse else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a checkout of the front end, of the installed version")
    parser.add_argument("--front-end", choices=("numba-cuda", MLIR), default="numba-cuda")
    parser.add_argument("--nocuda", action="store_true", help="only what runs without a GPU")
    parser.add_argument("-n", "--workers", default="0", help="processes, where pytest-xdist is installed")
    parser.add_argument(
        "--tests", action="append", help="modules, or files of numba-cuda-mlir, in place of all"
    )
    parser.add_argument("--cc", default="7.5", help="--nocuda: the default compute capability")
    parser.add_argument(
        "--build-binaries",
        action="store_true",
        help="build the tests' binary inputs first, with nvcc and make; NUMBA_CUDA_TEST_BIN_DIR otherwise",
    )
    return parser.parse_args()


def _copy_testing(source: Path, folder: Path) -> Path:
    if not (source / "pytest.ini").is_file():
        raise SystemExit(f"{source} has no pytest.ini; give the path of a numba-cuda checkout.")
    testing = folder / "testing"
    shutil.copytree(source, testing)
    if importlib.util.find_spec("pytest_benchmark") is None:
        ini = testing / "pytest.ini"
        lines = [line for line in ini.read_text().splitlines() if "pytest_benchmark" not in line]
        ini.write_text("\n".join(lines).replace("--benchmark-disable", "") + "\n")
    return testing


def _copy_tests(source: Path, folder: Path) -> Path:
    """Copy the tests of numba-cuda-mlir, which read files beside themselves, and leave its sources."""
    if not (source / "conftest.py").is_file():
        raise SystemExit(f"{source} has no conftest.py; give the path of a numba-cuda-mlir checkout.")
    testing = folder / "testing"
    shutil.copytree(source, testing / "tests")
    # The configuration of these tests requires plugins of pytest that may be missing.
    lines = ("[pytest]", "norecursedirs = benchmarks doc_examples", "markers = libdevice: flaky by design")
    testing.joinpath("pytest.ini").write_text("\n".join(lines) + "\n")
    return testing


def _environ(options: argparse.Namespace, folder: Path) -> dict[str, str]:
    custom = folder / "site"
    custom.mkdir()
    sites = []
    # Python reads `.pth` files in its own site folders alone; a checkout or a `--target` folder needs help.
    read = {*site.getsitepackages(), site.getusersitepackages()}
    if not any(Path(folder_path, PTH).is_file() for folder_path in read):
        hook_folders = [
            folder_path for folder_path in sys.path if folder_path and Path(folder_path, PTH).is_file()
        ]
        sites.append(hook_folders[0] if hook_folders else str(ROOT / "hook"))
    custom.joinpath("sitecustomize.py").write_text(SITE_CUSTOMIZE.format(folders=sites))
    path = [str(custom), str(HERE), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    if importlib.util.find_spec("numba_ptxlink") is None:
        path.append(str(ROOT))
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}
    if options.nocuda:
        environ["NUMBA_CUDA_DEFAULT_PTX_CC"] = environ["PTXLINK_CONFORMANCE_CC"] = options.cc
    return environ


def _build(testing: Path, environ: dict[str, str], cc: str) -> Path:
    command = ["make", "-j4"]
    if shutil.which("nvidia-smi") is None:
        command.append(f"GPU_CC={cc.replace('.', '')}")
    # Its recipes call `python`.
    shim = testing / "bin"
    shim.mkdir()
    # A link would not be taken for the environment's interpreter.
    shim.joinpath("python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    shim.joinpath("python").chmod(0o755)
    path = os.pathsep.join((str(shim), environ.get("PATH", "")))
    done = subprocess.run(
        command,
        cwd=testing,
        env={**environ, "PATH": path, "NUMBA_PTXLINK": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(
            f"The tests' binaries could not be built:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )
    return testing


def _run(
    name: str, mode: str, testing: Path, environ: dict[str, str], options: argparse.Namespace
) -> dict[str, object]:
    reports = testing.parent / name
    reports.mkdir()
    arguments = ["-p", "ptxlink_record", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=short"]
    if options.workers != "0" and importlib.util.find_spec("xdist") is not None:
        arguments += ["-n", options.workers, "--dist", "loadscope", "--max-worker-restart", "10000"]
    tests = options.tests or (NOCUDA if options.nocuda else ())
    if options.front_end == MLIR:
        arguments += options.tests or ["tests"]
    elif tests:
        # The configuration names all tests; modules on the command line replace them.
        arguments += [
            "-o",
            "addopts=--benchmark-disable" if _has_benchmark() else "addopts=",
            "--pyargs",
            *tests,
        ]
    started = time.monotonic()
    log = testing.parent / f"{name}.log"
    with log.open("w") as output:
        try:
            status = subprocess.run(
                [sys.executable, "-m", "pytest", *arguments],
                cwd=testing,
                env={**environ, "NUMBA_PTXLINK": mode, "PTXLINK_CONFORMANCE_DIR": str(reports)},
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=3600,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            status = -1
    seconds = time.monotonic() - started
    result = _gather(reports)
    result.update(seconds=round(seconds, 1), status=status, log=log.read_text(errors="replace"))
    counts = collections.Counter(result["outcomes"].values())
    summary = ", ".join(
        f"{counts[outcome]} {outcome}" for outcome in ("passed", "failed", "error", "skipped", "xfailed")
    )
    print(
        f"{name:>7}: {summary}; {result['links']} links in {result['processes']} processes; {seconds:.0f} s"
    )
    if status not in (0, 1):
        print(f"pytest ended with {status}; the end of its output:\n{result['log'][-3000:]}")
    sys.stdout.flush()
    return result


def _again(
    worse: list[str], testing: Path, environ: dict[str, str], options: argparse.Namespace
) -> list[str]:
    """Run the modules of the tests that fell once more; return the tests that do so every time."""
    files = {test.partition("::")[0] for test in worse}
    if options.front_end == MLIR:
        modules = sorted(f"tests/{file}" for file in files)
    else:
        modules = sorted(f"numba.cuda.tests.{file.removesuffix('.py').replace('/', '.')}" for file in files)
    # Without a device a launch may crash the process, which xdist survives.
    workers = "1" if options.front_end == MLIR and options.nocuda else "0"
    alone = argparse.Namespace(**{**vars(options), "tests": modules, "workers": workers})
    print(f"Once more, by themselves: {', '.join(modules)}")
    stock = _run("stock again", "0", testing, environ, alone)["outcomes"]
    plugin = _run("plugin again", "1", testing, environ, alone)["outcomes"]
    # A test without a report counts as failed.
    steady = [
        test
        for test in worse
        if plugin.get(test) not in GOOD and stock.get(test, "missing") in (*GOOD, "missing")
    ]
    for test in worse:
        print(f"    {test}  {stock.get(test, 'missing')} -> {plugin.get(test, 'missing')}")
    return steady


def _has_benchmark() -> bool:
    return importlib.util.find_spec("pytest_benchmark") is not None


def _gather(reports: Path) -> dict[str, object]:
    entries = [json.loads(path.read_text()) for path in sorted(reports.glob("*.json"))]
    outcomes: dict[str, str] = {}
    # With xdist the controller knows every outcome, and each worker its own.
    for entry in sorted(entries, key=lambda entry: len(entry["outcomes"])):
        outcomes.update(entry["outcomes"])
    return {
        "outcomes": outcomes,
        "links": sum(entry["assembled"] + entry["linked"] for entry in entries),
        "assembled": sum(entry["assembled"] for entry in entries),
        "linked": sum(entry["linked"] for entry in entries),
        "processes": len(entries),
        "active": any(entry["active"] for entry in entries),
        "reasons": sorted({f"{entry['reason']} ({entry['trigger']})" for entry in entries}),
    }


def _compare(stock: dict[str, object], plugin: dict[str, object]) -> list[str]:
    before, after = stock["outcomes"], plugin["outcomes"]
    fell = sorted(
        test for test, outcome in before.items() if outcome in GOOD and after.get(test, "missing") not in GOOD
    )
    # A test that is expected to fail and passes asserts a limitation, too.
    lifted = [test for test in fell if test in LIFTED or (before[test], after.get(test)) == UNEXPECTED]
    worse = [test for test in fell if test not in lifted]
    for title, tests in (
        ("Pass stock and fail with the plugin", worse),
        ("Assert a limitation of stock that the plugin lifts", lifted),
    ):
        print(f"{title}: {len(tests)}")
        for test in tests:
            print(f"    {test}  {before.get(test, 'missing')} -> {after.get(test, 'missing')}")
    print(f"Links served by the plugin: {plugin['links']} ({plugin['assembled']} by nvPTXCompiler)")
    if worse:
        print(f"The end of the plugin run's output:\n{plugin['log'][-12000:]}")
    return worse


if __name__ == "__main__":
    raise SystemExit(main())
