"""The tool that produces a cubin, its flags and the reason: a table of links, none of which is run."""

from __future__ import annotations

import re

import pytest

import numba_ptxlink as pl
from numba_ptxlink._arch import PtxVersion, newest_tested_isa
from numba_ptxlink._link.backends import Environment, Target, Tool
from numba_ptxlink._link.fuse import fuse
from numba_ptxlink._link.plan import plan, unavailable_reason
from numba_ptxlink._link.read import Input
from numba_ptxlink._tools.options import NVJITLINK, PTXAS, Options

# Architectures that the releases of the stand-ins support: CUDA 13 dropped sm_70 and has all newer ones but
# sm_130.
OLD = [pl.Arch(*divmod(number, 10)) for number in (70, 80, 90, 100, 120)]
ARCHS = {12: OLD, 13: OLD[1:], 14: [*OLD[1:], pl.Arch(13, 0)]}


def installed(linker=None, pynvjitlink=None, ptxas=None, major=None):
    """Return an environment with tools of these releases and nvPTXCompiler 13.5; None is a missing tool."""

    def version_of(release, *, bound=False):
        def version(reader):
            if release is None or (bound and (reader is None or release > reader.newest_release)):
                raise pl.LinkError("nvJitLink could not be loaded")
            return release

        return version

    def archs(release):
        # An older minor release of CUDA 12 lacks the newest.
        return ARCHS[release[0]][: -2 if release < (12, 8) else None]

    return Environment(
        (
            Tool(
                "nvptxcompiler",
                "nvPTXCompiler",
                PTXAS,
                version_of((13, 5)),
                lambda _: PtxVersion(9, 5),
                archs,
            ),
            Tool("ptxas", "ptxas", PTXAS, version_of(ptxas, bound=True), newest_tested_isa, lambda _: ()),
            Tool("nvjitlink", "nvJitLink", NVJITLINK, version_of(linker), newest_tested_isa, archs),
            Tool("pynvjitlink", "nvJitLink", NVJITLINK, version_of(pynvjitlink), newest_tested_isa, archs),
        ),
        lambda: major or (linker or pynvjitlink or (13, 0))[0],
    )


def ptx(version="8.0", target="sm_80", functions=0, body="", name="k"):
    """Return PTX with a kernel and as many functions."""
    text = (
        f".version {version}\n.target {target}\n.address_size 64\n.visible .entry {name}() {{ {body}ret; }}\n"
    )
    return text + "".join(f".visible .func {name}{number}() {{ ret; }}\n" for number in range(functions))


