"""Which tool makes machine code, with which flags and why: a table of links, of which none is made."""

from __future__ import annotations

from typing import NamedTuple

import pytest

import numba_ptxlink as pl
from numba_ptxlink._arch import PtxVersion
from numba_ptxlink._formats.ptx.header import sure_isa
from numba_ptxlink._link.backends import Environment, Target, Tool
from numba_ptxlink._link.fuse import fuse
from numba_ptxlink._link.plan import plan, unavailable
from numba_ptxlink._link.read import Input
from numba_ptxlink._tools.options import NVJITLINK, PTXAS, Options

# What the releases of the stand-ins know: CUDA 13 dropped sm_70, and has all newer ones but sm_130.
OLD = [pl.Arch(*divmod(number, 10)) for number in (70, 80, 90, 100, 120)]
ARCHS = {12: OLD, 13: OLD[1:], 14: [*OLD[1:], pl.Arch(13, 0)]}


def installed(linker=None, pynvjitlink=None, ptxas=None, major=None):
    """Return an environment of these releases beside nvPTXCompiler 13.5, None for what is not there."""

    def there(release, *, bound=False):
        def version(reader):
            if release is None or (bound and (reader is None or release > reader.newest)):
                raise pl.LinkError("nvJitLink could not be loaded")
            return release

        return version

    def archs(release):
        # An older minor release of CUDA 12 lacks the newest.
        return ARCHS[release[0]][: -2 if release < (12, 8) else None]

    return Environment(
        (
            Tool("nvptxcompiler", "nvPTXCompiler", PTXAS, there((13, 5)), lambda _: PtxVersion(9, 5), archs),
            Tool("ptxas", "ptxas", PTXAS, there(ptxas, bound=True), sure_isa, lambda _: ()),
            Tool("nvjitlink", "nvJitLink", NVJITLINK, there(linker), sure_isa, archs),
            Tool("pynvjitlink", "nvJitLink", NVJITLINK, there(pynvjitlink), sure_isa, archs),
        ),
        lambda: major or (linker or pynvjitlink or (13, 0))[0],
    )


def ptx(version="8.0", target="sm_80", functions=0, body="", name="k"):
    """Return PTX with a kernel and as many functions."""
    text = (
        f".version {version}\n.target {target}\n.address_size 64\n.visible .entry {name}() {{ {body}ret; }}\n"
    )
    return text + "".join(f".visible .func {name}{each}() {{ ret; }}\n" for each in range(functions))


CUBIN, LTOIR = ("cubin", "c.cubin"), ("ltoir", "l.ltoir")
ONE, TWO = (ptx(),), (ptx(), ptx(name="f"))
UNREAD = (ptx(), ptx(name="f", body="@ "))
MANY = (ptx(functions=201),)
USUAL = "one PTX and nothing to link it with"
NONE, NEW, OLDER, CUDA12, CUDA14 = (
    installed(),
    installed((13, 5)),
    installed((13, 0)),
    installed((12, 9)),
    installed((14, 0)),
)
WITH_PTXAS, PTXAS_12 = installed((13, 0), ptxas=(13, 0)), installed((13, 0), ptxas=(12, 9))
RELOCATABLE, LTO = {"relocatable": True}, {"lto": True}
O3, G3 = "--opt-level=3", "--gpu-name=sm_80 --opt-level=3"
L = "-arch=sm_80"


class Row(NamedTuple):
    """A link, and how it is planned: an error's text in the place of the tool's name begins with !."""

    there: Environment
    inputs: tuple
    options: dict
    tool: str
    flags: str = ""
    reason: str = USUAL
    arch: str = "sm_80"
    cuda: tuple | None = None


def drivers(major):
    """Return the reason where drivers are older."""
    return f"drivers of CUDA {major} may not read code of nvPTXCompiler 13.5"


