"""The cache of MLIR's and NVVM's output: the compilations that it saves, and equal code."""

from __future__ import annotations

import numpy as np
import pytest
from mlir_replaced import CHIP, replaced, signature, stock

from numba_ptxlink import cache
from numba_ptxlink._config import Config
from numba_ptxlink._numba_cuda_mlir.patches import first_kernel

pytestmark = pytest.mark.usefixtures("replaced")
__all__ = ["replaced"]


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    """Give the default cache a directory of its own."""
    settings = Config(cache_dirs=(str(tmp_path / "cache"),))
    opened = cache.Cache(settings)
    for home in (cache, cache.tiered):
        monkeypatch.setattr(home, "default", lambda: opened)
    monkeypatch.setattr(first_kernel, "config", lambda: settings)
    return opened


@pytest.fixture
def passes(monkeypatch):
    """Return a list that fills with each run of MLIR's passes."""
    from numba_cuda_mlir import mlir_optimization

    runs = []
    original = mlir_optimization.run_pre_codegen_patterns

    def run_pre_codegen_patterns(module):
        runs.append(module)
        return original(module)

    monkeypatch.setattr(mlir_optimization, "run_pre_codegen_patterns", run_pre_codegen_patterns)
    return runs


def compiled(**options):
    """Return a new dispatcher of the same kernel, compiled."""
    from numba_cuda_mlir import cuda

    def kernel(x, y, n):
        i = cuda.grid(1)
        if i < n:
            y[i] = x[i] / 3 + y[i]

    dispatcher = cuda.jit(**{"chip": CHIP, **options})(kernel)
    dispatcher.compile(signature())
    return dispatcher


def compiled_with_helpers(**options):
    """Return a compiled dispatcher that calls functions of one name and an `@overload`, and has arrays."""
    from numba_cuda_mlir import cuda

    table, weights = np.arange(5.0), np.arange(3.0)

    def times(factor):
        @cuda.jit(device=True, inline="never")
        def scale(x, pair):
            return x * factor + pair[0]

        return scale

    twice, thrice = times(2), times(3)

    def kernel_1234567890(x, y, n):
        shared, other = cuda.shared.array(8, "float64"), cuda.shared.array(4, "float64")
        shared[0] = other[1] = x[0]
        cuda.syncthreads()
        print("@constant_array_1")  # noqa: T201 - of a kernel
        x.fill(0)
        y[n] = twice(shared[1], (x[1], n)) + thrice(other[2], (x[1], n)) + table[n] + weights[n]

    dispatcher = cuda.jit(**{"chip": CHIP, **options})(kernel_1234567890)
    dispatcher.compile(signature())
    return dispatcher


def metadata_of(dispatcher):
    """Return the metadata of the only signature."""
    (overload,) = dispatcher.overloads.values()
    return overload.metadata


@pytest.mark.parametrize("options", [{}, {"lto": True}, {"chip": "sm_100"}, {"lineinfo": True}])
def test_what_is_found_is_what_was_made(options, passes):
    """A kernel out of the cache has the code, names and texts of one that was compiled, and of stock."""
    names = ("ptx", "ltoir", "func_name", "mlir_module_optimized", "mlir_module_str", "cubin")
    first = metadata_of(compiled(**options))
    assert len(passes) == 1
    second = metadata_of(compiled(**options))
    assert len(passes) == 1
    assert [second.get(name) for name in names] == [first.get(name) for name in names]
    assert first["cubin"].startswith(b"\x7fELF")
    with stock():
        plain = compiled(**options)
    texts = ("ptx", "func_name", "mlir_module_optimized")
    assert [metadata_of(plain).get(name) for name in texts] == [first.get(name) for name in texts]


@pytest.mark.parametrize(
    "options", [{"opt_level": 1}, {"fastmath": True}, {"chip": "sm_80"}, {"lto": True}, {"dump_ptx": True}]
)
def test_another_option_is_another_entry(options, passes):
    """A kernel with another option is compiled."""
    compiled()
    compiled(**options)
    assert len(passes) == 2


@pytest.mark.parametrize(
    "options", [{}, pytest.param({"chip": "sm_100", "lto": True}, marks=pytest.mark.slow)]
)
def test_addresses_and_counters_of_the_process_do_not_count(options, passes):
    """A kernel that is made anew is found, and is stock's but for the names of its parts."""
    names = ("ptx", "ltoir", "func_name", "mlir_module_optimized", "cubin")
    first = metadata_of(compiled_with_helpers(**options))
    passes.clear()
    kernel = compiled_with_helpers(**options)
    second = metadata_of(kernel)
    assert not passes
    assert [second.get(name) for name in names] == [first.get(name) for name in names]
    assert f".visible .entry {second['func_name']}(" in kernel.inspect_lto_ptx(kernel.signatures[0])
    # Text that the kernel prints is not renamed.
    assert '"@constant_array_1' in first["mlir_module_optimized"]
