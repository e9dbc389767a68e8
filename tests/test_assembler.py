"""PTX to cubin through nvPTXCompiler."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from ptx_kernels import make_kernel, make_large_kernel

from numba_ptxlink import Arch
from numba_ptxlink.assembler import (
    assemble,
    compiler_version,
    supported_archs,
    supported_ptx_versions,
)
from numba_ptxlink.errors import AssembleError, ConfigError

VERSION = ".".join(map(str, compiler_version()))
CALLER = """\
.version 8.0
.target sm_75
.address_size 64
.extern .func helper();
.visible .entry kernel() { call helper; ret; }
"""


def refusal(ptx: Any, arch: Any = "sm_90", **options: Any) -> AssembleError:
    """Return the error that assembling raises."""
    with pytest.raises(AssembleError) as caught:
        assemble(ptx, arch, **options)
    return caught.value


@pytest.mark.parametrize("encode", [str, str.encode])
def test_returns_a_cubin(kernel: str, encode: Any) -> None:
    """Text and bytes become an ELF image with its arch, and an empty log."""
    cubin = assemble(encode(kernel), "sm_90")
    assert b"\x7fELF" == cubin.code[:4]
    assert b"kernel" in cubin.code
    assert (Arch(9, 0), False, "") == (cubin.arch, cubin.relocatable, cubin.info_log)


def test_debug_and_lineinfo_leave_sections(kernel: str) -> None:
    """Debug information and line numbers have separate sections."""
    assert b".debug_line" not in assemble(kernel, "sm_90").code
    lines = assemble(kernel, "sm_90", lineinfo=True).code
    assert b".debug_line" in lines
    assert b".nv_debug_info" not in lines
    debug = assemble(kernel, "sm_90", debug=True).code
    assert b".debug_line" in debug
    assert b".nv_debug_info" in debug


def test_register_cap_holds() -> None:
    """A limit on registers lowers the number that the kernel uses."""

    def registers(cap: int | None) -> int:
        log = assemble(
            make_large_kernel(operations=200), "sm_90", max_registers=cap, extra_flags=["-v"]
        ).info_log
        return int(re.findall(r"Used (\d+) registers", log)[0])

    assert registers(None) > 24
    assert registers(24) <= 24


@pytest.mark.parametrize(
    ("flag", "parameter"),
    [
        ("-g", "debug"),
        ("--device-debug", "debug"),
        ("-O0", "opt_level"),
        ("-O=0", "opt_level"),
        ("--opt-level=0", "opt_level"),
        ("-lineinfo", "lineinfo"),
        ("--generate-line-info", "lineinfo"),
        ("-maxrregcount=32", "max_registers"),
    ],
)
def test_flag_for_which_there_is_a_parameter_is_refused(kernel: str, flag: str, parameter: str) -> None:
    """A flag that contradicts a parameter, or its default, is answered with the parameter."""
    with pytest.raises(ConfigError, match=f"'{flag}'; use the parameter {parameter} for it"):
        assemble(kernel, "sm_90", extra_flags=["-v", flag])


def test_extra_flags_reach_the_compiler(kernel: str) -> None:
    """The flag -v fills the information log, which has no trailing NUL."""
    log = assemble(kernel, "sm_90", extra_flags=("-v",)).info_log
    assert "Compiling entry function 'kernel' for 'sm_90'" in log
    assert "\0" not in log


def test_every_supported_arch_assembles(kernel: str) -> None:
    """Each architecture that is listed works, and so do its variants, "a" from 9.0 and "f" from 10.0."""

    def accepts(arch: Arch) -> bool:
        try:
            return assemble(kernel, arch).arch == arch
        except AssembleError:
            return False

    variants = [Arch(*arch.cc, variant) for arch in supported_archs() for variant in ("", "a", "f")]
    least = {"": 0, "a": 90, "f": 100}
    expected = [arch for arch in variants if arch.number >= least[arch.variant]]
    assert expected == [arch for arch in variants if accepts(arch)]


def test_quotes_the_lines_it_names() -> None:
    """An error quotes the compiler, and each line that it names, with its number."""
    error = refusal(make_kernel(body="foo %rd1;\n    call nope;"))
    assert (
        f"nvPTXCompiler {VERSION} rejected the PTX for sm_90:\n"
        "    ptxas application ptx input, line 9; error   : Not a name of any known instruction: 'foo'\n"
    ) == "".join(str(error).splitlines(keepends=True)[:2])
    assert "\n     9 |     foo %rd1;\n    10 |     call nope;\n" in str(error)
    assert str(error).endswith("\nCorrect the PTX; if a tool wrote it, correct that tool's input.")


NO_NUL = "remove it, pass text instead of a binary, or save UTF-16 text as UTF-8."


@pytest.mark.parametrize(
    ("ptx", "expected"),
    [
        (None, "The PTX is a NoneType; pass a str or bytes, such as path.read_bytes() of a file."),
        ("", "The PTX is empty; pass a module that begins with a .version directive."),
        (b" \n\0", "The PTX is empty; pass a module that begins with a .version directive."),
        (".version 8.0".encode("utf-16"), f"The PTX has a NUL character at byte 3; {NO_NUL}"),
        (
            b".version 8.0\n.tar\0get sm_90",
            f"The PTX has a NUL character at byte 17; {NO_NUL}",
        ),
    ],
)
def test_refuses_what_is_no_ptx_text(ptx: object, expected: str) -> None:
    """Input that cannot be PTX is refused before the compiler sees it, with the input to pass instead."""
    error = refusal(ptx)
    assert (expected, "", ()) == (str(error), error.log, error.flags)


def test_newer_isa_names_the_package_to_upgrade(kernel: str) -> None:
    """PTX newer than the compiler is refused with the newest supported version and the package to upgrade."""
    error = refusal(kernel.replace(".version 8.0", ".version 99.0"))
    newest = supported_ptx_versions()[-1]
    assert str(error).startswith(
        f"The PTX has a newer version than {newest}, the newest that nvPTXCompiler {VERSION} reads:\n"
    )
    assert "\n    1 | .version 99.0\n" in str(error)
    assert str(error).endswith("python -m pip install --upgrade numba-ptxlink.")


@pytest.mark.parametrize("arch", ["sm_70", "sm_89f", "sm_990"])
def test_unknown_arch_lists_the_known(kernel: str, arch: str) -> None:
    """An architecture the compiler lacks is refused with those it has."""
    error = refusal(kernel, arch)
    known = ", ".join(arch.sm for arch in supported_archs())
    assert str(error).startswith(f"nvPTXCompiler {VERSION} does not support {arch}; choose one of {known}, ")


@pytest.mark.parametrize(
    ("ptx", "flags", "message", "cure"),
    [
        (CALLER, (), "Unresolved extern function 'helper'", "relocatable=True and link later."),
        (
            make_kernel().replace("sm_75", "sm_90a"),
            (),
            "PTX with .target 'sm_90a' cannot be compiled",
            "or generate the PTX for this one.",
        ),
        (
            make_kernel().replace("sm_75", "sm_100"),
            (),
            "PTX .version 8.0 does not support .target sm_100",
            "Generate the PTX with a newer toolkit, or raise its .version.",
        ),
        (
            make_kernel().replace("8.0", "6.3").replace("ret;", "elect.sync _|%p1, -1;\nret;"),
            (),
            "requires PTX ISA .version 8.0 or later",
            "Generate the PTX with a newer toolkit, or raise its .version.",
        ),
        (make_kernel(), ("--nope",), "Unknown option '-nope'", "Correct or remove that flag in extra_flags."),
        (
            make_kernel(),
            ("nope",),
            "Input file 'nope' could not be opened",
            "Each string in extra_flags is a flag or its value; remove other strings.",
        ),
        (
            make_kernel(),
            ("-e",),
            "argument expected after '-e'",
            "Add the value that flag needs to extra_flags.",
        ),
        (
            make_kernel(),
            ("--position-independent-code=x",),
            "'x': expected true or false",
            "Correct the value of that option.",
        ),
        (
            make_kernel(),
            ("--sanitize=x",),
            "Value 'x' is not defined for option",
            "Correct the value of that option.",
        ),
    ],
)
def test_common_refusals_have_their_own_cure(
    ptx: str, flags: tuple[str, ...], message: str, cure: str
) -> None:
    """A refusal of PTX or of a flag, in the compiler's words, ends in a cure if the cause is known."""
    error = refusal(ptx, extra_flags=flags)
    assert message in error.log
    assert message in str(error)
    assert str(error).endswith(cure)


def test_threads_get_their_own_cubins() -> None:
    """Threads that assemble different PTX at once get the same cubins as a single thread."""
    modules = [make_large_kernel(f"kernel_{i}", operations=200 + i) for i in range(8)]
    expected = [assemble(ptx, "sm_90").code for ptx in modules]
    with ThreadPoolExecutor(4) as pool:
        actual = [cubin.code for cubin in pool.map(lambda ptx: assemble(ptx, "sm_90"), modules)]
    assert expected == actual
