"""The commands of the documentation's table of artifacts, each of them run."""

from __future__ import annotations

import re

import pytest
from artifact_page import CALLS, KINDS, TOOLS, command_of, possible, rows, write_sources
from cuda_toolkit import lay_out, linked_functions, shell

import numba_ptxlink as pl
from numba_ptxlink._tools import nvrtc

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(app LANGUAGES CXX CUDA)
set(BUILD ${CMAKE_SOURCE_DIR}/build)
"""
TARGET = """
add_executable(app calls.cu)
target_include_directories(app PRIVATE ${{BUILD}})
set_target_properties(app PROPERTIES CUDA_SEPARABLE_COMPILATION ON INTERPROCEDURAL_OPTIMIZATION {lto})
{command}
"""


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory):
    """Return the toolkit of the wheels."""
    return lay_out(tmp_path_factory.mktemp("toolkit"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with an export, and sources that use it."""
    folder = tmp_path_factory.mktemp("artifacts")
    write_sources(folder)
    pl.export(folder / "udfs.py", folder / "build", archs=["sm_90"], emit=KINDS)
    return folder


def test_every_pair_has_its_row():
    """The table says of each artifact what each tool does with it."""
    assert set(rows()) == {(tool, kind) for tool in TOOLS for kind in KINDS}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "kind"), [(tool, kind) for tool in ("nvcc", "nvcc -dlto") for kind in possible(tool)]
)
def test_nvcc(toolkit, folder, tool, kind):
    """What nvcc takes is linked into a program; with -dlto it is inlined but for PTX and machine code."""
    shell(f"CUDA={toolkit}; {command_of(tool, kind)}", folder, toolkit)
    functions = linked_functions(folder / "app")["sm_90"]
    assert "apply" in functions
    is_called = tool == "nvcc" or "(not inlined)" in rows()[tool, kind]
    assert ("damp" in functions) is is_called
    assert ("scale" in functions) or kind not in ("object", "library")


@pytest.mark.slow
@pytest.mark.parametrize("kind", possible("nvlink"))
def test_nvlink(toolkit, folder, kind):
    """What nvlink takes is in the cubin that it links."""
    option = "-dlto" if kind == "ltoir" else ""
    shell(f"nvcc -dc {option} -arch=sm_90 -Ibuild calls.cu -o calls.o", folder, toolkit)
    shell(f"CUDA={toolkit}; {command_of('nvlink', kind)}", folder, toolkit)
    functions = linked_functions(folder / "app.cubin")[""]
    assert "apply" in functions
    assert ("damp" in functions) is not bool(option)


@pytest.mark.slow
@pytest.mark.parametrize("kind", possible("NVRTC + nvJitLink"))
def test_nvjitlink(folder, kind, monkeypatch):
    """What nvJitLink takes is linked with what NVRTC compiled."""
    from cuda.bindings import nvjitlink

    call = re.fullmatch(
        r'nvJitLinkAddFile\(handle, NVJITLINK_INPUT_(\w+), "(.*)"\)', command_of("NVRTC + nvJitLink", kind)
    )
    lto = kind == "ltoir"
    caller = nvrtc.compile_source(
        CALLS,
        "calls.cu",
        pl.Arch.of("sm_90"),
        output="ltoir" if lto else "ptx",
        flags=["-rdc=true"],
        include_dirs=[folder / "build", *nvrtc.toolkit_include_dirs()],
    ).code
    monkeypatch.chdir(folder)
    options = ["-arch=sm_90", *(["-lto"] if lto else [])]
    handle = nvjitlink.create(len(options), options)
    form = nvjitlink.InputType.LTOIR if lto else nvjitlink.InputType.PTX
    nvjitlink.add_data(handle, form, caller, len(caller), "calls")
    nvjitlink.add_file(handle, getattr(nvjitlink.InputType, call[1]), call[2])
    nvjitlink.complete(handle)
    cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
    nvjitlink.get_linked_cubin(handle, cubin)
    nvjitlink.destroy(handle)
    path = folder / "jit.cubin"
    path.write_bytes(cubin)
    functions = linked_functions(path)[""]
    assert "apply" in functions
    assert ("damp" in functions) is not lto


@pytest.mark.slow
def test_cmake(toolkit, folder):
    """What CMake takes is linked in a project, inlined where the table asks for that."""
    project, inlined = PROJECT, {}
    for kind in possible("CMake"):
        inlined[kind] = "INTERPROCEDURAL_OPTIMIZATION" in rows()["CMake", kind]
        lto = "ON" if inlined[kind] else "OFF"
        target = TARGET.format(command=command_of("CMake", kind), lto=lto)
        project += re.sub(r"\(app\b", f"(app_{kind}", target)
    (folder / "CMakeLists.txt").write_text(project)
    shell(
        "cmake -G Ninja -S . -B cmake -DCMAKE_CUDA_ARCHITECTURES=90 && cmake --build cmake", folder, toolkit
    )
    for kind, is_inlined in inlined.items():
        functions = linked_functions(folder / "cmake" / f"app_{kind}")["sm_90"]
        assert "apply" in functions
        assert ("damp" in functions) is not is_inlined
