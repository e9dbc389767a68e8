"""
The calls of nvJitLink, NVRTC and libNVVM, and a program that makes one such call in a child process.

`isolated` decides whether a call is made in its process or in a child, which runs this file. The child starts
in 20 ms, since neither `typing` nor this package is imported here.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Input = tuple[str, bytes, str]
    Answer = tuple[str, int, dict[str, Any]]

READY = b"numba-ptxlink\n"
"""Written before the child loads a library: if it ends without an answer after that, the library failed."""
# The names of nvJitLinkInputType, by number.
_INPUT_TYPES = ("NONE", "CUBIN", "PTX", "LTOIR", "FATBIN", "OBJECT", "LIBRARY")


def load(library: str) -> ctypes.CDLL:
    """Load *library*; before NVRTC, load the builtins that it searches beside itself."""
    folder, name = os.path.split(library)
    if name.startswith("libnvrtc."):
        for file in sorted(os.listdir(folder)):
            if file.startswith("libnvrtc-builtins.so"):
                ctypes.CDLL(os.path.join(folder, file))
    return ctypes.CDLL(library)


def nvjitlink(api: Any, flags: Sequence[str], inputs: Sequence[Input], output: str) -> Answer:
    """
    Link.

    Args:
        api: nvJitLink, or a library that contains it.
        flags: The arguments.
        inputs: Name, content and one of `_INPUT_TYPES` of each input.
        output: "Cubin", "Ptx" or "LTOIR".

    Returns:
        The step that failed, "" if none did; its status; and "log", "info" and "code".
    """
    handle = ctypes.c_void_p()
    status = api.nvJitLinkCreate(ctypes.byref(handle), ctypes.c_uint32(len(flags)), _array(flags))
    if status:
        return "accept its flags", status, {"log": "", "info": "", "code": b""}
    try:
        step, code = "", b""
        # nvJitLink keeps the addresses of the names only.
        names = [name.encode() for name, _, _ in inputs]
        for name, (_, content, kind) in zip(names, inputs, strict=True):
            size, number = ctypes.c_size_t(len(content)), _INPUT_TYPES.index(kind)
            status = status or api.nvJitLinkAddData(handle, number, content, size, name)
            step = step or (f"read the {kind.lower()} {name.decode()}" if status else "")
        if not step:
            step, status = "link", api.nvJitLinkComplete(handle)
        if not status:
            step = f"give {output}"
            status, code = _result(api, handle, f"nvJitLinkGetLinked{output}")
        log, info = (_text(api, handle, f"nvJitLinkGet{kind}Log") for kind in ("Error", "Info"))
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
    Compile CUDA C++.

    Args:
        api: NVRTC.
        flags: The arguments.
        inputs: Name and content of the source, and the output: "PTX", "LTOIR" or "CUBIN".
        headers: The headers in memory, by the names that `#include` uses.
        expressions: The names whose symbols are returned.

    Returns:
        "compile" if that failed, else ""; the status; and "log", "code", "symbols" and "reason".
    """
    ((name, source, output),) = inputs
    program, symbols, code = ctypes.c_void_p(), [], b""
    api.nvrtcGetErrorString.restype = ctypes.c_char_p
    names, texts = _array([name for name, _ in headers]), _array([text for _, text in headers])
    status = api.nvrtcCreateProgram(ctypes.byref(program), source, _encoded(name), len(headers), texts, names)
    try:
        for expression in expressions:
            status = status or api.nvrtcAddNameExpression(program, _encoded(expression))
        status = status or api.nvrtcCompileProgram(program, len(flags), _array(flags))
        log = _text(api, program, "nvrtcGetProgramLog")
        if not status:
            status, code = _result(api, program, f"nvrtcGet{output}")
        for expression in expressions:
            symbol = ctypes.c_char_p()
            status = status or api.nvrtcGetLoweredName(program, _encoded(expression), ctypes.byref(symbol))
            symbols.append((symbol.value or b"").decode())
        reason = api.nvrtcGetErrorString(status).decode()
        outputs = {"log": log, "code": code, "symbols": symbols, "reason": reason}
        return "compile" if status else "", status, outputs
    finally:
        api.nvrtcDestroyProgram(ctypes.byref(program))


def nvvm(api: Any, flags: Sequence[str], inputs: Sequence[Input]) -> Answer:
    """
    Compile LLVM IR.

    Args:
        api: libNVVM.
        flags: The arguments.
        inputs: Name, content and use of each module, in order: "whole", or "lazy" for a library of which only
            needed functions are linked. The use "verify", without a module, verifies the modules before it.

    Returns:
        The step that failed, "" if none did; its status; and "log", "code", "reason", and "ir": the versions
        of the IR and of the debug information that the library reads.
    """
    program, options, code = ctypes.c_void_p(), _array(flags), b""
    api.nvvmGetErrorString.restype = ctypes.c_char_p
    step, status = "start", api.nvvmCreateProgram(ctypes.byref(program))
    try:
        for name, content, use in inputs:
            if status:
                break
            step = use if use == "verify" else "read"
            if use == "verify":
                status = api.nvvmVerifyProgram(program, len(flags), options)
            else:
                add = api.nvvmLazyAddModuleToProgram if use == "lazy" else api.nvvmAddModuleToProgram
                status = add(program, content, ctypes.c_size_t(len(content)), name.encode())
        if not status:
            step, status = "compile", api.nvvmCompileProgram(program, len(flags), options)
        log = _text(api, program, "nvvmGetProgramLog")
        if not status:
            status, code = _result(api, program, "nvvmGetCompiledResult")
        numbers = [ctypes.c_int() for _ in range(4)]
        api.nvvmIRVersion(*map(ctypes.byref, numbers))
        versions = tuple(number.value for number in numbers)
        reason = api.nvvmGetErrorString(status).decode()
        outputs = {"log": log, "code": code, "ir": versions, "reason": reason}
        return step if status else "", status, outputs
    finally:
        api.nvvmDestroyProgram(ctypes.byref(program))


FUNCTIONS: dict[str, Callable[..., Answer]] = {"nvjitlink": nvjitlink, "nvrtc": nvrtc, "nvvm": nvvm}
"""The calls by name."""


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _array(texts: Sequence[str]) -> Any:
    return (ctypes.c_char_p * len(texts))(*map(_encoded, texts))


def _result(api: Any, program: Any, function: str) -> tuple[int, bytes]:
    """Return status and result of *function*; the function with "Size" in its name returns the size."""
    size = ctypes.c_size_t()
    status = getattr(api, f"{function}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    if size.value and not status:
        status = getattr(api, function)(program, buffer)
    return status, buffer.raw


def _text(api: Any, program: Any, function: str) -> str:
    return _result(api, program, function)[1].rstrip(b"\0").decode(errors="replace")


def _serve() -> None:
    """Answer the request on standard input."""
    # Text that a library writes to standard output goes to standard error, so that it is no part of the
    # answer.
    output = os.dup(1)
    os.dup2(2, 1)
    with open(output, "wb") as file:
        file.write(READY)
        file.flush()
        function, library, *arguments = marshal.load(sys.stdin.buffer)  # noqa: S302 - from `isolated`
        marshal.dump(FUNCTIONS[function](load(library), *arguments), file)
    # Skip the libraries' destructors.
    os._exit(0)


if __name__ == "__main__":
    _serve()
