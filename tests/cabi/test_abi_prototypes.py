"""The proof that the header's declarations, as NVRTC compiles them, are what the exports define."""

from __future__ import annotations

import re
import shutil
import subprocess

import abi_rows as rows
import front_ends
import pytest
from cuda_toolkit import host_includes

from numba_ptxlink._tools import nvjitlink

ROWS = list(rows.ROWS.values())
# Twice, so that the second parameter begins where the first one ended.
ALONE = [rows.Echo((spec,)) for spec in ROWS] + [rows.Echo(("int8", spec, spec)) for spec in ROWS]
FEWER = [
    rows.ROWS[name]
    for name in (
        *("boolean", "int8", "uint16", "int32", "int64", "float16", "bfloat16", "float32", "float64"),
        *("complex64", "complex128", "voidptr", "pointer", "tuple", "namedtuple", "record", "packed"),
        *("record_of_records", "float32x3", "float32x4", "float64x4", "uint8x4", "array1", "array2"),
        *("optional", "intenum", "datetime64"),
    )
]
PAIRS = [rows.Echo((("tuple", (first, second)),)) for first in FEWER for second in FEWER]


@pytest.fixture(scope="module")
def proof(tmp_path_factory):
    """Return rows and some pairs, compiled as far as LLVM IR, and the folder of a header that has them."""
    return written(rows.lower([*ALONE, *PAIRS[::9]]), tmp_path_factory)


@pytest.fixture(scope="module")
def whole_proof(tmp_path_factory):
    """Return the same for all pairs, and for random signatures."""
    return written(rows.lower([*ALONE, *PAIRS, *rows.draw(60, seed=20)]), tmp_path_factory)


@pytest.fixture(scope="module")
def mlir_proof(tmp_path_factory):
    """Return the same for what numba-cuda-mlir compiles of the rows alone and in lists."""
    front_ends.get("numba-cuda-mlir")
    echoes = [echo for echo in ALONE if echo.compiles("numba-cuda-mlir")]
    return written(rows.lower(echoes, "sm_80", "numba-cuda-mlir"), tmp_path_factory)


def written(compiled, tmp_path_factory):
    """Return *compiled*, and the folder of the header that declares its functions."""
    folder = tmp_path_factory.mktemp("proof")
    (folder / "echo.h").write_text(rows.header(compiled.signatures))
    return compiled, folder


def test_the_exported_prototypes_are_those_of_nvrtc(proof):
    """Each row, alone, in a list and with others in a struct, has NVRTC's prototype."""
    prove(*proof, "sm_80")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_75", "sm_120"])
def test_all_exported_prototypes_are_those_of_nvrtc(whole_proof, arch):
    """So has each row with each other row in a struct, on old and new architectures."""
    prove(*whole_proof, arch)


# Its LLVM IR is that of one arch, so that each has to be compiled anew: by default the rows alone are.
@pytest.mark.parametrize(
    ("arch", "echoes"),
    [
        *((arch, ALONE[: len(ROWS)]) for arch in ("sm_80", "sm_100")),
        *(
            pytest.param(arch, [*ALONE, *PAIRS[number::4]], marks=pytest.mark.slow)
            for number, arch in enumerate(rows.ARCHS)
        ),
    ],
)
def test_the_prototypes_of_numba_cuda_mlir_are_those_of_nvrtc(arch, echoes, tmp_path_factory):
    """The same for numba-cuda-mlir, in both of the dialects that it writes."""
    front_ends.get("numba-cuda-mlir")
    echoes = [echo for echo in echoes if echo.compiles("numba-cuda-mlir")]
    prove(*written(rows.lower(echoes, arch, "numba-cuda-mlir"), tmp_path_factory), arch)


def prove(compiled, folder, arch):
    """Compare the prototypes of *compiled* with those that NVRTC makes of its header."""
    made = rows.prototypes(rows.build(compiled, arch, "ptx").artifacts["ptx"])
    wanted = rows.prototypes(rows.nvrtc(rows.callers(compiled.signatures), arch, folder))
    names = [each.name for each in compiled.signatures]
    assert {name: str(wanted[name]) for name in names} == {name: str(made[name]) for name in names}


