"""The report of `doctor` about an environment, and the PTX that the driver can load."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ptx_kernels import make_kernel

import numba_ptxlink as pl
from numba_ptxlink import doctor
from numba_ptxlink._config import Config
from numba_ptxlink._tools import find, host_compiler, nvjitlink, nvrtc, nvvm
from numba_ptxlink.cli import main


@pytest.fixture(autouse=True)
def _enabled():
    pl.enable()
    yield
    pl.enable()


@pytest.fixture(autouse=True)
def _without_nvcc(_enabled, monkeypatch):
    monkeypatch.setattr(host_compiler, "nvcc_release", lambda: None)


def with_driver(monkeypatch, version):
    """Pretend that the driver is of CUDA *version*, or that there is none."""
    monkeypatch.setattr(doctor.driver, "version", lambda: version)


@pytest.mark.parametrize(
    ("driver", "isa", "expected"),
    [
        ((13, 0), "9.1", False),
        ((12, 6), "8.6", False),
        ((12, 9), "9.0", False),
        ((99, 0), "9.5", True),
        (None, "7.0", False),
    ],
)
def test_what_the_driver_can_load(monkeypatch, driver, isa, expected):
    """The driver's version decides, by the table of the PTX manual, without a context."""
    with_driver(monkeypatch, driver)
    ptx = make_kernel().replace(".version 8.0", f".version {isa}")
    assert expected is pl.driver_can_load_ptx(ptx)
    assert expected is pl.driver_can_load_ptx(ptx.encode())


@pytest.mark.numba_cuda
def test_every_tool_is_found_with_its_place():
    """The tools of this environment are listed with version and file."""
    components = {component.name: component for component in pl.diagnose().components}
    for name in ("nvPTXCompiler", "nvJitLink", "NVRTC", "nvFatbin", "libNVVM"):
        assert components[name].version
        assert components[name].where.startswith("/")
    assert components["numba-cuda"].version


def codes(diagnosis):
    """Return the cures of the problems, by their codes."""
    return {problem.code: problem.cure for problem in diagnosis.problems}


def test_a_driver_of_an_older_major_version_is_a_problem(monkeypatch):
    """Cubins do not load on a driver of an older major version, and the cure is named."""
    with_driver(monkeypatch, (12, 9))
    assert "numba-ptxlink[toolkit12]" in codes(pl.diagnose())["driver-older"]


@pytest.fixture
def _cuda_12(monkeypatch):
    """Pretend that the tools are those of CUDA 12.9."""
    for tool in (nvjitlink, nvrtc, nvvm):
        monkeypatch.setattr(tool, "version", lambda: (12, 9))
    monkeypatch.setattr(find, "major", lambda: 12)


@pytest.mark.usefixtures("_cuda_12")
@pytest.mark.numba_cuda
def test_an_nvvm_of_a_later_major_version_is_a_problem(monkeypatch):
    """NVVM of CUDA 13 beside nvJitLink of CUDA 12 is named, with the package to install."""
    with_driver(monkeypatch, (12, 9))
    monkeypatch.setattr(nvvm, "version", lambda: (13, 0))
    cures = codes(pl.diagnose())
    assert {"nvjitlink-older"} == set(cures)
    assert "pip install 'numba-ptxlink[toolkit12]' --upgrade" in cures["nvjitlink-older"]


@pytest.mark.usefixtures("_cuda_12")
def test_cures_stay_within_the_major_version(monkeypatch):
    """No cure under CUDA 12 installs a package of CUDA 13 over it."""

    def missing(name):
        raise find.load_error(name, "no such file")

    with_driver(monkeypatch, (12, 4))
    monkeypatch.setattr(nvjitlink, "version", lambda: missing("nvJitLink"))
    monkeypatch.setattr(nvrtc, "version", lambda: missing("nvrtc"))
    problems = [problem for problem in pl.diagnose().problems if problem.code == "tool-missing"]
    assert ["nvJitLink could not be loaded", "NVRTC could not be loaded"] == [
        problem.what.partition(" (")[0] for problem in problems
    ]
    assert all("numba-ptxlink[toolkit12]" in problem.cure for problem in problems)


@pytest.mark.numba_cuda
def test_a_machine_without_a_driver_can_build(monkeypatch):
    """Without a driver there is nothing to cure on a build machine."""
    with_driver(monkeypatch, None)
    diagnosis = pl.diagnose()
    assert () == diagnosis.problems
    assert {"driver": ""} == {
        component.name: component.version for component in diagnosis.components if component.name == "driver"
    }


def test_an_inactive_plugin_has_a_cure():
    """An inactive plugin is a problem with its reason and its cure."""
    pl.disable()
    diagnosis = pl.diagnose()
    assert (False, "disable() was called") == (diagnosis.active, diagnosis.reason)
    assert any("disable() was called" in problem.what for problem in diagnosis.problems)


@pytest.mark.parametrize(
    ("mode", "cure"),
    [("0", "unset NUMBA_PTXLINK, or call numba_ptxlink.enable()"), ("auto", "")],
)
def test_the_variable_has_its_cure(monkeypatch, mode, cure):
    """The cure follows from the value of NUMBA_PTXLINK, not from the words of the reason."""
    monkeypatch.setattr(doctor.switch, "enabled", None)
    monkeypatch.setattr(doctor, "config", lambda: Config(mode=mode))
    assert cure == doctor._activation_cure("any reason")


