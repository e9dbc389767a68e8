"""
Call nvJitLink, NVRTC or libNVVM; run as a program, make one such call for the process that started it.

The module `isolated` calls these functions in its own process, or starts this file. The child starts in
20 ms, since neither `typing` nor this package is imported here.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import sys

# Type checkers treat any TYPE_CHECKING as true, not only that of `typing`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    # The name and the content of an input; then its kind, its output or its use, as each function says.
    Input = tuple[str, bytes, str]
    # The step that failed, "" if none did; the status that the library returned; and outputs by name.
    Answer = tuple[str, int, dict[str, Any]]

READY = b"numba-ptxlink\n"
"""Written to standard output before the child loads a library: output without an answer after READY means
that the library has ended the child; output without READY, that Python could not start."""
# The enumerators of nvJitLinkInputType without "NVJITLINK_INPUT_"; the index of each is its value.
_INPUT_TYPES = ("NONE", "CUBIN", "PTX", "LTOIR", "FATBIN", "OBJECT", "LIBRARY")


def load(library: str) -> ctypes.CDLL:
    """
    Load *library*; for NVRTC, first load its builtins, libnvrtc-builtins.so, from the same folder.

    NVRTC loads its builtins by name, and the loader need not search that folder.
    """
    folder, name = os.path.split(library)
    if name.startswith("libnvrtc."):
        for file in sorted(os.listdir(folder)):
            if file.startswith("libnvrtc-builtins.so"):
                ctypes.CDLL(os.path.join(folder, file))
    return ctypes.CDLL(library)


def nvjitlink(api: Any, flags: Sequence[str], inputs: Sequence[Input], output: str) -> Answer:
    """
    Link *inputs* with nvJitLink.

    Args:
        api: nvJitLink, or a library that contains it.
        flags: The arguments of nvJitLink.
        inputs: Name, content and one of `_INPUT_TYPES` of each input.
        output: "Cubin", "Ptx" or "LTOIR".

    Returns:
        The step that failed, in words that follow "failed to", such as "read the ptx a.ptx", or "" if none
        failed; the status of the last call; and the outputs "log" (errors), "info" (other messages) and
        "code".
    """
    handle = ctypes.c_void_p()
    status = api.nvJitLinkCreate(ctypes.byref(handle), ctypes.c_uint32(len(flags)), _c_array(flags))
    if status:
        return "accept its flags", status, {"log": "", "info": "", "code": b""}
    try:
        step, code = "", b""
        # nvJitLink keeps only the addresses of the names, so the list keeps the names alive.
        names = [name.encode() for name, _, _ in inputs]
        for name, (_, content, type_name) in zip(names, inputs, strict=True):
            input_type, size = _INPUT_TYPES.index(type_name), ctypes.c_size_t(len(content))
            status = api.nvJitLinkAddData(handle, input_type, content, size, name)
            if status:
                step = f"read the {type_name.lower()} {name.decode()}"
                break
        if not step:
            step, status = "link", api.nvJitLinkComplete(handle)
        if not status:
            step = f"give {output}"
            status, code = _read_result(api, handle, f"nvJitLinkGetLinked{output}")
        log = _read_log(api, handle, "nvJitLinkGetErrorLog")
        info = _read_log(api, handle, "nvJitLinkGetInfoLog")
        return step if status else "", status, {"log": log, "info": info, "code": code}
    finally:
        api.nvJitLinkDestroy(ctypes.byref(handle))


def nvrtc(
    api: Any,
    flags: Sequence[str],
    inputs: Sequence[Input],
    headers: Sequence[tuple[str, str]],
    expressions: Sequence[str],
) -> Answer:
    """
    Compile CUDA C++ with NVRTC.

    Args:
        api: NVRTC.
        flags: The arguments of NVRTC.
        inputs: One input: the name and the content of the source, and the kind of code to return ("PTX",
            "LTOIR" or "CUBIN").
        headers: The headers in memory: pairs of the name that `#include` uses, and the text.
        expressions: The C++ names whose symbols are returned.

    Returns:
        "compile" if a call failed, else ""; the status; and the outputs "log", "code", "symbols" (one for
        each of *expressions*) and "reason" (NVRTC's text for the status).
    """
    ((name, source, output),) = inputs
    program, symbols, code = ctypes.c_void_p(), [], b""
    api.nvrtcGetErrorString.restype = ctypes.c_char_p
    header_names = _c_array([name for name, _ in headers])
    header_texts = _c_array([text for _, text in headers])
    status = api.nvrtcCreateProgram(
        ctypes.byref(program), source, _encode(name), len(headers), header_texts, header_names
    )
    try:
        # After a failure, `or` keeps the status and skips the further calls.
        for expression in expressions:
            status = status or api.nvrtcAddNameExpression(program, _encode(expression))
        status = status or api.nvrtcCompileProgram(program, len(flags), _c_array(flags))
        log = _read_log(api, program, "nvrtcGetProgramLog")
        if not status:
            status, code = _read_result(api, program, f"nvrtcGet{output}")
        for expression in expressions:
            symbol = ctypes.c_char_p()
            status = status or api.nvrtcGetLoweredName(program, _encode(expression), ctypes.byref(symbol))
            symbols.append((symbol.value or b"").decode())
        reason = api.nvrtcGetErrorString(status).decode()
        outputs = {"log": log, "code": code, "symbols": symbols, "reason": reason}
        return "compile" if status else "", status, outputs
    finally:
        api.nvrtcDestroyProgram(ctypes.byref(program))


def nvvm(api: Any, flags: Sequence[str], inputs: Sequence[Input]) -> Answer:
    """
    Compile LLVM IR with libNVVM.

    Args:
        api: libNVVM.
        flags: The arguments of libNVVM.
        inputs: Name, content and use of each module, in order. The use is "whole", or "lazy" for a library of
            which only needed functions are linked. An input with the use "verify" is no module: it verifies
            the modules before it.

    Returns:
        The step that failed ("start", "read", "verify" or "compile"), "" if none did; its status; and the
        outputs "log", "code", "reason" (libNVVM's text for the status) and "ir": the newest versions of the
        IR and of its debug information that the library reads, as (major, minor, major, minor).
    """
    program, options, code = ctypes.c_void_p(), _c_array(flags), b""
    api.nvvmGetErrorString.restype = ctypes.c_char_p
    step, status = "start", api.nvvmCreateProgram(ctypes.byref(program))
    try:
        for name, content, use in inputs:
            if status:
                break
            if use == "verify":
                step = "verify"
                status = api.nvvmVerifyProgram(program, len(flags), options)
            else:
                step = "read"
                add_module = api.nvvmLazyAddModuleToProgram if use == "lazy" else api.nvvmAddModuleToProgram
                status = add_module(program, content, ctypes.c_size_t(len(content)), name.encode())
        if not status:
            step, status = "compile", api.nvvmCompileProgram(program, len(flags), options)
        log = _read_log(api, program, "nvvmGetProgramLog")
        if not status:
            status, code = _read_result(api, program, "nvvmGetCompiledResult")
        version_numbers = [ctypes.c_int() for _ in range(4)]
        api.nvvmIRVersion(*map(ctypes.byref, version_numbers))
        versions = tuple(number.value for number in version_numbers)
        reason = api.nvvmGetErrorString(status).decode()
        outputs = {"log": log, "code": code, "ir": versions, "reason": reason}
        return step if status else "", status, outputs
    finally:
        api.nvvmDestroyProgram(ctypes.byref(program))


FUNCTIONS: dict[str, Callable[..., Answer]] = {"nvjitlink": nvjitlink, "nvrtc": nvrtc, "nvvm": nvvm}
"""The functions that `isolated` calls, by name."""


def _encode(text: str) -> bytes:
    """Return *text* in UTF-8, with the original bytes of paths that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _c_array(texts: Sequence[str]) -> Any:
    """Return *texts* as a C array of `char *`."""
    return (ctypes.c_char_p * len(texts))(*map(_encode, texts))


def _read_result(api: Any, program: Any, function: str) -> tuple[int, bytes]:
    """
    Return the status and the result of the library's *function*, such as "nvrtcGetPTX".

    The function with "Size" at the end of its name, such as "nvrtcGetPTXSize", returns the size in bytes.
    """
    size = ctypes.c_size_t()
    status = getattr(api, f"{function}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    if size.value and not status:
        status = getattr(api, function)(program, buffer)
    return status, buffer.raw


def _read_log(api: Any, program: Any, function: str) -> str:
    return _read_result(api, program, function)[1].rstrip(b"\0").decode(errors="replace")


def _serve() -> None:
    """
    Make the call that standard input requests, and write its answer to standard output.

    The request and the answer are marshalled. The request is a tuple: the name of one of `FUNCTIONS`, the
    file of the library, and the further arguments of the function.
    """
    # Descriptor 1 is standard output, 2 is standard error. Text that a library writes to standard output goes
    # to standard error, so that it is no part of the answer.
    answer_descriptor = os.dup(1)
    os.dup2(2, 1)
    with open(answer_descriptor, "wb") as answer_file:
        answer_file.write(READY)
        answer_file.flush()
        function, library, *arguments = marshal.load(sys.stdin.buffer)  # noqa: S302 - from `isolated`
        marshal.dump(FUNCTIONS[function](load(library), *arguments), answer_file)
    # The answer is complete: end at once, without the destructors of the library.
    os._exit(0)


if __name__ == "__main__":
    _serve()
