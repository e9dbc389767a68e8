"""
Call NVIDIA's compilers and linker, apart from this process where a call would change what they make later.

After a call for a debugger, or without optimisation, the same instance of a library compiles other code for
the rest of the process, and wrong code for some GPUs. Such a call is made in a child process, which runs this
file as a program; by a private copy of the library where no child can be started; and never by the instance
that the process shares.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import sys

# Neither `typing` nor this package is imported in the child, which starts in 20 ms.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from numba_ptxlink.errors import LinkError

    Answer = tuple[str, int, dict[str, Any]]

# The child says so before it loads a library: if it ends without an answer then, the library has failed.
_READY = b"numba-ptxlink\n"
# Libraries that this process calls in children alone, since one has given an answer as in `_cause_to_leave`.
_called_in_children: set[str] = set()
_copies: dict[tuple[str, bool], str] = {}


def call(
    function: str,
    library: str,
    flags: Sequence[str],
    inputs: Sequence[tuple[str, bytes, str]],
    *others: Any,
    alters_later_calls: bool,
) -> Answer:
    """
    Call a library. Thread-safe.

    Nothing but *library* and *inputs* chooses the toolkit: with *alters_later_calls*, the library and the
    libdevice of another release can be called beside those of this process.

    Args:
        function: "nvrtc", "nvvm" or "nvjitlink".
        library: The file of the library.
        flags: Its arguments.
        inputs: Each with its name, its content, and what it is, as *function* below takes it.
        others: The further arguments of *function*.
        alters_later_calls: Whether the call would change what the same instance of the library makes later.

    Returns:
        The step that failed, "" if none did; its status; and "log", "code" and what else there is.

    Raises:
        LinkError: The library has ended its process, or cannot be called apart from this one.
    """
    request = (tuple(flags), tuple(inputs), *others)
    if not alters_later_calls and library not in _called_in_children:
        made = _functions[function](load(library), *request)
        cause = _cause_to_leave(made)
        if not cause:
            return made
        _called_in_children.add(library)
        _warn(f"{library} {cause}; this process calls it in child processes from now on")
        if made[0]:
            return made
    try:
        ready, answer, stderr_text = _ask_child(marshal.dumps((function, library, *request)))
    except OSError as error:
        ready, answer, stderr_text = False, None, str(error)
    if not ready:
        try:
            return _functions[function](
                load(library, copy_of(library, alters_later_calls=alters_later_calls)), *request
            )
        except OSError as error:
            raise _failure(
                f"{library} has to be called apart from this process. No child can be started: "
                f"{stderr_text}. No copy of the library can be loaded: {error}. Let the process start "
                "children, or leave out debug information and unoptimised code.",
                *request,
            ) from error
    if answer is None:
        raise _failure(
            f"{library} has ended the child process that called it: {stderr_text}\nLeave out inputs or flags "
            "to find what it fails for, or take another release of the toolkit.",
            *request,
            log=stderr_text,
        )
    if stderr_text:
        _warn(f"{library}: {stderr_text}")
    return answer


def _cause_to_leave(answer: Answer) -> str:
    """Return why the instance that gave *answer* is to be called no more, "" if it may be."""
    step, _, given = answer
    if step and "ERROR 4: bad input" in given["log"]:
        return "has refused machine code, and links in other threads would wait for ever"
    if has_generic_param_access(given["code"]):
        return "makes wrong code, since another package has called it for debug information"
    return ""


def has_generic_param_access(code: bytes) -> bool:
    """
    Return whether *code* is PTX that loads or stores a parameter by a generic address.

    A library makes that for sm_100 and later, where it was called for debug information before; never else.
    """
    import re

    if b"cvta.param" not in code or not re.search(rb"\b(?:ld|st)\.param\S*\s+[^;]*\[%", code):
        return False
    generic: set[bytes] = set()
    statements = rb"^\s*(?:@!?%\w+\s+)?([a-z][\w.:]*)\s+([^;{}]*(?:\{[^}]*\}[^;{}]*)*);"
    for opcode, operands in re.findall(statements, code, re.MULTILINE):
        registers = re.findall(rb"%\w+", operands)
        if re.match(rb"(?:ld|st)\.param\b", opcode):
            address = re.search(rb"\[(%\w+)", operands)
            if address and address[1] in generic:
                return True
        elif opcode.startswith(b"cvta.param") or not generic.isdisjoint(registers[1:]):
            generic.update(registers[:1])
        else:
            # Another function has registers of the same names.
            generic.difference_update(registers[:1])
    return False


def _failure(
    text: str, flags: Sequence[str], inputs: Sequence[tuple[str, bytes, str]], *_others: Any, log: str = ""
) -> LinkError:
    from numba_ptxlink.errors import LinkError

    names = tuple(name for name, _, _ in inputs if name)
    shown = f"Inputs: {', '.join(names)}; flags: {' '.join(flags)}."
    return LinkError(f"{text}\n{shown}", flags=tuple(flags), inputs=names, log=log)


def _warn(text: str) -> None:
    import logging

    logging.getLogger("numba_ptxlink._tools.isolated").warning("%s", text)


def _ask_child(request: bytes) -> tuple[bool, Answer | None, str]:
    """
    Return whether a child came to call the library, its answer if it is whole, and what else it said.

    Raises:
        OSError: No child can be started.
    """
    import subprocess
    from multiprocessing import spawn

    # The one that programs with an interpreter within them name; one that is frozen would run itself.
    python = "" if getattr(sys, "frozen", False) else os.fsdecode(spawn.get_executable() or "")
    if not python:
        raise FileNotFoundError("this program names no Python")
    # It keeps the working directory, which debug information holds. Ctrl-C is for this process, which ends
    # the child.
    with subprocess.Popen(  # noqa: S603 - Python itself
        [python, "-I", "-S", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        try:
            output, errors = child.communicate(request)
        except BaseException:
            child.kill()
            raise
    stderr_text = errors.decode(errors="replace").strip()
    try:
        # Unlike a pickle, what is read cannot run code.
        answer = marshal.loads(output.removeprefix(_READY))  # noqa: S302
    except (EOFError, ValueError, TypeError):
        answer, stderr_text = None, f"{stderr_text}\nexit status {child.returncode}".strip()
    return output.startswith(_READY), answer, stderr_text


def _serve() -> None:
    """Answer the request on standard input."""
    # What a library writes to standard output is no part of the answer.
    output = os.dup(1)
    os.dup2(2, 1)
    with open(output, "wb") as file:
        file.write(_READY)
        file.flush()
        function, library, *arguments = marshal.load(sys.stdin.buffer)  # noqa: S302 - from `call`
        marshal.dump(_functions[function](load(library), *arguments), file)
    # Without what libraries do at the end of a process.
    os._exit(0)


def load(library: str, path: str = "") -> ctypes.CDLL:
    """Load *library*, or its copy that *path* leads to, and before it what NVRTC looks for beside itself."""
    folder, name = os.path.split(library)
    if name.startswith("libnvrtc."):
        for beside in sorted(os.listdir(folder)):
            if beside.startswith("libnvrtc-builtins.so"):
                ctypes.CDLL(os.path.join(folder, beside))
    return ctypes.CDLL(path or library)


def copy_of(library: str, *, alters_later_calls: bool = True) -> str:
    """
    Return the path of a private copy of *library*: one for all calls that spoil it, and one for others.

    Raises:
        OSError: There is no room for it, or no file can be opened.
    """
    if (library, alters_later_calls) not in _copies:
        # It stays open: a library is known by its path, which would be another file's, too.
        copy = os.memfd_create(os.path.basename(library))
        with open(library, "rb") as file:
            while os.sendfile(copy, file.fileno(), None, 1 << 30):
                pass
        _copies[library, alters_later_calls] = f"/proc/self/fd/{copy}"
    return _copies[library, alters_later_calls]


# By their numbers as an nvJitLinkInputType.
_KINDS = ("NONE", "CUBIN", "PTX", "LTOIR", "FATBIN", "OBJECT", "LIBRARY")


def nvjitlink(
    api: Any, flags: Sequence[str], inputs: Sequence[tuple[str, bytes, str]], output: str
) -> Answer:
    """
    Link.

    Args:
        api: nvJitLink, or a library that it is a part of.
        flags: Its arguments.
        inputs: The inputs, each one of `_KINDS`.
        output: "Cubin", "Ptx" or "LTOIR".
    """
    handle = ctypes.c_void_p()
    status = api.nvJitLinkCreate(ctypes.byref(handle), ctypes.c_uint32(len(flags)), _array(flags))
    if status:
        return "accept its flags", status, {"log": "", "info": "", "code": b""}
    try:
        step, code = "", b""
        # nvJitLink keeps the addresses of the names alone.
        names = [name.encode() for name, _, _ in inputs]
        for name, (_, content, kind) in zip(names, inputs, strict=True):
            size = ctypes.c_size_t(len(content))
            status = status or api.nvJitLinkAddData(handle, _KINDS.index(kind), content, size, name)
            step = step or (f"read the {kind.lower()} {name.decode()}" if status else "")
        if not status:
            step, status = "link", api.nvJitLinkComplete(handle)
        if not status:
            step = f"give {output}"
            status, code = _fetched(api, handle, f"nvJitLinkGetLinked{output}")
        log, info = (_text(api, handle, f"nvJitLinkGet{each}Log") for each in ("Error", "Info"))
        return step if status else "", status, {"log": log, "info": info, "code": code}
    finally:
        api.nvJitLinkDestroy(ctypes.byref(handle))


def nvrtc(
    api: Any,
    flags: Sequence[str],
    inputs: Sequence[tuple[str, bytes, str]],
    headers: Sequence[tuple[str, str]],
    expressions: Sequence[str],
) -> Answer:
    """
    Compile CUDA C++.

    Args:
        api: NVRTC.
        flags: Its arguments.
        inputs: The source, which is to become "PTX", "LTOIR" or "CUBIN".
        headers: The headers in memory, by the names that `#include` uses.
        expressions: The names whose symbols are wanted.
    """
    ((name, source, output),) = inputs
    program, symbols, code = ctypes.c_void_p(), [], b""
    api.nvrtcGetErrorString.restype = ctypes.c_char_p
    names, texts = (_array([header[place] for header in headers]) for place in (0, 1))
    status = api.nvrtcCreateProgram(ctypes.byref(program), source, _encoded(name), len(headers), texts, names)
    try:
        for expression in expressions:
            status = status or api.nvrtcAddNameExpression(program, _encoded(expression))
        status = status or api.nvrtcCompileProgram(program, len(flags), _array(flags))
        log = _text(api, program, "nvrtcGetProgramLog")
        if not status:
            status, code = _fetched(api, program, f"nvrtcGet{output}")
        for expression in expressions:
            symbol = ctypes.c_char_p()
            status = status or api.nvrtcGetLoweredName(program, _encoded(expression), ctypes.byref(symbol))
            symbols.append((symbol.value or b"").decode())
        reason = api.nvrtcGetErrorString(status).decode()
        given = {"log": log, "code": code, "symbols": symbols, "reason": reason}
        return "compile" if status else "", status, given
    finally:
        api.nvrtcDestroyProgram(ctypes.byref(program))


def nvvm(api: Any, flags: Sequence[str], inputs: Sequence[tuple[str, bytes, str]]) -> Answer:
    """
    Compile LLVM IR.

    Args:
        api: libNVVM.
        flags: Its arguments.
        inputs: The modules, in order: "whole", or "lazy" of which is taken what others need. "verify" in
            the place of a module verifies those before it.

    Returns:
        As `call`, with "ir", the versions of the IR and of the debug information that it reads, and "reason".
    """
    program, options, code = ctypes.c_void_p(), _array(flags), b""
    api.nvvmGetErrorString.restype = ctypes.c_char_p
    step, status = "start", api.nvvmCreateProgram(ctypes.byref(program))
    try:
        for name, content, what in inputs:
            if status:
                break
            step = what if what == "verify" else "read"
            if what == "verify":
                status = api.nvvmVerifyProgram(program, len(flags), options)
            else:
                add = api.nvvmLazyAddModuleToProgram if what == "lazy" else api.nvvmAddModuleToProgram
                status = add(program, content, ctypes.c_size_t(len(content)), name.encode())
        if not status:
            step, status = "compile", api.nvvmCompileProgram(program, len(flags), options)
        log = _text(api, program, "nvvmGetProgramLog")
        if not status:
            status, code = _fetched(api, program, "nvvmGetCompiledResult")
        numbers = [ctypes.c_int() for _ in range(4)]
        api.nvvmIRVersion(*map(ctypes.byref, numbers))
        read = tuple(number.value for number in numbers)
        reason = api.nvvmGetErrorString(status).decode()
        return step if status else "", status, {"log": log, "code": code, "ir": read, "reason": reason}
    finally:
        api.nvvmDestroyProgram(ctypes.byref(program))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _array(texts: Sequence[str]) -> Any:
    return (ctypes.c_char_p * len(texts))(*map(_encoded, texts))


def _fetched(api: Any, program: Any, what: str) -> tuple[int, bytes]:
    """Return the status and the result of the function *what*, which another one tells the size of."""
    size = ctypes.c_size_t()
    status = getattr(api, f"{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    if size.value and not status:
        status = getattr(api, what)(program, buffer)
    return status, buffer.raw


def _text(api: Any, program: Any, what: str) -> str:
    return _fetched(api, program, what)[1].rstrip(b"\0").decode(errors="replace")


_functions: dict[str, Callable[..., Answer]] = {"nvjitlink": nvjitlink, "nvrtc": nvrtc, "nvvm": nvvm}

if __name__ == "__main__":
    _serve()
