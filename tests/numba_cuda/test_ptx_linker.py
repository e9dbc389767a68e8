"""The class that stands in for numba-cuda's linker: its interface and messages."""

from __future__ import annotations

import pickle

import fakedevice
import numba
import pytest
from ptx_kernels import make_kernel

import numba_ptxlink as pl
from numba_ptxlink._link import run
from numba_ptxlink._link.kernels import completed_links
from numba_ptxlink.linker import PtxLinker

CALLER = (
    'extern "C" __device__ int triple(int x);\n'
    'extern "C" __global__ void caller(int* p) { *p = triple(*p); }\n'
)
CALLEE = 'extern "C" __device__ int triple(int x) { return 3 * x; }\n'


@pytest.fixture
def linker() -> PtxLinker:
    """Return a linker for sm_90 without LTO."""
    return PtxLinker(cc=(9, 0))


def test_the_interface_is_the_stock_linkers():
    """Every public method and property of the stock class is there, and its initialiser's parameters too."""
    import inspect

    from numba.cuda.cudadrv import driver

    pl.disable()
    try:
        stock = driver._Linker
    finally:
        pl.enable()
    names = {name for name in vars(stock) if not name.startswith("_")}
    assert names <= {name for name in dir(PtxLinker) if not name.startswith("_")}
    assert list(inspect.signature(stock).parameters) == list(inspect.signature(PtxLinker).parameters)


@pytest.mark.parametrize(
    ("kinds", "has_tool", "refused"),
    [
        (["ltoir"], True, ""),
        (["cubin", "ltoir"], True, ""),
        (["cubin"], True, "it is not optimizable at link time, and `ignore_nonlto == True`"),
        (["ltoir"], False, r"its kinds of code are unknown\. No cuobjdump is installed"),
    ],
)
def test_ltoir_in_a_fat_binary_is_optimised(linker, kinds, has_tool, refused, monkeypatch):
    """As with stock, the PTX after link-time optimisation includes the LTO-IR of a fat binary."""
    from numba.cuda import Fatbin

    from numba_ptxlink._tools import find, nvfatbin, nvrtc

    arch = pl.Arch.of("sm_90")
    pieces = [
        (kind, arch, "f", nvrtc.compile_source(CALLEE, "f.cu", arch, output=kind).code) for kind in kinds
    ]
    callee = Fatbin(nvfatbin.pack(pieces), "callee.fatbin")
    linker.lto = True
    linker.add_cu(CALLER)
    if not has_tool:
        monkeypatch.setattr(find, "program", lambda *_: None)
    if refused:
        with pytest.warns(UserWarning, match=f"^Not adding callee.fatbin as {refused}"):
            linker.add_file_guess_ext(callee, ignore_nonlto=True)
    else:
        linker.add_file_guess_ext(callee, ignore_nonlto=True)
    assert bool(refused) is (b"triple" in linker.get_linked_ptx())


def test_complete_returns_what_numba_cuda_loads(linker):
    """complete() returns a cuda.core ObjectCode whose code is the cubin, and counts the link."""
    before = completed_links().assembled
    linker.add_ptx(make_kernel().encode())
    object_code = linker.complete()
    assert (type(object_code).__name__, object_code.code[:4]) == ("ObjectCode", b"\x7fELF")
    assert before + 1 == completed_links().assembled
    assert (linker.info_log, linker.error_log) == ("", "")


@pytest.mark.parametrize(
    ("options", "backends"),
    [
        ({}, ["nvptxcompiler"]),
        ({"fastmath": True}, ["nvjitlink"]),
        ({"opt": False}, ["nvjitlink"]),
        ({"fastmath": True, "lto": False}, ["nvptxcompiler"]),
        ({"opt": False, "lto": False}, ["nvptxcompiler"]),
        ({"opt": False, "debug": True}, ["nvptxcompiler"]),
    ],
)
def test_options_mean_what_they_mean_to_numba_cuda(monkeypatch, options, backends):
    """LTO is not given up if fastmath or opt take effect there, as they do by default."""
    fakedevice.install(monkeypatch.setattr)
    used = []

    def link_inputs(*args, **kwargs):
        linked = link(*args, **kwargs)
        used.append(linked.backend)
        return linked

    link = run.link
    monkeypatch.setattr(run, "link", link_inputs)

    def kernel(x):
        x[0] = x[1] / x[2]

    fakedevice.compile_kernel(kernel, (numba.float32[::1],), **options)
    assert backends == used


def test_every_kind_of_error_is_numba_cudas_too(linker):
    """Callers catch ours by numba-cuda's LinkerError, NVRTC's and nvJitLink's errors, FileNotFoundError."""
    from cuda.bindings.nvjitlink import nvJitLinkError
    from cuda.core._utils.cuda_utils import NVRTCError
    from numba.cuda.cudadrv.driver import LinkerError

    with pytest.raises(LinkerError, match="There is nothing to link"):
        linker.complete()
    with pytest.raises(NVRTCError, match="NVRTC_ERROR_COMPILATION") as caught:
        linker.add_cu("SYNTAX error\n", "error.cu")
    assert isinstance(caught.value, (pl.LinkError, LinkerError))
    assert 'in the compilation of "error.cu"' in str(caught.value)
    linker.add_ptx("nonsense")
    with pytest.raises(LinkerError, match=r"Missing \.version directive") as caught:
        linker.complete()
    assert "--gpu-name=sm_90" in caught.value.flags
    assert isinstance(caught.value, nvJitLinkError)
    with pytest.raises(FileNotFoundError, match=r"missing\.cu not found") as missing:
        linker.add_file_guess_ext("missing.cu")
    for error in (caught.value, missing.value):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - its own
        assert (type(error), str(error), error.flags) == (type(copy), str(copy), copy.flags)


def test_two_prototypes_are_told_in_c_types(linker):
    """Sources and kernels have no line of the PTX made of them; Numba's own convention is named."""
    linker.add_cu('extern "C" __device__ float helper(float x) { return x; }\n', "helper.cu")
    linker.add_ptx(
        make_kernel().replace(
            ".visible .entry",
            ".extern .func (.param .b32 r) helper(.param .b64 p, .param .b32 x);\n.visible .entry",
        ),
        "kernel.ptx",
    )
    with pytest.raises(pl.LinkError, match="two prototypes") as caught:
        linker.complete()
    assert "defined in helper.cu\n" in str(caught.value)
    assert (
        "In C types: 1 parameter(s) in helper.cu, 2 in kernel.ptx; the first parameter in kernel.ptx "
        'may be the address of the result, which declare_device(..., abi="c") leaves out.'
    ) in str(caught.value)
