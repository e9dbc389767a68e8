"""What is said where the toolkit's libraries are not found."""

from __future__ import annotations

import site
from types import SimpleNamespace

import pytest

import numba_ptxlink as pl
from numba_ptxlink import doctor, inspection
from numba_ptxlink._arch import PtxVersion
from numba_ptxlink._export import build
from numba_ptxlink._formats.ptx.isa import release_of
from numba_ptxlink._front_end.protocol import CompileOptions
from numba_ptxlink._link.inputs import Input
from numba_ptxlink._tools import nvjitlink, nvrtc, nvvm, packages

ARCH = pl.Arch.of("sm_80")
REASON = 'Failure finding "libnvrtc.so.13": No such file,\nNo such file'


@pytest.fixture
def without_nvrtc(monkeypatch):
    """Have NVRTC not be found, as cuda-pathfinder tells it."""

    def fail():
        raise RuntimeError(REASON)

    def binding():
        raise packages.missing("NVRTC", "nvidia-cuda-nvrtc", REASON)

    monkeypatch.setattr(nvrtc, "_binding", binding)
    nvrtc.supported_archs.cache_clear()
    return fail


def test_an_export_names_the_missing_library(without_nvrtc):
    """NVVM refused nothing where NVRTC is missing, and one line says so, with the cure."""
    front_end = SimpleNamespace(compile_ir=lambda *_, **__: without_nvrtc())
    compiled = SimpleNamespace(front_end=front_end, signatures=[SimpleNamespace(name="damp")], arch=ARCH)
    with pytest.raises(pl.ExportError) as caught:
        build._nvvm(compiled, [], CompileOptions(), lto=False)
    said = str(caught.value)
    assert said.startswith("damp cannot be compiled for sm_80: NVRTC could not be loaded (Failure finding")
    assert said.endswith("install it with `pip install 'numba-ptxlink[cu13]'`.")
    assert "\n" not in said
    assert "one by one" not in said


@pytest.mark.parametrize("tool", ["nvidia-nvjitlink", "nvidia-cuda-nvrtc"])
def test_packages_that_are_installed_elsewhere_are_no_reason_to_install(monkeypatch, tmp_path, tool):
    """The cure for wheels outside the interpreter's site directories is another interpreter."""
    assert "" == packages.elsewhere(tool)
    folder = packages.location(tool)
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.setattr(site, "ENABLE_USER_SITE", False)
    assert packages.elsewhere(tool).startswith(f"{tool} is installed in {folder}, which is no site directory")


@pytest.mark.usefixtures("without_nvrtc")
def test_doctor_claims_no_work_without_nvrtc():
    """Without NVRTC numba-cuda compiles nothing, which is a problem and no ability."""
    diagnosis = pl.diagnose()
    (ability,) = [each for each in diagnosis.abilities if each.what.startswith("NVVM's PTX, assembled")]
    assert not ability.able
    (problem,) = [each for each in diagnosis.problems if "NVRTC" in each.what]
    assert "numba-cuda compiles nothing" in problem.what


def test_doctor_tells_the_nvvm_that_is_loaded(monkeypatch):
    """The version is the loaded library's, also where the package of another one is installed."""
    monkeypatch.setattr(doctor, "_library", lambda _: "/usr/local/cuda-13.0/lib/libnvvm.so.4")
    monkeypatch.setattr(nvvm, "emitted_isa", lambda _: PtxVersion(9, 0))
    (found,) = [each for each in pl.diagnose().components if each.name == "NVVM"]
    assert "13.0" == found.version


def test_the_release_of_a_ptx_version():
    """PTX tells the release of the toolkit that wrote it, the newest where several share a version."""
    expected = {
        (9, 5): (13, 5),
        (9, 0): (13, 0),
        (8, 8): (12, 9),
        (8, 5): (12, 6),
        (6, 0): (9, 0),
        (5, 0): None,
    }
    assert expected == {isa: release_of(PtxVersion(*isa)) for isa in expected}


@pytest.fixture
def without_nvjitlink(monkeypatch):
    """Have nvJitLink not be found."""

    def binding():
        raise packages.missing("nvJitLink", "nvidia-nvjitlink", "no such file")

    monkeypatch.setattr(nvjitlink, "_binding", binding)


@pytest.mark.usefixtures("without_nvjitlink")
def test_inspect_names_the_missing_nvjitlink():
    """LTO-IR, compressed in a fat binary too, is not read because nvJitLink is missing."""
    ltoir = nvrtc.compile_source("", "a.cu", ARCH, output="ltoir").code
    assert "nvJitLink could not be loaded" in pl.inspect(ltoir, sass=False).notes[0]
    entry = SimpleNamespace(kind="ltoir", arch="sm_80", content=lambda: None)
    part = inspection._part(Input("fatbin", "a.fatbin", b""), "", entry, sass=False, compile_it=True)
    assert "nvJitLink could not be loaded" in part.notes[0]
    assert "compressed" not in part.notes[0]


@pytest.mark.usefixtures("without_nvjitlink")
def test_a_missing_nvjitlink_is_told_once():
    """The reason is not wrapped in itself."""
    with pytest.raises(pl.LinkError) as caught:
        nvjitlink.identity()
    assert 1 == str(caught.value).count("could not be loaded")
