"""What `doctor` finds in an environment, and what the driver can load."""

from __future__ import annotations

import importlib
import json
import sys

import pytest
from ptx_kernels import make_kernel

import numba_ptxlink as pl
from numba_ptxlink import doctor
from numba_ptxlink._formats import ltoir
from numba_ptxlink._link import backends
from numba_ptxlink._numba_cuda import release
from numba_ptxlink._tools import host_compiler, nvjitlink, nvvm, ptxas
from numba_ptxlink.cli import main


@pytest.fixture(autouse=True)
def _enabled():
    pl.enable()
    yield
    pl.enable()


def with_driver(monkeypatch, version):
    """Pretend that the driver is of CUDA *version*, or that there is none."""
    monkeypatch.setattr(doctor.driver, "version", lambda: version)


@pytest.mark.parametrize(
    ("driver", "isa", "expected"),
    [
        ((13, 0), "9.0", True),
        ((13, 0), "9.1", False),
        ((12, 6), "8.5", True),
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


def test_text_that_declares_no_version_cannot_be_loaded(monkeypatch):
    """What is no PTX is nothing that a driver loads."""
    with_driver(monkeypatch, (13, 0))
    assert pl.driver_can_load_ptx("int main() {}") is False


def test_every_tool_is_found_with_its_place():
    """The tools of this environment are listed with version and file."""
    found = {each.name: each for each in pl.diagnose().components}
    for name in ("nvPTXCompiler", "nvJitLink", "NVRTC", "nvFatbin", "NVVM"):
        assert found[name].version
        assert found[name].where.startswith("/")
    assert found["numba-cuda"].version


def test_an_older_driver_is_explained(monkeypatch):
    """With a driver older than the toolkit, what fails elsewhere and why it does not here is told."""
    with_driver(monkeypatch, (13, 0))
    diagnosis = pl.diagnose()
    assert "9.0" == diagnosis.driver_isa
    able = {each.what: each.able for each in diagnosis.abilities}
    assert able["NVVM's PTX, assembled by nvPTXCompiler"] is True
    assert able["NVVM's PTX, compiled by the driver"] is False
    assert able["cubins, loaded by the driver"] is True
    (problem,) = [each for each in diagnosis.problems if "compiled by the driver" in each.what]
    assert problem.cure.startswith("none needed here")


def test_a_driver_of_an_older_major_version_is_a_problem(monkeypatch):
    """Cubins do not load on a driver of an older major version, and the cure is named."""
    with_driver(monkeypatch, (12, 9))
    problems = [each for each in pl.diagnose().problems if each.what.startswith("cubins, loaded")]
    assert 1 == len(problems)
    assert "upgrade" in problems[0].cure


@pytest.fixture
def _cuda_12(monkeypatch):
    """Pretend that the tools are those of CUDA 12.9."""
    for tool in (nvjitlink, doctor.nvrtc):
        monkeypatch.setattr(tool, "version", lambda: (12, 9))
    monkeypatch.setattr(doctor.packages, "major", lambda: 12)
    monkeypatch.setattr(doctor, "nvvm_version", lambda _: (12, 9))
    monkeypatch.setattr(doctor, "too_new", lambda _: None)


@pytest.mark.usefixtures("_cuda_12")
@pytest.mark.parametrize(("driver", "assembled"), [((12, 4), False), ((13, 0), True)])
def test_a_toolkit_as_old_as_its_driver_links_what_that_loads(monkeypatch, driver, assembled):
    """Under CUDA 12, links are loaded by drivers of CUDA 12, and assemble()'s cubins are not."""
    with_driver(monkeypatch, driver)
    diagnosis = pl.diagnose()
    able = {each.what: each.able for each in diagnosis.abilities if "cubins" in each.what}
    expected = {"cubins, loaded by the driver": True, "cubins of assemble(), loaded by the driver": assembled}
    assert expected == able
    cures = [each.cure for each in diagnosis.problems if "assemble()" in each.what]
    assert assembled is (not cures)
    assert all("take the toolkit's nvJitLink" in cure for cure in cures)


@pytest.mark.usefixtures("_cuda_12")
def test_an_nvvm_of_a_later_major_version_is_a_problem(monkeypatch):
    """NVVM of CUDA 13 beside nvJitLink of CUDA 12 is named, with the package to install."""
    release = pl.toolchain().nvptxcompiler
    with_driver(monkeypatch, (12, 9))
    monkeypatch.setattr(doctor, "nvvm_version", lambda _: release)
    monkeypatch.setattr(doctor, "too_new", nvvm.too_new)

    def link(inputs, flags):
        header = ltoir.read(inputs[0][2])
        assert (75, ("-arch=sm_75", "-lto")) == (header.sm, flags)
        raise pl.LinkError("may need newer version of nvJitLink library")

    monkeypatch.setattr(nvjitlink, "link", link)
    diagnosis = pl.diagnose()
    (problem,) = [each for each in diagnosis.problems if each.what.startswith("NVVM's LTO-IR")]
    assert "may need newer version of nvJitLink library. NVVM is of CUDA 13." in problem.what
    assert "libnvvm.so" in problem.what
    assert "install nvidia-cuda-nvcc-cu12, as with `pip install 'numba-ptxlink[cu12]'`" == problem.cure
    # Nor does nvJitLink read its PTX.
    assert {each.what: each.able for each in diagnosis.abilities}["cubins, loaded by the driver"] is False


def test_an_nvvm_of_the_same_major_version_is_none():
    """What is older, or of this environment, is no problem."""
    assert None is nvvm.too_new(pl.toolchain().nvjitlink)
    assert not [each for each in pl.diagnose().problems if "NVVM" in each.what]


@pytest.mark.parametrize(
    ("there", "cure"),
    [
        ((), "install nvidia-cuda-nvcc-cu12, as with `pip install 'numba-ptxlink[cu12]'`"),
        ((12, 13), "`pip uninstall nvidia-nvvm`, so that the library of nvidia-cuda-nvcc-cu12 is found"),
        ((12,), "have the library of nvidia-cuda-nvcc-cu12 found before that one"),
    ],
)
def test_the_cure_of_a_newer_nvvm_depends_on_what_is_installed(monkeypatch, there, cure):
    """The package is missing, there are two, or a toolkit of the machine is found first."""
    monkeypatch.setattr(doctor.packages, "major", lambda: 12)
    monkeypatch.setattr(doctor.packages, "location", lambda _, release: "/site" if release in there else None)
    assert nvvm.too_new((12, 9))[1].startswith(cure)


@pytest.mark.usefixtures("_cuda_12")
def test_cures_stay_within_the_major_version(monkeypatch):
    """No cure under CUDA 12 installs a package of CUDA 13 over it."""

    def missing():
        raise pl.LinkError("missing")

    with_driver(monkeypatch, (12, 4))
    for tool in (nvjitlink, doctor.nvrtc):
        monkeypatch.setattr(tool, "version", missing)
    cures = [each.cure for each in pl.diagnose().problems if each.what.startswith(("nvJitLink", "NVRTC"))]
    assert ["pip install 'numba-ptxlink[cu12]'"] * 2 == cures


def test_the_probe_uses_no_option_of_newer_linkers(monkeypatch):
    """What links LTO-IR is tried with the options that CUDA 12 has too."""
    vectors = []
    monkeypatch.setattr(
        nvjitlink, "link", lambda _, flags: vectors.append(flags) or nvjitlink.Product(b"", "", "")
    )
    assert {each.what: each.able for each in pl.diagnose().abilities}["NVRTC's LTO-IR, linked by nvJitLink"]
    assert [("-arch=sm_75", "-lto")] * 2 == vectors


def test_a_machine_without_a_driver_can_build(monkeypatch):
    """Without a driver there is nothing to cure on a build machine."""
    with_driver(monkeypatch, None)
    diagnosis = pl.diagnose()
    assert "" == diagnosis.driver_isa
    assert ["there is no driver: code can be compiled and linked, but not run"] == [
        each.what for each in diagnosis.problems if "driver" in each.what
    ]


def test_an_inactive_plugin_has_a_cure():
    """An inactive plugin is a problem with its reason and its cure."""
    pl.disable()
    diagnosis = pl.diagnose()
    assert (False, "disable() was called") == (diagnosis.active, diagnosis.reason)
    assert any("disable() was called" in each.what for each in diagnosis.problems)


@pytest.mark.parametrize(
    ("reason", "cure"),
    [
        ("NUMBA_PTXLINK=0", "unset NUMBA_PTXLINK"),
        ("NUMBA_PTXLINK=off", "unset NUMBA_PTXLINK"),
        ("NUMBA_PTXLINK='2' is unknown; set it to 1, 0, auto", "set the variable"),
        ("numba-ptxlink is damaged (ImportError: engine); install it again", "install numba-ptxlink again"),
        ("NUMBA_PTXLINK=auto: the driver is as new as the toolkit", "none needed"),
        ("the CUDA simulator is in use (NUMBA_ENABLE_CUDASIM)", "unset NUMBA_ENABLE_CUDASIM"),
        ("numba-cuda 0.1 is not supported; install numba-cuda>=0.30", "install the release that"),
        ("numba-ptxlink needs cffi, which is not installed; install it: pip install cffi", "install it: pip"),
        ("numba-ptxlink is in app.pyz; install it with pip beside that", "install it with pip beside"),
    ],
)
def test_every_reason_has_its_cure(reason, cure):
    """What helps follows from the reason."""
    assert cure in doctor._activation_cure(reason)


def test_a_second_installation_is_a_problem(monkeypatch, tmp_path):
    """Which of them is imported is told, and that the hook may be the other's."""
    assert not [each for each in pl.diagnose().problems if "is there" in each.what]
    info = tmp_path / "numba_ptxlink-0.0.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: numba-ptxlink\nVersion: 0.0.9\n")
    monkeypatch.syspath_prepend(tmp_path)
    (problem,) = [each for each in pl.diagnose().problems if "is there" in each.what]
    assert f"is there 2 times: 0.0.9 in {tmp_path} and {pl.__version__} in " in problem.what
    assert "PYTHONPATH" in problem.cure


def test_a_missing_nvjitlink_is_a_problem(monkeypatch):
    """Without nvJitLink the cure is the extra that brings it."""

    def missing():
        raise pl.LinkError("nvJitLink could not be loaded")

    monkeypatch.setattr(nvjitlink, "version", missing)
    (problem,) = [each for each in pl.diagnose().problems if each.what.startswith("nvJitLink is missing")]
    assert "numba-ptxlink[cu13]" in problem.cure


def test_pynvjitlink_without_a_driver_is_not_missing(monkeypatch, tmp_path):
    """Where it is installed, what it lacks is a driver, in the table and in the error of a link."""
    (tmp_path / "pynvjitlink").mkdir()
    reason = "libcuda.so.1: cannot open shared object file"
    (tmp_path / "pynvjitlink" / "__init__.py").write_text(f"raise ImportError({reason!r})")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pynvjitlink", raising=False)
    for there, word, advice in ((False, "", "install it with"), (True, "present", "Install NVIDIA's driver")):
        if there:
            info = tmp_path / "pynvjitlink_cu12-0.7.0.dist-info"
            info.mkdir()
            (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pynvjitlink-cu12\nVersion: 0.7.0\n")
        (found,) = [each for each in pl.diagnose().components if each.name == "pynvjitlink"]
        assert word == found.version
        assert there is ("needs a driver" in found.where)
        with pytest.raises(pl.LinkError, match=advice) as caught:
            pl.link(make_kernel(), arch="sm_80", backend="pynvjitlink")
        assert there is not ("pip install" in str(caught.value))


def test_an_older_nvcc_is_a_problem(monkeypatch):
    """One that cannot read what exports hold has its release for --cuda in the cure."""
    monkeypatch.setattr(host_compiler, "nvcc_release", lambda: (12, 4))
    (problem,) = [each for each in pl.diagnose().problems if "nvcc" in each.what]
    assert "--cuda 12.4" in problem.cure
    assert "reads neither the PTX of 1" in problem.what
    monkeypatch.setattr(doctor, "nvvm_version", lambda _: (12, 4))
    (problem,) = [each for each in pl.diagnose().problems if "nvcc" in each.what]
    assert "it does not read the machine code of 1" in problem.what
    monkeypatch.setattr(host_compiler, "nvcc_release", lambda: pl.toolchain().nvptxcompiler)
    assert not [each for each in pl.diagnose().problems if "nvcc" in each.what]


def test_an_nvcc_that_reads_what_exports_hold_is_none(monkeypatch):
    """Exports for an older toolkit hold the code of its own compiler, which a newer nvcc reads."""
    monkeypatch.setattr(host_compiler, "nvcc_release", lambda: (13, 0))
    monkeypatch.setattr(doctor, "nvvm_version", lambda _: (12, 9))
    monkeypatch.setattr(backends, "installed", lambda: ("nvjitlink", (12, 9)))
    monkeypatch.setattr(ptxas, "find", lambda release: ("ptxas", release))
    assert not [each for each in pl.diagnose().problems if "nvcc" in each.what]


def test_an_unsupported_release_that_cannot_be_imported(monkeypatch):
    """A front end of another release that fails to be imported is told to be unsupported, as by an export."""
    importing = importlib.import_module

    def failing(name, *package):
        if name == "numba.cuda":
            raise AttributeError(name)
        return importing(name, *package)

    monkeypatch.setattr("numba_cuda.__version__", "0.28.0")
    monkeypatch.setattr(doctor.importlib, "import_module", failing)
    found = doctor._import_front_ends()["numba-cuda"]
    assert found.what.startswith("numba-cuda 0.28.0 is not supported: numba.cuda cannot be imported")
    assert found.cure.startswith("install numba-cuda>=")
    with pytest.raises(pl.ExportError, match=r"^numba-cuda 0\.28\.0 is not supported; install numba-cuda>="):
        release.require_compiler()


def test_a_numpy_that_is_too_new_is_the_reason(monkeypatch):
    """With a NumPy that numba-cuda does not run with, that is why the plugin is not active there."""
    importlib.import_module("numba.cuda")
    pl.disable()
    monkeypatch.setattr("numpy.__version__", "2.5.1")
    said = r"does not run with NumPy 2\.5\.1; run `pip install 'numpy<2\.5'`"
    with pytest.raises(pl.ActivationError, match=said) as caught:
        pl.enable()
    assert "install the release of NumPy" in doctor._activation_cure(str(caught.value))
    assert "numpy" in pl.toolchain().packages


def test_an_nvjitlink_that_loses_structs_is_a_problem(monkeypatch):
    """One that passes structs wrongly is to be upgraded."""
    monkeypatch.setattr(nvjitlink, "version", lambda: (13, 0))
    (problem,) = [each for each in pl.diagnose().problems if "structs" in each.what]
    assert "--upgrade nvidia-nvjitlink" in problem.cure


def test_the_command_prints_text_and_json(capsys):
    """`numba-ptxlink doctor` prints a table, and everything as JSON."""
    assert 0 == main(["doctor"])
    text = capsys.readouterr().out
    assert text.startswith("active: ")
    assert "nvPTXCompiler" in text
    assert 0 == main(["doctor", "--json"])
    assert json.loads(capsys.readouterr().out)["active"] is True


def test_the_compilers_tell_architectures_and_ptx_versions(capsys):
    """Each compiler and linker has the architectures it accepts and its PTX version, as text and as JSON."""
    assert 0 == main(["doctor", "--json"])
    listed = {tool["name"]: tool for tool in json.loads(capsys.readouterr().out)["compilers"]}
    assert ["nvPTXCompiler", "NVRTC", "nvJitLink", "NVVM"] == [*listed]
    for name, tool in listed.items():
        assert {"sm_80", "sm_90"} <= {*tool["archs"]}, name
        assert tool["archs"] == sorted(tool["archs"], key=lambda sm: int(sm[3:]))
        assert tool["ptx"].partition(".")[0] in ("8", "9"), name
    assert [arch.sm for arch in pl.toolchain().archs] == listed["nvPTXCompiler"]["archs"]
    assert 0 == main(["doctor"])
    text = capsys.readouterr().out
    assert f"NVVM writes PTX {listed['NVVM']['ptx']}, for {', '.join(listed['NVVM']['archs'])}" in text


def test_an_architecture_that_nvvm_lacks_is_one_that_doctor_does_not_list(tmp_path):
    """The hint to run doctor is given where its list has the answer."""
    (tmp_path / "old.py").write_text(
        "from numba_ptxlink import udf\n\n@udf('int32(int32)')\ndef f(x):\n    return x\n"
    )
    with pytest.raises(pl.ExportError, match="`numba-ptxlink doctor` lists those that it compiles for"):
        pl.export(tmp_path / "old.py", tmp_path, archs=["sm_42"])
    (nvvm,) = [tool for tool in pl.diagnose().compilers if tool.name == "NVVM"]
    assert "sm_42" not in nvvm.archs
