"""Two exports with the same helpers link together: what is not exported is private, or weak and equal."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import directories
import front_ends
import pytest
import shared_helpers
from elftools.elf.elffile import ELFFile
from numba import cuda
from numba.cuda import types

import numba_ptxlink as pl
from numba_ptxlink._formats import elf
from numba_ptxlink._formats.ptx import parse
from numba_ptxlink._link import symbols
from numba_ptxlink._link.read import read
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

    return pl.export([pl.udf("float32(float32)", name=name)(calls)], folder, archs=["sm_90"], **options)


def artifact(export, kind):
    """Return the path of the artifact of *kind*."""
    return export.artifacts[kind, "" if kind == "fatbin" else "sm_90"]


def strong(path):
    """Return the symbols of a file that only one input of a link may define."""
    if path.suffix == ".ptx":
        table = symbols.table(read(path)).symbols
        return {symbol.name for symbol in table if symbol.defined and not symbol.weak}
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
    made = [exported(tmp_path, "first", helper, opt=opt), exported(tmp_path, "second", helper, result=2)]
    for kind in KINDS:
        files = [artifact(export, kind) for export in made]
        linked = pl.link(CALLER, *files, arch="sm_90", **({"lto": False} if kind != "ltoir" else {}))
        assert b"caller" in linked.cubin
    for kind in ("ptx", "cubin"):
        assert {"first"} == strong(artifact(made[0], kind))


@pytest.mark.parametrize("helper", shared_helpers.HELPERS, ids=lambda helper: helper.py_func.__name__)
def test_what_is_strong_in_ltoir_has_the_exports_name_or_tag(tmp_path, helper):
    """LTO-IR keeps the symbols of link files, under names of the export's own."""
    tag = link_files_tag("first")
    found = strong(artifact(exported(tmp_path, "first", helper, emit=["ltoir"]), "ltoir"))
    assert "first" in found
    assert [] == [name for name in found - {"first"} if tag not in name]


def link_files_tag(name):
    """Return the tag of an export with one function."""
    from numba_ptxlink._export.build import tag

    return tag([name])


def nvcc_of_the_wheel():
    """Return the path of the nvcc that reads what the other wheels write; skip the test without one."""
    import nvidia

    for folder in nvidia.__path__:
        for path in Path(folder).glob("*/bin/nvcc"):
            return path
    return pytest.skip("the wheel of nvcc is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ptx", "cubin"])
@pytest.mark.parametrize(
    "helper", [shared_helpers.reversed_in_block, shared_helpers.advanced], ids=["shared", "extern"]
)
def test_nvcc_links_them_too(tmp_path, helper, kind):
    """The linker of CUDA C++ takes both artifacts."""
    nvcc = nvcc_of_the_wheel()
    made = [exported(tmp_path, name, helper) for name in ("first", "second")]
    (tmp_path / "caller.cu").write_text(CALLER)
    objects = []
    for path in (tmp_path / "caller.cu", *(artifact(export, kind) for export in made)):
        objects.append(tmp_path / f"{path.name}.o")
        subprocess.run([nvcc, "-arch=sm_90", "-dc", path, "-o", objects[-1]], check=True)
    command = [nvcc, "-arch=sm_90", "-dlink", *objects, "-o", tmp_path / "linked.o"]
    assert 0 == subprocess.run(command, check=False).returncode


def test_the_exported_function_itself_is_defined_once(tmp_path):
    """Two different exports of one name are refused, by that name."""
    made = [
        exported(tmp_path / str(result), "first", shared_helpers.reversed_in_block, result=result)
        for result in (1, 2)
    ]
    for kinds in (("ptx", "ptx"), ("cubin", "cubin"), ("ltoir", "ltoir"), ("ptx", "cubin")):
        files = [artifact(export, kind) for export, kind in zip(made, kinds, strict=True)]
        with pytest.raises(pl.LinkError, match=r"\bfirst is defined 2 times"):
            pl.link(*files, arch="sm_90", lto=kinds[0] == "ltoir")


STATEFUL = """
__device__ int counter;
extern "C" __device__ int bump() { return atomicAdd(&counter, 1); }
extern "C" __global__ void reset() { counter = 0; }
"""


@pytest.mark.parametrize(
    "output", ["ptx", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("ltoir", "cubin", "fatbin"))]
)
@pytest.mark.parametrize("name", front_ends.NAMES)
def test_compile_leaves_link_files_to_the_linker(name, output, tmp_path):
    """Two functions and a kernel of `cuda.compile` share the one state of the file that all of them link."""
    cuda, types = front_ends.cuda(name), front_ends.get(name).types
    bump = cuda.declare_device("bump", types.int32(), abi="c", link=cuda.CUSource(STATEFUL))

    def kernel(x):
        x[0] = bump()

    files = []
    for symbol, device, *given in (
        ("first", True, lambda: bump() + 1, types.int32()),
        ("second", True, lambda: bump() + 2, types.int32()),
        ("mine", False, kernel, types.void(types.int32[::1])),
    ):
        options = {"cc": (9, 0), "device": device, "abi": "c", "abi_info": {"abi_name": symbol}}
        code, _ = cuda.compile(*given, **options, output=output)
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
    names = {each.name for each in elf.read(linked.cubin).symbols}
    assert {"mine", "caller", "reset"} <= names
    assert {"counter"} == {each for each in names if "counter" in each}


