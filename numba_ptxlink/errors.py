"""Define the exceptions of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "AbiError",
    "ActivationError",
    "AssembleError",
    "CacheError",
    "ConfigError",
    "DeviceFaultError",
    "ExportError",
    "LaunchError",
    "LinkError",
    "MissingInputError",
    "PtxlinkError",
]


class PtxlinkError(Exception):
    """
    Base of every error raised on purpose. Survives pickling.

    Args:
        message: What went wrong, ending with the cure.
        flags: The exact arguments of the failing tool.
        inputs: The names of the inputs involved, in order.
        log: The failing tool's log, verbatim except for a trailing NUL.
    """

    def __init__(
        self,
        message: str,
        *,
        flags: tuple[str, ...] = (),
        inputs: tuple[str, ...] = (),
        log: str = "",
    ) -> None:
        # Not super(): in a subclass, the next class may be another package's error, whose constructor takes a
        # status instead of a message.
        Exception.__init__(self, message)
        self.flags = flags
        self.inputs = inputs
        self.log = log

    def __reduce__(self) -> tuple[Any, ...]:
        # Not the inherited method: in a subclass, that of another package's error may restore only a status.
        return type(self), self.args, vars(self)


class ConfigError(PtxlinkError, ValueError):
    """An environment variable, an architecture or an option has an unknown value."""


class AssembleError(PtxlinkError, RuntimeError):
    """PTX could not be compiled to a cubin."""


class LinkError(PtxlinkError, RuntimeError):
    """The inputs of a link could not be read, compiled or linked."""


class MissingInputError(LinkError, FileNotFoundError):
    """An input of a link is a path at which there is no file."""


class AbiError(PtxlinkError, ValueError):
    """A function's name, types or ABI options have no counterpart in C."""


class ExportError(PtxlinkError, RuntimeError):
    """A module of Python functions could not be exported."""


class LaunchError(PtxlinkError, RuntimeError):
    """A kernel could not be loaded or launched, or an argument does not fit its parameter."""


class DeviceFaultError(LaunchError):
    """
    Device code that ran on the CPU was stopped by a fault.

    Args:
        message: What happened, where, and the cure.
        kernel: The kernel or function that was launched or called.
        file: The source file as named in the PTX; "" if the PTX has no line numbers.
        line: The line in *file*; 0 if it is unknown.
        block: The block's index along x, y and z.
        thread: The thread's index in the block; (index of the element, 0, 0) for a call on array elements.
        instruction: The PTX instruction.
        cuda_error: The CUresult of such a fault on a GPU: 700 for an illegal address, for example; by default
            719, CUDA_ERROR_LAUNCH_FAILED.
        attributes: The flags, inputs and log, as for every error.
    """

    def __init__(
        self,
        message: str,
        *,
        kernel: str = "",
        file: str = "",
        line: int = 0,
        block: tuple[int, ...] = (0, 0, 0),
        thread: tuple[int, ...] = (0, 0, 0),
        instruction: str = "",
        cuda_error: int = 719,
        **attributes: Any,
    ) -> None:
        super().__init__(message, **attributes)
        self.kernel = kernel
        self.file = file
        self.line = line
        self.block = block
        self.thread = thread
        self.instruction = instruction
        self.cuda_error = cuda_error


class ActivationError(PtxlinkError, RuntimeError):
    """The plugin cannot replace the linker of a front end in this process."""


class CacheError(PtxlinkError, RuntimeError):
    """A cache directory or server cannot be used. Functions that manage the cache raise it, never a build."""


T = TypeVar("T", bound=PtxlinkError)


def convert_error(error: PtxlinkError, error_type: type[T], message: str = "") -> T:
    """Return an *error_type* with the attributes of *error*, and its message if *message* is ""."""
    return error_type(message or str(error), flags=error.flags, inputs=error.inputs, log=error.log)


def with_location(location: str, message: object, severity: str = "error") -> str:
    """Return "file.py:12: error: message", as compilers write it; *message* alone if *location* is ""."""
    return f"{location}: {severity}: {message}" if location else str(message)


def short_repr(value: object, max_chars: int = 80) -> str:
    """Return the `repr` of *value* for messages, shortened to *max_chars* characters."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - `__repr__` may be of any package
        # `repr` of an int of more than 4,300 digits raises a ValueError, too.
        text = "a value"
    return text if len(text) < max_chars else f"{text[: max_chars - 4]} ..."


def raise_all(errors: Sequence[PtxlinkError]) -> None:
    """Raise one error with the messages of all *errors*; return if there are none."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        # Errors of several classes become an ExportError: several errors are collected in exports only.
        error_types = {type(error) for error in errors}
        error_type = error_types.pop() if len(error_types) == 1 else ExportError
        raise error_type("\n".join(dict.fromkeys(map(str, errors)))) from errors[0]
