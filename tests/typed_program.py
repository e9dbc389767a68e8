"""A program with every public function, which mypy checks and nothing runs."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import assert_type

import numba_ptxlink as pl


@pl.udf("float32(float32)", on_error="trap", front_end="numba-cuda")
def halved(value: float) -> float:
    """Halve *value*."""
    return value / 2


@pl.kernel("void(float32[::1])", launch_bounds=(128, 2), front_end="numba-cuda-mlir")
def scale(values: object) -> None:
    """Scale *values*."""


assert_type(halved, pl.Udf)
assert_type(scale, pl.Kernel)
exported = pl.export("udfs.py", Path("build"), arch=["sm_80", (9, 0)], emit=["ptx", "ltoir"], cuda="12.4")
assert_type(exported, pl.Export)
assert_type(exported.read("ptx"), bytes)
assert_type(exported.signatures, tuple[pl.Signature, ...])
linked = pl.link("a.cu", halved, exported.read("ltoir"), arch="sm_90", backend="auto", checks="all", lto=True)
assert_type(linked, pl.Linked)
assert_type((linked.cubin, linked.reason, linked.inlined), tuple[bytes, str, int])
cubin = pl.assemble(b".version 8.0", "sm_90", opt_level=2, fma=False, extra_flags=("-v",))
assert_type(cubin, pl.Cubin)
assert_type((cubin.code, cubin.info_log), tuple[bytes, str])
library = pl.load(exported)
assert_type(pl.load("build/udfs.json"), pl.Library[pl.LoadedKernel])
pl.load("build/udfs.json", device="cpu").halved(1.5)
assert_type((library["scale"], library.scale), tuple[pl.LoadedKernel, pl.LoadedKernel])
assert_type(library.read("ptx", "sm_90"), bytes)
library.scale[8, 128](1)
library.scale.launch(1, grid=8, block=(128, 1), stream=None, shared=0, cluster=2, cooperative=True)
assert_type(pl.inspect(cubin.code, sass=False), pl.Inspection)
assert_type([*pl.inspect("a.cubin").symbols], list[pl.SymbolReport])
assert_type((pl.status(), pl.enable(), pl.disable()), tuple[pl.Status, pl.Status, pl.Status])
assert_type([*pl.status().front_ends], list[pl.FrontEndStatus])
assert_type((pl.toolchain(), pl.diagnose()), tuple[pl.Toolchain, pl.Diagnosis])
assert_type((pl.driver_can_load_ptx(""), pl.Arch.of("sm_90")), tuple[bool, pl.Arch])

# Values that are no choice are errors: without one, mypy reports the comment.
pl.link("a.cu", arch="sm_90", backend="other")  # type: ignore[arg-type]
pl.link("a.cu", arch="sm_90", checks="other")  # type: ignore[arg-type]
pl.link("a.cu", arch="sm_90", inline="other")  # type: ignore[arg-type]
pl.link("a.cu", arch="sm_90", front_end="other")  # type: ignore[arg-type]
pl.export("udfs.py", front_end="other")  # type: ignore[arg-type]
pl.udf("void()", on_error="other")  # type: ignore[arg-type]
pl.kernel("void()", on_error="other")  # type: ignore[arg-type]
pl.kernel("void()", front_end="other")  # type: ignore[arg-type]
