"""The generated headers, one for each feature, against the ones kept in tests/golden."""

from __future__ import annotations

import difflib
from pathlib import Path

import front_ends
import pytest
from abi_features import LACKING, NAMES, features
from cuda_toolkit import check_header

import numba_ptxlink as pl

GOLDEN = Path(__file__).parents[1] / "golden"


def marks(front_end, feature):
    """Return the marks of a test of *feature*."""
    if front_end == "numba-cuda":
        return ()
    if feature in LACKING:
        return pytest.mark.skip(LACKING[feature])
    return front_ends.MLIR_06 if feature == "tuples" else ()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((front_end, feature), id=f"{front_end}-{feature}", marks=marks(front_end, feature))
        for front_end in front_ends.NAMES
        for feature in NAMES
    ],
)
def exported(request, tmp_path_factory):
    """Return the export of one feature by one front end."""
    front_end, feature = request.param
    udfs = features(front_end)[feature]
    folder = tmp_path_factory.mktemp(feature)
    # A packed record by value is exported as LTO-IR only.
    return pl.export(udfs, folder, arch="sm_90", emit=["ltoir"], name=feature, front_end=front_end)


def test_a_header_is_the_golden_one(exported, request):
    """The text of a header changes only with the file in tests/golden, which all front ends share."""
    golden = GOLDEN / exported.header.name
    actual = exported.header.read_text()
    if request.config.getoption("--update-golden"):
        golden.write_text(actual)
    expected = golden.read_text() if golden.exists() else ""
    diff = "".join(
        difflib.unified_diff(
            expected.splitlines(True), actual.splitlines(True), str(golden), "as generated now"
        )
    )
    assert diff == "", f"{diff}\nIf that is meant: python -m pytest --update-golden, and commit tests/golden."


@pytest.mark.parametrize(("compiler", "standard"), [("g++", "-std=c++17"), ("gcc", "-std=c11")])
@pytest.mark.parametrize("feature", NAMES)
def test_a_golden_header_compiles(feature, compiler, standard, tmp_path):
    """Each header compiles as C++17 without a warning, and as C11 with the declarations that C has."""
    check_header(tmp_path, GOLDEN / f"{feature}.h", compiler, standard)


def test_two_headers_that_define_one_struct(tmp_path):
    """Equal structs of one name are one; structs that differ stop the compiler with a reason."""
    from collections import namedtuple

    from numba.cuda import types

    for name, member in (("first", types.float32), ("second", types.float32), ("third", types.int64)):
        cls = namedtuple("Shared", "x")  # noqa: PYI024 - made anew on purpose
        ty = types.NamedTuple([member], cls)
        udfs = [pl.udf(ty(ty), name=f"{name}_f")(lambda value: value)]
        pl.export(udfs, tmp_path, arch="sm_90", emit=["ptx"], name=name)
    source = '#include "first.h"\n#include "second.h"\nextern "C" __global__ void k() {}\n'
    assert pl.link(source, arch="sm_90", include_dirs=[tmp_path]).cubin
    with pytest.raises(pl.LinkError, match="define struct Shared differently; rename one in Python"):
        pl.link(source.replace("second", "third"), arch="sm_90", include_dirs=[tmp_path])
