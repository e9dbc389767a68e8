"""Object files and static libraries of exports: their host code, and what a linker reads in them."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from numba import cuda
from numba.cuda import types
from numba.cuda.vector_types import vector_types

import numba_ptxlink as pl
from numba_ptxlink._tools import nvrtc, programs
from numba_ptxlink.linker import INCLUDE_DIR

HELPERS = Path(__file__).parents[1] / "helpers"
CALLER = '#include "udfs.h"\nextern "C" __global__ void caller(int* p) { *p = twice(*p); }\n'
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

ARGUMENTS = {
    # Type, C++ value, and the bytes of that.
    "flag": (types.boolean, "true", b"\1"),
    "small": (types.int8, "-2", struct.pack("b", -2)),
    "half": (types.float16, "__half(1.5f)", bytes.fromhex("003e")),
    "number": (types.float32, "2.5f", struct.pack("f", 2.5)),
    "wide": (types.float64, "-3.25", struct.pack("d", -3.25)),
    "address": (types.CPointer(types.int32), "(int32_t*)77", struct.pack("q", 77)),
    "complex": (types.complex64, "make_cuFloatComplex(1.0f, 2.0f)", struct.pack("2f", 1, 2)),
    "vector": (vector_types["float32x4"], "make_float4(1, 2, 3, 4)", struct.pack("4f", 1, 2, 3, 4)),
    "pair": (types.Tuple([types.float32, types.int64]), "{0.5f, 9}", struct.pack("f4xq", 0.5, 9)),
    "matrix": (types.float32[:, :], "{(float*)16, {2, 3}, {12, 4}}", struct.pack("5q", 16, 2, 3, 12, 4)),
    "last": (types.uint64, "11", struct.pack("Q", 11)),
}


def twice(value):
    """Double *value*."""
    return 2 * value


def tripled(array, factor):
    """Multiply an array."""
    index = cuda.grid(1)
    if index < array.size:
        array[index] *= factor


def gcc(*arguments: str | Path, **options) -> subprocess.CompletedProcess[str]:
    """Run g++."""
    path = shutil.which("g++")
    return subprocess.run([path, "-std=c++17", *arguments], text=True, check=False, **options)


def export(folder: Path, name: str = "udfs", *, kernels: bool = True, **options) -> pl.Export:
    """Export a function and a kernel as an object."""
    prefix = "" if name == "udfs" else f"{name}_"
    marked = [pl.udf("int32(int32)", name=f"{prefix}twice")(twice)]
    if kernels:
        marked.append(pl.kernel("void(float32[::1], float32)", name=f"{prefix}tripled")(tripled))
    return pl.export(marked, folder, name=name, **{"archs": ["sm_80"], "emit": ["object"], **options})


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return an export of a function and a kernel for two architectures, as object and library."""
    folder = tmp_path_factory.mktemp("exported")
    return export(folder, archs=["sm_80", "sm_90"], emit=["object", "library"])


def run(folder: Path, source: str, *objects: Path | str) -> list[str]:
    """Compile and link *source*, *objects* and a stand-in for the runtime, and return what they say."""
    (folder / "main.cpp").write_text(source)
    flags = [
        flag for path in (INCLUDE_DIR, *nvrtc.toolkit_include_dirs()) for flag in ("-isystem", str(path))
    ]
    sources = [folder / "main.cpp", HELPERS / "fake_runtime.cpp"]
    assert not gcc(f"-I{folder}", *flags, *sources, *objects, "-o", "main", cwd=folder).returncode
    return subprocess.run([folder / "main"], check=True, capture_output=True, text=True).stdout.splitlines()


def test_a_kernel_is_registered_and_launched(tmp_path, exported):
    """Without a device link the object registers its kernels, launches them, and unregisters at the end."""
    source = """
        #include "udfs.h"
        extern "C" const int sizes[] = {24, 4, 0};
        int main() { tripled({(float*)16, 3}, 0.5f); }
    """
    shutil.copy(exported.header, tmp_path)
    arguments = [struct.pack("3q", 16, 3, 4).hex(), struct.pack("f", 0.5).hex()]
    for kind in ("object", "library"):
        assert run(tmp_path, source, exported.artifacts[kind, ""]) == [
            "binary 466243b1 1 ba55ed50",
            "function tripled tripled",
            "end",
            f"launch tripled 1 2 3 4 5 6 7 8 {' '.join(arguments)}",
            "gone",
        ]


