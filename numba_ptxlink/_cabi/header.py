"""Render the C and C++ header of an export: a pure, deterministic function of its declarations."""

from __future__ import annotations

import hashlib
import itertools
import re
import unicodedata
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from numba_ptxlink._tools import nvrtc
from numba_ptxlink.errors import AbiError

from . import existing
from . import names as cnames
from . import types as c
from .signatures import Signature, nested_types, structs_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

# Unicode's categories of control characters, format characters and surrogates.
_INVISIBLE = ("Cc", "Cf", "Cs")
# NVRTC has no stdint.h; the types are those of CUDA's C++ library.
_INTEGERS = """\
#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif
"""
_BOOL = """\
#if !defined(__cplusplus)
#include <stdbool.h>
#endif
"""
# NVRTC 13.0 has no __builtin_offsetof; every NVRTC accepts __INTADDR__ as a constant expression.
_ASSERT = """\
#if !defined(__cplusplus)
#include <assert.h>
#include <stdalign.h>
#endif
#if !defined(NUMBA_PTXLINK_OFFSETOF)
#if defined(__CUDACC_RTC__)
#define NUMBA_PTXLINK_OFFSETOF(type, member) __INTADDR__(&((type*)0)->member)
#else
#define NUMBA_PTXLINK_OFFSETOF(type, member) __builtin_offsetof(type, member)
#endif
#endif
"""
# NVRTC has the vector types built in.
_VECTOR_HEADER = "vector_types.h"
_VECTOR_TYPES = f"""\
#if !defined(__CUDACC_RTC__)
#include <{_VECTOR_HEADER}>
#endif
"""
# CUDA 13 deprecates its 16-byte aligned vectors of 32 bytes, such as double4, in favour of names that state
# the alignment, such as double4_16a. A host compiler has no __CUDACC_VER_MAJOR__: a macro that vector_types.h
# of CUDA 13 defines then decides.
_ALIGNED_VECTORS = """\
#if defined(__CUDACC_VER_MAJOR__) ? __CUDACC_VER_MAJOR__ >= 13 : defined(__NV_SILENCE_DEPRECATION_BEGIN)
{cuda13}#else
{cuda12}#endif
"""
# GCC warns that the members of a packed struct are not aligned, which is intended.
_DISABLE_WARNINGS = """\
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC_RTC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpacked-not-aligned"
#endif"""
_RESTORE_WARNINGS = """\
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC_RTC__)
#pragma GCC diagnostic pop
#endif"""
_DEVICE = """\
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define NUMBA_PTXLINK_DEVICE __device__
#define NUMBA_PTXLINK_KERNEL __global__
#else
#define NUMBA_PTXLINK_DEVICE
#define NUMBA_PTXLINK_KERNEL
#endif
"""
_HOST = """\
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define {macro} __host__ __device__
#else
#define {macro}
#endif
"""
# Overloads with the former names of the vectors in `_ALIGNED_VECTORS`, for headers of CUDA 13 or newer.
_FORMER_VECTORS = """\
#if defined(__NV_SILENCE_DEPRECATION_BEGIN) && \\
    (defined(__CUDACC_VER_MAJOR__) ? __CUDACC_VER_MAJOR__ >= 13 : 1)
__NV_SILENCE_DEPRECATION_BEGIN
{overload}__NV_SILENCE_DEPRECATION_END
#endif
"""
_INLINE = """\
#if !defined(NUMBA_PTXLINK_INLINE)
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define NUMBA_PTXLINK_INLINE __device__ __forceinline__
#else
#define NUMBA_PTXLINK_INLINE inline
#endif
#endif
"""


@dataclass(frozen=True)
class CFunction:
    """
    The declaration of a C function, with the text of its comment; "" for missing parts.

    Args:
        signature: The C signature.
        python_signature: The Python name and signature, such as "saxpy: (float32, float32) -> float32".
        doc: The docstring, without indentation.
        location: The definition's file and line, such as "/home/me/udfs.py:12". The header names only the
            file, so that it does not change when lines or folders move.
        errors: A sentence about the effect of errors in the function.
        namespace: The namespace of C++ that has an inline function which calls this one, or for a kernel, a
            using-declaration of it.
        name: The name of the inline function.
        host_macro: The macro that makes it a host function as well; "" if it has no host version.
    """

    signature: Signature
    python_signature: str = ""
    doc: str = ""
    location: str = ""
    errors: str = ""
    namespace: str = ""
    name: str = ""
    host_macro: str = ""

    @property
    def source(self) -> str:
        """The line of the definition, without the folder: "udfs.py:12"."""
        return PurePath(self.location).name


