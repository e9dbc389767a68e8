"""The example of build systems: CMake, make and Meson build it, and rebuild only the parts of an edit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import environments
import pytest
from cuda_toolkit import lay_out, linked_functions, shell

from numba_ptxlink.linker import INCLUDE_DIR

EXAMPLE = Path(__file__).parents[1] / "examples" / "cmake"
CMAKE = INCLUDE_DIR / "cmake"
KERNELS = {"_Z5applyPfi", "scale"}


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory):
    """Return the toolkit of the wheels."""
    return lay_out(tmp_path_factory.mktemp("toolkit"))


@pytest.fixture
def folder(tmp_path):
    """Return a copy of the example."""
    shutil.copytree(EXAMPLE, tmp_path / "example", ignore=shutil.ignore_patterns("build*", "__pycache__"))
    return tmp_path / "example"


class Build:
    """A build of the example by *command*, in which *program* is made."""

    def __init__(self, folder: Path, toolkit: Path, command: str, program: str) -> None:
        self.folder, self.toolkit, self.command = folder, toolkit, command
        self.program = folder / program

    def run(self) -> tuple[bool, bool]:
        """Build, and return whether Python was exported, and whether the program was linked."""
        before = self.program.stat().st_mtime_ns if self.program.exists() else 0
        output = shell(self.command, self.folder, self.toolkit)
        return "Host code of the object" in output, self.program.stat().st_mtime_ns != before

    def check_rebuilds(self) -> None:
        """Check that an edit of a file that was imported is built again, and nothing else is."""
        decay = self.folder / "decay.py"
        assert self.run() == (True, True)
        assert self.run() == (False, False)
        (self.folder / "other.py").write_text("")
        assert self.run() == (False, False)
        decay.write_text("# A comment.\n" + decay.read_text())
        assert self.run() == (True, False)
        assert self.run() == (False, False)
        decay.write_text(decay.read_text().replace("0.5 *", "0.25 *"))
        assert self.run() == (True, True)
        assert self.run() == (False, False)

    def check_deleted(self, exported: Path) -> None:
        """Check that a file of the folder *exported* that was deleted is exported again."""
        for name in ("udfs.o", "udfs.h"):
            (exported / name).unlink()
            assert self.run() == (True, True)
            assert self.run() == (False, False)


def check_program(program: Path, *, inlined: bool = False) -> None:
    """Check that *program* has the kernels for both architectures, and the function if not *inlined*."""
    functions = linked_functions(program)
    assert set(functions) == {"sm_80", "sm_90"}
    for linked in functions.values():
        assert linked >= KERNELS
        assert ("damp" in linked) is not inlined


def configure(folder: Path, toolkit: Path, *options: str) -> None:
    """Configure the example."""
    choices = " ".join((f"-DCMAKE_PREFIX_PATH={CMAKE}", "-DCMAKE_CUDA_ARCHITECTURES='80;90'", *options))
    shell(f"cmake -S . -B build {choices}", folder, toolkit)


@pytest.mark.slow
@pytest.mark.parametrize("generator", ["Ninja", pytest.param("Unix Makefiles", marks=pytest.mark.long)])
def test_cmake(folder, toolkit, generator):
    """The example is linked as machine code and as LTO-IR, and rebuilt after an edit."""
    configure(folder, toolkit, f"-G '{generator}'")
    build = Build(folder, toolkit, "cmake --build build --verbose", "build/damping")
    build.check_rebuilds()
    build.check_deleted(folder / "build" / "udfs")
    check_program(build.program)
    inlined = "version 3.24" not in shell("cmake --version", folder, toolkit)
    check_program(folder / "build" / "damping_lto", inlined=inlined)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setup", "command", "program"),
    [
        ("true", "make CUDA={}", "damping"),
        ("meson setup build", "ninja -v -C build", "build/damping"),
    ],
)
def test_make_and_meson(folder, toolkit, setup, command, program):
    """The Makefile and the meson.build of the example do the same."""
    shell(setup, folder, toolkit)
    build = Build(folder, toolkit, command.format(toolkit), program)
    build.check_rebuilds()
    build.check_deleted(folder / "build")
    check_program(build.program)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("udfs SOURCES udfs.py", "give ARCHITECTURES, set CMAKE_CUDA_ARCHITECTURES, or give HOST"),
        ("udfs SOURCES udfs.py ARCHITECTURES some", 'such as 80, 90a or native, and not "some"'),
        ("udfs SOURCES udfs.py OPTIONS --name=other", "has --name among its OPTIONS"),
        ("udfs SOURCES udfs.py sub/udfs.py ARCHITECTURES 80", "has two SOURCES called udfs.py"),
        (
            "udfs SOURCES nothing.py ARCHITECTURES 80",
            "nothing.py among its SOURCES, and there is no such file",
        ),
        ("udfs ARCHITECTURES 80", "has neither SOURCES nor a MODULE, or has both"),
        (
            "udfs SOURCES udfs.py MODULE udfs ARCHITECTURES 80",
            "has neither SOURCES nor a MODULE, or has both",
        ),
        ("udfs SOURCES udfs.py HOST", "has HOST, and the project does not enable the language CXX"),
    ],
)
def test_wrong_arguments_of_cmake(tmp_path, call, message):
    """Wrong arguments of the CMake function are named in its error."""
    (tmp_path / "udfs.py").touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "udfs.py").touch()
    output = configured(tmp_path, "0.1", f"numba_ptxlink_add_library({call})")
    assert message in output


@pytest.mark.parametrize(
    ("find_arguments", "message"),
    [
        ("", "FOUND 0.1.0"),
        ("0.0.1...0.2", "FOUND 0.1.0"),
        ("0.0.1...0.0.2", 'compatible with requested version range "0.0.1...0.0.2"'),
        ("99", 'compatible with requested version "99"'),
        ("COMPONENTS device", "the component device, and NumbaPtxlink has no components"),
        ("OPTIONAL_COMPONENTS device", "FOUND 0.1.0"),
    ],
)
def test_cmake_finds_the_package_of_the_environment_on_path(tmp_path, find_arguments, message):
    """find_package needs no path to the package, and knows versions, ranges and that it has no components."""
    assert message in configured(
        tmp_path, find_arguments, 'message(FATAL_ERROR "FOUND ${NumbaPtxlink_VERSION}")'
    )


@pytest.mark.parametrize("script", ["", "#!/gone/bin/python\n", "#!/bin/sh\necho broken >&2; exit 3\n"])
def test_a_command_that_cannot_be_run_fails_when_cmake_configures(tmp_path, script):
    """A build folder whose environment is gone names the command and the cure, not only when it builds."""
    command = tmp_path / "numba-ptxlink"
    if script:
        command.write_text(script)
        command.chmod(0o755)
    output = configured(tmp_path, "0.1", "", f"-DNUMBA_PTXLINK_EXECUTABLE={command}")
    assert f"NUMBA_PTXLINK_EXECUTABLE is {command}, which cannot be run" in output
    assert "Configure with --fresh" in output
    assert ("broken" in output) is ("broken" in script)


def configured(folder: Path, find_arguments: str, call: str, *options: str) -> str:
    """Return CMake's output, on one line, for a project that finds the package and then fails."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("there is no cmake")
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.24)\nproject(wrong LANGUAGES NONE)\n"
        f"find_package(NumbaPtxlink {find_arguments} CONFIG REQUIRED)\n{call}\n"
    )
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        [cmake, "-S", folder, "-B", folder / "build", *options],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode
    return " ".join(done.stderr.split())