def test_an_export_calls_another_exports_function(tmp_path):
    """A function declared with the C ABI is found in the artifact that exports it, of each kind."""
    made = exported(tmp_path, "first", shared_helpers.reversed_in_block)
    first = cuda.declare_device("first", "float32(float32)", abi="c")

    def calls(x):
        return first(x) + shared_helpers.reversed_in_block(x)

    second = pl.export([pl.udf("float32(float32)", name="second")(calls)], tmp_path, archs=["sm_90"])
    for kind in KINDS:
        files = [artifact(export, kind) for export in (made, second)]
        assert b"caller" in pl.link(CALLER, *files, arch="sm_90", lto=kind == "ltoir").cubin, kind


def test_a_kernel_of_numba_links_both(monkeypatch, tmp_path):
    """A kernel that declares both functions links both artifacts."""
    import fakedevice

    fakedevice.install(monkeypatch.setattr, (9, 0))
    made = [exported(tmp_path, name, shared_helpers.advanced) for name in ("first", "second")]
    first, second = (
        cuda.declare_device(
            name, "float32(float32)", abi="c", link=[cuda.LTOIR(artifact(export, "ltoir").read_bytes())]
        )
        for name, export in zip(("first", "second"), made, strict=True)
    )

    def kernel(x):
        x[0] = first(x[1]) + second(x[2])

    _, cubin = fakedevice.compile_kernel(kernel, (types.float32[::1],), lto=True)
    assert cubin.code[:4] == b"\x7fELF"


def test_compiling_a_function_leaves_a_shared_helper_as_it_is():
    """What `abi="c"` makes internal stays visible in the helper that other programs share."""
    helper = cuda.jit(device=True)(shared_helpers.reversed_in_block.py_func)

    def calls(x):
        return helper(x)

    cuda.compile(calls, "float32(float32)", abi="c", cc=(9, 0))
    (compiled,) = helper.overloads.values()
    text = str(next(iter(compiled.library.modules)))
    assert "= common global i8* null" in text
    assert "= internal addrspace(3)" not in text


def test_an_extern_with_a_name_like_a_shims_keeps_it(tmp_path):
    """Only what a link file defines is renamed: a function that C++ supplies is called by its own name."""
    names = ("step_nbst", "NRT_step", "____nv_step")
    helper = None
    for name in names:
        helper = lambda_of(cuda.declare_device(name, "float32(float32)", abi="c"), helper)
    first = exported(tmp_path, "first", helper, emit=["ptx", "ltoir"])
    functions = parse(artifact(first, "ptx").read_text()).functions
    assert {*names} == {each.name for each in functions if not each.defined}
    links_with_supplied(first, names)


@pytest.mark.slow
def test_an_extern_with_a_name_of_the_memory_manager_links(tmp_path):
    """A function that C++ supplies is called, and not Numba's own of that name."""
    supplied = cuda.declare_device("NRT_Free", "float32(float32)", abi="c")
    helper = lambda_of(supplied)
    first = exported(tmp_path, "first", helper)
    ptx, _ = cuda.compile(helper.py_func, "float32(float32)", abi="c", cc=(9, 0))
    for text in (artifact(first, "ptx").read_text(), ptx):
        assert {"NRT_Free"} == {each.name for each in parse(text).functions if not each.defined}
    links_with_supplied(first, ["NRT_Free"])


def links_with_supplied(export, names):
    """Link *export*, in two forms, with C++ that defines the functions *names*."""
    source = 'extern "C" __device__ float first(float);\n'
    source += 'extern "C" __global__ void caller(float* x) { x[0] = first(x[0]); }\n'
    for name in names:
        source += f'extern "C" __device__ float {name}(float x) {{ return x; }}\n'
    for kind in ("ptx", "ltoir"):
        linked = pl.link(source, artifact(export, kind), arch="sm_90", lto=kind == "ltoir")
        assert b"caller" in linked.cubin


def lambda_of(function, other=None):
    """Return a device function that calls *function* and *other*, or uses half arithmetic."""
    other = other or shared_helpers.squared_half

    @cuda.jit(device=True)
    def calls(x):
        return function(x) + other(x)

    return calls