@pytest.mark.parametrize("front_end", ["numba-cuda", pytest.param("numba-cuda-mlir", marks=pytest.mark.slow)])
def test_kernels_have_the_prototypes_of_nvrtc(tmp_path, front_end):
    """The parameters of an exported kernel are those that NVRTC gives a __global__ function."""
    import numba_ptxlink as pl

    def nothing(_value):
        return None

    kernels = []
    specs = [spec for spec in ROWS if rows.Echo((spec,)).compiles(front_end)]
    for number, spec in enumerate(specs):
        kernels.append(pl.kernel((rows.numba_type(spec, front_end),), name=f"k{number}")(nothing))
    exported = pl.export(kernels, tmp_path, arch=["sm_80", "sm_100"], emit=["ptx"], name="kernels")
    definitions = "".join(
        f'extern "C" __global__ void wanted_{each.name}({each.params[0][1].declare("value")}) {{}}\n'
        for each in exported.signatures
    )
    for arch in ("sm_80", "sm_100"):
        wanted = rows.prototypes(rows.nvrtc(f'#include "kernels.h"\n{definitions}', arch, tmp_path))
        made = rows.prototypes(exported.artifacts["ptx", arch].read_bytes())
        for number, spec in enumerate(specs):
            expected = str(wanted[f"wanted_k{number}"]).replace("wanted_", "")
            assert expected == str(made[f"k{number}"]), spec


@pytest.mark.parametrize("arch", ["sm_80", pytest.param("sm_100", marks=pytest.mark.slow)])
def test_a_call_from_cxx_is_inlined_by_link_time_optimisation(proof, arch):
    """Linked as LTO-IR, a C++ kernel that calls the function of any row has no call left."""
    compiled, folder = proof
    assert [] == [ROWS[number] for number in called(compiled, folder, arch, len(ROWS))]


def called(compiled, folder, arch, count):
    """Return which of the first *count* functions a C++ kernel still calls after link-time optimisation."""
    single = [each for each in compiled.signatures if each.name in {f"f{n}" for n in range(count)}]
    ltoir = rows.build(compiled, arch, "ltoir").artifacts["ltoir"]
    kernels = "".join(
        f'extern "C" __global__ void k_{each.name}({each.result.name}* to, {each.result.name}* from) '
        f"{{ *to = {each.name}(*from); }}\n"
        for each in single
    )
    caller = rows.nvrtc(f'#include "echo.h"\n{kernels}', arch, folder, output="ltoir")
    flags = [f"-arch={arch}", "-lto", "-ptx"]
    linked = nvjitlink.link([("ltoir", "caller", caller), ("ltoir", "echo", ltoir)], flags, output="ptx")
    bodies = re.findall(r"\.entry k_(f\d+)\((.*?)\n\}", linked.code.decode(), re.DOTALL)
    assert len(single) == len(bodies) == count
    return [int(name[1:]) for name, body in bodies if "call" in body]


@pytest.mark.parametrize(
    ("compiler", "options", "suffix"),
    [
        ("g++", ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"], ".cpp"),
        ("gcc", ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"], ".c"),
        pytest.param(
            "nvcc",
            ["-std=c++17", "-arch=sm_90", "-rdc=true", "-c", "-o", "/dev/null"],
            ".cu",
            marks=pytest.mark.slow,
        ),
    ],
)
@pytest.mark.parametrize(
    "made", ["proof", *(pytest.param(name, marks=pytest.mark.slow) for name in ("whole_proof", "mlir_proof"))]
)
def test_the_layouts_are_those_of_every_compiler(request, made, compiler, options, suffix):
    """The header's static_asserts hold in C++17, in C11 for what C can say, and with nvcc."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    _, folder = request.getfixturevalue(made)
    source = folder / f"asserts{suffix}"
    source.write_text('#include "echo.h"\n#include "echo.h"\nint main(void) { return 0; }\n')
    run = subprocess.run(
        [compiler, *options, *host_includes(), str(source)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert (run.returncode, run.stderr) == (0, "")