HOST_PROJECT = """
cmake_minimum_required(VERSION 3.24)
project(host LANGUAGES {languages})
set(CMAKE_CXX_FLAGS "-O2 -ffast-math")
find_package(NumbaPtxlink CONFIG REQUIRED)
numba_ptxlink_add_library(udfs SOURCES udfs.py HOST {options})
add_executable(unit {main})
set_target_properties(unit PROPERTIES CUDA_SEPARABLE_COMPILATION ON)
target_link_libraries(unit PRIVATE udfs)
"""
HOST_UDFS = """
from numba_ptxlink import udf


@udf("float16(float16)")
def twice(x):
    return x + x
"""
HOST_MAIN = """
#include "udfs.h"
#include <cstdio>
#if defined(__CUDACC__)
__global__ void kernel(__half* x) {{ *x = twice(*x); }}
#endif
int main() {{ std::printf("%g\\n", (double)__half2float(twice(__float2half(1.5f)))); }}
"""


@pytest.mark.slow
@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
@pytest.mark.parametrize("main", ["main.cpp", "main.cu"])
def test_cmake_compiles_host_versions(tmp_path, toolkit, generator, main):
    """Host versions are built beside the object with CUDA, and alone without it; an edit rebuilds both."""
    is_cuda = main.endswith(".cu")
    languages, options = ("CXX CUDA", "ARCHITECTURES 80") if is_cuda else ("CXX", "")
    text = HOST_PROJECT.format(languages=languages, options=options, main=main)
    (tmp_path / "CMakeLists.txt").write_text(text)
    (tmp_path / "udfs.py").write_text(HOST_UDFS)
    (tmp_path / main).write_text(HOST_MAIN.format())
    include = f"-DCMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES={toolkit / 'include'}"
    choices = f"-DCMAKE_PREFIX_PATH={CMAKE} -DCMAKE_CUDA_ARCHITECTURES=80 {include}"
    shell(f"cmake -G '{generator}' -S . -B build {choices}", tmp_path, toolkit)
    for expression, result in (("x + x", "3"), ("x * x", "2.25")):
        (tmp_path / "udfs.py").write_text(HOST_UDFS.replace("x + x", expression))
        shell("cmake --build build", tmp_path, toolkit)
        assert f"{result}\n" == subprocess.check_output([tmp_path / "build" / "unit"], text=True)
    assert is_cuda == (tmp_path / "build" / "udfs" / "udfs.o").exists()


