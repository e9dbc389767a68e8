"""Mend what numba-cuda-mlir writes and NVVM refuses, or reads in another way than is meant."""

from __future__ import annotations

import re

_SHARED = re.compile(r"^(@\S+ = \w+ addrspace\(3\) global .*) zeroinitializer\b", re.MULTILINE)
_DYNAMIC = re.compile(
    r"^(@\S+ = )(?:internal|private) (addrspace\(3\) global \[0 x [^\]]+\]) (?:undef|poison|zeroinitializer)",
    re.MULTILINE,
)


def mended(text: str) -> str:
    """Return LLVM IR *text*, in either dialect, as NVVM is to read it."""
    # It is said of all index arithmetic, which is wrong where a stride is negative.
    text = text.replace(" nuw ", " ")
    # LLVM 7 cannot spell the kind that NVVM has for lines alone.
    text = text.replace("emissionKind: ,", "emissionKind: DebugDirectivesOnly,")
    # A linker refuses what nvcc says otherwise.
    text = text.replace('!{i32 2, !"Debug Info Version"', '!{i32 1, !"Debug Info Version"')
    # NVVM's verifier asks for the alignment of i128.
    text = text.replace("-i64:64:64-f32", "-i64:64:64-i128:128:128-f32", 1)
    # Shared memory has no value at first, and what has no size comes from the launch.
    return _SHARED.sub(r"\1 undef", _DYNAMIC.sub(r"\1external \2", text))
