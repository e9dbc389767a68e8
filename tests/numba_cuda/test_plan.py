"""The compilations on the way from a kernel to its cubin, and those that are avoided."""

from __future__ import annotations

import fakedevice
import pytest
from caches import open_cache
from numba import cuda, types

from numba_ptxlink._numba_cuda.patches import nvvm_cache
from numba_ptxlink._tools import nvvm
from numba_ptxlink.cache import tiered

CALLEE = 'extern "C" __device__ int blend(float* out, float a) { *out = a + 1; return 0; }'


@pytest.fixture
def compiled(monkeypatch):
    """Return a list to which each compilation by NVVM appends its output, "ptx" or "ltoir"."""
    from numba.cuda import codegen

    import numba_ptxlink as pl

    pl.enable()
    fakedevice.install(monkeypatch.setattr, (9, 0))
    outputs: list[str] = []
    original = codegen.nvvm.compile_ir

    def compile_ir(llvmir, **options):
        outputs.append("ltoir" if "gen-lto" in options else "ptx")
        return original(llvmir, **options)

    monkeypatch.setattr(codegen.nvvm, "compile_ir", compile_ir)
    return outputs


@pytest.mark.usefixtures("cached")
@pytest.mark.parametrize(
    ("lto", "linked", "output"), [(True, True, "ltoir"), (True, False, "ptx"), (False, True, "ptx")]
)
def test_nvvm_runs_once(compiled, lto, linked, output):
    """NVVM compiles only for the link; the PTX is available afterwards, and is kept separately."""
    link = [cuda.CUSource(CALLEE, name="blend.cu")]
    blend = cuda.declare_device("blend", "float32(float32)", link=link if linked else None)

    def calling(x):
        x[0] = blend(x[0])

    def alone(x):
        x[0] += 1

    library, cubin = fakedevice.compile_kernel(calling if linked else alone, (types.float32[::1],), lto=lto)
    assert cubin.code[:4] == b"\x7fELF"
    assert compiled == [output]
    assert ".visible .entry" in library.get_asm_str((9, 0))
    if lto:
        # After LTO was given up, its PTX is still available.
        library._lto = True
        assert ".visible .entry" in library.get_lto_ptx((9, 0))


@pytest.mark.usefixtures("compiled")
def test_helpers_that_the_ptx_asks_for_are_linked():
    """A kernel that reshapes an array of halves still gets numba-cuda's own helpers linked."""

    def kernel(x):
        y = x.reshape(2, 2)
        y[1, 1] = x[0] * x[1]

    library, cubin = fakedevice.compile_kernel(kernel, (types.float16[::1],), lto=True)
    assert any("reshape_funcs" in str(file) for file in library._linking_files)
    assert cubin.code[:4] == b"\x7fELF"


@pytest.fixture
def cached(monkeypatch, tmp_path):
    """Turn on a cache for one test."""
    opened = open_cache(tmp_path)
    monkeypatch.setattr(tiered, "default", lambda: opened)
    monkeypatch.setattr(nvvm_cache, "config", lambda: opened.settings)


@pytest.mark.usefixtures("compiled", "cached")
def test_a_warning_of_nvvm_is_shown_again(monkeypatch):
    """A warning of NVVM comes again with the same code out of the cache."""
    from numba.cuda.cudadrv.error import NvvmWarning

    def kernel(x):
        x[0] += 7

    def remarking(*arguments):
        """NVVM with something to say."""
        step, status, result = run(*arguments)
        return step, status, {**result, "log": "a remark"}

    run = nvvm.run
    with monkeypatch.context() as patched:
        patched.setattr(nvvm, "run", remarking)
        with pytest.warns(NvvmWarning, match="a remark"):
            fakedevice.compile_kernel(kernel, (types.float32[::1],))
    with pytest.warns(NvvmWarning, match="a remark"):
        fakedevice.compile_kernel(kernel, (types.float32[::1],))
