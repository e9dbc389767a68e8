"""`cache=True` of numba-cuda-mlir: the parts of the key, and the entries that are kept and read again."""

from __future__ import annotations

import importlib.util

import pytest
from linkcases import cubin, function
from mlir_replaced import CHIP, cubin_of, replaced, signature

import numba_ptxlink as pl
from numba_ptxlink._tools import nvrtc

pytestmark = pytest.mark.usefixtures("replaced")
__all__ = ["replaced"]

MODULE = """\
from numba_cuda_mlir import cuda, types

f = cuda.declare_device("f", "int32(int32)", link={link!r}, abi="c")


def plain(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = x[i] + n


def calls(x, y, n):
    y[0] = f(n)


def calls_within(x, y, n):
    def inner(v):
        return f(v)

    y[0] = inner(n)


def overloaded(v):
    return v


def implement(v):
    return lambda v: f(v)


def calls_overload(x, y, n):
    y[0] = overloaded(n)


def syncs(x, y, n):
    cuda.cg.this_grid().sync()
    y[0] = n
"""


@pytest.fixture
def load(tmp_path):
    """Return a function that imports the module anew, as a later process would."""

    def load(link=()):
        path = tmp_path / "kernels.py"
        text = MODULE.format(link=list(link))
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        spec = importlib.util.spec_from_file_location("kernels", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def callee(tmp_path):
    """Return a function that writes the PTX of `f` to a file, and returns its path."""

    def callee(value):
        path = tmp_path / "f.ptx"
        path.write_text(function(value, target="sm_80"))
        return str(path)

    return callee


def compile_ltoir(source):
    """Return LTO-IR of CUDA C++."""
    arch = pl.Arch.of(CHIP)
    return nvrtc.compile_source(source, "f.cu", arch, output="ltoir").code


def compiled(function, **options):
    """Return a dispatcher with a disk cache, compiled or read."""
    from numba_cuda_mlir import cuda

    dispatcher = cuda.jit(**{"chip": CHIP, "cache": True, **options})(function)
    dispatcher.compile(signature())
    return dispatcher


def hits(dispatcher):
    """Return how many signatures were read from the disk."""
    return sum(dispatcher.stats.cache_hits.values())


def test_a_kernel_is_read_again(load):
    """A second dispatcher reads the entry of the first, without a device."""
    first = compiled(load().plain)
    second = compiled(load().plain)
    assert (hits(first), hits(second)) == (0, 1)
    assert cubin_of(first) == cubin_of(second)


@pytest.mark.parametrize(
    "options",
    [
        {"opt": False},
        {"opt_level": 1},
        {"max_registers": 32},
        {"lineinfo": True},
        {"debug": True, "opt": False},
        {"fastmath": True},
        {"ptxas_options": "-dlcm=cg"},
    ],
)
def test_every_option_is_in_the_key(load, options):
    """A kernel with another option is another kernel; without this package it is read as the first."""
    compiled(load().plain)
    assert hits(compiled(load().plain, **options)) == 0
    assert hits(compiled(load().plain, **options)) == 1


def test_link_files_of_the_decorator(load, callee):
    """A kernel with link files is kept, and compiled again once their content changes."""
    link = [callee(1)]
    first = compiled(load().calls, link=link)
    assert hits(compiled(load().calls, link=link)) == 1
    callee(2)
    second = compiled(load().calls, link=link)
    assert hits(second) == 0
    assert cubin_of(first) != cubin_of(second)


@pytest.mark.parametrize("kernel", ["calls", "calls_within"])
def test_link_files_of_declared_functions(load, callee, kernel):
    """A kernel is compiled each time if a function that it calls links a file: no key can have its name."""
    link = [callee(1)]
    for _ in range(2):
        assert hits(compiled(getattr(load(link), kernel))) == 0
    # The decorator names the file, too.
    first = compiled(getattr(load(link), kernel), link=link)
    second = compiled(getattr(load(link), kernel), link=link)
    assert (hits(first), hits(second)) == (0, 1)
    assert cubin_of(first) == cubin_of(second)


def test_code_that_an_overload_links(load, tmp_path):
    """LTO-IR that comes with an overload is in the kernel, and in none of its lists."""
    from numba_cuda_mlir.extending import overload
    from numba_cuda_mlir.typing.cuda import registry

    source = 'extern "C" __device__ int f(int x) { return x + 1; }'
    (tmp_path / "f.ltoir").write_bytes(compile_ltoir(source))
    module = load([str(tmp_path / "f.ltoir")])
    overload(module.overloaded, typing_registry=registry)(module.implement)
    for _ in range(2):
        assert hits(compiled(module.calls_overload)) == 0


def test_code_in_memory(load):
    """Code that a decorator links from memory counts by its content."""
    from numba_cuda_mlir.numba_cuda.cudadrv.linkable_code import Cubin

    def link(value):
        return [Cubin(cubin(function(value), CHIP), name="f.cubin")]

    compiled(load().calls, link=link(1))
    assert hits(compiled(load().calls, link=link(1))) == 1
    assert hits(compiled(load().calls, link=link(2))) == 0


def test_code_that_includes_what_a_macro_names(load):
    """The included file is unknown, so the kernel is compiled again."""
    from numba_cuda_mlir.numba_cuda.cudadrv.linkable_code import CUSource

    text = '#define NAME "cuda_fp16.h"\n#include NAME\nextern "C" __device__ int f(int x) { return x; }\n'
    link = [CUSource(text, name="f.cu")]
    for _ in range(2):
        assert hits(compiled(load().calls, link=link)) == 0


def test_a_cooperative_launch_is_not_kept(load):
    """A kernel that synchronises its grid is compiled in each process: an entry does not record that."""
    for _ in range(2):
        dispatcher = compiled(load().syncs)
        assert hits(dispatcher) == 0
        (overload,) = dispatcher.overloads.values()
        assert overload.metadata["use_cooperative"] is True