def render(stem: str, declarations: Sequence[CFunction], externs: Sequence[Signature] = ()) -> str:
    """
    Return the text of the header `stem.h`.

    Args:
        stem: The file's name without its extension.
        declarations: The functions that the export defines.
        externs: The functions that the C++ side has to define.

    Raises:
        AbiError: Two structs, or a struct and a function, have the same name, or the header would hide
            another header.
    """
    signatures = [*(declaration.signature for declaration in declarations), *externs]
    types = list(dict.fromkeys(ctype for signature in signatures for ctype in signature.types))
    structs_by_name = structs_of(signatures)
    structs = list(structs_by_name.values())
    for name in (signature.name for signature in signatures):
        if name in structs_by_name and not structs_by_name[name].existing:
            raise AbiError(
                f"{name!r}, the C name of a function, is the name of the struct of "
                f"{structs_by_name[name].python_type}; use {name + '_of'!r}, for example."
            )
    cnames.check_stem(stem, nvrtc.toolkit_include_dirs(), existing.includes(structs))
    blocks = [
        *_includes(types),
        *existing.preamble(structs),
        _DEVICE,
        *(
            _HOST.format(macro=macro)
            for macro in dict.fromkeys(function.host_macro for function in declarations)
            if macro
        ),
        *(
            _only_cxx(
                existing.assertions(struct) if struct.existing else _definition(struct),
                cxx=_needs_cxx([struct]),
            )
            for struct in structs
        ),
        *_views(types),
        '#if defined(__cplusplus)\nextern "C" {\n#endif\n',
        *(_only_cxx(_declaration(function), cxx=_is_cxx(function.signature)) for function in declarations),
        *(_only_cxx(_extern(signature), cxx=_is_cxx(signature)) for signature in externs),
        "#if defined(__cplusplus)\n}\n#endif\n",
        *_namespaces(declarations, structs),
    ]
    body = "\n".join(blocks)
    guard = _guard(stem, body)
    comment = as_comment(f"{stem}.h: generated by numba-ptxlink; export {stem} again instead of editing it.")
    errors = "Functions do not check division by zero and indices, unless their comments say so."
    heading = f"/* {comment} */\n/* {errors} */\n#ifndef {guard}\n#define {guard}\n"
    return f"{heading}\n{body}\n#endif /* {guard} */\n"


def host_macro(stem: str) -> str:
    """Return the macro of the functions of an export that have a host version."""
    return f"NUMBA_PTXLINK_HOST_{_macro_part(stem)}"