@pytest.mark.slow
def test_options_of_cmake_may_be_expressions(tmp_path, toolkit):
    """An empty expression is no option, one with two options is both, and other semicolons stay."""
    command = tmp_path / "command"
    command.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > arguments\n[ "$1" = --version ]\n')
    command.chmod(0o755)
    options = '"$<$<CONFIG:Debug>:--debug>" "$<$<CONFIG:Release>:--one;--two>" "--text=a;b" -x "" last'
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.24)\nproject(uses LANGUAGES CXX)\n"
        "find_package(NumbaPtxlink CONFIG REQUIRED)\n"
        f"numba_ptxlink_add_library(udfs MODULE udfs OPTIONS {options})\n"
    )
    configure(tmp_path, toolkit, "-DCMAKE_BUILD_TYPE=Release", f"-DNUMBA_PTXLINK_EXECUTABLE={command}")
    with pytest.raises(AssertionError):
        shell("cmake --build build", tmp_path, toolkit)
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[-5:] == ["--one", "--two", "--text=a;b", "-x", "last"]


SEVERAL = """
cmake_minimum_required(VERSION 3.24)
project(several LANGUAGES CXX CUDA)
find_package(NumbaPtxlink CONFIG REQUIRED)
set(source main.cu)
set(stems main)
set(depends main.txt)
numba_ptxlink_add_library(
  both SOURCES one.py two.py INCLUDE_DIRECTORIES include ARCHITECTURES all-major DEPENDS other.txt QUIET
)
add_executable(app main.cu)
set_target_properties(app PROPERTIES CUDA_SEPARABLE_COMPILATION ON)
target_link_libraries(app PRIVATE both)
install(TARGETS both EXPORT several FILE_SET HEADERS)
install(EXPORT several DESTINATION cmake)
"""
ONE = """
from pathlib import Path
from numba_ptxlink import udf

FACTOR = float(Path("factor.txt").read_text())


@udf("float32(float32[::1])")
def one(x):
    return FACTOR * x[0]
"""
TWO = """
import numpy as np
from numba_ptxlink import udf

particle = np.dtype([("mass", "f4"), ("id", "i8")], align=True)


@udf("float32(particle)", structs={particle: "app::Particle"}, include="particle.h")
def two(p):
    return p.mass + 2
"""
PARTICLE = "#pragma once\nnamespace app { struct Particle { float mass; long long id; }; }\n"
BOTH = """
#include "one.h"
#include "two.h"
__global__ void use(float* x) { x[1] = one({x, 2}) + two({x[0], 1}); }
int main() { use<<<1, 1>>>(nullptr); }
"""