def test_a_link_file_with_functions_named_like_shims_is_whole(tmp_path):
    """A file is reduced to the shims that are called only if it holds nothing else."""
    source = cuda.CUSource("""
        extern "C" __device__ int a_nbst(float& r) { return 0; }
        __device__ float helper(float x) { return x + 1; }
        extern "C" __device__ float b_nbst(float x) { return helper(x); }
        extern "C" __device__ int c_nbst(float& r) { r = helper(r); return 0; }
    """)
    function = cuda.declare_device("b_nbst", "float32(float32)", abi="c", link=[source])
    first = exported(tmp_path, "first", lambda_of(function))
    assert {"first"} == strong(artifact(first, "ptx"))


def test_functions_that_bring_more_and_more_shims(tmp_path):
    """A shim that several functions bring, each beside others, as those of half arithmetic, is there once."""
    shim = 'extern "C" __device__ int {}_nbst(float* r, float x) {{ *r = x + {}; return 0; }}\n'
    texts = [shim.format("a", 1), shim.format("b", 2), shim.format("c", 3)]
    one, more, other = (
        cuda.declare_device(f"{name}_nbst", "float32(float32)", link=[cuda.CUSource("".join(brought))])
        for name, brought in (("a", texts[:1]), ("b", texts[:2]), ("a", texts[::2]))
    )

    @pl.udf("float32(float32)")
    def first(x):
        return one(x)

    @pl.udf("float32(float32)")
    def second(x):
        return more(x) * other(x)

    made = pl.export([first, second], tmp_path, archs=["sm_90"], name="made", emit=["ptx", "ltoir"])
    assert {"first", "second"} == strong(artifact(made, "ptx"))
    assert b"caller" in pl.link(CALLER, artifact(made, "ltoir"), arch="sm_90", lto=True).cubin


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


def test_a_name_that_assembly_code_uses_stays(tmp_path):
    """No macro is replaced in assembly code, so a symbol that it names keeps its name."""
    source = cuda.CUSource("""
        __device__ int counted = 1;
        extern "C" __device__ float counting(float x) {
            int value;
            asm("ld.global.s32 %0, [counted];" : "=r"(value));
            return x + value;
        }
    """)
    function = cuda.declare_device("counting", "float32(float32)", abi="c", link=[source])
    first = exported(tmp_path, "first", function)
    assert {"first"} == strong(artifact(first, "ptx"))
    assert "counted" in strong(artifact(first, "ltoir"))


EXPORTS = """
import sys
sys.path.insert(0, sys.argv[1])
import shared_helpers, numba_ptxlink as pl
def calls(x):
    return shared_helpers.squared_half(x) + shared_helpers.advanced(x)
pl.export([pl.udf("float32(float32)", name="first")(calls)], sys.argv[2], archs=["sm_90"])
"""


@pytest.mark.slow
def test_an_export_has_the_same_bytes_in_every_directory(tmp_path):
    """Neither the working directory nor HOME nor TMPDIR is in an artifact; nothing comes from a cache."""
    if not directories.of_threads():
        pytest.skip("this system gives a thread no working directory of its own")
    written = []
    for folder in (tmp_path / "one", tmp_path / "another" / "much" / "longer"):
        folder.mkdir(parents=True)
        places = {"HOME": str(folder), "TMPDIR": str(folder), "NUMBA_PTXLINK_CACHE": "0"}
        command = [sys.executable, "-c", EXPORTS, Path(shared_helpers.__file__).parent, folder / "out"]
        subprocess.run(command, cwd=folder, env={**os.environ, **places}, check=True)
        written.append({path.name: path.read_bytes() for path in (folder / "out").iterdir()})
    assert written[0] == written[1]
    assert [] == [name for name, content in written[0].items() if os.fsencode(tmp_path) in content]


KEPT = {
    "a name that is asked for": (
        "#define S(a) #a\n#define N(a) S(a)\n__device__ __noinline__ float bias(float x) { return x; }\n",
        "bias(x) + sizeof(N(bias))",
        "_Z4biasf",
    ),
    "an operator": (
        "__device__ __noinline__ float2 operator+(float2 a, float2 b) { return {a.x + b.x, a.y}; }\n",
        "(make_float2(x, x) + make_float2(x, x)).x",
        "_Zpl6float2S_",
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_gets_no_private_name_is_told_and_clashes_by_name(tmp_path, caplog, case):
    """The export warns; a link of two exports as LTO-IR is refused by name, and that of PTX works."""
    head, value, symbol = KEPT[case]
    source = f'{head}extern "C" __device__ float entry(float x) {{ return {value}; }}\n'
    entry = cuda.declare_device(
        "entry", "float32(float32)", abi="c", link=[cuda.CUSource(source, name="file.cu")]
    )
    made = [exported(tmp_path, name, entry) for name in ("first", "second")]
    assert f"file.cu: no private name can be given to {symbol} without" in caplog.text
    with pytest.raises(pl.LinkError, match="symbol multiply defined"):
        pl.link(CALLER, *(artifact(export, "ltoir") for export in made), arch="sm_90", lto=True)
    files = [artifact(export, "ptx") for export in made]
    assert b"caller" in pl.link(CALLER, *files, arch="sm_90", lto=False).cubin
