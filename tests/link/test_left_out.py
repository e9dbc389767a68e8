"""Code that linkers leave out without a word, and links that nothing comes of."""

from __future__ import annotations

import re
import shutil
import subprocess
import zlib
from dataclasses import replace

import fakedevice
import pytest
from linkcases import HEAD, archive, function
from numba import cuda

import numba_ptxlink as pl
from numba_ptxlink import inspection, linker
from numba_ptxlink._cli.link import _has_kernel
from numba_ptxlink._formats import elf
from numba_ptxlink._formats.kinds import KINDS, PTX, Kind
from numba_ptxlink._link.checks import READABLE
from numba_ptxlink._link.inputs import read
from numba_ptxlink._tools import nvfatbin, nvjitlink
from numba_ptxlink.linker import PtxLinker

ARCH = "sm_80"
KERNEL = HEAD.format(target=ARCH) + ".visible .entry {name}()\n{{\n    ret;\n}}\n"
A = KERNEL.format(name="a").encode()
B = KERNEL.format(name="b").encode()
NOTHING = HEAD.format(target=ARCH)
FINISHED, RELOCATABLE = ".nv_fatbin", "__nv_relfatbin"

# What refers to relocatable code; without it nvJitLink does not see that.
WRAPPER = """\
.globl __fatbinwrap_a
.section .nvFatBinSegment, "aw"
.align 8
__fatbinwrap_a:
.long 0x466243b1, 1
.quad relocatable, 0
.section __nv_module_id, "a"
.string "_a"
"""


def cubin(ptx: bytes, *, relocatable: bool) -> bytes:
    """Return *ptx* as machine code for the architecture of these links."""
    return pl.assemble(ptx, ARCH, relocatable=relocatable).code


def fatbin(ptx: bytes, *, relocatable: bool, arch: str = ARCH, text: bool = False) -> bytes:
    """Return *ptx* as machine code in a fat binary, and also as *text*."""
    target = pl.Arch.of(arch)
    code = pl.assemble(ptx, arch, relocatable=relocatable).code
    entries = [("cubin", target, "a.cubin", code), *([("ptx", target, "a.ptx", ptx)] if text else [])]
    return nvfatbin.pack(entries, relocatable=relocatable)


