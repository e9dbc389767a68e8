"""The instructions that are held against Python here and against a device by `device.py`, with operands."""

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
add.sat sub.sat           | s32                          | t      | t t
sad                       | u16 s16 u32 s32 u64 s64      | t      | t t t
and or xor                | b16 b32 b64 pred             | t      | t t
not                       | b16 b32 b64 pred             | t      | t
shl                       | b16 b32 b64                  | t      | t u32
shr                       | u16 s16 u32 s32 u64 s64      | t      | t u32
shf.l.wrap shf.r.wrap     | b32                          | t      | t t u32
shf.l.clamp shf.r.clamp   | b32                          | t      | t t u32
bfe                       | u32 s32 u64 s64              | t      | t u32 u32
bfi                       | b32 b64                      | t      | t t u32 u32
bmsk.clamp bmsk.wrap      | b32                          | t      | u32 u32
prmt                      | b32                          | t      | t t b32
popc clz                  | b32 b64                      | u32    | t
bfind bfind.shiftamt      | u32 s32 u64 s64              | u32    | t
brev                      | b32 b64                      | t      | t
selp                      | b16 b32 b64 f32 f64          | t      | t t pred
slct                      | b32.s32 u64.s32              | t      | t t s32
slct                      | b32.f32                      | t      | t t f32
setp.eq setp.ne setp.lt   | u16 s16 u32 s32 u64 s64      | pred   | t t
setp.le setp.gt setp.ge   | u16 s16 u32 s32 u64 s64      | pred   | t t
setp.lo setp.ls setp.hi   | u16 u32 u64                  | pred   | t t
setp.eq setp.ne setp.lt   | f16 f32 f64                  | pred   | t t
setp.le setp.gt setp.ge   | f32 f64                      | pred   | t t
setp.equ setp.neu         | f32 f64                      | pred   | t t
setp.ltu setp.geu         | f32 f64                      | pred   | t t
setp.num setp.nan         | f16 f32 f64                  | pred   | t t
setp.lt.ftz setp.eq.ftz   | f32                          | pred   | t t
setp.lt.and setp.ge.xor   | s32 f32                      | pred   | t t pred
set.lt set.neu            | u32.f32 s32.f32 f32.f32      | t      | f32 f32
set.lt set.ge             | u32.s32 f32.s32              | t      | s32 s32
add sub mul               | f16 f32 f64                  | t      | t t
add.ftz mul.ftz           | f32                          | t      | t t
add.rz sub.rm mul.rp      | f32 f64                      | t      | t t
add.rp sub.rz mul.rm      | f32 f64                      | t      | t t
add.sat mul.sat           | f32                          | t      | t t
fma.rn                    | f16 bf16 f32 f64             | t      | t t t
fma.rz fma.rm fma.rp      | f32 f64                      | t      | t t t
fma.rn.ftz fma.rn.sat     | f32                          | t      | t t t
div.rn div.rz             | f32 f64                      | t      | t t
div.approx div.full       | f32                          | t      | t t
rcp.rn rcp.rm             | f32 f64                      | t      | t
rcp.approx                | f32                          | t      | t
sqrt.rn                   | f32 f64                      | t      | t
sqrt.approx rsqrt.approx  | f32                          | t      | t
sin.approx cos.approx     | f32                          | t      | t
lg2.approx ex2.approx     | f32                          | t      | t
tanh.approx               | f32                          | t      | t
min max                   | f16 bf16 f32 f64             | t      | t t
min.NaN max.NaN           | f16 f32                      | t      | t t
min.ftz                   | f32                          | t      | t t
abs neg                   | f16 bf16 f32 f64             | t      | t
abs.ftz neg.ftz           | f32                          | t      | t
copysign                  | f32 f64                      | t      | t t
testp.finite testp.normal | f32 f64                      | pred   | t
testp.subnormal           | f32 f64                      | pred   | t
testp.infinite            | f32 f64                      | pred   | t
testp.number              | f32 f64                      | pred   | t
cvt.rn                    | f32.f64 f16.f32 f16.f64      | t      | s
cvt.rz cvt.rm cvt.rp      | f32.f64 f16.f32              | t      | s
cvt.rn cvt.rz             | bf16.f32                     | t      | s
cvt.rn.ftz cvt.rn.sat     | f32.f64 f16.f32              | t      | s
cvt                       | f64.f32 f32.f16 f64.f16      | t      | s
cvt.rni cvt.rzi           | f32.f32 f64.f64 f16.f16      | t      | s
cvt.rmi cvt.rpi           | f32.f32 f64.f64 f16.f16      | t      | s
cvt.rn cvt.rz cvt.rm      | f32.s32 f32.u32 f32.s64      | t      | s
cvt.rp                    | f32.u64 f64.s64 f64.u64      | t      | s
cvt.rn                    | f64.s32 f64.u64 f16.s32      | t      | s
cvt.rn                    | f64.u8 f32.s16 f32.u8        | t      | s
cvt.rzi cvt.rni           | s32.f32 u32.f32 s64.f32      | t      | s
cvt.rzi cvt.rmi           | u64.f32 s32.f64 u32.f64      | t      | s
cvt.rzi cvt.rpi           | s64.f64 u64.f64 s16.f32      | t      | s
cvt.rzi                   | u16.f32 s8.f32 u8.f64        | t      | s
cvt.rzi                   | s32.f16 u16.f16 s64.f16      | t      | s
cvt.rzi.ftz               | s32.f32                      | t      | s
cvt                       | u16.u8 s32.s8 s64.s32        | t      | s
cvt                       | u64.u32 u32.s16 s16.u64      | t      | s
cvt                       | u8.u32 s8.s32 u32.u64        | t      | s
cvt.sat                   | u8.s32 s8.s32 s16.s64        | t      | s
cvt.sat                   | u32.s64 s32.u64 u16.s16      | t      | s
"""

_INTEGERS = [*range(4), 7, 8, 15, 16, 31, 32, 33, 63, 64, 127, 128, 255, 256, 65535]
_INTEGERS += [2**31 - 1, 2**31, 2**32 - 1]
_FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    3.0,
    np.inf,
    -np.inf,
    np.nan,
    0.1,
    255.0,
    256.5,
    65504.0,
]
_FLOATS += [
    32767.5,
    2.0**31,
    -(2.0**31),
    2.0**32,
    2.0**63,
    2.0**64,
    1e-45,
    1e-40,
    1.1754942e-38,
    1e-310,
    6e-8,
]
_FLOATS += [3.4028235e38, 1e300, -1e-7, 16777217.0, 1 + 2.0**-24, 1 + 2.0**-53, 2.0**-126]


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

    @property
    def inexact(self) -> bool:
        """Whether devices may compute something else, within some error."""
        return ".approx" in self.opcode or ".full" in self.opcode

    def operands(self, count: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return the bits of operands, *count* of each."""
        given = [operands(kind, count, rng) for kind in self.sources]
        if self.opcode in ("bfe.u64", "bfe.s64", "bfi.b64"):
            # Places and lengths are defined up to 255.
            given[-2:] = [each & np.uint32(255) for each in given[-2:]]
        return given