def _macro_part(stem: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", stem.upper())


def _guard(stem: str, body: str) -> str:
    """Return the include guard of *body*, with a digest: headers of one stem need different guards."""
    digest = hashlib.sha256(body.encode()).hexdigest()[:16].upper()
    return f"NUMBA_PTXLINK_{_macro_part(stem)}_{digest}_H"


def _views(types: Sequence[c.CType]) -> list[str]:
    """Return assertions on views that instantiate them: else clang warns that result types are incomplete."""
    lines = [
        f'static_assert(sizeof({ctype.name}) == {ctype.size}, "size of an array_view");\n'
        for ctype in types
        if isinstance(ctype, c.View)
    ]
    return [_only_cxx("".join(lines), cxx=True)] if lines else []


def _includes(types: Sequence[c.CType]) -> list[str]:
    scalars = {ctype.name for ctype in types if isinstance(ctype, c.Scalar)}
    blocks = []
    if any(name.endswith("_t") for name in scalars):
        blocks.append(_INTEGERS)
    if "bool" in scalars:
        blocks.append(_BOOL)
    if any(isinstance(ctype, c.Struct) for ctype in types):
        blocks.append(_ASSERT)
    for cxx in (False, True):
        selected = [ctype for ctype in types if _needs_cxx([ctype]) == cxx]
        headers = sorted({ctype.include for ctype in selected if ctype.include} - {_VECTOR_HEADER})
        if headers:
            blocks.append(_only_cxx("".join(map(_include, headers)), cxx=cxx))
    if any(ctype.include == _VECTOR_HEADER for ctype in types):
        blocks.append(_VECTOR_TYPES)
    aligned = sorted({ctype.code for ctype in types if _states_alignment(ctype)})
    if aligned:
        cuda13 = "".join(f"typedef {name}_16a numba_ptxlink_{name};\n" for name in aligned)
        cuda12 = "".join(f"typedef {name} numba_ptxlink_{name};\n" for name in aligned)
        blocks.append(_ALIGNED_VECTORS.format(cuda13=cuda13, cuda12=cuda12))
    return blocks


def _include(header: str) -> str:
    # In quotes, so that the copy beside an exported header is found in any folder.
    return f'#include "{header}"\n' if header.startswith("numba_ptxlink/") else f"#include <{header}>\n"


def _needs_cxx(types: Iterable[c.CType]) -> bool:
    """Return whether one of *types* exists in C++ only."""
    return any(part.cxx_only for part in nested_types(types))


def _is_cxx(signature: Signature) -> bool:
    # Only C++ can launch kernels.
    return signature.kernel or _needs_cxx(signature.types)


def _only_cxx(text: str, *, cxx: bool) -> str:
    """Return *text*; if *cxx*, with a condition by which C compilers skip it."""
    return f"#if defined(__cplusplus)\n{text}#endif\n" if cxx else text


def _definition(struct: c.Struct) -> str:
    macro = f"NUMBA_PTXLINK_STRUCT_{struct.name}"
    aligned = f", aligned({struct.align})" if struct.align > 1 else ""
    attribute = f"__attribute__((packed{aligned})) " if struct.packed else ""
    lines = [
        f"#if !defined({macro})",
        f"#define {macro} 0x{struct.fingerprint:08x}u",
        f"/* {as_comment(struct.python_type)} */",
        *([_DISABLE_WARNINGS] if struct.packed else []),
        f"typedef struct {attribute}{struct.name} {{",
        *(f"  {line};" for line in _members(struct)),
        f"}} {struct.name};",
        *([_RESTORE_WARNINGS] if struct.packed else []),
        f'static_assert(sizeof({struct.name}) == {struct.size}, "size of {struct.name}");',
        f'static_assert(alignof({struct.name}) == {struct.align}, "alignment of {struct.name}");',
        *(
            f"static_assert(NUMBA_PTXLINK_OFFSETOF({struct.name}, {member.name}) == {member.offset}, "
            f'"offset of {struct.name}.{member.name}");'
            for member in struct.members
        ),
        f"#elif {macro} != 0x{struct.fingerprint:08x}u",
        f'#error "two exported headers define struct {struct.name} differently; rename one in Python"',
        "#endif\n",
    ]
    return "\n".join(lines)


def _members(struct: c.Struct) -> Iterable[str]:
    """Yield the declarations of the members, and of the padding of a packed struct: `padding1_`."""
    taken = {struct.name, *(member.name for member in struct.members)}
    member_count = 0
    for ctype, member in struct.slots:
        if member:
            yield ctype.declare(member.name)
            member_count += 1
        elif struct.packed:
            yield f"unsigned char {cnames.legal_name(f'padding{member_count}_', taken)}[{ctype.size}]"


def _declaration(declaration: CFunction) -> str:
    device = declaration.host_macro or "NUMBA_PTXLINK_DEVICE"
    qualifier = "NUMBA_PTXLINK_KERNEL" if declaration.signature.kernel else device
    comment = describe(declaration)
    if declaration.namespace and not declaration.signature.kernel:
        comment = f"/* {declaration.namespace}::{declaration.name} */\n"
    return f"{comment}{qualifier} {declaration.signature};\n"


def _namespaces(declarations: Sequence[CFunction], structs: Iterable[c.Struct]) -> list[str]:
    """Return inline functions in namespaces of C++ that call the functions with C linkage."""
    names = [struct.name for struct in structs]
    blocks = []
    for namespace, group in itertools.groupby(declarations, lambda declaration: declaration.namespace):
        if namespace:
            parts = namespace.split("::")
            inner = "\n".join(_in_namespace(declaration, names) for declaration in group)
            opening = "".join(f"namespace {part} {{\n" for part in parts)
            closing = "".join(f"}} /* {part} */\n" for part in parts[::-1])
            blocks.append(f"{opening}\n{inner}\n{closing}")
    return [_only_cxx("\n".join([_INLINE, *blocks]), cxx=True)] if blocks else []


def _states_alignment(ctype: c.CType) -> bool:
    """Return whether *ctype* is a vector of CUDA whose name states its alignment from CUDA 13 on."""
    # Its name is that of the alias, such as "numba_ptxlink_double4", and its code is "double4".
    return ctype.include == _VECTOR_HEADER and ctype.code != ctype.name


def _in_namespace(declaration: CFunction, structs: Sequence[str]) -> str:
    signature = declaration.signature
    if signature.kernel:
        return f"using ::{signature.name};\n"
    comment = describe(declaration)
    params = [(ctype.declare(name), name) for name, ctype in signature.params]
    wrapper = _wrapper(declaration, structs, params)
    if not any(_states_alignment(ctype) for _, ctype in signature.params):
        return comment + wrapper
    # In CUDA 13, the former names of these vectors are other types with the same layout: overload for them.
    former_params = [
        (f"{ctype.code} {name}", f"{ctype.name}{{{name}.x, {name}.y, {name}.z, {name}.w}}")
        if _states_alignment(ctype)
        else (ctype.declare(name), name)
        for name, ctype in signature.params
    ]
    return comment + wrapper + _FORMER_VECTORS.format(overload=_wrapper(declaration, structs, former_params))


def _wrapper(declaration: CFunction, structs: Sequence[str], params: Sequence[tuple[str, str]]) -> str:
    """
    Return the inline function that calls the exported one.

    Args:
        declaration: The exported function.
        structs: The names of the structs in the header.
        params: For each parameter, its declaration and the argument that is passed on.
    """
    signature = declaration.signature
    result = qualify(signature.result.name, structs)
    parameters = ", ".join(qualify(param, structs) for param, _ in params)
    values = ", ".join(value for _, value in params)
    inline = f"{declaration.host_macro} inline" if declaration.host_macro else "NUMBA_PTXLINK_INLINE"
    return f"{inline} {result} {declaration.name}({parameters})\n{{ return ::{signature.name}({values}); }}\n"


def qualify(spelling: str, structs: Collection[str]) -> str:
    """Return *spelling*, of a type or a parameter, with `::` in front of the names of *structs*."""
    names = {name.removeprefix("struct ") for name in structs if not name.startswith("::")}
    pattern = "|".join(sorted(map(re.escape, names), key=len, reverse=True))  # longest first
    return re.sub(rf"(?<![\w:])(?:{pattern})(?!\w)", r"::\g<0>", spelling) if names else spelling


def describe(declaration: CFunction) -> str:
    """Return the comment about a function: its Python signature, its docstring, its file and its errors."""
    doc = declaration.doc.splitlines()
    file = declaration.source.rpartition(":")[0]
    # A long text is a separate paragraph.
    blank_line = [""] if len(doc) > 1 else []
    closing_lines = [line for line in (f"Defined in {file}.", declaration.errors) if line]
    lines = [declaration.python_signature, *blank_line, *doc, *blank_line, *closing_lines]
    return "".join(("/*\n", *(f" * {as_comment(line)}".rstrip() + "\n" for line in lines), " */\n"))


def _extern(signature: Signature) -> str:
    return f"/* For the C++ side to define. */\nNUMBA_PTXLINK_DEVICE {signature};\n"


def as_comment(line: str) -> str:
    """Return *line* with characters escaped that may not be in a comment of C."""
    # Compilers reject NUL, encodings reject lone surrogates, and direction marks change the displayed text.
    visible = "".join(
        letter.encode("unicode_escape").decode() if unicodedata.category(letter) in _INVISIBLE else letter
        for letter in line.expandtabs()
    )
    # "*/" in a docstring would end the comment, and the trigraph of "\" at the end of a line would join two
    # lines.
    return visible.replace("*/", "* /").replace("/*", "/ *").replace("??/", "? ?/")
