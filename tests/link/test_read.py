"""Inputs of a link: every kind, as path, text, bytes or stream."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import fakedevice
import numpy as np
import pytest
from linkcases import cubin, function

import numba_ptxlink as pl
from numba_ptxlink.linker import PtxLinker

PTX = function()


class Reader:
    """A file object that derives from no class of `io`."""

    name = "reader.ptx"

    def read(self):
        """Return the content."""
        return PTX


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path,
        str,
        lambda _: PTX,
        lambda _: PTX.encode(),
        lambda _: bytearray(PTX.encode("utf-8-sig")),
        lambda _: memoryview(PTX.encode()),
        lambda _: io.StringIO(PTX),
        lambda _: io.BytesIO(PTX.encode()),
        lambda path: path.open("rb"),
        lambda _: Reader(),
    ],
    ids=["path", "name", "text", "bytes", "bytearray", "memoryview", "StringIO", "BytesIO", "file", "reader"],
)
def test_every_form(make, tmp_path):
    """The same PTX in every form is the same input."""
    path = tmp_path / "callee.ptx"
    path.write_text(PTX)
    callee = make(path)
    linked = pl.link(callee, arch="sm_80")
    getattr(callee, "close", lambda: None)()
    assert PTX == linked.ptx


@pytest.mark.parametrize("spell", [bytes, lambda code: code.decode(errors="surrogateescape")])
@pytest.mark.parametrize("options", [{}, {"cuda": "13.0"}, {"inline": "none"}], ids=str)
def test_ptx_in_another_encoding_links(spell, options):
    """Comments in Latin-1 are linked, assembled, and returned as they were."""
    callee = spell(PTX.replace(".visible", "// caf\xe9\n.visible", 1).encode("latin-1"))
    linked = pl.link(callee, function(name="g"), arch="sm_80", **options)
    assert linked.cubin
    alone = pl.link(callee, arch="sm_80", **options).ptx
    assert "caf\udce9" in alone
    assert pl.assemble(alone, "sm_80").code


CU = '#include "a.h"\n'
CLOSED = io.BytesIO()
CLOSED.close()
UNREADABLE = {
    "array of NumPy": (np.frombuffer(PTX.encode(), np.uint8), {}),
    "path with a NUL": ("a\0b.ptx", {}),
    "path of half a character": ("\ud800.ptx", {}),
    "half a character": (f"{PTX}// \ud800\n", {}),
    "closed file": (CLOSED, {}),
    "file of another encoding": (io.TextIOWrapper(io.BytesIO(b"\xe9\n"), encoding="utf-8"), {}),
    "NUL in a header": (CU, {"headers": {"a.h": "int a;\0int"}}),
    "half a character in a header": (CU, {"headers": {"a.h": "// \ud800"}}),
    "half a character in a header's name": (CU, {"headers": {"\ud800.h": ""}}),
    "half a character in a folder": (CU, {"include_dirs": "\ud800"}),
    "NUL in a macro": (CU, {"defines": {"A": "1\0"}}),
    "half a character in a name": (CU, {"name_expressions": ["k<\ud800>"]}),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_is_an_error_of_the_link(case):
    """Arrays, wrong paths and wrong texts are refused with the reason."""
    source, options = UNREADABLE[case]
    message = r"pass a path|could not be read|not valid Unicode|has a NUL character"
    with pytest.raises(pl.LinkError, match=message):
        pl.link(source, arch="sm_80", **options)
    if not options:
        with pytest.raises(pl.LinkError, match=message):
            pl.inspect(source)


@pytest.mark.parametrize("name", ["missing.ptx", "build/{arch}.ptx", "a;b.cu", "kernels", "C:/a (1)/b"])
def test_a_missing_file_tells_both_readings(name):
    """For a `str` without a file, the error explains how text is distinguished; a `Path` is always a path."""
    with pytest.raises(pl.LinkError, match=r"check the path\. If it is not a path but CUDA C\+\+ or PTX"):
        pl.link(name, arch="sm_80")
    with pytest.raises(pl.LinkError, match=r"not found; check the path\.$"):
        pl.link(Path(name), arch="sm_80")


def test_every_mixture_links(tmp_path):
    """PTX, a cubin, CUDA C++ and a fat binary are linked together."""
    from numba_ptxlink._tools import nvfatbin

    source = tmp_path / "source.cu"
    source.write_text(
        'extern "C" __device__ int f(int), g(int), h(int);\n'
        'extern "C" __global__ void all(int* p) { *p = f(1) + g(2) + h(3); }\n'
    )
    packed = nvfatbin.pack([("cubin", pl.Arch.of("sm_80"), "h", cubin(function(name="h")))])
    for inline, functions in (("none", {"f", "g", "h"}), ("auto", {"g", "h"})):
        linked = pl.link(source, PTX, cubin(function(name="g")), packed, arch="sm_80", inline=inline)
        names = {symbol.name for symbol in pl.inspect(linked.cubin, sass=False).symbols}
        assert {"all", *functions} == names & {"all", "f", "g", "h"}


@pytest.mark.parametrize("lto", [False, True])
def test_the_device_runtime_is_added(lto):
    """An exported kernel of a cooperative group links without naming the device runtime."""
    from numba import cuda

    @pl.kernel("void(int32[::1])", name="grid_kernel")
    def kernel(x):
        cuda.cg.this_grid().sync()
        x[0] = 1

    assert {"<udfs>", "libcudadevrt.a"} == set(pl.link(kernel, arch="sm_80", lto=lto).inputs)


@pytest.mark.parametrize("lto", [False, True])
def test_grid_synchronisation_links(lto, monkeypatch):
    """A kernel of a cooperative group links the device runtime by itself."""
    from numba import cuda, types

    pl.enable()
    fakedevice.install(monkeypatch.setattr)

    def kernel(x):
        cuda.cg.this_grid().sync()
        x[0] = 1

    library, cubin = fakedevice.compile_kernel(kernel, (types.int32[::1],), lto=lto)
    assert (True, b"\x7fELF") == (library.needs_cudadevrt, cubin.code[:4])


def test_a_missing_file_is_one_for_everybody(tmp_path):
    """The error is this package's and a FileNotFoundError, so that callers of either linker catch it."""
    path = tmp_path / "none.cu"
    with pytest.raises(pl.LinkError, match="not found") as caught:
        pl.link(path, arch="sm_80")
    assert isinstance(caught.value, FileNotFoundError)
    assert str(caught.value) == str(pickle.loads(pickle.dumps(caught.value)))  # noqa: S301
    with pytest.raises(FileNotFoundError, match="not found") as caught:
        PtxLinker(cc=(8, 0)).add_cu_file(path)
    assert isinstance(caught.value, pl.LinkError)
