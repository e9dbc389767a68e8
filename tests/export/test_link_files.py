"""Exports with the same helpers link together: non-exported functions are private, or weak and equal."""

from __future__ import annotations

import io
import zlib

import front_ends
import pytest
import shared_helpers
from elftools.elf.elffile import ELFFile
from numba import cuda

import numba_ptxlink as pl
from numba_ptxlink._formats import elf
from numba_ptxlink._link.read import read
from numba_ptxlink._link.symbols import symbols
from numba_ptxlink._tools import nvjitlink

KINDS = ("ptx", "ltoir", "cubin", "fatbin")
CALLER = """
extern "C" __device__ float first(float);
extern "C" __device__ float second(float);
extern "C" __global__ void caller(float* x) { x[0] = first(x[1]) + second(x[2]); }
"""


def exported(folder, name, helper, *, result=1, **options):
    """Export a function *name* that calls *helper*."""

    def calls(x):
        return helper(x) + result

    return pl.export([pl.udf("float32(float32)", name=name)(calls)], folder, arch="sm_90", **options)


def artifact(export, kind):
    """Return the path of the artifact of *kind*."""
    return export.artifacts[kind, "" if kind == "fatbin" else "sm_90"]


def strong(path):
    """Return the symbols of a file that only one input of a link may define."""
    if path.suffix == ".ptx":
        table = symbols(read(path))
        return {symbol.name for symbol in table if symbol.is_strong}
    code = path.read_bytes()
    if path.suffix == ".ltoir":
        code = nvjitlink.link([("ltoir", path.name, code)], ("-arch=sm_90", "-lto", "-r")).code
    table = ELFFile(io.BytesIO(code)).get_section_by_name(".symtab")
    return {
        symbol.name
        for symbol in table.iter_symbols()
        if symbol["st_info"]["bind"] == "STB_GLOBAL" and symbol["st_shndx"] != "SHN_UNDEF"
        if not symbol.name.startswith("__U")
    }


@pytest.mark.parametrize("opt", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["O3", "O0"])
@pytest.mark.parametrize("helper", shared_helpers.HELPERS, ids=lambda helper: helper.py_func.__name__)
def test_two_exports_that_share_a_helper_link_together(tmp_path, helper, opt):
    """Only the exported function may not be defined twice; at two optimisation levels too."""
    exports = [exported(tmp_path, "first", helper, opt=opt), exported(tmp_path, "second", helper, result=2)]
    for kind in KINDS:
        files = [artifact(export, kind) for export in exports]
        linked = pl.link(CALLER, *files, arch="sm_90", **({"lto": False} if kind != "ltoir" else {}))
        assert b"caller" in linked.cubin
    for kind in ("ptx", "cubin"):
        assert {"first"} == strong(artifact(exports[0], kind))


@pytest.mark.parametrize("helper", shared_helpers.HELPERS, ids=lambda helper: helper.py_func.__name__)
def test_what_is_strong_in_ltoir_has_the_exports_name_or_tag(tmp_path, helper):
    """LTO-IR keeps the symbols of link files, under names of the export's own."""
    symbols = strong(artifact(exported(tmp_path, "first", helper, emit=["ltoir"]), "ltoir"))
    assert "first" in symbols
    tag = f"{zlib.crc32(b'first'):08x}"
    assert [] == [name for name in symbols - {"first"} if tag not in name]


def test_the_exported_function_itself_is_defined_once(tmp_path):
    """Two different exports of one name are refused, by that name."""
    exports = [
        exported(tmp_path / str(result), "first", shared_helpers.reversed_in_block, result=result)
        for result in (1, 2)
    ]
    cases = [
        [artifact(export, kind) for export, kind in zip(exports, kinds, strict=True)]
        for kinds in (("ptx", "ptx"), ("cubin", "cubin"), ("ltoir", "ltoir"), ("ptx", "cubin"))
    ]
    cases.append(['extern "C" __device__ int first() { return 0; }', artifact(exports[0], "cubin")])
    for files in cases:
        with pytest.raises(pl.LinkError, match=r"\bfirst is defined 2 times"):
            pl.link(*files, arch="sm_90", lto=files is cases[2])


STATEFUL = """
__device__ int counter;
extern "C" __device__ int bump() { return atomicAdd(&counter, 1); }
extern "C" __global__ void reset() { counter = 0; }
"""