@pytest.mark.slow
def test_arguments_of_every_type_arrive(tmp_path):
    """The host function of a kernel passes the bytes of each argument on."""

    def nothing(a, b, c, d, e, f, g, h, i, j, k):  # noqa: PLR0917
        pass

    signature = types.void(*(ty for ty, _, _ in ARGUMENTS.values()))
    udf = pl.kernel(signature, name="nothing")(nothing)
    exported = pl.export([udf], tmp_path, archs=["sm_80"], emit=["object"], name="nothing")
    sizes = [len(content) for _, _, content in ARGUMENTS.values()]
    source = f"""
        #include "nothing.h"
        extern "C" const int sizes[] = {{{", ".join(map(str, sizes))}, 0}};
        int main() {{ nothing({", ".join(value for _, value, _ in ARGUMENTS.values())}); }}
    """
    (launch,) = [line for line in run(tmp_path, source, exported.artifacts["object", ""]) if "launch" in line]
    expected = [content.hex() for _, _, content in ARGUMENTS.values()]
    actual = launch.split()[10:]
    # What lies between the members of a struct is nobody's.
    padded = list(ARGUMENTS).index("pair")
    expected[padded], actual[padded] = (text[:8] + text[16:] for text in (expected[padded], actual[padded]))
    assert expected == actual


def test_link_reads_the_code_of_every_architecture(exported):
    """`link()` finds the functions of an object and of a library, as machine code and as LTO-IR."""
    folder = exported.header.parent
    for kind in ("object", "library"):
        for arch in ("sm_80", "sm_90"):
            for lto in (False, True):
                linked = pl.link(
                    CALLER, exported.artifacts[kind, ""], arch=arch, lto=lto, include_dirs=[folder]
                )
                assert (b"twice" in linked.cubin) is not lto
    code = exported.artifacts["object", ""].read_bytes()
    entries = [(piece.kind, piece.arch) for piece in programs.pieces(code, "udfs.o")]
    linkable, whole = ["ptx", "ltoir", "cubin"], ["ptx", "cubin"]
    for arch in ("sm_80", "sm_90"):
        assert sorted([*linkable, *whole]) == sorted(kind for kind, of in entries if of == arch)


def test_kernels_that_call_cxx_need_a_device_link(tmp_path):
    """A program without a device link of such an object is not linked, rather than one that cannot launch."""
    missing = cuda.declare_device("missing", "int32(int32)", abi="c")

    def stores(pointer):
        pointer[0] = missing(pointer[0])

    udf = pl.kernel("void(CPointer(int32))", name="stores")(stores)
    exported = pl.export([udf], tmp_path, archs=["sm_80"], emit=["object"], name="open")
    (tmp_path / "main.cpp").write_text('extern "C" const int sizes[] = {0};\nint main() {}\n')
    sources = [tmp_path / "main.cpp", HELPERS / "fake_runtime.cpp", exported.artifacts["object", ""]]
    done = gcc(*sources, "-o", tmp_path / "main", capture_output=True)
    assert done.returncode
    assert "undefined reference to `__cudaRegisterLinkedBinary_" in done.stderr


@pytest.mark.parametrize("shared", [False, True])
def test_a_device_link_serves_its_own_program_or_library(tmp_path, exported, shared):
    """An object in a program takes the device link of that; in a library without one, it registers itself."""
    code = exported.artifacts["object", ""]
    (linked,) = {name.decode() for name in re.findall(rb"__cudaRegisterLinkedBinary\w+", code.read_bytes())}
    launch = '#include "udfs.h"\nvoid launch() { tripled({(float*)16, 3}, 0.5f); }\n'
    main = f"""
        #include <cstdio>
        void launch();
        extern "C" const int sizes[] = {{24, 4, 0}};
        extern "C" void {linked}(void (*kernels)(void**), const void*, const void*, void (*)(void*)) {{
          std::puts("device link");
          kernels(nullptr);
        }}
        int main() {{ launch(); }}
    """
    shutil.copy(exported.header, tmp_path)
    (tmp_path / "launch.cpp").write_text(launch)
    flags = ["-fPIC", "-shared"] if shared else ["-r", "-nostdlib"]
    library = tmp_path / "launch.so"
    command = [f"-I{tmp_path}", f"-I{INCLUDE_DIR}", *flags, tmp_path / "launch.cpp", code, "-o", library]
    assert not gcc(*command).returncode
    said = run(tmp_path, main, "-rdynamic", library)
    assert [line for line in said if not line.startswith("launch")] == (
        ["binary 466243b1 1 ba55ed50", "function tripled tripled", "end", "gone"]
        if shared
        else ["device link", "function tripled tripled"]
    )


def test_the_folder_of_an_export_is_self_contained(tmp_path):
    """The header for arrays comes along, so that no other include directory is needed."""
    exported = export(tmp_path)
    source = f'#include "{exported.header}"\nint main() {{ return 0; }}\n'
    assert not gcc("-fsyntax-only", "-x", "c++", "-", input=source).returncode
    there = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert Path("numba_ptxlink/array_view.h") in there