UNKNOWN = "which nvPTXCompiler 13.5 does not know"
TOO_NEW = "PTX 99.0, and nvPTXCompiler 13.5 reads 9.5 at most"
FUSED = "2 PTX as one, 0 calls inlined"
DEBUG, LINES = {"debug": True}, {"lineinfo": True}
PROGRAMS = "programs of CUDA 13.0 may not read code of nvPTXCompiler 13.5"
LINKER = "nvJitLink 13.0 may not read code of nvPTXCompiler 13.5"
NOT_THERE = "and libnvJitLink is not found"
FAST = {"fast_math": True}
TABLE = [
    # One PTX, by what is installed.
    Row(NONE, ONE, {}, "nvptxcompiler", G3),
    Row(NEW, ONE, {}, "nvptxcompiler", G3),
    Row(OLDER, ONE, {}, "nvptxcompiler", G3),
    Row(CUDA14, ONE, {}, "nvptxcompiler", G3),
    Row(CUDA12, ONE, {}, "nvjitlink", L, drivers(12)),
    Row(
        installed((12, 4)),
        (ptx("8.5"),),
        {},
        "nvptxcompiler",
        G3,
        "PTX 8.5, and nvJitLink 12.4 reads 8.4 at most",
    ),
    Row(
        installed((12, 4)),
        ONE,
        {},
        "nvptxcompiler",
        f"--gpu-name=sm_120 {O3}",
        "sm_120, which nvJitLink 12.4 does not know",
        "sm_120",
    ),
    Row(installed(None, (12, 9)), ONE, {}, "pynvjitlink", L, drivers(12)),
    Row(installed(major=12), ONE, {}, "nvptxcompiler", G3),
    # What nvPTXCompiler does not know or read.
    Row(NEW, ONE, {}, "nvptxcompiler", f"--gpu-name=sm_70 {O3}", USUAL, "sm_70"),
    Row(OLDER, ONE, {}, "nvptxcompiler", f"--gpu-name=sm_130 {O3}", USUAL, "sm_130"),
    Row(CUDA12, ONE, {}, "nvjitlink", "-arch=sm_70", f"sm_70, {UNKNOWN}", "sm_70"),
    Row(CUDA14, ONE, {}, "nvjitlink", "-arch=sm_130", f"sm_130, {UNKNOWN}", "sm_130"),
    Row(CUDA14, (ptx("99.0"),), {}, "nvjitlink", L, TOO_NEW),
    Row(OLDER, (ptx("99.0"),), {}, "nvptxcompiler", G3),
    # Many functions.
    Row(NEW, MANY, {}, "nvjitlink", L, "201 functions, for which nvPTXCompiler takes longer"),
    Row(NEW, MANY, RELOCATABLE, "nvptxcompiler", f"--gpu-name=sm_80 --compile-only {O3}"),
    Row(
        OLDER,
        (ptx("9.1", functions=201),),
        {},
        "nvptxcompiler",
        G3,
        "PTX 9.1, and nvJitLink 13.0 reads 9.0 at most",
    ),
    # For debuggers.
    Row(NEW, ONE, DEBUG, "nvptxcompiler", "--gpu-name=sm_80 --device-debug"),
    Row(NEW, ONE, {**DEBUG, **LINES}, "nvptxcompiler", "--gpu-name=sm_80 --device-debug"),
    Row(OLDER, ONE, DEBUG, "nvjitlink", f"{L} -g", PROGRAMS),
    Row(OLDER, ONE, LINES, "nvjitlink", f"{L} -lineinfo", PROGRAMS),
    Row(NEW, (ptx(target="sm_80, debug"),), {}, "nvptxcompiler", "--gpu-name=sm_80"),
    # Options.
    Row(NEW, ONE, {"fma": False}, "nvptxcompiler", f"{G3} --fmad=false"),
    Row(
        CUDA12, ONE, {"fma": False, "opt_level": 0}, "nvjitlink", f"{L} -O0 -Xptxas=--fmad=false", drivers(12)
    ),
    Row(
        NEW,
        (LTOIR,),
        {**LTO, "fma": False},
        "nvjitlink",
        f"{L} -lto -fma=0 -Xptxas=--fmad=false",
        "link-time optimisation",
    ),
    Row(
        NEW,
        (LTOIR,),
        {**LTO, **FAST},
        "nvjitlink",
        f"{L} -lto -ftz=1 -prec-div=0 -prec-sqrt=0 -fma=1 -Xptxas=--fmad=true",
        "link-time optimisation",
    ),
    Row(
        NEW,
        (LTOIR,),
        {**LTO, **FAST, "ftz": False},
        "nvjitlink",
        f"{L} -lto -ftz=0 -prec-div=0 -prec-sqrt=0 -fma=1 -Xptxas=--fmad=true",
        "link-time optimisation",
    ),
    Row(
        NEW,
        (LTOIR,),
        {**LTO, "max_registers": 32, "lineinfo": True},
        "nvjitlink",
        f"{L} -lto -lineinfo -maxrregcount=32",
        "link-time optimisation",
    ),
    # Flags.
    Row(NEW, ONE, {"extra_flags": ("-v",)}, "nvptxcompiler", f"{G3} -v"),
    Row(NEW, ONE, {"extra_flags": ("-Xptxas=-v",)}, "nvptxcompiler", f"{G3} -v"),
    Row(
        NEW,
        ONE,
        {"extra_flags": ("-time",)},
        "nvjitlink",
        f"{L} -time",
        "the flag -time, which is nvJitLink's",
    ),
    Row(NEW, ONE, {"extra_flags": ("-time",), "backend": "nvptxcompiler"}, "!here is the flag -time"),
    Row(NEW, TWO, {"extra_flags": ("-v",)}, "nvptxcompiler", f"{G3} -v", FUSED),
    Row(
        NEW,
        TWO,
        {"extra_flags": ("--maxntid", "8"), "inline": "none"},
        "nvjitlink",
        f"{L} -Xptxas=--maxntid -Xptxas=8",
        "2 inputs",
    ),
    Row(NEW, TWO, {"extra_flags": ("-time",)}, "nvjitlink", f"{L} -time", "2 inputs, -time is nvJitLink's"),
    Row(NEW, ONE, {"extra_flags": ("-Xnvvm=-opt=0",)}, "!ignores without link-time optimisation"),
    Row(
        NEW,
        (LTOIR,),
        {**LTO, "extra_flags": ("-Xnvvm=-opt=0", "-v", "-O0")},
        "nvjitlink",
        f"{L} -lto -Xnvvm=-opt=0 -Xptxas=-v -O0",
        "link-time optimisation",
    ),
    Row(
        NEW,
        (LTOIR,),
        {**LTO, "extra_flags": ("-split-compile=2",)},
        "nvjitlink",
        f"{L} -lto -split-compile=2",
        "link-time optimisation",
    ),
    Row(NEW, (CUBIN, CUBIN), {"extra_flags": ("-v",)}, "!which is ptxas's, and there is no PTX"),
    # Several inputs, and other kinds.
    Row(NEW, TWO, {}, "nvptxcompiler", G3, FUSED),
    Row(NEW, TWO, {"inline": "none"}, "nvjitlink", L, "2 inputs"),
    Row(NEW, TWO, DEBUG, "nvjitlink", f"{L} -g", "2 inputs, debug information is kept"),
    Row(CUDA12, TWO, {}, "nvjitlink", L, f"{FUSED}; {drivers(12)}"),
    Row(NEW, (*TWO, CUBIN), {}, "nvjitlink", L, f"{FUSED}; 2 inputs"),
    Row(NEW, (CUBIN,), {}, "nvjitlink", L, "a cubin"),
    Row(NONE, (CUBIN,), {}, "!nvJitLink could not be loaded"),
    Row(installed(None, (12, 9)), (CUBIN,), {}, "pynvjitlink", L, f"a cubin, {NOT_THERE}"),
    Row(NEW, ONE, {"backend": "other"}, "!There is no backend 'other'"),
    Row(OLDER, (ptx("9.1"), CUBIN), {}, "!1.ptx is PTX 9.1, and nvJitLink 13.0 reads 9.0 at most"),
    Row(NEW, UNREAD, {"inline": "all"}, "nvjitlink", L, "2 inputs, The PTX function f cannot be read:"),
    Row(NEW, UNREAD[1:], {"inline": "all"}, "nvptxcompiler", G3),
    # A tool that is asked for.
    Row(NEW, ONE, {"backend": "nvjitlink"}, "nvjitlink", L, "asked for"),
    Row(CUDA12, ONE, {"backend": "nvptxcompiler"}, "nvptxcompiler", G3, "asked for"),
    Row(NEW, TWO, {"backend": "nvptxcompiler"}, "nvptxcompiler", G3, f"{FUSED}; asked for"),
    Row(
        NEW,
        (CUBIN,),
        {"backend": "nvptxcompiler"},
        "!makes a cubin of PTX alone; here is a cubin. The backends nvj",
    ),
    Row(NEW, (LTOIR,), {**LTO, "backend": "nvptxcompiler"}, "!here is link-time optimisation"),
    # Relocatable code, for this environment's linker.
    Row(NEW, ONE, RELOCATABLE, "nvptxcompiler", f"--gpu-name=sm_80 --compile-only {O3}"),
    Row(WITH_PTXAS, (ptx("9.0"),), RELOCATABLE, "ptxas", f"--gpu-name=sm_80 --compile-only {O3}", LINKER),
    Row(
        WITH_PTXAS,
        (ptx("9.1"),),
        RELOCATABLE,
        "nvptxcompiler",
        f"--gpu-name=sm_80 --compile-only {O3}",
        "PTX 9.1, and ptxas 13.0 reads 9.0 at most",
    ),
    Row(OLDER, ONE, RELOCATABLE, "nvptxcompiler", f"--gpu-name=sm_80 --compile-only {O3}"),
    # For another release.
    Row(
        WITH_PTXAS,
        ONE,
        RELOCATABLE,
        "ptxas",
        f"--gpu-name=sm_80 --compile-only {O3}",
        "linkers of CUDA 13.0 may not read code of nvPTXCompiler 13.5",
        cuda=(13, 0),
    ),
    Row(PTXAS_12, ONE, {"fma": False}, "ptxas", f"{G3} --fmad=false", drivers(12), cuda=(12, 4)),
    Row(CUDA12, ONE, {}, "nvjitlink", L, drivers(12), cuda=(12, 4)),
    Row(
        NEW,
        ONE,
        {},
        "!No cubin for CUDA 12.4: it takes a compiler of CUDA 12.4 or another one of its major",
        cuda=(12, 4),
    ),
    Row(
        NEW,
        (CUBIN,),
        {},
        "!drivers of CUDA 12 may not read code of nvJitLink 13.5 (a cubin)",
        cuda=(12, 4),
    ),
    Row(CUDA12, (CUBIN,), {}, "nvjitlink", L, "a cubin", cuda=(12, 4)),
    Row(
        NEW,
        ONE,
        {"backend": "nvptxcompiler"},
        "!drivers of CUDA 12 may not read code of nvPTXCompiler 13.5 (asked for)",
        cuda=(12, 4),
    ),
]