def test_a_linker_that_loses_structs_is_a_problem(monkeypatch):
    """Release 13.0 of nvJitLink is named, with the command that upgrades it."""
    monkeypatch.setattr(nvjitlink, "version", lambda: (13, 0))
    assert "--upgrade nvidia-nvjitlink" in codes(pl.diagnose())["nvjitlink-structs"]


def test_an_older_nvcc_is_a_problem(monkeypatch):
    """An nvcc too old to read exports is a problem, and the cure names its release for --cuda."""
    monkeypatch.setattr(host_compiler, "nvcc_release", lambda: (12, 4))
    assert "--cuda 12.4" in codes(pl.diagnose())["nvcc-older"]
    monkeypatch.setattr(host_compiler, "nvcc_release", lambda: pl.toolchain().nvptxcompiler)
    assert "nvcc-older" not in codes(pl.diagnose())


@pytest.mark.parametrize("folder", ["lib", ""])
def test_an_nvcc_without_libnvvm_is_a_problem(tmp_path, monkeypatch, folder):
    """An nvcc whose -dlto fails for want of libNVVM is named, with the command for its folder."""
    toolkit, library = tmp_path / "my cuda", tmp_path / "my cuda" / "nvvm" / "lib64" / "libnvvm.so"
    (toolkit / "bin").mkdir(parents=True)
    nvcc = toolkit / "bin" / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho '#$ TOP={toolkit}/bin/..' >&2\n")
    nvcc.chmod(0o755)
    if folder:
        (toolkit / folder).mkdir()
        (toolkit / folder / "libnvvm.so.4").touch()
    monkeypatch.setenv("CUDACXX", str(nvcc))
    monkeypatch.setattr(host_compiler, "nvcc_release", lambda: pl.toolchain().nvptxcompiler)
    cure = codes(pl.diagnose())["nvcc-lto"]
    if not folder:
        assert f"in {toolkit}, or all of CUDA" in cure
        return
    subprocess.run(["/bin/sh", "-c", cure.removeprefix("run `").removesuffix("`")], check=True)
    assert library.resolve() == toolkit / "lib" / "libnvvm.so.4"
    assert "nvcc-lto" not in codes(pl.diagnose())


def test_a_misspelt_variable_is_a_problem(monkeypatch):
    """An environment variable of this package that there is not is named, with those there are."""
    monkeypatch.setenv("NUMBA_PTXLINK_CACHES", "0")
    (problem,) = [problem for problem in pl.diagnose().problems if problem.code == "unknown-variable"]
    assert "NUMBA_PTXLINK_CACHES has no effect" in problem.what
    assert "correct its name to NUMBA_PTXLINK_CACHE or " in problem.cure


def test_the_command_prints_text_and_json(capsys):
    """`numba-ptxlink doctor` prints a table, and everything as JSON."""
    assert 0 == main(["doctor"])
    text = capsys.readouterr().out
    assert text.startswith("active: ")
    assert "nvPTXCompiler" in text
    assert 0 == main(["doctor", "--json"])
    assert json.loads(capsys.readouterr().out)["active"] is True


@pytest.mark.parametrize("kind", ["link", "script", "path"])
def test_the_nvvm_of_a_toolkit_is_shown(tmp_path, monkeypatch, kind):
    """A link, a script or a path with a blank leads from nvcc to libNVVM; a broken library is not shown."""
    installed = Path(find.library("nvvm"))
    libdevice = next(installed.parents[1].glob("**/libdevice.10.bc"))
    libraries = [tmp_path / name / "nvvm" / "lib64" / "libnvvm.so" for name in ("my cuda", "broken")]
    for library in libraries:
        library.parent.mkdir(parents=True)
        shutil.copytree(libdevice.parent, library.parents[1] / "libdevice")
        library.write_bytes(installed.read_bytes() if library == libraries[0] else b"")
    nvcc = tmp_path / "my cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.touch(0o755)
    if kind == "link":
        (tmp_path / "nvcc").symlink_to(nvcc)
    else:
        (tmp_path / "nvcc").write_text(f"#!/bin/sh\necho '#$ TOP={nvcc.parent}/..' >&2\n")
        (tmp_path / "nvcc").chmod(0o755)
    monkeypatch.setenv("CUDACXX", str(nvcc if kind == "path" else tmp_path / "nvcc"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "broken"))
    versions = {component.where: component.version for component in pl.diagnose().components}
    assert [versions[str(installed)], None] == [versions.get(str(library)) for library in libraries]


@pytest.mark.parametrize(
    ("llvmlite", "advice"),
    [(True, "`numba-ptxlink cpu -- COMMAND`"), (False, "pip install 'numba-ptxlink[cpu]'")],
)
def test_without_a_driver_the_cpu_is_named(monkeypatch, capsys, llvmlite, advice):
    """Without a driver, `doctor` says how programs run on the CPU, or which extra that needs."""
    with_driver(monkeypatch, None)
    if not llvmlite:
        monkeypatch.setitem(sys.modules, "llvmlite", None)
    elif not importlib.util.find_spec("llvmlite"):
        pytest.skip("llvmlite is not installed")
    assert 0 == main(["doctor"])
    line = next(line for line in capsys.readouterr().out.splitlines() if "no driver" in line)
    assert advice in line


def test_a_driver_of_an_unknown_release_is_no_missing_driver(monkeypatch, capsys):
    """For a driver that is newer than this package, `doctor` does not say which PTX it compiles."""
    with_driver(monkeypatch, (99, 0))
    main(["doctor"])
    output = capsys.readouterr().out
    assert "compiles: unknown for the driver's release; upgrade numba-ptxlink" in output
