"""
Which version of the PTX ISA a text needs.

From the notes in NVIDIA's PTX ISA manual, which name the version that introduced each instruction, modifier,
directive, special register and target. What no table here has counts as new: it needs the version that its
compiler declared.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink._arch import PtxVersion

from . import lexer
from .declarations import Pragma
from .operands import Span
from .statements import Call, Instruction, flattened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .module import Module

OLDEST = PtxVersion(6, 0)
"""The version that is needed at least; what is older is not told apart."""

# An instruction stands with the modifiers that need the version, in their order; "*" is any instruction.
_SINCE = {
    "6.1": "wmma.m32n8k16 wmma.m8n32k16 sm_72",
    "6.2": "activemask atom.f16x2 red.f16x2",
    "6.3": "nanosleep wmma.s8 wmma.u8 wmma.s4 wmma.u4 wmma.b1 atom.b16 atom.f16 red.f16 .alias sm_75",
    "6.4": "mma .noreturn",
    "6.5": "ldmatrix abs.f16 abs.f16x2 cvt.pack mma.m8n8k16 mma.m8n8k32 mma.m16n8k8",
    "7.0": "mbarrier cp.async redux tanh ex2.f16 ex2.f16x2 *.bf16 *.bf16x2 *.tf32 *.relu *.NaN cvt.rna "
    "cvt.f16x2 min.f16 min.f16x2 max.f16 max.f16x2 wmma.f64 mma.f64 mma.m16n8k4 mma.m16n8k16 mma.m16n8k32 "
    "mma.m16n8k64 mma.m16n8k128 mma.m16n8k256 mma.m8n8k128 sm_80",
    "7.1": "mma.sp cvt.f32.bf16 mma.and mask sm_86",
    "7.2": "*.xorsign function_name inlined_at",
    "7.3": "alloca stacksave stackrestore",
    "7.4": "applypriority discard createpolicy *.L1::evict_normal *.L1::evict_unchanged *.L1::evict_first "
    "*.L1::evict_last *.L1::no_allocate *.L2::cache_hint *.L2::64B *.L2::128B *.L2::256B "
    "prefetch.L2::evict_last prefetch.L2::evict_normal sm_87",
    "7.5": "fence.alias",
    "7.6": "bmsk szext %reserved_smem_offset_begin %reserved_smem_offset_end %reserved_smem_offset_cap "
    "%reserved_smem_offset_0 %reserved_smem_offset_1",
    "7.7": "cvta.param isspacep.param",
    "7.8": "mapa getctarank griddepcontrol barrier.cluster barrier.cta stmatrix movmatrix *.cluster "
    "*.shared::cta *.shared::cluster mbarrier.try_wait cvt.e4m3x2 cvt.e5m2x2 add.bf16 add.bf16x2 sub.bf16 "
    "sub.bf16x2 mul.bf16 mul.bf16x2 set.bf16 set.bf16x2 setp.bf16 setp.bf16x2 ex2.bf16 ex2.bf16x2 "
    "tanh.bf16 tanh.bf16x2 atom.bf16 atom.bf16x2 red.bf16 red.bf16x2 cvt.bf16.s8 cvt.bf16.s16 cvt.bf16.s32 "
    "cvt.bf16.s64 cvt.bf16.u8 cvt.bf16.u16 cvt.bf16.u32 cvt.bf16.u64 cvt.bf16.f16 cvt.bf16.f64 "
    "cvt.s8.bf16 cvt.s16.bf16 cvt.s32.bf16 cvt.s64.bf16 cvt.u8.bf16 cvt.u16.bf16 cvt.u32.bf16 cvt.u64.bf16 "
    "cvt.f16.bf16 cvt.f64.bf16 cvt.bf16.bf16 cvt.rm.bf16.f32 cvt.rp.bf16.f32 "
    ".reqnctapercluster .explicitcluster .maxclusterrank %clusterid %nclusterid %cluster_ctaid "
    "%cluster_nctaid %cluster_ctarank %cluster_nctarank %is_explicit_cluster sm_89 sm_90",
    "8.0": ".unified barrier.acquire barrier.release barrier.relaxed wgmma setmaxnreg "
    "elect cp.reduce cp.bulk cp.tensor prefetch.tensormap "
    "mbarrier.expect_tx mbarrier.complete_tx mbarrier.pending_count fence.async fence.mbarrier_init "
    "*.mbarrier::complete_tx::bytes "
    "min.s16x2 min.u16x2 max.s16x2 max.u16x2 add.s16x2 add.u16x2 min.relu.s32 max.relu.s32 "
    "%current_graph_exec sm_90a",
    "8.1": "multimem st.async red.async fma.oob cvt.satfinite.f16 cvt.satfinite.bf16 cvt.satfinite.tf32 "
    "atom.v2 atom.v4 atom.v8 red.v2 red.v4 red.v8 cvt.e4m3x2.f16x2 cvt.e5m2x2.f16x2 %aggr_smem_size",
    "8.2": "*.mmio lop3.and lop3.or lop3.xor",
    "8.3": "*.b128 tensormap fence.tensormap *.tensormap::generic *.param::entry *.param::func .b128 "
    '"used_bytes_mask',
    "8.4": "mma.e4m3 mma.e5m2",
    "8.6": "tcgen05 clusterlaunchcontrol st.bulk *.f32x2 ldmatrix.m16n16 ldmatrix.m8n16 stmatrix.m16n8 "
    "redux.f32 add.f32.f16 add.f32.bf16 sub.f32.f16 sub.f32.bf16 fma.f32.f16 fma.f32.bf16 cvt.e2m1x2 "
    "cvt.e2m3x2 cvt.e3m2x2 cvt.ue8m0x2 *.sync_restrict::shared::cta *.sync_restrict::shared::cluster "
    "*.sync_restrict::shared::cta::cluster sm_100 sm_101 sm_100a sm_101a",
    "8.7": "mma.kind::f8f6f4 mma.kind::mxf8f6f4 mma.kind::mxf4 mma.kind::mxf4nvf4 cvt.rs sm_120 sm_120a",
    "8.8": "ld.v8 st.v8 ld.v4.b64 ld.v4.s64 ld.v4.u64 ld.v4.f64 st.v4.b64 st.v4.s64 st.v4.u64 st.v4.f64 "
    "sm_100f sm_101f sm_103 sm_103a sm_103f sm_120f sm_121 sm_121a sm_121f",
    "9.0": ".blocksareclusters .abi_preserve .abi_preserve_control sm_88 sm_110 sm_110a sm_110f "
    '"enable_smem_spilling "frequency',
    "9.1": "ld.volatile.local st.volatile.local",
}


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# What all versions from `OLDEST` on have.
_OPCODES = _set(
    "abs add addc and atom bar barrier bfe bfi bfind bra brev brkpt brx call clz cnot copysign cos cvt cvta "
    "div dp2a dp4a ex2 exit fence fma fns isspacep istypep ld ldu lg2 lop3 mad mad24 madc match max membar "
    "min mov mul mul24 neg not or pmevent popc prefetch prefetchu prmt rcp red rem ret rsqrt sad selp set "
    "setp shf shfl shl shr sin slct sqrt st sub subc suld suq sured sust testp tex tld4 trap txq vabsdiff "
    "vabsdiff2 vabsdiff4 vadd vadd2 vadd4 vavrg2 vavrg4 vmad vmax vmax2 vmax4 vmin vmin2 vmin4 vote vset "
    "vset2 vset4 vshl vshr vsub vsub2 vsub4 wmma xor"
)
_MODIFIERS = _set(
    # types, vectors and state spaces
    "b1 b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 f32 f64 pred v2 v4 const global local param "
    "shared u4 s4 "
    # rounding and ranges
    "rn rz rm rp rni rzi rmi rpi ftz sat approx full hi lo wide cc finite infinite number notanumber normal "
    "subnormal noftz satfinite "
    # comparisons and logic
    "eq ne lt le gt ge ls hs equ neu ltu leu gtu geu num nan and or xor popc "
    # memory
    "ca cg cs lu cv wb wt volatile nc weak relaxed acquire release acq_rel sc cta gpu sys gl L1 L2 exch cas "
    "add inc dec min max to "
    # threads
    "sync uni aligned warp red arrive all any ballot up down bfly idx gather "
    # bits
    "f4e b4e rc8 ecl ecr rc16 l r clamp wrap shiftamt mask "
    # matrices
    "load store mma row col m16n16k16 m8n8k4 m8n8k32 m8n8k128 m32n8k16 m8n32k16 a b c d "
    # textures, surfaces, video
    "1d 2d 3d a1d a2d cube acube 2dms a2dms level grad base g p trap zero width height depth "
    "channel_data_type channel_order normalized_coords force_unnormalized_coords filter_mode addr_mode_0 "
    "addr_mode_1 addr_mode_2 array_size num_mipmap_levels num_samples memory_layout texref samplerref "
    "surfref b0 b1 b2 b3 h0 h1 po abs "
    # what occurs only with instructions of the table above
    "proxy mbarrier noinc commit_group wait_group wait_all wait read tile im2col multicast::cluster 4d 5d "
)
_DIRECTIVES = _set(
    "version target address_size entry func visible extern weak common param reg sreg const global local "
    "shared tex align ptr byte file loc section pragma maxnreg maxntid minnctapersm maxnctapersm reqntid "
    "callprototype calltargets branchtargets attribute managed "
    "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 f32 f64 pred v2 v4 texref samplerref surfref "
    "debug_abbrev debug_info debug_line debug_loc debug_str debug_macinfo debug_pubnames debug_ranges "
    "debug_frame debug_aranges debug_pubtypes"
)

_PLAIN = _set("mask function_name inlined_at")


@dataclass(frozen=True)
class Feature:
    """
    Something in a text that needs a version of the PTX ISA.

    Args:
        version: The first that has it, or the one that the text declares where no table has it.
        name: Its name, such as "add.bf16" or ".noreturn".
        line: The 1-based line it is in.
        known: Whether a table has it.
    """

    version: PtxVersion
    name: str
    line: int
    known: bool = True

    def __str__(self) -> str:
        line = f" in line {self.line}" if self.line else ""
        if not self.known:
            return f"{self.name}{line}, of which only PTX {self.version} is known to have it"
        return f"{self.name}{line}, which is new in PTX {self.version}"


def newest_feature(module: Module) -> Feature:
    """
    Return the feature of *module* that needs the newest version, the first in the text if there are several.

    Raises:
        LinkError: A function is malformed.
    """
    found = Feature(OLDEST, "PTX", 0)
    for version, name, start in itertools.chain(_targets(module), _instructions(module), _words(module)):
        needed = version or module.version or OLDEST
        if needed > found.version:
            found = Feature(needed, name, module.line(start), known=version is not None)
    return found


def arch_since(target: str) -> PtxVersion | None:
    """Return the version that introduced *target*, such as "sm_90a", None for one that no table has."""
    number = target.removeprefix("sm_").rstrip("af")
    old = number.isdigit() and int(number) <= 70
    return OLDEST if old else _table().get(target, {}).get(())


def relabelled(module: Module, version: PtxVersion) -> str:
    """Return the text of *module* with another `.version`."""
    for item in module.items:
        if getattr(item, "keyword", "") == "version":
            source = module.source(item)
            at = item.start + source.rindex(str(module.version))
            return module.replace({Span(at, at + len(str(module.version))): str(version)})
    return module.text


def without_hints(module: Module) -> str:
    """
    Return the text of *module* without what is new in it and changes no result.

    That is the `volatile` of accesses to local memory, which no other thread sees and which compilers left
    out before PTX 9.1, and the pragma that tells which bytes of a load are used.
    """
    edits = {}
    for function in module.functions:
        for statement in flattened(function.body):
            if isinstance(statement, Instruction) and statement.modifiers[:2] == ("volatile", "local"):
                at = module.text.index(".volatile", statement.start)
                edits[Span(at, at + len(".volatile"))] = ""
            elif isinstance(statement, Pragma) and statement.values[0].startswith("used_bytes_mask"):
                edits[statement.span] = ""
    return module.replace(edits)


@functools.cache
def _table() -> dict[str, dict[tuple[str, ...], PtxVersion]]:
    """Return, for each opcode or other word, the versions of the modifiers that it can have."""
    table: dict[str, dict[tuple[str, ...], PtxVersion]] = {}
    for since, words in _SINCE.items():
        version = PtxVersion(*map(int, since.split(".")))
        for word in words.split():
            # The dot of a directive is its first letter.
            head, *modifiers = [word] if word.startswith(".") else word.split(".")
            table.setdefault(head, {}).setdefault(tuple(modifiers), version)
    return table


@functools.cache
def _modifiers() -> frozenset[str]:
    return _MODIFIERS.union(modifier for rows in _table().values() for row in rows for modifier in row)


@functools.cache
def _instruction_since(opcode: str, modifiers: tuple[str, ...]) -> PtxVersion | None:
    """Return the first version that has an instruction, None where a word of it is in no table."""
    table = _table()
    own = table.get(opcode, {})
    # A row of an opcode alone introduces its own modifiers too.
    introduces = () in own
    if not introduces and opcode not in _OPCODES and not own:
        return None
    if not introduces and not _modifiers().issuperset(modifiers):
        return None
    rows = {**table["*"], **own}
    return max((version for row, version in rows.items() if _in_order(row, modifiers)), default=OLDEST)


def _in_order(row: tuple[str, ...], modifiers: tuple[str, ...]) -> bool:
    rest = iter(modifiers)
    return all(modifier in rest for modifier in row)


def _targets(module: Module) -> Iterator[tuple[PtxVersion | None, str, int]]:
    for target in module.target:
        if target.startswith("sm_"):
            yield arch_since(target), f".target {target}", module.text.find(target)


def _instructions(module: Module) -> Iterator[tuple[PtxVersion | None, str, int]]:
    for function in module.functions:
        for statement in flattened(function.body):
            if isinstance(statement, Instruction):
                opcode, modifiers = statement.opcode, statement.modifiers
            elif isinstance(statement, Call):
                opcode, modifiers = "call", statement.modifiers
            else:
                continue
            name = ".".join((opcode, *modifiers))
            yield _instruction_since(opcode, modifiers), name, statement.start


def _words(module: Module) -> Iterator[tuple[PtxVersion | None, str, int]]:
    """Yield directives, special registers, pragmas, and the words of initializers and line numbers."""
    table = _table()
    for word, start in zip(*lexer.split(module.text, 0, len(module.text)), strict=True):
        # Fractions such as .5 begin with a dot too.
        if word[:1] == "." and not word[1:2].isdigit():
            if word in table or word[1:] not in _DIRECTIVES:
                yield table.get(word, {}).get(()), word, start
        elif word[:1] in ("%", '"') or word in _PLAIN:
            word = word.partition(".")[0] if word[0] == "%" else word.rstrip('"').partition(" ")[0]  # noqa: PLW2901
            if word in table:
                yield table[word][()], word.lstrip('"'), start
