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
from numba_ptxlink._tools.source_options import SourceOptions
from numba_ptxlink.errors import AbiError, LinkError, convert_error, raise_all, with_location

from . import existing
from . import types as c
from .signatures import Signature, structs_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .header import CFunction

log = logging.getLogger(__name__)

_SOURCE_NAME = "numba_ptxlink_header.cu"
_CALLER_PREFIX = "numba_ptxlink_calls_"
# A parameter hides a function of its name, so parameters have names that functions cannot have.
_PARAM_PREFIX = "numba_ptxlink_value_"
# Like nvcc, accept 128-bit integers. Compile host functions in the headers of structs for the device: NVRTC
# refuses them otherwise.
_FLAGS = ("-std=c++17", "--device-int128", "-default-device")
# A part of the compilers' message for a missing header: `cannot open source file "vector"`.
_MISSING_FILE = "open source file"
# An error in a compiler's log: the file, the line and the message of `a.cu(12): error: message`.
_ERROR = re.compile(r"^(.+)\((\d+)\): (?:catastrophic )?error: (.*)$", re.MULTILINE)


def prove(
    header: str,
    declarations: Sequence[CFunction],
    externs: Sequence[Signature],
    archs: Sequence[Arch],
    include_dirs: Sequence[Path] = (),
    *,
    may_call_nvcc: bool = True,
) -> None:
    """
    Check that C++ accepts *header*, and that its declarations match the exported functions.

    NVRTC compiles the header for one of *archs*, followed by a call of each function with arguments of the
    declared types. If a header of structs includes headers that NVRTC lacks, nvcc compiles the same. Results
    are cached. If there is no compiler, or the toolkit's headers are missing, a warning is logged instead.

    Args:
        header: The text of the header.
        declarations: The functions that it declares and the export defines.
        externs: The functions that it declares for C++ to define.
        archs: The architectures of the export.
        include_dirs: The folders of headers that define structs.
        may_call_nvcc: Whether nvcc, which takes seconds, may compile headers that NVRTC cannot. If not, these
            headers are not checked.

    Raises:
        AbiError: C++ refuses the header, or a call of a function; a struct of C++ has another layout, or its
            header is missing; or a declaration has another prototype than the exported function.
    """
    signatures = [*(declaration.signature for declaration in declarations), *externs]
    callees = [*map(_cxx_name, declarations), *(f"::{signature.name}" for signature in externs)]
    existing_structs = [layout for layout in structs_of(signatures).values() if layout.existing]
    locations = {declaration.signature.name: declaration.location for declaration in declarations}
    calls = map(_call, range(len(signatures)), signatures, callees)
    source = "\n".join([header, *calls, ""])
    folders = (*include_dirs, nvrtc.INCLUDE_DIR)
    # NVRTC lacks the host's standard library: if a header of structs includes it, call nvcc.
    nvrtc_error = None
    for compiler in (_compile_by_nvrtc, _compile_by_nvcc):
        if nvrtc_error and _MISSING_FILE not in nvrtc_error.log:
            break  # nvcc would not help.
        if compiler is _compile_by_nvcc and not may_call_nvcc:
            return
        try:
            arch, ptx = compiler(source, archs, folders)
        except LinkError as error:
            if message := _explanation(error.log, source, signatures, locations, existing_structs):
                raise convert_error(error, AbiError, message) from error
            nvrtc_error = nvrtc_error or error
        else:
            _compare(ptx, signatures, locations, llvm_ir.NvvmDialect.of(arch))
            return
    reason = str(nvrtc_error)
    first_error = _ERROR.search(nvrtc_error.log) if nvrtc_error else None
    if first_error:
        file, line, message = first_error.groups()
        if message.startswith(f"cannot {_MISSING_FILE}"):
            reason = f"{file}({line}): {message}; nvcc on PATH compiles it"
    log.warning("The header could not be compiled as C++ to compare its prototypes: %s", reason)


def _compile_by_nvrtc(source: str, archs: Sequence[Arch], folders: Sequence[Path]) -> tuple[Arch, str]:
    """Compile *source* with NVRTC; return the architecture and the PTX."""
    # NVRTC lists architectures without suffixes such as the "a" of sm_90a.
    arch = next((arch for arch in archs if Arch(*arch.cc) in nvrtc.supported_archs()), archs[0])
    compiled = nvrtc.compile_source(
        source,
        _SOURCE_NAME,
        arch,
        SourceOptions((*folders, *nvrtc.toolkit_include_dirs()), flags=_FLAGS),
        # Do not search the working directory, which may contain other headers of the included names.
        folder=nvrtc.NOWHERE,
    )
    return arch, compiled.code.decode()


def _compile_by_nvcc(source: str, archs: Sequence[Arch], folders: Sequence[Path]) -> tuple[Arch, str]:
    """Compile *source* with nvcc, which has its own headers; return the architecture and the PTX."""
    return archs[0], host_compiler.compile_cuda(source, _SOURCE_NAME, archs[0], folders)


