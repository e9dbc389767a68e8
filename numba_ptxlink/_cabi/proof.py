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

_NAME = "numba_ptxlink_header.cu"
_CALLER = "numba_ptxlink_calls_"
# A parameter hides a function of its name, so parameters have names that functions cannot have.
_PARAM = "numba_ptxlink_value_"
# Like nvcc, accept 128-bit integers, and host functions in the headers of structs.
_FLAGS = ("-std=c++17", "--device-int128", "-default-device")
_MISSING_FILE = "open source file"
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
    Check that C++ accepts the header *text*, and that its declarations match the exported functions.

    NVRTC compiles the header for one of *archs*, with a call of each function with arguments of the declared
    types; or nvcc, if a header of structs includes headers that NVRTC lacks. Results are cached. Without a
    compiler, or the toolkit's headers, a warning is logged instead.

    Args:
        text: The header.
        declarations: The functions that it declares and the export defines.
        externs: The functions that it declares for C++ to define.
        archs: The architectures of the export.
        include_dirs: The folders of headers that define structs.
        may_call_nvcc: Whether nvcc, which takes seconds, may prove headers that NVRTC cannot compile.

    Raises:
        AbiError: C++ refuses the header, or a call of a function; a struct of C++ has another layout, or its
            header is missing; or a declaration has another prototype than the exported function.
    """
    signatures = [*(declaration.signature for declaration in declarations), *externs]
    callees = [*map(_cxx_name, declarations), *(f"::{signature.name}" for signature in externs)]
    existing_structs = [layout for layout in structs_of(signatures).values() if layout.existing]
    locations = {declaration.signature.name: declaration.location for declaration in declarations}
    calls = map(_call, range(len(signatures)), signatures, callees)
    source = "\n".join([text, *calls, ""])
    folders = (*include_dirs, nvrtc.INCLUDE_DIR)
    # NVRTC lacks the host's standard library, which a header of structs may include.
    nvrtc_error = None
    for compiler in (_compile_by_nvrtc, _compile_by_nvcc):
        if nvrtc_error and _MISSING_FILE not in nvrtc_error.log:
            break
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
    first = _ERROR.search(nvrtc_error.log) if nvrtc_error else None
    log.warning(
        "The header could not be compiled as C++ to compare its prototypes: %s",
        f"{first[1]}({first[2]}): {first[3]}; nvcc on PATH compiles it"
        if first and first[3].startswith("cannot " + _MISSING_FILE)
        else nvrtc_error,
    )


def _compile_by_nvrtc(source: str, archs: Sequence[Arch], folders: Sequence[Path]) -> tuple[Arch, str]:
    """Compile *source* with NVRTC; return the architecture and the PTX."""
    arch = next((arch for arch in archs if Arch(*arch.cc) in nvrtc.supported_archs()), archs[0])
    compiled = nvrtc.compile_source(
        source,
        _NAME,
        arch,
        SourceOptions((*folders, *nvrtc.toolkit_include_dirs()), flags=_FLAGS),
        # Without the working directory, which may contain other headers of these names.
        folder=nvrtc.NOWHERE,
    )
    return arch, compiled.code.decode()


def _compile_by_nvcc(source: str, archs: Sequence[Arch], folders: Sequence[Path]) -> tuple[Arch, str]:
    """Compile *source* with nvcc, which has its own headers; return the architecture and the PTX."""
    return archs[0], host_compiler.compile_cuda(source, _NAME, archs[0], folders)


def _explanation(
    log: str,
    source: str,
    signatures: Sequence[Signature],
    locations: dict[str, str],
    structs: Sequence[c.Struct],
) -> str:
    """Explain the first error in NVRTC's *log*; "" if it is in another header."""
    first = _ERROR.search(log)
    # An error in another header may cause those that follow.
    if first is None or first[1].removeprefix("/") != _NAME:
        return ""
    number, reason = int(first[2]), first[3]
    line = source.split("\n")[number - 1]
    users = (locations.get(signature.name, "") for signature in signatures if {*signature.types} & {*structs})
    location, header = next(users, ""), line.removeprefix("#include ")
    if header in existing.includes(structs):
        message = f"{header}, the header of a struct, is not found; name its folder by include_dirs, or -I."
        return with_location(location, message)
    if _MISSING_FILE in log:
        return ""
    structs_text = "; ".join(f"{struct.name} is the struct of {struct.python_type}" for struct in structs)
    if existing.ASSERTION_END in line and "assertion failed" in reason:
        message = (
            "Structs of C++ have other layouts than in Python: "
            f"{'; '.join(existing.failures(log))}. {structs_text}. Make them agree: by offsets and itemsize "
            'of the dtype, or where C++ aligns a struct to N bytes by "alignas(N) NAME" in structs=.'
        )
        return with_location(location, message)
    if existing.ASSERTION_END in line:
        message = (
            f"C++ cannot compare structs: {line}: {reason}. {structs_text}. Correct the name in structs=, "
            "the names of fields, or the header of include=; leave bit fields and private members out of the "
            "dtype."
        )
        return with_location(location, message)
    subject = f"line {number} of the header ({line.strip()})"
    for caller, signature in enumerate(signatures):
        if line.endswith(f" {signature};") or f" {_CALLER}{caller}(" in line:
            location = locations.get(signature.name, "")
            subject = f"{signature.name}, declared as `{signature}`"
    cure = "Rename the function, parameter or type in Python, or report this."
    message = f"C++ refuses {subject}: {reason}. {cure}"
    return with_location(location, message)


def _cxx_name(declaration: CFunction) -> str:
    name, signature = declaration.name, declaration.signature
    namespace = f"::{declaration.namespace}" if declaration.namespace else ""
    return f"{namespace}::{name if namespace and not signature.kernel else signature.name}"


def _call(number: int, signature: Signature, name: str) -> str:
    """Return one line: a function that forwards its parameters, or a kernel that checks the type of one."""
    params = ", ".join(ctype.declare(f"{_PARAM}{index}") for index, (_, ctype) in enumerate(signature.params))
    if signature.kernel:
        # Assigning a pointer to the kernel checks its type.
        types = ", ".join(ctype.declare("") for _, ctype in signature.params)
        check = f"{{ void (*kernel)({types}) = {name}; (void)kernel; }}"
        return f'extern "C" __global__ void {_CALLER}{number}({params}) {check}'
    values = ", ".join(f"{_PARAM}{index}" for index in range(len(signature.params)))
    head = signature.result.declare(f"{_CALLER}{number}({params})")
    return f'extern "C" __device__ {head} {{ return {name}({values}); }}'


def _compare(
    ptx: str, signatures: Sequence[Signature], locations: dict[str, str], dialect: llvm_ir.NvvmDialect
) -> None:
    prototypes = {function.prototype.name: function.prototype for function in parse(ptx).functions}
    errors = []
    for number, signature in enumerate(signatures):
        declared = prototypes.get(f"{_CALLER}{number}" if signature.kernel else signature.name)
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
