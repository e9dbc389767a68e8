"""Reports of `inspect` about files of every kind."""

from __future__ import annotations

import functools
import json
import re
import subprocess

import processes
import pytest
from linkcases import CALLEE, find_nvcc
from ptx_kernels import make_kernel, make_large_kernel

import numba_ptxlink as pl
from numba_ptxlink._tools import find, nvfatbin, nvrtc
from numba_ptxlink.assembler import supported_archs
from numba_ptxlink.cli import main

ARCH = pl.Arch.of("sm_80")
SHARED = """\
struct Pair { double a, b; };
extern "C" __device__ float scale(Pair p, short s) { return p.a * s; }
extern "C" __global__ void k(float* p) {
  __shared__ float tile[256];
  tile[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = tile[255 - threadIdx.x];
}
"""


def content(kind: str) -> bytes:
    """Return the same functions as *kind*."""
    if kind == "fatbin":
        return nvfatbin.pack([("cubin", ARCH, "k", content("cubin")), ("ptx", ARCH, "k", content("ptx"))])
    return nvrtc.compile_source(SHARED, "source.cu", ARCH, output=kind).code


@pytest.mark.parametrize("kind", ["ptx", "cubin", "fatbin"])
def test_every_kind(kind):
    """The report has registers, shared and constant memory of machine code and PTX, and prototypes of PTX."""
    inspected = pl.inspect(content(kind), sass=False)
    assert (kind, "sm_80") == (inspected.kind, inspected.arch)
    symbols = {symbol.name: symbol for symbol in inspected.symbols}
    assert {"k", "scale"} == set(symbols)
    kernel, scale = symbols["k"], symbols["scale"]
    assert ("entry", "func") == (kernel.kind, scale.kind)
    assert 1024 <= kernel.shared
    assert 0 < kernel.constant
    assert 0 < kernel.registers
    assert 0 < kernel.size
    if kind == "ptx":
        assert ".func (.b32) scale(.align 8 .b8[16], .b32)" == scale.prototype
        assert "" == scale.c_prototype


def test_ltoir_tells_what_it_is():
    """The report on LTO-IR has versions and architecture, and nothing is compiled for it."""
    inspected = pl.inspect(content("ltoir"))
    assert ("ltoir", "sm_80", ()) == (inspected.kind, inspected.arch, inspected.symbols)
    assert ["nvvm_ir"] == [*inspected.details]


def test_names_do_not_steer_the_terminal(tmp_path, capsys):
    """An escape sequence in a symbol's name is shown, and not sent."""
    code = pl.assemble(content("ptx"), ARCH, relocatable=True).code
    path = tmp_path / "k.cubin"
    path.write_bytes(code.replace(b"scale\0", b"\x1b[2Jz\0"))
    assert 0 == main(["inspect", str(path), "--no-sass"])
    output = capsys.readouterr()
    assert "\x1b" not in output.out + output.err
    assert "\\x1b[2Jz" in output.out


def test_spills_are_told_for_ptx():
    """Spills of PTX are those of a compilation, also with a register limit in the PTX."""
    ptx = make_large_kernel(operations=100).replace(
        ".visible .entry large(.param .u64 out)", ".visible .entry large(.param .u64 out)\n.maxnreg 24"
    )
    (kernel,) = pl.inspect(ptx, arch="sm_80", sass=False).symbols
    stored, loaded = kernel.spills
    assert (True, True, True) == (stored > 0, loaded > 0, kernel.stack > 0)
    (plain,) = pl.inspect(make_large_kernel(operations=100), arch="sm_80", sass=False).symbols
    assert (0, 0) == plain.spills


@pytest.mark.parametrize("packed", [False, True])
def test_ptx_for_devices_that_are_too_old_is_compiled_for_the_oldest(packed):
    """PTX for a target that the compiler has dropped, as nvcc 12's default, has resources and a note."""
    old, oldest = pl.Arch.of("sm_52"), supported_archs()[0].sm
    text = make_kernel().replace("sm_75", old.sm)
    report = pl.inspect(nvfatbin.pack([("ptx", old, "k", text.encode())]) if packed else text, sass=False)
    piece = report.parts[0] if packed else report
    assert piece.symbols[0].registers
    (note,) = piece.notes
    assert note.startswith(f"Resources are for {oldest}, since nvPTXCompiler ")
    assert note.endswith("does not support sm_52; pass another architecture as arch= (--arch).")
    with pytest.raises(
        pl.AssembleError, match=r"or link the PTX with the nvJitLink of a toolkit that supports sm_\d+\.$"
    ):
        pl.assemble(text, old)


def test_machine_code_is_shown_where_nvdisasm_is():
    """With nvdisasm the machine code is shown; without it, a note names the package to install."""
    if find.program("nvdisasm") is None:
        pytest.skip("there is no nvdisasm")
    assert ".text.k" in pl.inspect(content("cubin")).sass


def test_cuda_source_is_refused():
    """CUDA C++ cannot be inspected, and the error has the cure."""
    with pytest.raises(pl.LinkError, match="compile it, for example by"):
        pl.inspect(CALLEE.format(value=1))