@pytest.mark.slow
@pytest.mark.parametrize("generator", [pytest.param("Ninja", marks=pytest.mark.long), "Unix Makefiles"])
def test_cmake_takes_several_files_and_what_they_read(tmp_path, toolkit, generator):
    """
    A single command exports several files, again after an edit of a file that they read.

    Headers are installed; those of an earlier configuration are deleted.
    """
    written = {"CMakeLists.txt": SEVERAL, "one.py": ONE, "two.py": TWO, "main.cu": BOTH}
    (tmp_path / "include").mkdir()
    written |= {"include/particle.h": PARTICLE, "factor.txt": "3", "other.txt": ""}
    for name, text in written.items():
        (tmp_path / name).write_text(text)
    configure(tmp_path, toolkit, f"-G '{generator}'", f"-DCMAKE_INSTALL_PREFIX={tmp_path / 'installed'}")
    program = tmp_path / "build" / "app"
    outputs = []
    edits = {"one.py": ONE, "factor.txt": "4", "other.txt": "new", "include/particle.h": f"{PARTICLE}\n"}
    for name, text in edits.items():
        outputs.append(shell("cmake --build build", tmp_path, toolkit))
        assert "Exporting both" in outputs[-1]
        assert "Exporting both" not in shell("cmake --build build", tmp_path, toolkit)
        (tmp_path / name).write_text(text)
    assert "one.o" not in outputs[0]
    assert {"one", "two"} <= {name for names in linked_functions(program).values() for name in names}
    shell("cmake --install build", tmp_path, toolkit)
    include = tmp_path / "installed" / "include"
    assert {"one.h", "two.h", "numba_ptxlink"} == {path.name for path in include.iterdir()}
    assert (include / "numba_ptxlink" / "array_view.h").exists()
    header_folder = tmp_path / "build" / "both"
    (header_folder / "mine.h").touch()
    (tmp_path / "CMakeLists.txt").write_text(SEVERAL.replace("one.py two.py", "one.py"))
    shell("cmake build", tmp_path, toolkit)
    assert [path.name for path in header_folder.glob("*.h")] == ["mine.h"]


OLDER_CMAKE = "cmake==3.24.3"


@pytest.fixture(scope="module")
def older_cmake():
    """Return the program of a CMake with the defaults that projects of old minimum versions expect."""
    with environments.locked(f"cmake-{environments.digest(OLDER_CMAKE)}") as folder:
        program = folder / "cmake" / "data" / "bin" / "cmake"
        if not program.exists():
            options = ("--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(folder))
            try:
                environments.pip(Path(sys.executable), "install", *options, OLDER_CMAKE)
            except environments.Unavailable as error:
                pytest.skip(f"no {OLDER_CMAKE} here: {error}")
        return program


@pytest.mark.slow
@pytest.mark.parametrize("minimum", ["2.8.12", "3.18"])
def test_projects_of_older_minimums(tmp_path, toolkit, older_cmake, minimum):
    """Whatever CMake the project was written for, nothing is warned of, and nothing is built twice."""
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION {minimum})\nproject(older LANGUAGES CXX)\nadd_subdirectory(sub)\n"
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "CMakeLists.txt").write_text(
        "set(CUDA CXX)\nfind_package(NumbaPtxlink 0.1 CONFIG REQUIRED)\n"
        "numba_ptxlink_add_library(udfs SOURCES udfs.py)\n"
    )
    (tmp_path / "sub" / "udfs.py").write_text(
        "from numba_ptxlink import udf\n\n@udf('int32(int32)')\ndef twice(x):\n    return 2 * x\n"
    )
    options = f"-G Ninja -DCMAKE_PREFIX_PATH={CMAKE} -DCMAKE_CUDA_ARCHITECTURES=80"
    warned = shell(f"{older_cmake} -S . -B build {options}", tmp_path, toolkit)
    assert [line for line in warned.splitlines() if "CMP" in line or "NumbaPtxlink" in line] == []
    for text in ("Exporting udfs", "no work to do"):
        assert text in shell(f"{older_cmake} --build build", tmp_path, toolkit)