def inputs_of(row):
    """Return the inputs of *row*."""
    texts = (each for each in row.inputs)
    return [
        Input("ptx", f"{number}.ptx", each.encode()) if isinstance(each, str) else Input(*each, b"")
        for number, each in enumerate(texts, start=1)
    ]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{TABLE.index(row)}")
def test_the_plan_of_a_link(row):
    """Inputs, options, the reader of the code and what is installed decide about tool, flags and reason."""
    target, options = Target(pl.Arch.of(row.arch), row.cuda), Options(**row.options)

    def planned():
        return plan(fuse(inputs_of(row), target, options), target, options, row.there)

    if row.tool.startswith("!"):
        with pytest.raises(pl.PtxlinkError) as caught:
            planned()
        assert row.tool[1:] in str(caught.value)
    else:
        made = planned()
        told = f"; for CUDA {row.cuda[0]}.{row.cuda[1]}" if row.cuda else ""
        assert (row.tool, row.flags) == (made.tool.name, " ".join(made.flags))
        if row.reason.endswith(":"):
            assert made.reason.startswith(row.reason)
        else:
            assert row.reason + told == made.reason


def test_doubt_is_part_of_a_plan():
    """Where no tool makes code that the reader is known to read, the plan says so."""
    target = Target(pl.Arch(8, 0))
    fusion = fuse(inputs_of(TABLE[0]), target, Options())
    assert LINKER == plan(fusion, target, Options(relocatable=True), OLDER).doubt
    assert "" == plan(fusion, target, Options(relocatable=True), WITH_PTXAS).doubt


def test_what_is_missing_for_another_release_is_told():
    """It is said which package brings a compiler for a release, where no tool makes code for it."""
    assert "pip install 'nvidia-cuda-nvcc-cu12==12.4.*'" in unavailable((12, 4), Options(), NEW)
    assert "" == unavailable((12, 4), Options(), CUDA12)
    assert "or an older one" in unavailable((12, 4), Options(relocatable=True), CUDA12)