TWO_ARCHS = ("-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=[sm_90,compute_90]")
HOST = """\
template<class T> __global__ void scale(T* p, T a) { p[threadIdx.x] *= a; }
template __global__ void scale<float>(float*, float);
extern "C" __device__ float f(float a, int b) { return a * b; }
int main() { return 0; }
"""
LIBRARY = ("libfile.so", "-shared", "-Xcompiler=-fPIC")
HOST_FILES = {
    "object file": ("file.o", "-c"),
    "relocatable": ("file.o", "-c", "-rdc=true"),
    "compressed": ("file.o", "-c", "-Xfatbin", "-compress-all"),
    "shared library": LIBRARY,
    "executable": ("file",),
}
ALIKE = ("relocatable", "executable")


def by_nvcc(folder, name, *flags):
    """Return the file that nvcc makes of a source with the given flags."""
    nvcc = find_nvcc()
    if nvcc is None:
        pytest.skip("there is no nvcc")
    (folder / "file.cu").write_text(HOST)
    command = [nvcc, *TWO_ARCHS, *flags, str(folder / "file.cu"), "-o", str(folder / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nvcc cannot do it here: {done.stderr}")
    return folder / name


def listed_by_cuobjdump(path):
    """Return the kind and architecture of each piece of code, as cuobjdump lists them, sorted."""
    tool = find.program("cuobjdump")
    if tool is None:
        pytest.skip("there is no cuobjdump")
    command = [tool, "-lelf", "-lptx", str(path)]
    text = processes.run(*command).stdout
    entries = re.findall(r"(?m)^(ELF|PTX) file +\d+: .*\.(sm_\d+)\.(?:cubin|ptx)$", text)
    return sorted(({"ELF": "cubin", "PTX": "ptx"}[kind], arch) for kind, arch in entries)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return a function that makes a host file by nvcc, once for each name."""
    return functools.cache(lambda name, *flags: by_nvcc(tmp_path_factory.mktemp("built"), name, *flags))


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=pytest.mark.slow if form in ALIKE else ()) for form in HOST_FILES]
)
def test_a_host_file_lists_every_architecture(built, form):
    """All device code in objects, libraries and executables is listed as cuobjdump lists it, and read."""
    path = built(*HOST_FILES[form])
    report = pl.inspect(path, sass=False)
    assert listed_by_cuobjdump(path) == sorted((part.kind, part.arch) for part in report.parts)
    assert {"cubin sm_80", "cubin sm_90", "ptx sm_90"} == {
        f"{part.kind} {part.arch}" for part in report.parts if part.symbols
    }
    scales = [symbol for part in report.parts for symbol in part.symbols if symbol.kind == "entry"]
    assert {"_Z5scaleIfEvPT_S0_"} == {symbol.name for symbol in scales}
    inspected = pl.inspect(path, arch="sm_90", sass=False)
    assert {"sm_90"} == {part.arch for part in inspected.parts}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return an export of two functions and a kernel."""
    pytest.importorskip("numba.cuda")
    folder = tmp_path_factory.mktemp("export")
    (folder / "some.udfs.py").write_text(
        "from numba_ptxlink import udf, kernel\n\n"
        "@udf('float32(float32, int32)')\ndef damp(value, step):\n    return value * step\n\n"
        "@kernel('void(float32[::1], uint16)')\ndef fill(out, n):\n    out[0] = n\n"
    )
    return pl.export(folder / "some.udfs.py", folder / "out", arch="sm_80", name="some.udfs")


@pytest.mark.parametrize("kind", ["ptx", "ltoir", "cubin", "fatbin"])
def test_the_manifest_tells_the_declarations(exported, kind):
    """Beside its manifest an artifact shows the declarations of the header."""
    (path,) = [path for (of, _), path in exported.artifacts.items() if of == kind]
    report = pl.inspect(path, sass=False)
    header = exported.header.read_text()
    for inspected in (report, *report.parts):
        symbols = {symbol.name: symbol for symbol in inspected.symbols}
        for name in ("damp", "fill"):
            assert " ".join(symbols[name].c_prototype.rstrip(";").split()) in " ".join(header.split())
    assert "some.udfs.json" == report.details["manifest"]


def test_a_manifest_of_another_export_is_not_believed(exported, tmp_path):
    """An artifact that was changed or copied elsewhere has no declarations, and a note says why."""
    path = exported.artifacts["ptx", "sm_80"]
    changed = tmp_path / path.name
    changed.write_text(path.read_text() + "\n")
    assert "manifest" not in pl.inspect(changed, sass=False).details
    (tmp_path / "some.udfs.json").write_bytes(exported.manifest.read_bytes())
    report = pl.inspect(changed, sass=False)
    assert not any(symbol.c_prototype for symbol in report.symbols if symbol.name == "damp")
    assert "some.udfs.json is of another export" in report.notes[0]
    (tmp_path / "some.udfs.json").write_text("[]")
    assert () == pl.inspect(changed, sass=False).notes


def test_every_part_is_in_text_and_json(exported, capsys):
    """The command prints a section for each piece, and JSON nests them."""
    path = exported.artifacts["fatbin", ""]
    assert 0 == main(["inspect", str(path), "--no-sass"])
    text = capsys.readouterr().out
    assert 0 == main(["inspect", str(path), "--no-sass", "--json"])
    fields = json.loads(capsys.readouterr().out)
    for part in fields["parts"]:
        assert f"{path.name}  {part['kind']}  {part['arch']}" in text
        assert {"damp", "fill"} <= {symbol["name"] for symbol in part["symbols"]}
