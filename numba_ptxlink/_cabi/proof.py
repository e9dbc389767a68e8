"""Prove a header: compile it with NVRTC, call every function, and compare the prototypes."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from numba_ptxlink._arch import Arch
from numba_ptxlink._formats import llvm_ir
from numba_ptxlink._formats.ptx import parse
from numba_ptxlink._tools import host_compiler, nvrtc
from numba_ptxlink.errors import AbiError, LinkError, converted, located, raise_all

from . import existing
from . import types as c
from .signatures import Signature, structs_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .header import CFunction

log = logging.getLogger(__name__)

_NAME = "numba_ptxlink_header.cu"
_CALLER = "numba_ptxlink_calls_"
# A parameter hides a function of its name: names that begin so are not for functions.
_PARAM = "numba_ptxlink_value_"
# nvcc has integers of 128 bits unasked. The headers of structs may have functions for the host, which nvcc
# takes and NVRTC otherwise refuses.
_FLAGS = ("-std=c++17", "--device-int128", "-default-device")
_MISSING = "open source file"
_ERROR = re.compile(r"^(.+)\((\d+)\): (?:catastrophic )?error: (.*)$", re.MULTILINE)


def prove(
    text: str,
    declarations: Sequence[CFunction],
    externs: Sequence[Signature],
    archs: Sequence[Arch],
    include_dirs: Sequence[Path] = (),
    *,
    may_call_nvcc: bool = True,
) -> None:
    """
    Check that C++ accepts the header *text*, and that it declares what was exported.

    NVRTC compiles the header for one of *archs*, with a call of each function with arguments of the declared
    types, or nvcc if a header of structs includes what NVRTC lacks. Results are cached. Without a compiler,
    or the toolkit's headers, a warning is logged instead.

    Args:
        text: The header.
        declarations: The functions that it declares and the export defines.
        externs: Those that it declares for C++ to define.
        archs: The architectures of the export.
        include_dirs: Where the headers are that define structs.
        may_call_nvcc: Whether nvcc, which takes seconds, may prove what NVRTC cannot.

    Raises:
        AbiError: C++ refuses the header, or a call of a function; it has a struct with another layout, or
            lacks the header that is to define it; or NVRTC makes another prototype of a declaration than the
            export has.
    """
    signatures = [*(declaration.signature for declaration in declarations), *externs]
    called = [*map(_cxx_name, declarations), *(f"::{signature.name}" for signature in externs)]
    given = [each for each in structs_of(signatures).values() if each.existing]
    locations = {declaration.signature.name: declaration.location for declaration in declarations}
    calls = map(_call, range(len(signatures)), signatures, called)
    source = "\n".join([text, *calls, ""])
    folders = (*include_dirs, nvrtc.INCLUDE_DIR)
    # What NVRTC lacks is the host's standard library, which a header of structs may include.
    refusal = None
    for compiler in (_by_nvrtc, _by_nvcc):
        if refusal and _MISSING not in refusal.log:
            break
        if compiler is _by_nvcc and not may_call_nvcc:
            return
        try:
            arch, ptx = compiler(source, archs, folders)
        except LinkError as error:
            if says := _explanation(error.log, source, signatures, locations, given):
                raise converted(error, AbiError, says) from error
            refusal = refusal or error
        else:
            _compare(ptx, signatures, locations, llvm_ir.NvvmDialect.of(arch))
            return
    first = _ERROR.search(refusal.log) if refusal else None
    log.warning(
        "The header is not compared with what C++ makes of it: %s",
        f"{first[1]}({first[2]}): {first[3]}; nvcc on PATH compiles it"
        if first and first[3].startswith("cannot " + _MISSING)
        else refusal,
    )


def _by_nvrtc(source: str, archs: Sequence[Arch], folders: Sequence[Path]) -> tuple[Arch, str]:
    """Return the architecture and the PTX that NVRTC compiles *source* to."""
    arch = next((arch for arch in archs if Arch(*arch.cc) in nvrtc.supported_archs()), archs[0])
    compiled = nvrtc.compile_source(
        source,
        _NAME,
        arch,
        nvrtc.SourceOptions((*folders, *nvrtc.toolkit_include_dirs()), flags=_FLAGS),
        # A header in the working directory is not the one that is meant.
        folder=nvrtc.NOWHERE,
    )
    return arch, compiled.code.decode()


def _by_nvcc(source: str, archs: Sequence[Arch], folders: Sequence[Path]) -> tuple[Arch, str]:
    """Return an architecture and the PTX that nvcc compiles *source* to, which has headers of its own."""
    return archs[0], host_compiler.compile_cuda(source, _NAME, archs[0], folders)


def _explanation(
    log: str,
    source: str,
    signatures: Sequence[Signature],
    places: dict[str, str],
    structs: Sequence[c.Struct],
) -> str:
    """Return what a log of NVRTC says of the header, "" where its first error is of another one."""
    first = _ERROR.search(log)
    # What follows from errors of another one says nothing about this one.
    if first is None or first[1].removeprefix("/") != _NAME:
        return ""
    number, reason = int(first[2]), first[3]
    line = source.split("\n")[number - 1]
    users = (places.get(each.name, "") for each in signatures if {*each.types} & {*structs})
    location, header = next(users, ""), line.removeprefix("#include ")
    if header in existing.includes(structs):
        says = f"{header}, the header of a struct, is not found; name its folder by include_dirs, or -I."
        return located(location, says)
    if _MISSING in log:
        return ""
    structs_text = "; ".join(f"{each.name} stands for {each.python_type}" for each in structs)
    if existing.MARK in line and "assertion failed" in reason:
        says = (
            "C++ has structs that are laid out otherwise than in Python: "
            f"{'; '.join(existing.failures(log))}. {structs_text}. Make them agree: by offsets and itemsize "
            'of the dtype, or where C++ aligns a struct to N bytes by "alignas(N) NAME" in structs=.'
        )
        return located(location, says)
    if existing.MARK in line:
        says = (
            f"C++ cannot compare structs: {line}: {reason}. {structs_text}. Correct the name in structs=, "
            "the names of fields, or the header of include=; leave bit fields and private members out of the "
            "dtype."
        )
        return located(location, says)
    what = f"line {number} of the header ({line.strip()})"
    for caller, signature in enumerate(signatures):
        if line.endswith(f" {signature};") or f" {_CALLER}{caller}(" in line:
            location = places.get(signature.name, "")
            what = f"{signature.name}, declared as `{signature}`"
    says = f"C++ refuses {what}: {reason}. Rename what it names in Python, or report this."
    return located(location, says)


def _cxx_name(declaration: CFunction) -> str:
    name, signature = declaration.name, declaration.signature
    namespace = f"::{declaration.namespace}" if declaration.namespace else ""
    return f"{namespace}::{name if namespace and not signature.kernel else signature.name}"


def _call(number: int, signature: Signature, name: str) -> str:
    """Return one line: a function that passes its parameters on, or a kernel like it."""
    params = ", ".join(ctype.declare(f"{_PARAM}{index}") for index, (_, ctype) in enumerate(signature.params))
    if signature.kernel:
        # Only a pointer to the kernel says that the two have the same type.
        types = ", ".join(ctype.declare("") for _, ctype in signature.params)
        same = f"{{ void (*kernel)({types}) = {name}; (void)kernel; }}"
        return f'extern "C" __global__ void {_CALLER}{number}({params}) {same}'
    values = ", ".join(f"{_PARAM}{index}" for index in range(len(signature.params)))
    head = signature.result.declare(f"{_CALLER}{number}({params})")
    return f'extern "C" __device__ {head} {{ return {name}({values}); }}'


def _compare(
    ptx: str, signatures: Sequence[Signature], places: dict[str, str], dialect: llvm_ir.NvvmDialect
) -> None:
    there = {function.prototype.name: function.prototype for function in parse(ptx).functions}
    wrong = []
    for number, each in enumerate(signatures):
        declared = there.get(f"{_CALLER}{number}" if each.kernel else each.name)
        expected = each.prototype_for(dialect)
        if declared is None or replace(declared, name=each.name) != expected:
            wrong.append(
                AbiError(
                    located(
                        places.get(each.name, ""),
                        f"C++ calls another function by the name {each.name}: {declared or 'one of CUDA'}, "
                        f"not {expected}; use another name, or report this if CUDA has none of it.",
                    )
                )
            )
    raise_all(wrong)
