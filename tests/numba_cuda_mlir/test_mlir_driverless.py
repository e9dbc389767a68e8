"""Compilations without a driver, and without a link that no caller needs."""

from __future__ import annotations

import os
import sys

import processes
import pytest
from mlir_replaced import CC, CHIP, cubin_of, no_device, replaced, signature

from numba_ptxlink._link.kernels import completed_links
from numba_ptxlink.errors import PtxlinkError

pytestmark = pytest.mark.usefixtures("replaced")
__all__ = ["no_device", "replaced"]


def scale(x, y, n):
    """Double the first item."""
    if n > 0:
        y[0] = x[0] * 2


def links() -> int:
    """Return the number of links so far."""
    counts = completed_links()
    return counts.assembled + counts.linked


@pytest.mark.usefixtures("no_device")
@pytest.mark.parametrize("cc", [(7, 5), (9, 0), (10, 0)])
@pytest.mark.parametrize("output", ["ptx", "ltoir"])
def test_a_compilation_for_an_architecture_needs_no_device(cc, output):
    """PTX and LTO-IR for a given architecture are compiled without a driver, and without a link."""
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
    """If neither a device nor an argument gives the architecture, the error of both packages has the cure."""
    from numba_cuda_mlir import cuda
    from numba_cuda_mlir.numba_cuda.cudadrv.error import CudaSupportError

    with pytest.raises(CudaSupportError, match=r"pass one, such as cc=\(9, 0\)") as caught:
        cuda.jit(scale).compile(signature())
    assert isinstance(caught.value, PtxlinkError)


def test_a_kernel_that_may_be_launched_is_linked():
    """A kernel's own dispatcher has its cubin, whatever was compiled of it before."""
    from numba_cuda_mlir import cuda
    from numba_cuda_mlir.compiler import compile as compile_function

    kernel = cuda.jit(chip=CHIP)(scale)
    compile_function(kernel, signature(), device=False, abi="numba", cc=CC)
    assert cubin_of(kernel)


def test_one_ptx_is_linked_without_nvjitlink(tmp_path):
    """Neither its library nor a reader of PTX is loaded for a kernel that has no link files."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "from numba_cuda_mlir import cuda\n"
        "@cuda.jit(chip='sm_90')\n"
        "def kernel(a):\n"
        "    a[cuda.grid(1)] += 1\n"
        "kernel.compile('void(float32[::1])')\n"
        "assert 'libnvvm.' in (maps := open('/proc/self/maps').read())\n"
        "print('libnvJitLink.' in maps, 'numba_ptxlink._formats.ptx' in sys.modules)\n"
    )
    environ = {**os.environ, "NUMBA_PTXLINK": "1", "NUMBA_PTXLINK_CACHE": str(tmp_path / "cache")}
    assert processes.run(sys.executable, program, env=environ).stdout == "False False\n"
