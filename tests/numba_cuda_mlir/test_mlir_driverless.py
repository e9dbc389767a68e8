"""Compilations without a driver, and without a link that nobody asked for."""

from __future__ import annotations

import pytest
from mlir_replaced import CC, CHIP, cubin_of, no_device, replaced, signature

from numba_ptxlink._link.kernels import completed
from numba_ptxlink.errors import PtxlinkError

pytestmark = pytest.mark.usefixtures("replaced")
__all__ = ["no_device", "replaced"]


def scale(x, y, n):
    """Double the first item."""
    if n > 0:
        y[0] = x[0] * 2


def links() -> int:
    """Return the number of links so far."""
    counts = completed()
    return counts.assembled + counts.linked


@pytest.mark.usefixtures("no_device")
@pytest.mark.parametrize("cc", [(7, 5), (9, 0), (10, 0)])
@pytest.mark.parametrize("output", ["ptx", "ltoir"])
def test_a_compilation_for_an_architecture_needs_no_device(cc, output):
    """PTX and LTO-IR for a given architecture are made without a driver, and nothing is linked."""
    from numba_cuda_mlir import tools
    from numba_cuda_mlir.compiler import compile as compile_function

    before = links()
    code, _ = compile_function(scale, signature(), device=False, abi="numba", cc=cc, output=output)
    if output == "ptx":
        assert f".target sm_{cc[0]}{cc[1]}\n" in code
    else:
        assert int.from_bytes(code[26:28], "little") == 10 * (10 * cc[0] + cc[1])
    assert links() == before
    assert tools._cached_cc is None


@pytest.mark.usefixtures("no_device")
def test_without_device_and_architecture_the_error_names_the_cure():
    """Where neither a device nor an argument tells the architecture, both packages' error says what to do."""
    from numba_cuda_mlir import cuda
    from numba_cuda_mlir.numba_cuda.cudadrv.error import CudaSupportError

    with pytest.raises(CudaSupportError, match=r"pass one, such as cc=\(9, 0\)") as caught:
        cuda.jit(scale).compile(signature())
    assert isinstance(caught.value, PtxlinkError)


def test_a_kernel_that_may_be_launched_is_linked():
    """A kernel's own dispatcher has its cubin, whatever else was made of it."""
    from numba_cuda_mlir import cuda
    from numba_cuda_mlir.compiler import compile as compile_function

    kernel = cuda.jit(chip=CHIP)(scale)
    compile_function(kernel, signature(), device=False, abi="numba", cc=CC)
    assert cubin_of(kernel)
