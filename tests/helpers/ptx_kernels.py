"""PTX modules with one kernel: a small one, and one that keeps the compiler busy."""

from __future__ import annotations

KERNEL = """\
.version 8.0
.target sm_75
.address_size 64

.visible .entry {name}(.param .u64 out)
{{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    {body}
    ret;
}}
"""


def make_kernel(name: str = "kernel", body: str = "") -> str:
    """Return a PTX module with one kernel around *body*, which begins in line 9."""
    return KERNEL.format(name=name, body=body)


def make_large_kernel(name: str = "large", operations: int = 4000) -> str:
    """Return a PTX module that keeps the compiler busy for a while."""
    lines = [".reg .f32 %f<34>;"]
    lines += [f"ld.global.f32 %f{i}, [%rd1+{4 * i}];" for i in range(32)]
    lines += [
        f"fma.rn.f32 %f{i % 32}, %f{(i + 7) % 32}, %f{(i + 13) % 32}, %f{i % 32};" for i in range(operations)
    ]
    lines += [f"st.global.f32 [%rd1+{4 * i}], %f{i};" for i in range(32)]
    return make_kernel(name, "\n    ".join(lines))
