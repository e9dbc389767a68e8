"""
Check names against the keywords of C, C++ and CUDA C++ and the rules for identifiers, and propose legal ones.

Names that CUDA's compilers declare are not checked here: `proof` compiles each generated header, and the
compiler reports collisions.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from numba_ptxlink.errors import AbiError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Reserved for the compiler: __name, _Name.
_RESERVED = re.compile(r"__|_[A-Z]")
# Mangled names of C++ are reserved names, but allowed for symbols: a function can implement a C++
# declaration.
_MANGLED = re.compile(r"_Z\w+", re.ASCII)
_PACKAGE_PREFIX = re.compile("numba_ptxlink", re.IGNORECASE)
# Names like cudaMalloc, cuInit, CUstream and CUDA_SUCCESS, of CUDA's runtime and driver. NVRTC's headers do
# not declare them, so that `proof` would report no collision.
_CUDA_API = re.compile(r"cuda[A-Z]|cu[A-Z]|CU[a-z]|CUDA_|CU_")
# "_" is not a symbol in PTX, and WARP_SZ is a constant. NVVM gives the other names to parameters and results,
# and a parameter or result hides a function of its name; ptxas crashes if a function has the name of its own
# result.
_INVALID_IN_PTX = re.compile(r"_|WARP_SZ|temp_param_reg|param\d+|(func_)?retval\d+", re.ASCII)

# ISO/IEC 9899:2024 6.4.1, ISO/IEC 14882:2020 lex.key and lex.digraph, CUDA C++ Programming Guide
# "C++ Language Extensions".
_KEYWORD_TEXT = """
alignas alignof and and_eq asm atomic_cancel atomic_commit atomic_noexcept auto bitand bitor bool break case
catch char char16_t char32_t char8_t class co_await co_return co_yield compl concept const const_cast
consteval constexpr constinit continue decltype default delete do double dynamic_cast else enum explicit
export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
nullptr operator or or_eq private protected public reflexpr register reinterpret_cast requires restrict
return short signed sizeof static static_assert static_cast struct switch synchronized template this
thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using virtual void
volatile wchar_t while xor xor_eq blockDim blockIdx gridDim threadIdx warpSize main
"""
_KEYWORDS = frozenset(_KEYWORD_TEXT.split())
# ISO/IEC 9899:2024 7.1.2; IEEE Std 1003.1-2017 "Headers", as far as glibc has them; and what the headers of
# glibc and GCC include in angle brackets.
_SYSTEM_HEADERS = """
assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg
stdatomic stdbit stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar
wchar wctype
aio cpio dirent dlfcn fcntl fmtmsg fnmatch ftw glob grp iconv langinfo libgen monetary mqueue netdb nl_types
poll pthread pwd regex sched search semaphore spawn strings syslog tar termios ulimit unistd utime utmpx
wordexp alloca byteswap elf endian execinfo features features-time64 getopt libintl link malloc stdc-predef
syscall syslimits unwind
"""


def check_name(name: str, owner: str, *, in_namespace: bool = False) -> None:
    """
    Check that an external function of C, C++ and CUDA C++ can have *name*.

    Args:
        name: The requested name.
        owner: The function, for the message: "function saxpy".
        in_namespace: Whether the function is in a namespace of C++: then *name* is not its symbol, and may be
            one of CUDA's or PTX's.

    Raises:
        AbiError: The name is illegal or reserved. The error proposes another one.
    """
    reason = invalid_in_namespace_reason(name) if in_namespace else invalid_name_reason(name)
    if reason:
        legal = closest_legal_name(name)
        raise AbiError(f"{name!r}, the C name of {owner}, {reason}; use {legal!r}, for example.")


def check_stem(stem: str, include_dirs: Iterable[Path], included: Iterable[str]) -> None:
    """
    Check that the header `stem.h` does not hide another header of that name.

    Args:
        stem: The name of an export.
        include_dirs: The folders of CUDA's headers.
        included: The names of the headers that define the export's structs, each in quotes or angle
            brackets.

    Raises:
        AbiError: The header would hide another one.
    """
    cuda_folders = (folder for folder in include_dirs if (folder / f"{stem}.h").exists())
    owner_of_hidden = "the C library" if stem in _SYSTEM_HEADERS.split() else next(cuda_folders, None)
    # Compare the name in '"./stem.h"' or "<stem.h>".
    if f"{stem}.h" in [name[1:-1].removeprefix("./") for name in included]:
        owner_of_hidden = "its structs"
    if owner_of_hidden:
        raise AbiError(
            f"The header {stem}.h would hide the one of {owner_of_hidden} if a compiler searches the "
            f"export's folder; give the export another name, such as {f'{stem}_udfs'!r}, by name=, --name or "
            "the name of the file."
        )


def invalid_name_reason(name: str) -> str | None:
    """
    Return why no external function can have *name*; None if a function can.

    The text completes a sentence: "is a reserved word of C, C++ or CUDA C++". A mangled C++ name is accepted.
    """
    reason = invalid_in_namespace_reason(name)
    if reason and not _MANGLED.fullmatch(name):
        return reason
    if _CUDA_API.match(name):
        return "starts like the names of CUDA's runtime or driver"
    if _INVALID_IN_PTX.fullmatch(name):
        return "is no symbol in PTX, or a name that compilers use there"
    return None


def invalid_in_namespace_reason(name: str) -> str | None:
    """Return why *name* cannot name a parameter, a member or a function in a namespace; None if it can."""
    if not _IDENTIFIER.fullmatch(name):
        return "is not a C identifier"
    if name in _KEYWORDS:
        return "is a reserved word of C, C++ or CUDA C++"
    if _RESERVED.match(name):
        return "is reserved for the compiler: it starts with two underscores or one and a capital"
    return "starts like the names that generated headers use" if _PACKAGE_PREFIX.match(name) else None


def legal_name(name: str, taken: Collection[str] = ()) -> str:
    """Return *name*, or the closest legal and unused name, for a parameter or member."""
    is_usable = invalid_in_namespace_reason(name) is None and name not in taken
    return name if is_usable else closest_legal_name(name, taken)


def legal_struct_name(name: str) -> str:
    """Return *name*, or the closest legal name, for a struct."""
    return name if invalid_name_reason(name) is None else closest_legal_name(name)


def closest_legal_name(name: str, taken: Collection[str] = ()) -> str:
    """Return the legal and unused name closest to *name*, for any declaration. Accents are dropped."""
    ascii_text = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    base = re.sub(r"\W+", "_", ascii_text).strip("_") or "unnamed"
    if base[0].isdigit():
        base = f"f{base}"  # "3d" becomes "f3d".
    if _CUDA_API.match(base) or _PACKAGE_PREFIX.match(base):
        base = f"my_{base}"
    # An illegal name gets an underscore, as in "int_"; a name that is taken gets a number, as in "x_2".
    candidate = base if invalid_name_reason(base) is None else f"{base}_"
    suffix = 2
    while candidate in taken or invalid_name_reason(candidate) is not None:
        candidate = f"{base}_{suffix}"
        suffix += 1
    return candidate