def bits_of(kind: str) -> int:
    """Return how many bits of memory a value of a type takes."""
    return 8 if kind == "pred" else int(kind.lstrip("bfsu"))


def samples() -> list[Sample]:
    """Return all instructions."""
    found = []
    for line in _FAMILIES.strip().splitlines():
        opcodes, kinds, result, sources = (part.split() for part in line.split("|"))
        for opcode in opcodes:
            for kind in kinds:
                first, _, second = kind.partition(".")
                wide = f"{first[0]}{bits_of(first) * 2}"
                names = {"t": first, "w": wide, "s": second}
                types = [names.get(each, each) for each in (*result, *sources)]
                found.append(Sample(f"{opcode}.{kind}", types[0], tuple(types[1:])))
    return found


def operands(kind: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return the bits of values of a type, among them all that are special."""
    if kind == "pred":
        return rng.integers(0, 2, count).astype(np.uint8)
    bits = bits_of(kind)
    raw = np.dtype(f"u{bits // 8}")
    random = rng.integers(0, 2**64, count, dtype=np.uint64)
    small = random >> rng.integers(0, 64, count).astype(np.uint64)
    special = rng.choice(np.array(_INTEGERS, np.uint64), count)
    values = np.where(rng.random(count) < 0.5, special, small)
    values = np.where(rng.random(count) < 0.3, ~values + np.uint64(1), values).astype(raw)
    if "f" not in kind:
        return values
    with np.errstate(all="ignore"):
        chosen = rng.choice(np.array(_FLOATS), count)
        plain = np.where(
            rng.random(count) < 0.5, chosen, rng.normal(0, 1, count) * 10.0 ** rng.integers(-6, 9, count)
        )
        if kind == "bf16":
            floats = (plain.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(raw)
        else:
            floats = plain.astype(f"f{bits // 8}").view(raw)
    return np.where(rng.random(count) < 0.8, floats, random.astype(raw))


def kernel(name: str, sample: Sample) -> str:
    """Return a kernel that executes an instruction: parameters are the results and each of the operands."""
    lines, params = [], [".param .u64 out"]
    registers, text = [], []
    for number, kind in enumerate(sample.sources):
        bits = max(16, bits_of(kind))
        params.append(f".param .u64 in{number}")
        lines += [
            f"ld.param.u64 %d1, [in{number}];",
            f"mad.wide.u32 %d1, %i, {bits_of(kind) // 8}, %d1;",
            f"ld.global.u{bits_of(kind)} %a{number}, [%d1];",
        ]
        registers.append(f".reg .b{bits} %a{number};")
        text.append(f"%a{number}")
        if kind == "pred":
            registers.append(f".reg .pred %p{number};")
            lines.append(f"setp.ne.u16 %p{number}, %a{number}, 0;")
            text[-1] = f"%p{number}"
    bits = max(16, bits_of(sample.result))
    registers += [".reg .b64 %d<2>; .reg .b32 %i, %n, %t;", f".reg .b{bits} %x;"]
    target = "%x"
    if sample.result == "pred":
        registers.append(".reg .pred %q;")
        target = "%q"
    lines.append(f"{sample.opcode} {', '.join((target, *text))};")
    if sample.result == "pred":
        lines.append("selp.u16 %x, 1, 0, %q;")
    lines += [
        "ld.param.u64 %d1, [out];",
        f"mad.wide.u32 %d1, %i, {bits_of(sample.result) // 8}, %d1;",
        f"st.global.u{bits_of(sample.result)} [%d1], %x;",
    ]
    start = "mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %t, %tid.x; mad.lo.u32 %i, %i, %n, %t;"
    body = "\n    ".join((*registers, start, *lines, "ret;"))
    return f".visible .entry {name}({', '.join(params)})\n{{\n    {body}\n}}\n"
