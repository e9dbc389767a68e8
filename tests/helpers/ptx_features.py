"""Statements of PTX with the version that introduced each, and a text to put them into."""

from __future__ import annotations

TEXT = """\
.version {version}
.target {target}
.address_size 64
.global .align 16 .b8 room[64];
.visible .func f(.param .b64 p){after}
{{
.reg .pred %p<4>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .f32 %f<9>; .reg .f64 %g<9>;
.shared .align 16 .b8 tile[64];
{statement}
ret;
}}
"""
# A statement, the version it needs, and a target that has it.
STATEMENTS = """
6.0 sm_80 add.s32 %r1, %r2, %r3;
6.0 sm_80 fma.rn.f32 %f1, %f2, %f3, %f4;
6.0 sm_80 shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1;
6.0 sm_80 ld.relaxed.gpu.global.f32 %f1, [%d1];
6.0 sm_80 @%p1 bra L; L:
6.0 sm_80 cvt.rn.f16.f32 %h1, %f1;
6.0 sm_80 fma.rn.f16 %h1, %h2, %h3, %h4;
6.0 sm_80 atom.global.add.f32 %f1, [%d1], %f2;
6.2 sm_80 activemask.b32 %r1;
6.2 sm_80 atom.global.add.noftz.f16x2 %r1, [%d1], %r2;
6.3 sm_80 nanosleep.u32 %r1;
6.3 sm_80 atom.global.cas.b16 %h1, [%d1], %h2, %h3;
6.3 sm_80 atom.global.add.noftz.f16 %h1, [%d1], %h2;
6.5 sm_80 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2];
7.0 sm_80 fma.rn.bf16 %h1, %h2, %h3, %h4;
7.0 sm_80 fma.rn.relu.f16 %h1, %h2, %h3, %h4;
7.0 sm_80 neg.bf16 %h1, %h2;
7.0 sm_80 abs.bf16x2 %r1, %r2;
7.0 sm_80 min.NaN.bf16 %h1, %h2, %h3;
7.0 sm_80 max.f16 %h1, %h2, %h3;
7.0 sm_80 cvt.rn.bf16.f32 %h1, %f1;
7.0 sm_80 cvt.rn.bf16x2.f32 %r1, %f1, %f2;
7.0 sm_80 cvt.rn.f16x2.f32 %r1, %f1, %f2;
7.0 sm_80 cvt.rna.tf32.f32 %r1, %f1;
7.0 sm_80 tanh.approx.f32 %f1, %f2;
7.0 sm_80 ex2.approx.f16 %h1, %h2;
7.0 sm_80 redux.sync.add.s32 %r1, %r2, -1;
7.0 sm_80 cp.async.ca.shared.global [%r1], [%d1], 4;
7.0 sm_80 cp.async.commit_group;
7.0 sm_80 cp.async.wait_group 0;
7.0 sm_80 cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];
7.0 sm_80 mbarrier.init.shared.b64 [%r1], 1;
7.1 sm_90 cvt.f32.bf16 %f1, %h1;
7.2 sm_86 min.xorsign.abs.f32 %f1, %f2, %f3;
7.3 sm_80 alloca.u64 %d1, 16;
7.4 sm_80 createpolicy.fractional.L2::evict_last.b64 %d1;
7.4 sm_80 ld.global.L1::no_allocate.f32 %f1, [%d1];
7.4 sm_80 ld.global.L2::128B.f32 %f1, [%d1];
7.4 sm_80 prefetch.global.L2::evict_last [%d1];
7.4 sm_80 applypriority.global.L2::evict_normal [%d1], 128;
7.4 sm_80 discard.global.L2 [%d1], 128;
7.5 sm_80 fence.proxy.alias;
7.6 sm_80 bmsk.clamp.b32 %r1, %r2, %r3;
7.6 sm_80 szext.wrap.s32 %r1, %r2, %r3;
7.8 sm_90 add.bf16 %h1, %h2, %h3;
7.8 sm_90 mul.rn.bf16x2 %r1, %r2, %r3;
7.8 sm_90 setp.lt.bf16 %p1, %h1, %h2;
7.8 sm_90 cvt.rn.bf16.s32 %h1, %r1;
7.8 sm_90 atom.global.add.noftz.bf16 %h1, [%d1], %h2;
7.8 sm_90 ex2.approx.ftz.bf16 %h1, %h2;
7.8 sm_90 griddepcontrol.wait;
7.8 sm_90 mapa.u64 %d1, %d2, %r1;
7.8 sm_90 barrier.cluster.arrive.aligned;
8.0 sm_90 barrier.cluster.wait.acquire.aligned;
7.8 sm_90 barrier.cluster.wait.aligned;
7.8 sm_90 atom.cluster.global.add.u32 %r1, [%d1], %r2;
7.8 sm_90 mov.u32 %r1, %clusterid.x;
7.8 sm_90 mov.u32 %r1, %cluster_ctarank;
8.0 sm_90 elect.sync %r1|%p1, -1;
8.0 sm_90 min.u16x2 %r1, %r2, %r3;
8.0 sm_90 fence.proxy.async;
8.0 sm_90 fence.proxy.async.shared::cta;
7.8 sm_90 cvt.rzi.s32.bf16 %r1, %h1;
8.1 sm_90 mov.u32 %r1, %aggr_smem_size;
8.1 sm_90 fma.rn.oob.f16 %h1, %h2, %h3, %h4;
8.1 sm_90 atom.global.v4.f32.add {%f1,%f2,%f3,%f4}, [%d1], {%f1,%f2,%f3,%f4};
8.1 sm_90 multimem.ld_reduce.relaxed.sys.global.add.u32 %r1, [%d1];
8.0 sm_90 cp.async.bulk.commit_group;
8.0 sm_90 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1], 16, [%r2];
8.2 sm_80 lop3.or.b32 %r1|%p1, %r2, %r3, %r4, 0x3f, %p2;
8.3 sm_80 .pragma "used_bytes_mask 0xff"; ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%d1];
8.3 sm_90 .reg .b128 %q; mov.b128 %q, {%d1, %d2};
8.6 sm_100a add.rn.f32x2 %d1, %d2, %d3;
8.6 sm_100a redux.sync.min.f32 %f1, %f2, -1;
8.8 sm_100a ld.global.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%d1];
9.1 sm_80 ld.volatile.local.u32 %r1, [%d1];
8.8 sm_100a ld.global.v4.b64 {%d1,%d2,%d3,%d4}, [%d1];
"""
ROWS = [row.split(maxsplit=2) for row in STATEMENTS.strip().splitlines()]
# The version that introduced what is looked for; the target would need a newer one.
TARGETS = {"sm_80": "7.0", "sm_86": "7.1", "sm_90": "7.8", "sm_100a": "8.6"}
