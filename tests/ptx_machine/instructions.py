"""The instructions that `device.py` holds against a device, with operands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n"

# Opcodes, types, results and operands, in which t is the type and w the one of twice the width.
_FAMILIES = """
add sub mul.lo            | u16 s16 u32 s32 u64 s64      | t      | t t
mul.hi                    | u16 s16 u32 s32 u64 s64      | t      | t t
mul.wide                  | u16 s16 u32 s32              | w      | t t
mad.lo                    | u16 s16 u32 s32 u64 s64      | t      | t t t
mad.hi                    | u32 s32 u64 s64              | t      | t t t
mad.wide                  | u16 s16 u32 s32              | w      | t t w
div rem                   | u16 s16 u32 s32 u64 s64      | t      | t t
min max                   | u16 s16 u32 s32 u64 s64      | t      | t t
abs neg                   | s16 s32 s64                  | t      | t
and or xor                | b16 b32 b64 pred             | t      | t t
not                       | b16 b32 b64 pred             | t      | t
shl                       | b16 b32 b64                  | t      | t u32
shr                       | u16 s16 u32 s32 u64 s64      | t      | t u32
bfe                       | u32 s32 u64 s64              | t      | t u32 u32
bfi                       | b32 b64                      | t      | t t u32 u32
bmsk.clamp                | b32                          | t      | u32 u32
prmt                      | b32                          | t      | t t b32
selp                      | b16 b32 b64 f32 f64          | t      | t t pred
setp.eq setp.ne setp.lt   | u16 s16 u32 s32 u64 s64      | pred   | t t
setp.le setp.gt setp.ge   | u16 s16 u32 s32 u64 s64      | pred   | t t
setp.lo setp.ls setp.hi   | u16 u32 u64                  | pred   | t t
setp.eq setp.ne setp.lt   | f16 f32 f64                  | pred   | t t
setp.le setp.gt setp.ge   | f32 f64                      | pred   | t t
setp.equ setp.neu         | f32 f64                      | pred   | t t
setp.ltu setp.geu         | f32 f64                      | pred   | t t
setp.num setp.nan         | f16 f32 f64                  | pred   | t t
add sub mul               | f16 f32 f64                  | t      | t t
add.rz sub.rz             | f32 f64                      | t      | t t
fma.rn                    | f16 f32 f64                  | t      | t t t
div.rn                    | f32 f64                      | t      | t t
rcp.rn sqrt.rn            | f32 f64                      | t      | t
min max                   | f16 f32 f64                  | t      | t t
abs neg                   | f16 f32 f64                  | t      | t
copysign                  | f32 f64                      | t      | t t
cvt.rn                    | f32.f64 f16.f32 f16.f64      | t      | s
cvt                       | f64.f32 f32.f16 f64.f16      | t      | s
cvt.rni cvt.rzi           | f32.f32 f64.f64 f16.f16      | t      | s
cvt.rmi cvt.rpi           | f32.f32 f64.f64 f16.f16      | t      | s
cvt.rn                    | f32.s32 f32.u32 f32.s64      | t      | s
cvt.rn                    | f64.s32 f64.u64 f16.s32      | t      | s
cvt.rn                    | f64.u8 f32.s16 f32.u8        | t      | s
cvt.rzi cvt.rni           | s32.f32 u32.f32 s64.f32      | t      | s
cvt.rzi cvt.rmi           | u64.f32 s32.f64 u32.f64      | t      | s
cvt.rzi cvt.rpi           | s64.f64 u64.f64 s16.f32      | t      | s
cvt.rzi                   | u16.f32 s8.f32 u8.f64        | t      | s
cvt.rzi                   | s32.f16 u16.f16 s64.f16      | t      | s
cvt                       | u16.u8 s32.s8 s64.s32        | t      | s
cvt                       | u64.u32 u32.s16 s16.u64      | t      | s
cvt                       | u8.u32 s8.s32 u32.u64        | t      | s
"""

# Instructions that the machine does not implement, and the CPU does.
_FURTHER = """
mul24.lo                      | u32 s32                 | t    | t t
mad24.lo                      | u32 s32                 | t    | t t t
sad                           | u16 s16 u32 s32 u64 s64 | t    | t t t
min.relu max.relu             | s32                     | t    | t t
add.sat sub.sat               | s32                     | t    | t t
cnot                          | b16 b32 b64             | t    | t
brev                          | b32 b64                 | t    | t
popc clz                      | b32 b64                 | u32  | t
bfind bfind.shiftamt          | u32 s32 u64 s64         | u32  | t
dp4a                          | u32.u32 u32.s32 s32.u32 s32.s32 | b32 | b32 b32 b32
dp2a.lo dp2a.hi               | u32.u32 u32.s32 s32.u32 s32.s32 | b32 | b32 b32 b32
shf.l.wrap shf.r.wrap         | b32                     | t    | t t u32
shf.l.clamp shf.r.clamp       | b32                     | t    | t t u32
bmsk.wrap                     | b32                     | t    | u32 u32
add.rn add.rm add.rp mul.rz   | f32 f64                 | t    | t t
mul.rm mul.rp sub.rm sub.rp   | f32 f64                 | t    | t t
div.rz div.rm div.rp          | f32 f64                 | t    | t t
fma.rz fma.rm fma.rp mad.rn   | f32 f64                 | t    | t t t
rcp.rz rcp.rm rcp.rp          | f32 f64                 | t    | t
sqrt.rz sqrt.rm sqrt.rp       | f32 f64                 | t    | t
add.ftz mul.rp.ftz sub.sat    | f32                     | t    | t t
add.rm.ftz.sat div.rz.ftz     | f32                     | t    | t t
fma.rn.ftz fma.rp.sat         | f32                     | t    | t t t
rcp.rn.ftz sqrt.rm.ftz        | f32                     | t    | t
neg.ftz abs.ftz               | f32                     | t    | t
min.NaN max.NaN min.ftz       | f32                     | t    | t t
max.ftz.NaN                   | f32                     | t    | t t
add.rn.sat mul.ftz sub.rn     | f16                     | t    | t t
min.NaN max.NaN               | f16                     | t    | t t
fma.rn.sat fma.rn.relu        | f16                     | t    | t t t
fma.rn.ftz                    | f16                     | t    | t t t
setp.leu setp.gtu setp.equ    | f16 f32 f64             | pred | t t
setp.lt.ftz setp.neu.ftz      | f16 f32                 | pred | t t
set.le.u32 set.ne.s32         | f16 f32 f64 s32 u64     | b32  | t t
set.gt.f32                    | f32 f64 s32 u64         | b32  | t t
testp.finite testp.infinite   | f32 f64                 | pred | t
testp.number testp.notanumber | f32 f64                 | pred | t
testp.normal testp.subnormal  | f32 f64                 | pred | t
cvt.sat                       | u8.s32 s8.u16 s16.u64 u32.s64 s32.s64 u64.s8 | t | s
cvt.rzi.sat cvt.rpi.ftz       | u8.f32 s16.f32 u32.f32 s64.f32 | t | s
cvt.rz cvt.rm cvt.rp          | f32.s32 f32.u64 f64.s64 f16.u32 f16.s64 | t | s
cvt.rz cvt.rm cvt.rp          | f32.f64 f16.f32 f16.f64 | t    | s
cvt.rn.ftz cvt.rp.ftz         | f32.f64 f16.f32         | t    | s
cvt.rn.sat cvt.rz.relu        | f16.f32                 | t    | s
cvt.ftz cvt.sat cvt.ftz.sat   | f32.f16 f32.f32         | t    | s
cvt.rni.ftz cvt.rmi.sat       | f32.f32                 | t    | s
"""

_INTEGERS = "0 1 2 3 7 8 15 16 31 32 33 63 64 127 128 255 256 65535 2147483647 2147483648 4294967295"
_FLOATS = """
0 -0.0 1 -1 0.5 1.5 2.5 -2.5 3 inf -inf nan 0.1 255 256.5 65504 32767.5 2147483648 -2147483648 4294967296
9223372036854775808 18446744073709551616 1e-45 1e-40 1.1754942e-38 1e-310 6e-8 3.4028235e38 1e300 -1e-7
16777217 1.0000000596046448 1.0000000000000002 1.1754943508222875e-38
"""


@dataclass(frozen=True)
class Sample:
    """
    An instruction.

    Args:
        opcode: The opcode with its modifiers.
        result: The type of what it writes.
        sources: The types of its operands.
    """

    opcode: str
    result: str
    sources: tuple[str, ...]

    def operands(self, count: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return the bits of operands, *count* of each."""
        drawn = [operands(kind, count, rng) for kind in self.sources]
        if self.opcode in ("bfe.u64", "bfe.s64", "bfi.b64"):
            # Positions and lengths are defined up to 255.
            drawn[-2:] = [values & np.uint32(255) for values in drawn[-2:]]
        return drawn