def host_object(folder, **sections: bytes) -> bytes:
    """Return a host object whose sections hold fat binaries, as those that nvcc writes."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("there is no gcc")
    text = []
    for name, code in sections.items():
        section = {"finished": FINISHED, "relocatable": RELOCATABLE}[name]
        (folder / name).write_bytes(code)
        text.append(f'.section {section}, "a"\n.align 8\n{name}:\n.incbin "{folder / name}"\n')
    if "relocatable" in sections:
        text.append(WRAPPER)
    (folder / "a.s").write_text("".join(text) or ".text\n")
    subprocess.run([gcc, "-c", folder / "a.s", "-o", folder / "a.o"], check=True)
    return (folder / "a.o").read_bytes()


def kernels(code: bytes) -> list[str]:
    """Return the kernels of a cubin."""
    return [symbol.name for symbol in elf.read(code).symbols if symbol.defined and symbol.kind == "entry"]


FORMS = {
    "cubin": lambda _: cubin(A, relocatable=False),
    "fatbin": lambda _: fatbin(A, relocatable=False),
    "fatbin with PTX": lambda _: fatbin(A, relocatable=False, text=True),
    "object": lambda folder: host_object(folder, finished=fatbin(A, relocatable=False)),
    "library": lambda folder: archive(host_object(folder, finished=fatbin(A, relocatable=False))),
    "library of cubins": lambda _: archive(cubin(A, relocatable=True)),
    "library of fat binaries": lambda _: archive(fatbin(A, relocatable=True)),
    "library of PTX": lambda _: archive(A),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_linkers_leave_out_is_refused(form, tmp_path, caplog):
    """Code that nvJitLink leaves out without a word is refused or, of a library, told; with the cure."""
    code = FORMS[form](tmp_path)
    kind = read(code).kind
    plain = nvjitlink.link([(kind, "x", code), ("ptx", "b", B)], ("-arch=sm_80",))
    assert ["b"] == kernels(plain.code)
    says = r"the link leaves out a\. (Make it reloc|Give such a)"
    with pytest.raises(pl.LinkError, match=says):
        pl.link(code, arch=ARCH)
    if kind == "archive":
        # Of a library nobody may need anything.
        assert ["b"] == kernels(pl.link(code, B, arch=ARCH).cubin)
        assert re.search(says, caplog.text)
    else:
        with pytest.raises(pl.LinkError, match=says):
            pl.link(code, B, arch=ARCH)


USED = {
    "cubin": lambda _: cubin(A, relocatable=True),
    "fatbin": lambda _: fatbin(A, relocatable=True),
    "older machine code with PTX": lambda _: fatbin(A, relocatable=False, text=True),
    "object": lambda folder: host_object(folder, relocatable=fatbin(A, relocatable=True)),
    "linked object": lambda folder: host_object(
        folder, finished=fatbin(A, relocatable=False), relocatable=fatbin(A, relocatable=True)
    ),
    "library": lambda folder: archive(
        host_object(folder, finished=fatbin(KERNEL.format(name="c").encode(), relocatable=False)),
        host_object(folder, relocatable=fatbin(A, relocatable=True)),
    ),
}


def test_what_a_library_holds_beside_relocatable_code(tmp_path, caplog):
    """Of a library that a link takes in part, the finished members that it leaves out are told."""
    finished = host_object(tmp_path, finished=fatbin(KERNEL.format(name="c").encode(), relocatable=False))
    twin = host_object(tmp_path, finished=fatbin(A, relocatable=False))
    linked = host_object(tmp_path, relocatable=fatbin(A, relocatable=True))
    assert {"a", "b"} == set(kernels(pl.link(archive(twin, linked), B, arch=ARCH).cubin))
    assert "leaves out" not in caplog.text
    for others in ((), (B,)):
        caplog.clear()
        assert "a" in kernels(pl.link(archive(finished, linked), *others, arch=ARCH).cubin)
        assert "holds finished code too, which no linker takes: the link leaves out c. Make" in caplog.text
    caplog.clear()
    assert ["a"] == kernels(pl.link(archive(cubin(B, relocatable=True), linked), arch=ARCH).cubin)
    assert re.search(r"linkers read nothing else in a library: the link leaves out b\. Give", caplog.text)


@pytest.mark.parametrize("form", ["fatbin", "object", "library"])
def test_large_files_of_finished_code(form, tmp_path):
    """How large a file is changes nothing of what is refused by default."""
    table = ".visible .global .align 1 .b8 table[1100000] = {1};\n"
    code = fatbin(A + table.encode(), relocatable=False)
    if form != "fatbin":
        code = host_object(tmp_path, finished=code)
    inputs = [archive(code)] if form == "library" else [code, B]
    assert len(inputs[0]) > READABLE
    with pytest.raises(pl.LinkError, match=r"the link leaves out a, table\. Make it reloc"):
        pl.link(*inputs, arch=ARCH)


@pytest.mark.parametrize("form", USED)
def test_what_linkers_take_is_linked(form, tmp_path):
    """Relocatable code and PTX are linked, whatever finished code is beside them."""
    arch = "sm_90" if "older" in form else ARCH
    assert {"a", "b"} == set(kernels(pl.link(USED[form](tmp_path), B, arch=arch).cubin))


def test_finished_code_beside_the_same_code_is_linked(tmp_path):
    """Finished code of an object is no fault where another input brings the same symbols."""
    code = host_object(tmp_path, finished=fatbin(A, relocatable=False))
    assert ["a"] == kernels(pl.link(code, A, arch=ARCH).cubin)


def test_a_part_of_an_object_that_is_left_out_is_refused(tmp_path):
    """An object with relocatable code is refused for a kernel that only its finished code has."""
    code = host_object(
        tmp_path, finished=fatbin(A, relocatable=False), relocatable=fatbin(B, relocatable=True)
    )
    with pytest.raises(pl.LinkError, match=r"leaves out a\."):
        pl.link(code, arch=ARCH)


def test_without_checks_finished_code_is_left_to_the_linker():
    """checks="none" leaves finished code beside other code to the linker."""
    assert ["b"] == kernels(pl.link(cubin(A, relocatable=False), B, arch=ARCH, checks="none").cubin)


@pytest.mark.parametrize("checks", ["none", "cheap", "all"])
@pytest.mark.parametrize("form", ["object", "library", "PTX"])
def test_an_empty_cubin_is_refused(form, checks, tmp_path):
    """Inputs that define nothing are an error at every level of checks."""
    code = {"object": lambda: host_object(tmp_path), "library": archive, "PTX": NOTHING.encode}[form]()
    with pytest.raises(pl.LinkError, match=r"no kernel, function or variable .* cubin would be empty"):
        pl.link(code, arch=ARCH, checks=checks)
    assert ["b"] == kernels(pl.link(code, B, arch=ARCH, checks=checks).cubin)


def test_static_kernels_are_no_empty_cubin():
    """A kernel that no other code can name is linked, and counts as one for the command."""
    static = pl.assemble(KERNEL.format(name="a").replace(".visible ", ""), ARCH, relocatable=True).code
    linked = pl.link(static, arch=ARCH).cubin
    assert [] == kernels(linked)
    assert _has_kernel(linked)


@pytest.mark.slow
def test_the_device_runtime_in_a_linked_object(tmp_path):
    """What nvcc -dlink takes of the device runtime is no code that a link leaves out."""
    nvcc = inspection.find_tool("nvcc")
    if nvcc is None or shutil.which("g++") is None:
        pytest.skip("there is no nvcc, or no g++ for it")
    (tmp_path / "a.cu").write_text(
        '__global__ void child() {}\nextern "C" __global__ void a() { child<<<1, 1>>>(); }\n'
    )
    first, second = tmp_path / "a.o", tmp_path / "linked.o"
    subprocess.run([nvcc, "-dc", "-arch=sm_80", tmp_path / "a.cu", "-o", first], check=True)
    done = subprocess.run([nvcc, "-dlink", "-arch=sm_80", first, "-lcudadevrt", "-o", second], check=False)
    if done.returncode:
        pytest.skip("this nvcc has no device runtime")
    assert "a" in kernels(pl.link(first, second, arch=ARCH).cubin)


def test_functions_that_nobody_calls_are_no_error():
    """A link of functions alone is no error, though a linker drops what no kernel calls."""
    code = pl.assemble(function(), ARCH, relocatable=True).code
    assert [] == kernels(pl.link(code, arch=ARCH).cubin)


def test_a_linker_of_files_refuses_finished_code():
    """The linker class refuses finished code where its user gives all inputs."""
    linker = PtxLinker(cc=(8, 0))
    linker.add_cubin(cubin(A, relocatable=False), "a.cubin")
    linker.add_ptx(B, "b.ptx")
    with pytest.raises(pl.LinkError, match=r"a\.cubin is finished code"):
        linker.complete()


def test_kernels_beside_finished_code(tmp_path, monkeypatch, caplog):
    """A kernel is linked beside a finished cubin with a warning; if it needs that, the error says so."""
    fakedevice.install(monkeypatch.setattr)
    path = tmp_path / "a.cubin"
    path.write_bytes(cubin(A, relocatable=False))

    @cuda.jit("void(int32[::1])", link=[str(path)])
    def alone(x):
        x[0] = 1

    assert "a.cubin is finished code, which no linker takes" in caplog.text
    missing = cuda.declare_device("missing", "int32(int32)")

    @cuda.jit(link=[str(path)])
    def calls(x):
        x[0] = missing(x[0])

    with pytest.raises(pl.LinkError, match=r"missing is asked for(.|\n)*a\.cubin is finished code"):
        calls.compile("void(int32[::1])")


@pytest.mark.slow
def test_nvcc_without_relocatable_code(tmp_path):
    """An object that nvcc compiles without -rdc=true is refused, and linked with it."""
    nvcc = inspection.find_tool("nvcc")
    if nvcc is None or shutil.which("g++") is None:
        pytest.skip("there is no nvcc, or no g++ for it")
    source = tmp_path / "a.cu"
    source.write_text('extern "C" __global__ void a() {}\n')
    for flags, linked in (((), False), (("-rdc=true",), True)):
        subprocess.run([nvcc, "-c", "-arch=sm_80", *flags, source, "-o", tmp_path / "a.o"], check=True)
        if linked:
            assert ["a"] == kernels(pl.link(tmp_path / "a.o", arch=ARCH).cubin)
        else:
            with pytest.raises(pl.LinkError, match=r"a\.o holds finished code alone(.|\n)*nvcc -rdc=true"):
                pl.link(tmp_path / "a.o", arch=ARCH)


def test_a_kind_that_is_made_into_ptx_first_is_linked(monkeypatch):
    """A kind that linkers do not know is no container that they could leave out: its row suffices here."""
    packed = Kind("packed", (".zlib",), b"\x78\x9c")
    monkeypatch.setitem(KINDS, packed.name, packed)
    real = linker.link_inputs

    def unpacked(inputs, *arguments, **options):
        ready = [replace(each, kind=PTX, code=zlib.decompress(each.code)) for each in inputs]
        return real(ready, *arguments, **options)

    monkeypatch.setattr(linker, "link_inputs", unpacked)
    linked = pl.link(zlib.compress(A), arch=ARCH)
    assert ("<packed 1>",) == linked.inputs
    assert linked.cubin
