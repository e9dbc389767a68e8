"""NVRTC compiles the header's declarations to the prototypes that the exports define."""

from __future__ import annotations

import functools

import abi_rows as rows
import front_ends
import pytest
from cuda_toolkit import check_header

ROWS = list(rows.ROWS.values())
# Twice, so that the second parameter begins where the first one ended.
ALONE = [rows.Echo((spec,)) for spec in ROWS] + [rows.Echo(("int8", spec, spec)) for spec in ROWS]


@pytest.fixture(scope="module")
def proof(tmp_path_factory):
    """Return a cached function that lowers rows to LLVM IR by a front end, and writes their header."""

    @functools.cache
    def lowered_rows(front_end, arch):
        front_ends.get(front_end)
        compiled = rows.lower([echo for echo in ALONE if echo.compiles(front_end)], arch, front_end)
        folder = tmp_path_factory.mktemp("proof")
        (folder / "echo.h").write_text(rows.header(compiled.signatures))
        return compiled, folder

    return lowered_rows


# numba-cuda-mlir lowers for one architecture; LLVM IR of numba-cuda is converted to that of any.
@pytest.mark.parametrize(
    ("front_end", "lowered", "arch"),
    [
        ("numba-cuda", "sm_100", "sm_80"),
        *(pytest.param("numba-cuda", "sm_100", arch, marks=pytest.mark.slow) for arch in ("sm_75", "sm_120")),
        ("numba-cuda-mlir", "sm_80", "sm_80"),
        ("numba-cuda-mlir", "sm_100", "sm_100"),
    ],
)
def test_the_exported_prototypes_are_those_of_nvrtc(proof, front_end, lowered, arch):
    """Each row, alone and in a list, has the prototype that NVRTC makes of its header."""
    compiled, folder = proof(front_end, lowered)
    actual = rows.prototypes(rows.build(compiled, arch, "ptx").artifacts["ptx"])
    expected = rows.prototypes(rows.nvrtc(rows.callers(compiled.signatures), arch, folder))
    names = [signature.name for signature in compiled.signatures]
    assert {name: str(expected[name]) for name in names} == {name: str(actual[name]) for name in names}


# LLVM IR of numba-cuda-mlir is for one architecture: each compiles anew, by default the single rows only.
@pytest.mark.parametrize("front_end", ["numba-cuda", pytest.param("numba-cuda-mlir", marks=pytest.mark.slow)])
def test_kernels_have_the_prototypes_of_nvrtc(tmp_path, front_end):
    """The parameters of an exported kernel are those of a __global__ function that NVRTC compiles."""
    import numba_ptxlink as pl

    def nothing(_value):
        return None

    kernels = []
    specs = [spec for spec in ROWS if rows.Echo((spec,)).compiles(front_end)]
    for number, spec in enumerate(specs):
        kernels.append(pl.kernel((rows.numba_type(spec, front_end),), name=f"k{number}")(nothing))
    exported = pl.export(kernels, tmp_path, arch=["sm_80", "sm_100"], emit=["ptx"], name="kernels")
    definitions = "".join(
        f'extern "C" __global__ void expected_{signature.name}'
        f"({signature.params[0][1].declare('value')}) {{}}\n"
        for signature in exported.signatures
    )
    for arch in ("sm_80", "sm_100"):
        nvrtc_prototypes = rows.prototypes(rows.nvrtc(f'#include "kernels.h"\n{definitions}', arch, tmp_path))
        actual = rows.prototypes(exported.artifacts["ptx", arch].read_bytes())
        for number, spec in enumerate(specs):
            expected = str(nvrtc_prototypes[f"expected_k{number}"]).replace("expected_", "")
            assert expected == str(actual[f"k{number}"]), spec


@pytest.mark.parametrize(
    ("compiler", "standard"),
    [
        ("g++", "-std=c++17"),
        ("gcc", "-std=c11"),
        pytest.param("nvcc", "-std=c++17", marks=pytest.mark.slow),
    ],
)
def test_the_layouts_are_those_of_every_compiler(proof, compiler, standard):
    """The header's static_asserts hold in C++17, in C11 as far as C has the types, and with nvcc."""
    _, folder = proof("numba-cuda", "sm_100")
    check_header(folder, "echo.h", compiler, standard)
