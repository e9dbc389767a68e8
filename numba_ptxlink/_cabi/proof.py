"""Prove a header: compile it with NVRTC, call every function, and compare the prototypes."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from numba_ptxlink._arch import Arch, dotted
from numba_ptxlink._formats import llvm_ir
from numba_ptxlink._formats.ptx import parse
from numba_ptxlink._tools import nvrtc
from numba_ptxlink.errors import AbiError, ExportError, LinkError

from . import existing, names
from . import types as c
from .signatures import Signature, structs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numba_ptxlink._tools.nvrtc import Compiled

    from .header import Declaration

log = logging.getLogger(__name__)

_NAME = "numba_ptxlink_header.cu"
_CALLER = "numba_ptxlink_calls_"
# A parameter hides a function of its name: names that begin so are not for functions.
_PARAM = "numba_ptxlink_value_"
# In bytes; NVRTC's time for a call grows with the square of what it copies, and more.
_MOST_COPIED = 1024
# nvcc has integers of 128 bits unasked.
_FLAGS = ("-std=c++17", "--device-int128")
# The headers of structs may have functions for the host, which nvcc takes and NVRTC otherwise refuses.
_LIKE_NVCC = ("-default-device",)
_ANY_ERROR = re.compile(r"^(.+)\(\d+\): (?:catastrophic )?error: ", re.MULTILINE)
_ERROR = re.compile(rf"^/?{re.escape(_NAME)}\((\d+)\): (?:catastrophic )?error: (.*)$", re.MULTILINE)
# The toolkit's headers are missing, which says nothing about this one.
_NO_COPY = re.compile(r"is a deleted function|is inaccessible|no suitable (copy )?constructor")
_NO_FILE = "open source file"


def prove(
    text: str,
    declarations: Sequence[Declaration],
    externs: Sequence[Signature],
    archs: Sequence[Arch],
    include_dirs: Sequence[Path] = (),
) -> None:
    """
    Check that C++ accepts the header *text*, and that it declares what was exported.

    NVRTC compiles the header for one of *archs*, with a call of each function with arguments of the declared
    types. The result is cached. Without NVRTC, or the toolkit's headers, a warning is logged instead.

    Args:
        text: The header.
        declarations: The functions that it declares and the export defines.
        externs: Those that it declares for C++ to define.
        archs: The architectures of the export.
        include_dirs: Where the headers are that define structs.

    Raises:
        AbiError: C++ refuses the header, or a call of a function; it has a struct with another layout, or
            lacks the header that is to define it.
        ExportError: NVRTC makes another prototype of a declaration than the export has.
    """
    signatures = [*(declaration.signature for declaration in declarations), *externs]
    called = [*map(_cxx_name, declarations), *(f"::{signature.name}" for signature in externs)]
    structs = structs_of(signatures).values()
    sources = {declaration.signature.name: declaration.source for declaration in declarations}
    try:
        arch = next((arch for arch in archs if Arch(*arch.cc) in nvrtc.supported_archs()), None)
        if arch is None:
            known = f"NVRTC {dotted(nvrtc.version())}"
            log.warning("The header is not compiled: %s does not know %s.", known, archs[0].sm)
            return
        calls = map(_call, range(len(signatures)), signatures, called)
        source = "\n".join([text, *calls, ""])
        compiled = _compile(source, arch, include_dirs, with_structs=bool(existing.includes(structs)))
    except LinkError as error:
        _check_structs(error, text, structs, include_dirs)
        if _NO_FILE in error.log or not _begins_here(error.log):
            log.warning("The header is not compiled: %s", error)
            return
        raise _refusal(error, text, signatures, sources) from error
    _compare(compiled.code.decode(), signatures, modern=llvm_ir.is_modern(arch))


def _compile(source: str, arch: Arch, include_dirs: Sequence[Path], *, with_structs: bool) -> Compiled:
    searched = (*include_dirs, nvrtc.INCLUDE_DIR, *nvrtc.toolkit_include_dirs())
    # A header in the working directory is not the one that is meant.
    return nvrtc.compile_source(
        source,
        _NAME,
        arch,
        flags=(*_FLAGS, *_LIKE_NVCC) if with_structs else _FLAGS,
        include_dirs=searched,
        isolated=with_structs,
    )


def _check_structs(
    error: LinkError, text: str, structs: Iterable[c.Struct], include_dirs: Sequence[Path]
) -> None:
    """Refuse structs that C++ defines otherwise or not at all, where that is why NVRTC refused the header."""
    given = {each.name: each for each in structs if each.existing}
    missing = [
        name for name in existing.includes(given.values()) if f"{_NO_FILE} {name}" in _in_quotes(error.log)
    ]
    if missing:
        searched = ", ".join(map(str, include_dirs)) or "nowhere"
        raise AbiError(
            f"{', '.join(missing)}, which is to define {', '.join(given)}, is not found in {searched}; "
            "name its folder by include_dirs, or -I.",
            flags=error.flags,
            inputs=error.inputs,
            log=error.log,
        ) from error
    # What follows from the errors of another header says nothing about the structs.
    first = _ERROR.search(error.log) if _begins_here(error.log) else None
    line = text.split("\n")[int(first[1]) - 1 :][:1] if first else []
    if first and line and existing.is_assertion(line[0]):
        about = "; ".join(f"{each.name} stands for {each.about}" for each in given.values())
        if "assertion failed" in first[2]:
            failed, cures = existing.failures(error.log, given.values())
            says = f"C++ has structs that are laid out otherwise than in Python: {'; '.join(failed)}"
            cure = "; ".join(["Make them agree", *cures])
        else:
            subject, cure = existing.uncompared(line[0], first[2])
            says = f"C++ cannot compare the structs of structs= with those in Python: {subject}: {first[2]}"
        raise AbiError(
            f"{says}. {about}. {cure}.",
            flags=error.flags,
            inputs=error.inputs,
            log=error.log,
        ) from error


def _begins_here(log: str) -> bool:
    """Return whether the first error in a log of NVRTC is of the generated header, or of a call."""
    first = _ANY_ERROR.search(log)
    return first is not None and first[1].removeprefix("/") == _NAME


def _in_quotes(log: str) -> str:
    """Return a log of NVRTC that names headers as they are included, if those are in quotes."""
    return log.replace("<", '"').replace(">", '"')


def _cxx_name(declaration: Declaration) -> str:
    name, signature = declaration.name, declaration.signature
    inside = f"::{declaration.namespace}" if declaration.namespace else ""
    return f"{inside}::{name if inside and not signature.kernel else signature.name}"


def _call(number: int, signature: Signature, name: str) -> str:
    """Return one line: a function that passes its parameters on or takes the address, or a kernel like it."""
    params = ", ".join(ctype.declare(f"{_PARAM}{place}") for place, (_, ctype) in enumerate(signature.params))
    types = ", ".join(ctype.declare("") for _, ctype in signature.params)
    if signature.kernel:
        # Only a pointer to the kernel says that the two have the same type.
        same = f"{{ void (*kernel)({types}) = {name}; (void)kernel; }}"
        return f'extern "C" __global__ void {_CALLER}{number}({params}) {same}'
    if any(
        each.size > _MOST_COPIED for each in (signature.result, *(ctype for _, ctype in signature.params))
    ):
        # NVRTC leaves types out of the prototype that no code takes or returns.
        result = (
            () if isinstance(signature.result, c.Void) else (signature.result.declare(f"{_PARAM}result"),)
        )
        taken = ", ".join((*result, *filter(None, (params,))))
        pointer = signature.result.declare(f"(*function)({types})")
        same = f"{{ {pointer} = {name}; return (void*)function; }}"
        return f'extern "C" __device__ void* {_CALLER}{number}({taken}) {same}'
    values = ", ".join(f"{_PARAM}{place}" for place in range(len(signature.params)))
    head = signature.result.declare(f"{_CALLER}{number}({params})")
    return f'extern "C" __device__ {head} {{ return {name}({values}); }}'


def _compare(ptx: str, signatures: Sequence[Signature], *, modern: bool) -> None:
    there = {function.prototype.name: function.prototype for function in parse(ptx).functions}
    for number, signature in enumerate(signatures):
        expected = signature.prototype_for(modern=modern)
        declared = there.get(f"{_CALLER}{number}" if signature.kernel else signature.name)
        if declared is None:
            raise AbiError(
                f"In C++ a call of {signature.name} reaches a function of CUDA's, not the exported one; use "
                f"the name {names.propose(signature.name, {signature.name})!r}, for example."
            )
        if replace(declared, name=signature.name) != expected:
            raise ExportError(
                f"NVRTC makes the prototype {declared} of the declaration of {signature.name}, which is "
                f"exported as {expected}. Where CUDA has a function of that name, use another one, such as "
                f"{names.propose(signature.name, {signature.name})!r}; else please report this with the "
                "function's signature."
            )


def _refusal(
    error: LinkError, text: str, signatures: Sequence[Signature], sources: dict[str, str]
) -> AbiError:
    """Return the error about the first line that NVRTC refused."""
    lines = text.split("\n")
    first = _ERROR.search(error.log)
    assert first is not None  # noqa: S101 - the caller has looked
    number, reason = int(first[1]), first[2]
    if number > len(lines):
        signature = signatures[number - len(lines) - 1]
        where = f"a call of {_describe(signature, reason, sources)}"
    else:
        where = _place(lines, number, reason, signatures, sources)
    cure = "Rename it in Python; if no name is at fault, please report this"
    if _NO_COPY.search(reason):
        cure = "What is passed by value is copied: let C++ copy it, or pass its address, by types.CPointer"
    return AbiError(
        f"C++ refuses {where}: {reason}. {cure}.",
        flags=error.flags,
        inputs=error.inputs,
        log=error.log,
    )


def _place(
    lines: Sequence[str],
    number: int,
    reason: str,
    signatures: Sequence[Signature],
    sources: dict[str, str],
) -> str:
    line = lines[number - 1]
    for signature in signatures:
        if line.endswith(f" {signature};"):
            return _describe(signature, reason, sources)
    for above in reversed(lines[:number]):
        if above.startswith("}") and above is not line:
            break
        if struct := re.match(r"typedef struct .*?(\w+) \{", above):
            return f"the definition of struct {struct[1]} in the header ({line.strip()})"
    return f"line {number} of the header ({line.strip()})"


def _describe(signature: Signature, reason: str, sources: dict[str, str]) -> str:
    kind = "kernel" if signature.kernel else "function"
    source = sources.get(signature.name, "for C++ to define")
    quoted = re.findall(r'"(\w+)"', reason)
    params = [name for name, _ in signature.params if name in quoted]
    param = f"parameter {params[0]!r} of " if params else ""
    return f"{param}{kind} {signature.name} ({source}), declared as `{signature}`"
