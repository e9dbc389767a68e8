"""Addresses of 32 and 64 bits, in state spaces, initialisers and operands."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from numba_ptxlink._cpu.run import CpuProgram, Region
from numba_ptxlink._tools.launching import Configuration

HEAD = """
.version 8.6
.target sm_90
.address_size 64
.const .align 4 .u32 first[2] = {1, 2};
.const .align 4 .u32 table[4] = {10, 20, 30, 40};
.visible .global .align 4 .u32 number[3] = {7, 8, 9};
.visible .global .align 8 .u64 pointers[4] = {number+4, generic(number), table, generic(table)+8};
.extern .shared .align 256 .b8 dynamic[];
.visible .global .align 1 .u8 bytes[9] = {1, BYTES};
""".replace("BYTES", ", ".join(f"0xFF{'00' * n}(generic(number)+8)" for n in range(8)))
KERNEL = """
.visible .entry k(.param .u64 out)
{
    .local .align 8 .b8 depot[16];
    .shared .align 8 .u32 tile[4];
    .reg .b32 %r<8>; .reg .b64 %rd<8>;
    ld.param.u64 %rd7, [out];
    BODY
    st.global.u32 [%rd7], %r3;
    ret;
}
"""
# Instructions, and the value that they leave in %r3.
PROGRAMS = {
    "local memory by 32 bits": (
        "mov.b32 %r1, depot; mov.u32 %r2, 7; st.local.u32 [%r1+4], %r2; ld.local.u32 %r3, [depot+4];",
        7,
    ),
    "local memory by a generic address": (
        (
            "mov.u64 %rd1, depot; cvta.local.u64 %rd2, %rd1; mov.u32 %r2, 5; st.u32 [%rd2+8], %r2;"
            "ld.local.u32 %r3, [%rd1+8];"
        ),
        5,
    ),
    "a generic address, and back": (
        (
            "mov.u64 %rd1, depot; cvta.local.u64 %rd2, %rd1; cvta.to.local.u64 %rd3, %rd2; "
            "cvt.u32.u64 %r1, %rd3;"
            "mov.u32 %r2, 6; st.local.u32 [%rd1], %r2; ld.local.u32 %r3, [%r1];"
        ),
        6,
    ),
    "constant memory by 32 bits": ("mov.b32 %r1, table; ld.const.u32 %r3, [%r1+4];", 20),
    "constant memory by a generic address": (
        "mov.u64 %rd1, table; cvta.const.u64 %rd1, %rd1; ld.u32 %r3, [%rd1+12];",
        40,
    ),
    "an address in an initialiser": ("ld.global.u64 %rd1, [pointers]; ld.global.u32 %r3, [%rd1+4];", 9),
    "a generic address in an initialiser": ("ld.global.u64 %rd1, [pointers+8]; ld.u32 %r3, [%rd1];", 7),
    "a constant address in an initialiser": (
        "ld.global.u64 %rd1, [pointers+16]; ld.const.u32 %r3, [%rd1+4];",
        20,
    ),
    "a generic constant address": ("ld.global.u64 %rd1, [pointers+24]; ld.u32 %r3, [%rd1];", 30),
    "bytes of an address": (
        "mov.u64 %rd1, 0;"
        + "".join(
            f"ld.global.u8 %rd2, [bytes+{n + 1}]; shl.b64 %rd2, %rd2, {8 * n}; or.b64 %rd1, %rd1, %rd2;"
            for n in range(8)
        )
        + "ld.u32 %r3, [%rd1];",
        9,
    ),
    "an element of a global array": ("mov.u64 %rd1, number[2]; ld.global.u32 %r3, [%rd1];", 9),
    "an element of a shared array": (
        "mov.u32 %r1, tile[1]; mov.u32 %r2, 3; st.shared.u32 [%r1+4], %r2; ld.shared.u32 %r3, [tile+8];",
        3,
    ),
    "the alignment of dynamic shared memory": (
        "mov.u32 %r1, tile; mov.u32 %r2, dynamic; and.b32 %r3, %r2, 255;",
        0,
    ),
    "an index that is negative in 32 bits": (
        (
            "mov.u32 %r1, tile; add.u32 %r1, %r1, -4; mov.u32 %r2, 11; st.shared.u32 [%r1+8], %r2;"
            "ld.shared.u32 %r3, [tile+4];"
        ),
        11,
    ),
}


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_addresses(name, checks):
    """An address in a state space is an offset, which fits into 32 bits; generic addresses are the host's."""
    body, expected = PROGRAMS[name]
    written = np.zeros(1, np.uint32)
    region = Region(written.ctypes.data, written.nbytes, True, "written")
    program = CpuProgram.of(HEAD + KERNEL.replace("BODY", body), checks=checks)
    program.launch("k", Configuration((1, 1, 1), (1, 1, 1)), [struct.pack("Q", region.address)], [region])
    assert [expected] == written.tolist()