CUBIN, LTOIR = (("cubin", ""),), (("ltoir", ""),)
ONE, TWO = (ptx(),), (ptx(), ptx(name="f"))
MANY = (ptx(functions=201),)
UNREAD = ptx(name="f", body="@ ")
NONE, NEW, OLDER, CUDA12, CUDA14 = map(installed, (None, (13, 5), (13, 0), (12, 9), (14, 0)))
CUDA12_4, PYNVJITLINK = installed((12, 4)), installed(None, (12, 9))
WITH_PTXAS, PTXAS_12 = installed((13, 0), ptxas=(13, 0)), installed((13, 0), ptxas=(12, 9))
RELOCATABLE, LTO, DEBUG = {"relocatable": True}, {"lto": True}, {"debug": True}
ASSEMBLED = "nvptxcompiler --gpu-name=sm_80 --opt-level=3"
SINGLE_PTX = "one PTX and nothing to link it with"
ALONE = f"{ASSEMBLED}: {SINGLE_PTX}"
LINKABLE = "--gpu-name=sm_80 --compile-only --opt-level=3"
LINKED = "nvjitlink -arch=sm_80"
OPTIMISED = "link-time optimisation"
DRIVERS = "drivers of CUDA 12 may not read code of nvPTXCompiler 13.5"
PROGRAMS = "programs of CUDA 13.0 may not read code of nvPTXCompiler 13.5"
LINKER = "nvJitLink 13.0 may not read code of nvPTXCompiler 13.5"
UNKNOWN = "which nvPTXCompiler 13.5 does not support"
FUSED = "2 PTX as one, 0 calls inlined"
REPORT = "correct the PTX, or report this if ptxas accepts it."
FOR_12 = {"cuda": (12, 4)}
# Installed tools, inputs, options; then tool, flags and reason, or a part of the error behind a "!".
TABLE = [
    # A single PTX, by the installed tools.
    (NONE, ONE, {}, ALONE),
    (NEW, ONE, {}, ALONE),
    (OLDER, ONE, {}, ALONE),
    (CUDA14, ONE, {}, ALONE),
    (installed(major=12), ONE, {}, ALONE),
    (CUDA12, ONE, {}, f"{LINKED}: {DRIVERS}"),
    (PYNVJITLINK, ONE, {}, f"py{LINKED}: {DRIVERS}"),
    (CUDA12_4, (ptx("8.5"),), {}, f"{ASSEMBLED}: PTX 8.5, and nvJitLink 12.4 reads 8.4 at most"),
    (
        CUDA12_4,
        ONE,
        {"arch": "sm_120"},
        "nvptxcompiler --gpu-name=sm_120 --opt-level=3: sm_120, which nvJitLink 12.4 does not support",
    ),
    # PTX or an architecture that nvPTXCompiler does not support.
    (OLDER, ONE, {"arch": "sm_130"}, f"nvptxcompiler --gpu-name=sm_130 --opt-level=3: {SINGLE_PTX}"),
    (CUDA12, ONE, {"arch": "sm_70"}, f"nvjitlink -arch=sm_70: sm_70, {UNKNOWN}"),
    (CUDA14, ONE, {"arch": "sm_130"}, f"nvjitlink -arch=sm_130: sm_130, {UNKNOWN}"),
    (CUDA14, (ptx("99.0"),), {}, f"{LINKED}: PTX 99.0, and nvPTXCompiler 13.5 reads 9.5 at most"),
    (OLDER, (ptx("99.0"),), {}, ALONE),
    # Many functions.
    (NEW, MANY, {}, f"{LINKED}: 201 functions, for which nvPTXCompiler takes longer"),
    (NEW, MANY, RELOCATABLE, f"nvptxcompiler {LINKABLE}: {SINGLE_PTX}"),
    (
        OLDER,
        (ptx("9.1", functions=201),),
        {},
        f"{ASSEMBLED}: PTX 9.1, and nvJitLink 13.0 reads 9.0 at most",
    ),
    # For debuggers.
    (NEW, ONE, DEBUG, f"nvptxcompiler --gpu-name=sm_80 --device-debug: {SINGLE_PTX}"),
    (NEW, ONE, {**DEBUG, "lineinfo": True}, f"nvptxcompiler --gpu-name=sm_80 --device-debug: {SINGLE_PTX}"),
    (OLDER, ONE, DEBUG, f"{LINKED} -g: {PROGRAMS}"),
    (OLDER, ONE, {"lineinfo": True}, f"{LINKED} -lineinfo: {PROGRAMS}"),
    (NEW, (ptx(target="sm_80, debug"),), {}, f"nvptxcompiler --gpu-name=sm_80: {SINGLE_PTX}"),
    # Options.
    (NEW, ONE, {"fma": False}, f"{ASSEMBLED} --fmad=false: {SINGLE_PTX}"),
    (CUDA12, ONE, {"fma": False, "opt_level": 0}, f"{LINKED} -O0 -Xptxas=--fmad=false: {DRIVERS}"),
    (NEW, LTOIR, {**LTO, "fma": False}, f"{LINKED} -lto -fma=0 -Xptxas=--fmad=false: {OPTIMISED}"),
    (
        NEW,
        LTOIR,
        {**LTO, "fast_math": True},
        f"{LINKED} -lto -ftz=1 -prec-div=0 -prec-sqrt=0 -fma=1 -Xptxas=--fmad=true: {OPTIMISED}",
    ),
    (
        NEW,
        LTOIR,
        {**LTO, "fast_math": True, "ftz": False},
        f"{LINKED} -lto -ftz=0 -prec-div=0 -prec-sqrt=0 -fma=1 -Xptxas=--fmad=true: {OPTIMISED}",
    ),
    (
        NEW,
        LTOIR,
        {**LTO, "max_registers": 32, "lineinfo": True},
        f"{LINKED} -lto -lineinfo -maxrregcount=32: {OPTIMISED}",
    ),
    # Flags.
    (NEW, ONE, {"extra_flags": ["-Xptxas=-v"]}, f"{ASSEMBLED} -v: {SINGLE_PTX}"),
    (NEW, TWO, {"extra_flags": ["-v"]}, f"{ASSEMBLED} -v: {FUSED}"),
    (NEW, ONE, {"extra_flags": ["-time"]}, f"{LINKED} -time: the flag -time, which only nvJitLink has"),
    (NEW, TWO, {"extra_flags": ["-time"]}, f"{LINKED} -time: 2 inputs, only nvJitLink has -time"),
    (NEW, ONE, {"extra_flags": ["-time"], "backend": "nvptxcompiler"}, "!this link has the flag -time"),
    (
        NEW,
        TWO,
        {"extra_flags": ["--maxntid", "8"], "inline": "none"},
        f"{LINKED} -Xptxas=--maxntid -Xptxas=8: 2 inputs",
    ),
    (NEW, ONE, {"extra_flags": ["-Xnvvm=-opt=0"]}, "!ignores without link-time optimisation"),
    (
        NEW,
        LTOIR,
        {**LTO, "extra_flags": ["-Xnvvm=-opt=0", "-v", "-O0", "-O1", "--split-compile=2"]},
        f"{LINKED} -lto -Xnvvm=-opt=0 -Xptxas=-v -O0 -Xptxas=-O1 -split-compile=2: {OPTIMISED}",
    ),
    (NEW, CUBIN, {"extra_flags": ["-v"]}, "!a flag of ptxas, and all inputs are cubins"),
    (
        NEW,
        CUBIN,
        {"max_registers": 16},
        "!max_registers=16 has no effect on cubins, and all inputs are cubins; pass it to",
    ),
    # Several inputs, and other kinds.
    (NEW, TWO, {}, f"{ASSEMBLED}: {FUSED}"),
    (NEW, TWO, {"inline": "none"}, f"{LINKED}: 2 inputs"),
    (NEW, TWO, DEBUG, f"{LINKED} -g: 2 inputs, debug information is kept"),
    (CUDA12, TWO, {}, f"{LINKED}: {FUSED}; {DRIVERS}"),
    (NEW, TWO + CUBIN, {}, f"{LINKED}: {FUSED}; 2 inputs"),
    (NEW, CUBIN, {}, f"{LINKED}: a cubin"),
    (NONE, CUBIN, {}, "!nvJitLink could not be loaded"),
    (PYNVJITLINK, CUBIN, {}, f"py{LINKED}: a cubin, and libnvJitLink is not found"),
    (OLDER, (ptx("9.1"), *CUBIN), {}, "!1.ptx is PTX 9.1, and nvJitLink 13.0 reads 9.0 at most"),
    (
        NEW,
        (ptx(), UNREAD),
        {"inline": "all"},
        f"{LINKED}: 2 inputs, The PTX function f cannot be read: a statement is expected, not '@'; {REPORT}",
    ),
    (NEW, (UNREAD,), {"inline": "all"}, ALONE),
    # The tool is requested.
    (NEW, ONE, {"backend": "other"}, "!There is no backend 'other'"),
    (NEW, ONE, {"backend": "nvjitlink"}, f"{LINKED}: requested"),
    (CUDA12, ONE, {"backend": "nvptxcompiler"}, f"{ASSEMBLED}: requested"),
    (NEW, TWO, {"backend": "nvptxcompiler"}, f"{ASSEMBLED}: {FUSED}; requested"),
    (
        NEW,
        CUBIN,
        {"backend": "nvptxcompiler"},
        "!compiles one PTX module, and this link has a cubin; pass backend=",
    ),
    (NEW, LTOIR, {**LTO, "backend": "nvptxcompiler"}, "!this link has link-time optimisation"),
    # Relocatable code, for this environment's linker.
    (NEW, ONE, RELOCATABLE, f"nvptxcompiler {LINKABLE}: {SINGLE_PTX}"),
    (OLDER, ONE, RELOCATABLE, f"nvptxcompiler {LINKABLE}: {SINGLE_PTX}"),
    (WITH_PTXAS, (ptx("9.0"),), RELOCATABLE, f"ptxas {LINKABLE}: {LINKER}"),
    (
        WITH_PTXAS,
        (ptx("9.1"),),
        RELOCATABLE,
        f"nvptxcompiler {LINKABLE}: PTX 9.1, and ptxas 13.0 reads 9.0 at most",
    ),
    # For another release.
    (
        WITH_PTXAS,
        ONE,
        {**RELOCATABLE, "cuda": (13, 0)},
        f"ptxas {LINKABLE}: linkers of CUDA 13.0 may not read code of nvPTXCompiler 13.5; for CUDA 13.0",
    ),
    (
        PTXAS_12,
        ONE,
        {**FOR_12, "fma": False},
        f"ptxas --gpu-name=sm_80 --opt-level=3 --fmad=false: {DRIVERS}; for CUDA 12.4",
    ),
    (CUDA12, ONE, FOR_12, f"{LINKED}: {DRIVERS}; for CUDA 12.4"),
    (CUDA12, CUBIN, FOR_12, f"{LINKED}: a cubin; for CUDA 12.4"),
    (NEW, CUBIN, FOR_12, "!drivers of CUDA 12 may not read code of nvJitLink 13.5 (a cubin)"),
    (
        NEW,
        ONE,
        FOR_12,
        "!No cubin for CUDA 12.4: no compiler of CUDA 12 is installed (nvPTXCompiler is 13.5); run `pip",
    ),
    (NEW, ONE, {**FOR_12, "backend": "nvptxcompiler"}, f"!{DRIVERS} (requested)"),
]