def _explanation(
    log: str,
    source: str,
    signatures: Sequence[Signature],
    locations: dict[str, str],
    structs: Sequence[c.Struct],
) -> str:
    """
    Return an explanation of the first error in a compiler's *log*; "" if the export did not cause it.

    Args:
        log: The log.
        source: The source: the generated header and the calls.
        signatures: The functions, in the order of the calls.
        locations: The files and lines of their definitions, by symbol, such as "udfs.py:12".
        structs: The structs of *signatures* that C++ defines.
    """
    first_error = _ERROR.search(log)
    # Errors in the source may follow from a first error in an included header. A log may name the source with
    # the folder `nvrtc.NOWHERE`, which is "/".
    if first_error is None or first_error[1].removeprefix("/") != _SOURCE_NAME:
        return ""
    line_number, reason = int(first_error[2]), first_error[3]
    line = source.split("\n")[line_number - 1]
    user_locations = (
        locations.get(signature.name, "") for signature in signatures if {*signature.types} & {*structs}
    )
    location = next(user_locations, "")
    header = line.removeprefix("#include ")
    if header in existing.includes(structs):
        message = f"{header}, the header of a struct, is not found; name its folder by include_dirs, or -I."
        return with_location(location, message)
    if _MISSING_FILE in log:  # The generated header includes one of CUDA, which is missing.
        return ""
    structs_text = "; ".join(f"{struct.name} is the struct of {struct.python_type}" for struct in structs)
    if existing.ASSERTION_END in line and "assertion failed" in reason:
        message = (
            "Structs of C++ have other layouts than in Python: "
            f"{'; '.join(existing.failures(log))}. {structs_text}. Make them agree: by offsets and itemsize "
            'of the dtype, or, if C++ aligns a struct to N bytes, by "alignas(N) NAME" in structs=.'
        )
        return with_location(location, message)
    if existing.ASSERTION_END in line:
        message = (
            f"C++ cannot compare structs: {line}: {reason}. {structs_text}. Correct the name in structs=, "
            "the names of fields, or the header of include=; leave bit fields and private members out of the "
            "dtype."
        )
        return with_location(location, message)
    subject = f"line {line_number} of the header ({line.strip()})"
    # The line of a declaration, or of the function that calls it.
    for index, signature in enumerate(signatures):
        if line.endswith(f" {signature};") or f" {_CALLER_PREFIX}{index}(" in line:
            location = locations.get(signature.name, "")
            subject = f"{signature.name}, declared as `{signature}`"
    cure = "Rename the function, parameter or type in Python, or report this."
    message = f"C++ refuses {subject}: {reason}. {cure}"
    return with_location(location, message)


def _cxx_name(declaration: CFunction) -> str:
    """Return the name by which C++ calls a function, such as "::physics::energy" or "::energy"."""
    if not declaration.namespace:
        return f"::{declaration.signature.name}"
    # In a namespace, a kernel has its symbol as its name.
    name = declaration.signature.name if declaration.signature.kernel else declaration.name
    return f"::{declaration.namespace}::{name}"


def _call(number: int, signature: Signature, callee: str) -> str:
    """
    Return one line of C++ that uses the declaration of *callee*.

    A function forwards its parameters to *callee*; a kernel, which device code cannot call, has its type
    checked by another kernel with the same parameters.

    Args:
        number: A number that makes the name of the calling function unique.
        signature: The signature of *callee*.
        callee: The name of the function in C++.
    """
    params = ", ".join(
        ctype.declare(f"{_PARAM_PREFIX}{index}") for index, (_, ctype) in enumerate(signature.params)
    )
    if signature.kernel:
        # Assigning a pointer to the kernel checks its type.
        types = ", ".join(ctype.declare("") for _, ctype in signature.params)
        check = f"{{ void (*kernel)({types}) = {callee}; (void)kernel; }}"
        return f'extern "C" __global__ void {_CALLER_PREFIX}{number}({params}) {check}'
    values = ", ".join(f"{_PARAM_PREFIX}{index}" for index in range(len(signature.params)))
    declaration = signature.result.declare(f"{_CALLER_PREFIX}{number}({params})")
    return f'extern "C" __device__ {declaration} {{ return {callee}({values}); }}'


def _compare(
    ptx: str, signatures: Sequence[Signature], locations: dict[str, str], dialect: llvm_ir.NvvmDialect
) -> None:
    """Raise an error for each function that *ptx* declares with another prototype than the exported one."""
    prototypes = {function.prototype.name: function.prototype for function in parse(ptx).functions}
    errors = []
    for number, signature in enumerate(signatures):
        # nvcc writes no prototype of a kernel that is only referred to: compare the kernel that checks its
        # type.
        declared = prototypes.get(f"{_CALLER_PREFIX}{number}" if signature.kernel else signature.name)
        expected = signature.prototype_for(dialect)
        if declared is None or replace(declared, name=signature.name) != expected:
            errors.append(
                AbiError(
                    with_location(
                        locations.get(signature.name, ""),
                        f"C++ calls another function of the name {signature.name}: "
                        f"{declared or 'one of CUDA'}, not {expected}; use another name, or report this if "
                        "CUDA has no function of that name.",
                    )
                )
            )
    raise_all(errors)
