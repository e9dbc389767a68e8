"""
Call NVIDIA's compilers and linker, in a child process if a call would change the results of later ones.

The libraries have global state: after one compilation with -G or -O0, later ones in the process give
different code, and wrong code for some GPUs. So a call with such an option is made by a child process. So is
a call of a library of another toolkit than this environment's: the loader may give this environment's library
instead, which has the same name.
"""

from __future__ import annotations

import logging
import marshal
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import LinkError

from . import child

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .child import Answer, Input

log = logging.getLogger(__name__)

# Libraries that this process does not call any more, for a reason of `_unusable_reason`.
_called_in_children: set[str] = set()


def call(
    function: str,
    library: str,
    flags: Sequence[str],
    inputs: Sequence[Input],
    *arguments: Any,
    in_child: bool,
) -> Answer:
    """
    Call one of the functions of `child`, in this process or in a child process. Thread-safe.

    Args:
        function: The name of the function: "nvrtc", "nvvm" or "nvjitlink".
        library: The file of the library.
        flags: The flags for the library.
        inputs: The inputs, as the function takes them.
        arguments: The further arguments of the function.
        in_child: Whether to call in a child process, since in this process the call would change the results
            of later ones, or could reach this environment's library of the same name instead of *library*.

    Returns:
        The answer of the function: the step that failed, "" if none did; the library's status; and "log",
        "code" and further outputs by name.

    Raises:
        LinkError: The library has ended the child process, or no child can be started.
    """
    request = (tuple(flags), tuple(inputs), *arguments)
    if not in_child and library not in _called_in_children:
        answer = child.FUNCTIONS[function](child.load(library), *request)
        reason = _unusable_reason(answer)
        if not reason:
            return answer
        _called_in_children.add(library)
        log.warning("%s %s; this process calls it in child processes from now on", library, reason)
        failed_step, *_ = answer
        # An answer that rejects the inputs is valid. Wrong code is not: a child compiles the inputs again.
        if failed_step:
            return answer
    names = tuple(name for name, _, _ in inputs if name)
    detail = f"Inputs: {', '.join(names)}; flags: {' '.join(flags)}."
    try:
        child_answer, stderr_text = _call_in_child(marshal.dumps((function, library, *request)))
    except OSError as error:
        raise LinkError(
            f"{library} has to be called in a child process, which cannot be started "
            f"({error}); allow child processes, or leave out debug information and unoptimised code."
            f"\n{detail}",
            flags=tuple(flags),
            inputs=names,
        ) from error
    if child_answer is None:
        raise LinkError(
            f"{library} has ended the child process that called it ({stderr_text}); leave out inputs or "
            f"flags to find the cause, or use another release of the toolkit.\n{detail}",
            flags=tuple(flags),
            inputs=names,
            log=stderr_text,
        )
    if stderr_text:
        log.warning("%s: %s", library, stderr_text)
    return child_answer


def _unusable_reason(answer: Answer) -> str:
    """Return why this process must not call the library again; "" if it may."""
    failed_step, _, outputs = answer
    # nvJitLink's message for a cubin that it rejects, such as one for another architecture.
    if failed_step and "ERROR 4: bad input" in outputs["log"]:
        return "has rejected machine code, after which links in other threads would deadlock"
    if has_generic_param_access(outputs["code"]):
        return "makes wrong code, since another package has called it for debug information"
    return ""


def has_generic_param_access(code: bytes) -> bool:
    """
    Return whether *code* is PTX that loads or stores a parameter by a generic address.

    Libraries make such code for sm_100 and later only after a call for debug information.
    """
    # Most PTX accesses parameters by name, such as `[f_param_0]`, and needs no closer look.
    if b"cvta.param" not in code or not re.search(rb"\b(?:ld|st)\.param\S*\s+[^;]*\[%", code):
        return False
    # Registers that hold a generic address of a parameter.
    generic_registers: set[bytes] = set()
    # "@%p1 ld.param.b32 %r1, [%rd2];": a guard, the mnemonic, the operands, which may have vectors in braces.
    statements = rb"^\s*(?:@!?%\w+\s+)?([a-z][\w.:]*)\s+([^;{}]*(?:\{[^}]*\}[^;{}]*)*);"
    for mnemonic, operands in re.findall(statements, code, re.MULTILINE):
        # The first register is the destination.
        registers = re.findall(rb"%\w+", operands)
        if re.match(rb"(?:ld|st)\.param\b", mnemonic):
            address = re.search(rb"\[(%\w+)", operands)
            if address and address[1] in generic_registers:
                return True
        # The destination gets the generic address of a parameter, or an address computed from one.
        elif mnemonic.startswith(b"cvta.param") or not generic_registers.isdisjoint(registers[1:]):
            generic_registers.update(registers[:1])
        else:
            # The register has another value now, as in another function that uses the same name.
            generic_registers.difference_update(registers[:1])
    return False


def _call_in_child(request: bytes) -> tuple[Answer | None, str]:
    """
    Return the answer of a child process, and its text on standard error.

    The answer is None if the library ended the child.

    Args:
        request: The request in the form that `child` reads.

    Raises:
        OSError: No child can be started.
    """
    # Deferred: few calls need a child.
    import subprocess
    from multiprocessing import spawn

    # A frozen program would run itself. A program that embeds Python may name an interpreter for children by
    # multiprocessing.set_executable.
    python = "" if getattr(sys, "frozen", False) else os.fsdecode(spawn.get_executable() or "")
    if not python:
        raise FileNotFoundError("this program names no Python")
    # The child inherits the working directory, which debug information contains. In a session of its own, the
    # child gets no signal of Ctrl-C: this process ends it below.
    with subprocess.Popen(  # noqa: S603 - Python itself
        [python, "-I", "-S", child.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(request)
        except BaseException:
            process.kill()
            raise
    stderr_text = errors.decode(errors="replace").strip()
    if not output.startswith(child.READY):
        raise ChildProcessError(stderr_text or f"{python} has exit status {process.returncode}")
    try:
        # Unlike a pickle, marshalled values cannot run code.
        return marshal.loads(output.removeprefix(child.READY)), stderr_text  # noqa: S302
    except (EOFError, ValueError, TypeError):
        return None, f"{stderr_text}\nexit status {process.returncode}".strip()
