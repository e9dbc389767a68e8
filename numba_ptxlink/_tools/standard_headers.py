"""
Provide the headers of the standard library, which NVRTC lacks.

The C functions that GPUs can call are built into NVRTC, but it has no headers that declare them. CUDA's C++
library has most headers, as <cuda/std/...>: the <cmath> that this module makes includes <cuda/std/cmath>.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from . import find

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The constants of <math.h> in POSIX.1-2024.
_MATH_CONSTANTS = """\
#if !defined(M_PI)
#define M_E 2.71828182845904523536
#define M_LOG2E 1.44269504088896340736
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#endif
"""
# Headers that need nothing of CUDA's C++ library: with the few declarations that sources expect, or empty.
_WITHOUT_LIBRARY = {
    **dict.fromkeys(("assert.h", "stdbool.h", "stdio.h", "stdlib.h", "string.h"), ""),
    "math.h": _MATH_CONSTANTS,
    "stddef.h": "typedef decltype(sizeof(0)) size_t;\ntypedef decltype((char*)0 - (char*)0) ptrdiff_t;\n",
    "cstdio": "namespace std {\nusing ::printf;\n}\n",
}
# With it, code finds each name of cuda::std in std as well.
_IMPORT_STD = "namespace cuda {\nnamespace std {}\n}\nnamespace std {\nusing namespace cuda::std;\n}\n"
# NVRTC's message: cannot open source file "cmath".
_MISSING_FILE = re.compile(r'open source file "([^"\n]+)"')
# NVRTC's message about a function without __device__.
_HOST_CODE = "host functions are not allowed in JIT mode"
_BY_NVCC = "`nvcc -dc` and link the object"


def standard_headers(
    log: str, include_dirs: Sequence[Path | str], headers: Mapping[str, str]
) -> dict[str, str]:
    """
    Return the texts of the standard headers by name if NVRTC rejected a source that includes one; else {}.

    Headers that *include_dirs* or *headers* contain are left out. A source that NVRTC compiles without these
    headers, such as one that tests for them by __has_include, never gets them.

    Args:
        log: The log of the rejection.
        include_dirs: The include directories, in search order.
        headers: Headers in memory, by name.
    """
    missing = _MISSING_FILE.search(log)
    folders = [Path(path) for path in include_dirs]
    texts = dict(_WITHOUT_LIBRARY)
    paths = (path for folder in folders for path in (folder / "cuda" / "std").glob("[a-z]*"))
    for path in paths:
        directive = f"#include <cuda/std/{path.name}>\n"
        texts[path.name] = f"{_MATH_CONSTANTS if path.name == 'cmath' else ''}{directive}{_IMPORT_STD}"
        # <cstdint> also gives <stdint.h>. Names such as <oncepts.h>, of <concepts>, do no harm.
        if path.name.startswith("c"):
            texts.setdefault(f"{path.name[1:]}.h", directive)
    # CUDA's C++ library includes <version> in the middle of its own configuration, where <cuda/std/version>
    # cannot be included again.
    texts["version"] = ""
    if missing is None or missing[1] not in texts:
        return {}
    existing_names = {
        name for name in texts if name in headers or any((folder / name).is_file() for folder in folders)
    }
    return {name: f"#pragma once\n{text}" for name, text in texts.items() if name not in existing_names}


def cure(log: str) -> str:
    """Return the cure for an error of NVRTC about a missing header, host code or an option; "" for others."""
    if missing := _MISSING_FILE.search(log):
        return (
            f"Pass the folder of {missing[1]} as include_dirs, or -I; for a file of link= only its own "
            "folder is searched. NVRTC has the part of the standard library that CUDA's C++ library has, "
            f"which {find.package_name('nvidia-cuda-cccl')} installs; compile a file that needs more by "
            f"{_BY_NVCC}."
        )
    if "invalid value for --std" in log:
        return 'Pass the C++ standard as text, such as cxx_standard="c++20".'
    if "--gpu-architecture" in log:
        return (
            "This NVRTC does not support the GPU; CUDA 12's supports older ones: "
            f"`{find.install_command(12)}`."
        )
    if _HOST_CODE in log:
        return (
            "NVRTC compiles code for the GPU only; mark functions that it calls with __device__, and compile "
            f"a file with host code, such as main, by {_BY_NVCC}. For headers with host functions, such as "
            "cuda.h, pass nvrtc_flags=['-default-device']."
        )
    return ""