def planned(environment, inputs, options):
    """Return the plan of a link."""
    sources = [
        Input("ptx", f"{number}.ptx", source.encode()) if isinstance(source, str) else Input(*source, b"")
        for number, source in enumerate(inputs, start=1)
    ]
    option_values = {"arch": "sm_80", "cuda": None, **options}
    target = Target(pl.Arch.of(option_values.pop("arch")), option_values.pop("cuda"))
    link_options = Options(**option_values)
    return plan(fuse(sources, target, link_options), target, link_options, environment)


@pytest.mark.parametrize(
    ("environment", "inputs", "options", "expected"), TABLE, ids=map(str, range(len(TABLE)))
)
def test_the_plan_of_a_link(environment, inputs, options, expected):
    """Inputs, options, the reader of the code and the installed tools decide about tool, flags and reason."""
    if expected.startswith("!"):
        with pytest.raises(pl.PtxlinkError, match=re.escape(expected[1:])):
            planned(environment, inputs, options)
        return
    link_plan = planned(environment, inputs, options)
    assert expected == f"{link_plan.tool.name} {' '.join(link_plan.flags)}: {link_plan.reason}"


def test_doubt_is_part_of_a_plan():
    """If no tool makes code that the reader is known to read, the plan has a warning."""
    assert [LINKER, ""] == [
        planned(environment, ONE, RELOCATABLE).compatibility_warning for environment in (OLDER, WITH_PTXAS)
    ]


def test_what_is_missing_for_another_release_is_told():
    """If no tool makes code for a release, the reason names the package with a compiler for it."""
    assert "pip install 'nvidia-cuda-nvcc-cu12==12.4.*'" in unavailable_reason((12, 4), Options(), NEW)
    assert "" == unavailable_reason((12, 4), Options(), CUDA12)
    assert "CUDA 12.4 or older is installed" in unavailable_reason((12, 4), Options(relocatable=True), CUDA12)
