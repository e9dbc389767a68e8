"""The links of numba-cuda-mlir's linkers: the tool of the cubin, its inputs, and the errors."""

from __future__ import annotations

import json
import pickle

import pytest
from linkcases import HEAD, cubin, function, ltoir
from mlir_replaced import CC, CHIP, cubin_of, replaced, signature

from numba_ptxlink._formats import elf
from numba_ptxlink._link import manifests
from numba_ptxlink._link.kernels import completed_links
from numba_ptxlink.errors import LinkError

pytestmark = pytest.mark.usefixtures("replaced")
__all__ = ["replaced"]

KERNEL = (
    HEAD.format(target="sm_90")
    + ".extern .func (.param .b32 r) f(.param .b32 a);\n"
    + ".visible .entry k(.param .u64 p)\n{\n.reg .b64 %d<2>;\n.reg .b32 %r<2>;\nld.param.u64 %d1, [p];\n"
    + "{\n.param .b32 a;\n.param .b32 r;\nst.param.b32 [a], 1;\n"
    + "call (r), f, (a);\nld.param.b32 %r1, [r];\n}\n"
    + "st.global.u32 [%d1], %r1;\nret;\n}\n"
)
SOURCE = 'extern "C" __device__ int f(int a) { return 7; }\n'


def linker(**options):
    """Return a linker of numba-cuda-mlir with the kernel."""
    from numba_cuda_mlir.linker import Linker

    new_linker = Linker(cc=CC, **options)
    new_linker.add_ptx(KERNEL.encode())
    return new_linker


def dispatcher(**options):
    """Return a kernel compiled for an architecture, without a device."""
    from numba_cuda_mlir import cuda

    @cuda.jit(chip=CHIP, **options)
    def axpy(x, y, n):
        i = cuda.grid(1)
        if i < n:
            y[i] = x[i] * 2 + y[i]

    axpy.compile(signature())
    return axpy


def test_a_kernel_is_assembled_in_process():
    """The cubin of a kernel alone is nvPTXCompiler's, without a driver, and the link is counted."""
    before = completed_links()
    kernel = dispatcher()
    assert "entry" in {symbol.kind for symbol in elf.read(cubin_of(kernel)).symbols}
    after = completed_links()
    assert (after.assembled, after.linked) == (before.assembled + 1, before.linked)
    assert after.last_link.startswith("nvptxcompiler: ")


@pytest.mark.parametrize("kind", ["ptx", "cubin", "ltoir", "fatbin", "cu"])
def test_every_kind_of_input(kind):
    """Functions of any kind are linked with a kernel, and those in PTX and CUDA C++ are inlined."""
    from numba_ptxlink._arch import Arch
    from numba_ptxlink._tools import nvfatbin

    link_under_test = linker()
    ptx = function(7, target="sm_80")
    code = cubin(ptx, CHIP)
    if kind == "ptx":
        link_under_test.add_ptx(ptx.encode(), "f.ptx")
    elif kind == "cubin":
        link_under_test.add_cubin(code, "f.cubin")
    elif kind == "ltoir":
        link_under_test.add_ltoir(ltoir(SOURCE, CHIP), "f.ltoir")
    elif kind == "fatbin":
        link_under_test.add_fatbin(nvfatbin.pack([("cubin", Arch(*CC), "f", code)]), "f.fatbin")
    else:
        link_under_test.add_cu(SOURCE, "f.cu")
    names = {symbol.name for symbol in elf.read(link_under_test.complete().code).symbols if symbol.defined}
    assert "k" in names
    assert ("f" in names) == (kind in ("cubin", "fatbin", "ltoir"))


def test_errors_are_both_packages():
    """An undefined symbol is an error of both packages, with inputs and flags, and survives pickling."""
    from cuda.bindings.nvjitlink import nvJitLinkError
    from numba_cuda_mlir.numba_cuda.cudadrv.driver import LinkerError

    link_under_test = linker()
    link_under_test.add_cubin(cubin(function(name="ff"), CHIP), "ff.cubin")
    with pytest.raises(LinkError, match=r"f is undefined in .*, and no input defines it") as caught:
        link_under_test.complete()
    error = caught.value
    assert isinstance(error, LinkerError)
    assert isinstance(error, nvJitLinkError)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - pickled here
    assert (str(again), again.inputs, again.flags) == (str(error), error.inputs, error.flags)
    assert "-arch=sm_90" in error.flags


def test_a_wrong_source_is_an_error_of_nvrtc():
    """CUDA C++ with a mistake is an error of both packages that quotes it, without a driver."""
    from cuda.core._utils.cuda_utils import NVRTCError

    link_under_test = linker()
    link_under_test.add_cu("int f = wrong;\n", "wrong.cu")
    with pytest.raises(NVRTCError, match='identifier "wrong" is undefined') as caught:
        link_under_test.complete()
    assert isinstance(caught.value, LinkError)


def test_a_source_finds_what_is_beside_it(tmp_path):
    """A CUDA C++ file includes a header beside itself."""
    tmp_path.joinpath("seven.h").write_text("#define SEVEN 7\n")
    source = tmp_path / "f.cu"
    source.write_text('#include "seven.h"\nextern "C" __device__ int f(int) { return SEVEN; }\n')
    link_under_test = linker()
    link_under_test.add_file_guess_ext(str(source))
    assert "k" in {symbol.name for symbol in elf.read(link_under_test.complete().code).symbols}


def test_an_artifact_is_compared_with_its_manifest(tmp_path):
    """A link file that its export's manifest does not list is refused."""
    path = tmp_path / "udfs.sm_90.cubin"
    path.write_bytes(cubin(function(), CHIP))
    other = {"file": path.name, "sha256": "0" * 64}
    fields = {"format": manifests.FORMAT, "name": "udfs", "header": other, "artifacts": [], "functions": []}
    tmp_path.joinpath("udfs.json").write_text(json.dumps(fields))
    with pytest.raises(LinkError, match=r"udfs\.sm_90\.cubin .*udfs\.json"):
        linker().add_file_guess_ext(str(path))


def test_options_reach_the_tools():
    """Options of cuda.core become options of a link, spelled for the tool; unknown ones are refused."""
    from cuda.core import LinkerOptions
    from numba_cuda_mlir.numba_cuda.cudadrv import driver

    from numba_ptxlink._numba_cuda_mlir.linker import link_options
    from numba_ptxlink._tools.options import LTO, PTXAS

    options = driver.LinkerOptions(
        arch="sm_90",
        optimization_level=0,
        max_register_count=32,
        lineinfo=True,
        ftz=True,
        verbose=True,
        variables_used=["a", "b"],
        ptxas_options="-dlcm=cg",
    )
    assert isinstance(options, LinkerOptions)
    option_values = vars(options)
    alone = link_options(option_values)
    assert (alone.opt_level, alone.max_registers, alone.lineinfo, alone.debug) == (0, 32, True, False)
    assert ("--verbose", "-dlcm=cg") == alone.to_flags(PTXAS)[-2:]
    assert {} == alone.arithmetic
    optimised = link_options({**option_values, "link_time_optimization": True})
    used = ("-variables-used=a", "-variables-used=b")
    assert ("-ftz=1", "-verbose", *used, "-Xptxas=-dlcm=cg") == optimised.to_flags(LTO)[-5:]
    assert {"fma": False} == link_options({"fma": False}).arithmetic
    with pytest.raises(LinkError, match=r"option 'no_cache' .* is unknown"):
        link_options({"no_cache": True})