@pytest.mark.parametrize("output", ["ptx", pytest.param("ltoir", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", front_ends.NAMES)
def test_compile_leaves_link_files_to_the_linker(name, output, tmp_path):
    """Two functions and a kernel of `cuda.compile` share the one state of the file that all of them link."""
    cuda, types = front_ends.cuda(name), front_ends.get(name).types
    bump = cuda.declare_device("bump", types.int32(), abi="c", link=cuda.CUSource(STATEFUL))

    def kernel(x):
        x[0] = bump()

    files = []
    for symbol, device, *definition in (
        ("first", True, lambda: bump() + 1, types.int32()),
        ("second", True, lambda: bump() + 2, types.int32()),
        ("mine", False, kernel, types.void(types.int32[::1])),
    ):
        options = {"cc": (9, 0), "device": device, "abi": "c", "abi_info": {"abi_name": symbol}}
        code, _ = cuda.compile(*definition, **options, output=output)
        files.append(tmp_path / f"{symbol}.{output}")
        files[-1].write_bytes(code.encode() if isinstance(code, str) else code)
    caller = """
        extern "C" __device__ int first();
        extern "C" __device__ int second();
        extern "C" __global__ void caller(int* x) { *x = first() + second(); }
    """
    with pytest.raises(pl.LinkError, match="bump"):
        pl.link(*files, caller, arch="sm_90")
    linked = pl.link(*files, caller, STATEFUL, arch="sm_90")
    names = {symbol.name for symbol in elf.read(linked.cubin).symbols}
    assert {"mine", "caller", "reset"} <= names
    assert {"counter"} == {name for name in names if "counter" in name}


def test_an_export_calls_another_exports_function(tmp_path):
    """A function declared with the C ABI is found in the artifact that exports it, of each kind."""
    first_export = exported(tmp_path, "first", shared_helpers.reversed_in_block)
    first = cuda.declare_device("first", "float32(float32)", abi="c")

    def calls(x):
        return first(x) + shared_helpers.reversed_in_block(x)

    second = pl.export([pl.udf("float32(float32)", name="second")(calls)], tmp_path, arch="sm_90")
    for kind in KINDS:
        files = [artifact(export, kind) for export in (first_export, second)]
        assert b"caller" in pl.link(CALLER, *files, arch="sm_90", lto=kind == "ltoir").cubin, kind


def test_a_variable_named_like_a_member_of_cudas_structs(tmp_path):
    """A macro would rename `threadIdx.x` with the variable `x`, which keeps its name; others are renamed."""
    source = """
        __device__ float x = 3, counter = 1;
        extern "C" __device__ float added(float v) { return v + x + counter++ + threadIdx.x; }
    """
    function = cuda.declare_device("added", "float32(float32)", abi="c", link=cuda.CUSource(source))
    first = exported(tmp_path, "first", function)
    second = exported(tmp_path, "second", function)
    assert 15 == pl.load(first, device="cpu").first(10)
    assert {"first"} == strong(artifact(first, "ptx"))
    assert {"first", "x"} <= strong(artifact(first, "ltoir"))
    assert "counter" not in strong(artifact(first, "ltoir"))
    linked = pl.link(CALLER, *(artifact(export, "ptx") for export in (first, second)), arch="sm_90")
    assert b"caller" in linked.cubin
    with pytest.raises(pl.LinkError, match=r"\bx\b"):
        pl.link(CALLER, *(artifact(export, "ltoir") for export in (first, second)), arch="sm_90", lto=True)


def test_a_function_named_like_one_of_cudas(tmp_path):
    """A function with link files that CUDA C++ declares otherwise is refused by its name."""
    doubled = pl.udf("float16(float16)", name="norm")(lambda value: value + value)
    with pytest.raises(pl.ExportError, match=r"norm: CUDA C\+\+ itself declares this name; rename"):
        pl.export([doubled], tmp_path, arch="sm_90", emit="ptx")


def test_files_that_call_each_other(tmp_path):
    """Functions of one link file keep finding those of another."""
    one = cuda.CUSource(
        'extern "C" __device__ float other(float);\n'
        'extern "C" __device__ float one(float x) { return other(x); }',
        name="one.cu",
    )
    two = cuda.CUSource('extern "C" __device__ float other(float x) { return x * 2; }', name="two.cu")
    function = cuda.declare_device("one", "float32(float32)", abi="c", link=[one, two])
    first = exported(tmp_path, "first", function)
    second = exported(tmp_path, "second", function)
    assert {"first"} == strong(artifact(first, "ptx"))
    files = [artifact(export, "ltoir") for export in (first, second)]
    assert b"caller" in pl.link(CALLER, *files, arch="sm_90", lto=True).cubin


@pytest.mark.parametrize("symbol", ["_Z5twicef", "_ZN2ns6thriceEf"])
def test_a_file_defines_a_function_with_cxx_linkage(tmp_path, symbol):
    """A call by a mangled name finds the definition, whether macros can rename it or not."""
    source = """
        __device__ float twice(float x) { return 2 * x; }
        namespace ns { __device__ float thrice(float x) { return 3 * x; } }
    """
    function = cuda.declare_device(symbol, "float32(float32)", abi="c", link=cuda.CUSource(source))
    first = exported(tmp_path, "first", function)
    second = exported(tmp_path, "second", function)
    assert (2 if "twice" in symbol else 3) * 10 + 1 == pl.load(first, device="cpu").first(10)
    assert {"first"} == strong(artifact(first, "ptx"))
    assert "_Z5twicef" not in strong(artifact(first, "ltoir"))
    linked = pl.link(CALLER, *(artifact(export, "ptx") for export in (first, second)), arch="sm_90")
    assert b"caller" in linked.cubin
