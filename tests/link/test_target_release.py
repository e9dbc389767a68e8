"""PTX and machine code for toolkits and drivers older than the compilers of this environment."""

from __future__ import annotations

import pytest

import numba_ptxlink as pl
from numba_ptxlink._arch import PtxVersion
from numba_ptxlink._artifacts.target_release import TargetRelease
from numba_ptxlink._formats.ptx import read_header
from numba_ptxlink._tools import find, nvvm

TEXT = """\
.version 9.5
.target {target}
.address_size 64
.visible .func f() {{
.reg .b32 %r<4>; .reg .b16 %h<4>; .reg .b64 %d<4>;
{statement}
ret;
}}
"""
ARCH = pl.Arch(9, 0)


def lowered(statement="", *, cuda="12.4", target="sm_90"):
    """Return the version that PTX with *statement* is brought down to."""
    text = TEXT.format(target=target, statement=statement).encode()
    return read_header(TargetRelease.of(cuda, None).reduce_version(text, pl.Arch.of(target)).decode()).version


@pytest.mark.parametrize(
    ("arguments", "release", "isa"),
    [
        (("12.4", None), (12, 4), "8.4"),
        (((12, 6), None), (12, 6), "8.5"),
        ((None, "8.5"), (12, 5), "8.5"),
        ((None, (9, 1)), (13, 1), "9.1"),
        (("13.0", None), (13, 0), "9.0"),
    ],
)
def test_a_target_is_a_release_or_a_version(arguments, release, isa):
    """A release gives the PTX version that it reads, and a PTX version the oldest release that reads it."""
    target_release = TargetRelease.of(*arguments)
    assert (release, isa) == (target_release.release, str(target_release.isa))


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("99.1", None), "not a known CUDA release"),
        (("10.2", None), "from 11.0 on"),
        (("twelve", None), "not a known CUDA release"),
        ((None, "8.9"), "not a known .* PTX ISA version"),
        (("12.4", "8.4"), "leave one of them out"),
    ],
)
def test_other_releases_are_refused(arguments, cause):
    """An unknown release or version, or both at once, is an error that says how to write it."""
    with pytest.raises(pl.ConfigError, match=cause):
        TargetRelease.of(*arguments)
    assert TargetRelease.of(None, None) is None


@pytest.mark.parametrize(
    ("statement", "version"),
    [("", "7.8"), ("min.u16x2 %r1, %r2, %r3;", "8.0"), (".reg .b128 %q; mov.b128 %q, {%d1, %d2};", "8.3")],
)
def test_ptx_gets_the_lowest_version_that_its_text_allows(statement, version):
    """The version is the one that target and instructions need, whatever the compiler declared."""
    assert version == str(lowered(statement))


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (
            {"statement": "min.u16x2 %r1, %r2, %r3;", "cuda": "11.8"},
            r"min\.u16x2 in line 6, .* new in PTX 8\.0",
        ),
        ({"target": "sm_100"}, r"reads PTX 8\.4 at most, .* \.target sm_100, .*CUDA 12\.7 or later"),
        ({"target": "sm_130"}, r"PTX 9\.5: .* not know sm_130, .*; export for CUDA 13\.5 or later"),
        ({"statement": "frobnicate.b32 %r1, %r2;"}, r"an instruction or directive, which is new in PTX 9\.5"),
    ],
)
def test_what_needs_newer_ptx_is_named(arguments, cause):
    """The error has the instruction or target, its line, and the release that would do."""
    with pytest.raises(pl.ExportError, match=cause):
        lowered(**arguments)


def test_what_changes_no_result_is_left_out():
    """Newer parts without effect are removed: load hints, and `volatile` on memory of a single thread."""
    statement = '.pragma\t"used_bytes_mask 0xff"; ld.volatile.local.u32 %r1, [%d1];'
    text = TEXT.format(target="sm_90", statement=statement).encode()
    plain = TargetRelease.of("12.0", None).reduce_version(text, ARCH)
    assert b"\nld.local.u32 %r1" in plain
    assert b"used_bytes_mask" not in plain
    assert text.replace(b"9.5", b"9.1") == TargetRelease.of("13.1", None).reduce_version(text, ARCH)


def test_a_lower_version_changes_no_machine_code():
    """The machine code is the same, byte for byte."""
    text = TEXT.format(target="sm_90", statement="min.u16x2 %r1, %r2, %r3; st.global.u32 [%d1], %r1;")
    low = TargetRelease.of("12.4", None).reduce_version(text.encode(), ARCH)
    assert pl.assemble(text, ARCH, relocatable=True).code == pl.assemble(low, ARCH, relocatable=True).code


@pytest.mark.parametrize(
    ("release_text", "toolkits", "chosen", "cure"),
    [
        ("13.5", [(13, 0)], None, ""),
        ("13.0", [(12, 4), (13, 0), (13, 2)], (13, 0), ""),
        ("12.9", [(13, 0), (12, 4)], (12, 4), ""),
        ("11.8", [], None, "link by a later release"),
        ("12.3", [(12, 4)], None, "pip install 'nvidia-cuda-nvcc-cu12==12.3.*'"),
        # A toolkit of 12.5 counts as 12.6, whose PTX has the same version; so the cure is 12.4.
        ("12.5", [(12, 6)], None, "pip install 'nvidia-cuda-nvcc-cu12==12.4.*'"),
        ("13.1", [], None, "--target cuda 'nvidia-nvvm==13.1.*' && export CUDA_HOME=$PWD/cuda/nvidia/cu13"),
    ],
)
def test_the_newest_nvvm_that_is_old_enough_writes_ltoir(monkeypatch, release_text, toolkits, chosen, cure):
    """The libNVVM is the environment's or a toolkit's; if there is none, the error names its package."""
    monkeypatch.setattr(find, "major", lambda: 13)
    monkeypatch.setattr(nvvm, "emitted_isa", lambda _arch: PtxVersion(9, 5))
    monkeypatch.setattr(nvvm, "toolkits", lambda: [nvvm.Nvvm("", "", release, ()) for release in toolkits])
    target_release = TargetRelease.of(release_text, None)
    toolkit = target_release.nvvm_for(ARCH)
    left_out = target_release.impossible_kinds(["ltoir"], [ARCH])
    assert (chosen, bool(cure)) == (toolkit and toolkit.release, bool(left_out))
    assert all(cure in omission.cure for omission in left_out)
