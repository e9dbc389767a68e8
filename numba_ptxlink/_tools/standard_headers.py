"""
The headers of the standard libraries, which NVRTC lacks: what CUDA's C++ library has of them, by their names.

NVRTC has the functions of C that GPUs can call built in, without their headers.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from . import find

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INTEGERS = """\
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
"""
"""What stdint.h defines of the numbers in generated headers, as CUDA's C++ library does for NVRTC."""

_STDINT = (
    INTEGERS
    + re.sub(r"(u?int)(\d+_t;)", r"\1_least\2", INTEGERS)
    + "".join(
        f"typedef long long int{kind}_t;\ntypedef unsigned long long uint{kind}_t;\n"
        for kind in ("ptr", "max")
    )
)
_STDDEF = "typedef decltype(sizeof(0)) size_t;\ntypedef decltype((char*)0 - (char*)0) ptrdiff_t;\n"
# POSIX.1-2024, <math.h>.
_CONSTANTS = {
    "M_E": math.e,
    "M_LOG2E": math.log2(math.e),
    "M_LOG10E": math.log10(math.e),
    "M_LN2": math.log(2),
    "M_LN10": math.log(10),
    "M_PI": math.pi,
    "M_PI_2": math.pi / 2,
    "M_PI_4": math.pi / 4,
    "M_1_PI": 1 / math.pi,
    "M_2_PI": 2 / math.pi,
    "M_2_SQRTPI": 2 / math.sqrt(math.pi),
    "M_SQRT2": math.sqrt(2),
    "M_SQRT1_2": math.sqrt(0.5),
}
_MATH = "".join(
    f"#if !defined({name})\n#define {name} {value!r}\n#endif\n" for name, value in _CONSTANTS.items()
)
# The headers of C that need no library: what is not built in of them.
_OF_C = {
    **dict.fromkeys(("assert.h", "stdbool.h", "stdio.h", "stdlib.h", "string.h"), ""),
    "math.h": _MATH,
    "stddef.h": _STDDEF,
    "stdint.h": _STDINT,
}


def _in_std(text: str) -> str:
    return "namespace std {\n" + re.sub(r"typedef .* (\w+;)", r"using ::\1", text) + "}\n"


# C++'s names of some of these, which are the same with or without a library.
_IN_STD = {
    "cstddef": _STDDEF + _in_std(_STDDEF),
    "cstdint": _STDINT + _in_std(_STDINT),
    "cstdio": "namespace std {\nusing ::printf;\n}\n",
}
_USED = "namespace cuda {\nnamespace std {}\n}\nnamespace std {\nusing namespace cuda::std;\n}\n"
# CUDA's C++ library is an error in an older one.
_STANDARD = "__cplusplus >= 201703L"
_NO_FILE = re.compile(r'open source file "([^"\n]+)"')
_HOST_CODE = "host functions are not allowed in JIT mode"
_BY_NVCC = "`nvcc -dc` and link the object"


def lacking(log: str, include_dirs: Sequence[Path | str], headers: Mapping[str, str]) -> dict[str, str]:
    """
    Return the standard headers, by name; none if the lack of one is not why NVRTC refused a source.

    What a directory has comes before them. What NVRTC takes without them, such as a source that tests for
    them, is never given them.

    Args:
        log: NVRTC's log.
        include_dirs: The include directories, in search order.
        headers: Headers in memory, by name.
    """
    missing = _NO_FILE.search(log)
    if missing is None:
        return {}
    places = [Path(path) for path in include_dirs]
    library = {
        path.name for place in places for path in (place / "cuda" / "std").glob("*") if not path.suffix
    }
    in_c = (f"{title[1:]}.h" for title in library if title.startswith("c"))
    names = {*library, *in_c, *_OF_C, *_IN_STD} - headers.keys()
    absent = (name for name in sorted(names) if not any((place / name).is_file() for place in places))
    found = {name: _text(name, library) for name in absent}
    return found if missing[1] in found else {}


def _text(name: str, library: set[str]) -> str:
    """Return the standard header *name*, of which there is one by itself or in CUDA's C++ *library*."""
    in_c = name.endswith(".h")
    title = f"c{name.removesuffix('.h')}" if in_c else name
    own = _OF_C.get(name) if in_c else _IN_STD.get(name)
    from_library = f"#include <cuda/std/{title}>\n{'' if in_c else _USED}"
    if own is None:
        own = f"{_MATH if title == 'cmath' else ''}{from_library}"
    # The library has macros too, such as INT64_MAX.
    elif title in library and (not in_c or name == "stdint.h"):
        own = f"#if {_STANDARD}\n{from_library}#else\n{own}#endif\n"
    return f"#pragma once\n{own}"


def cure(log: str) -> str:
    """Return how to correct what NVRTC refused for want of a header or the host, "" if that is not why."""
    missing = _NO_FILE.search(log)
    if missing is not None and "." in missing[1]:
        return (
            f"Name the folder of {missing[1]} by include_dirs, or -I. If it is a header of the host, NVRTC "
            f"has none: compile the file with {_BY_NVCC}."
        )
    if missing is not None:
        library = find.package("nvidia-cuda-cccl")
        return (
            f"NVRTC has no {missing[1]}: of the standard library it has what CUDA's C++ library has, which "
            f"{library} installs. Leave it out, or compile the file with {_BY_NVCC}."
        )
    if _HOST_CODE in log:
        return (
            "NVRTC compiles code of the GPU alone: mark functions that it calls with __device__, and compile "
            f"a file that has code of the host, such as main, with {_BY_NVCC}."
        )
    return ""