def bits_of(kind: str) -> int:
    """Return how many bits of memory a value of a type takes."""
    return 8 if kind == "pred" else int(kind[1:])


def samples(*, further: bool = False) -> list[Sample]:
    """Return all instructions, or the *further* ones."""
    selected = []
    for line in (_FURTHER if further else _FAMILIES).strip().splitlines():
        opcodes, kinds, result, sources = (part.split() for part in line.split("|"))
        for opcode in opcodes:
            for kind in kinds:
                first, _, second = kind.partition(".")
                wide = f"{first[0]}{bits_of(first) * 2}"
                names = {"t": first, "w": wide, "s": second}
                types = [names.get(letter, letter) for letter in (*result, *sources)]
                selected.append(Sample(f"{opcode}.{kind}", types[0], tuple(types[1:])))
    return selected


def operands(kind: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return the bits of values of a type, among them all that are special."""
    if kind == "pred":
        return rng.integers(0, 2, count).astype(np.uint8)
    bits = bits_of(kind)
    raw = np.dtype(f"u{bits // 8}")
    random = rng.integers(0, 2**64, count, dtype=np.uint64)
    small = random >> rng.integers(0, 64, count).astype(np.uint64)
    special = rng.choice(np.array(_INTEGERS.split(), np.uint64), count)
    values = np.where(rng.random(count) < 0.5, special, small)
    values = np.where(rng.random(count) < 0.3, ~values + np.uint64(1), values).astype(raw)
    if "f" not in kind:
        return values
    with np.errstate(all="ignore"):
        chosen = rng.choice(np.array(_FLOATS.split(), float), count)
        plain = np.where(
            rng.random(count) < 0.5, chosen, rng.normal(0, 1, count) * 10.0 ** rng.integers(-6, 9, count)
        )
        floats = plain.astype(f"f{bits // 8}").view(raw)
    return np.where(rng.random(count) < 0.8, floats, random.astype(raw))


def kernel(name: str, sample: Sample) -> str:
    """Return a kernel that executes an instruction: parameters are the results and each of the operands."""
    head, body, operands = f".visible .entry {name}(.param .u64 out", "", ""
    for number, kind in enumerate((*sample.sources, sample.result)):
        bits = bits_of(kind)
        letter = "p" if kind == "pred" else "a"
        body += f".reg .pred %p{number}; .reg .b{max(16, bits)} %a{number};\n"
        if number == len(sample.sources):
            break
        head += f", .param .u64 in{number}"
        operands += f", %{letter}{number}"
        body += f"ld.param.u64 %d, [in{number}]; mad.wide.u32 %d, %i, {bits // 8}, %d;\n"
        body += f"ld.global.u{bits} %a{number}, [%d];\n"
        if kind == "pred":
            body += f"setp.ne.u16 %p{number}, %a{number}, 0;\n"
    body += f"{sample.opcode} %{letter}{number}{operands};\n"
    if kind == "pred":
        body += f"selp.u16 %a{number}, 1, 0, %p{number};\n"
    return f"""{head})
{{
.reg .b64 %d; .reg .b32 %i, %n, %t;
mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %t, %tid.x; mad.lo.u32 %i, %i, %n, %t;
{body}ld.param.u64 %d, [out]; mad.wide.u32 %d, %i, {bits // 8}, %d;
st.global.u{bits} [%d], %a{number};
ret;
}}
"""
