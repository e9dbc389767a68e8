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
        # Not super(): the next class may be another package's error, which takes a status and no message.
        Exception.__init__(self, message)
        self.flags = flags
        self.inputs = inputs
        self.log = log

    def __reduce__(self) -> tuple[Any, ...]:
        # An error of another package may be created again from its status.
        return type(self), self.args, vars(self)


class ConfigError(PtxlinkError, ValueError):
    """An environment variable, an architecture or an option has an unknown value."""


class AssembleError(PtxlinkError, RuntimeError):
    """PTX could not be compiled to a cubin."""


class LinkError(PtxlinkError, RuntimeError):
    """The inputs of a link could not be read, compiled or linked."""


class MissingInputError(LinkError, FileNotFoundError):
    """An input of a link is the path of no file."""


class AbiError(PtxlinkError, ValueError):
    """A function's name, types or ABI options have no counterpart in C."""


class ExportError(PtxlinkError, RuntimeError):
    """A module of Python functions could not be exported."""


class LaunchError(PtxlinkError, RuntimeError):
    """A kernel could not be loaded or launched, or an argument is not what its parameter takes."""


class DeviceFaultError(LaunchError):
    """
    Device code that ran on the CPU was stopped by a fault.

    Args:
        message: What happened, where, and the cure.
        kernel: The kernel or function that was launched or called.
        file: The source file as named in the PTX; "" if it has no line numbers.
        line: The line in it, 0 without one.
        block: The block's index along x, y and z.
        thread: The thread's index in it, or for a call the number of the element.
        instruction: The PTX instruction.
        cuda_error: The CUresult of such a fault on a GPU, such as 700 for an illegal address.
        carried: What every error carries.
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
        **carried: Any,
    ) -> None:
        super().__init__(message, **carried)
        self.kernel = kernel
        self.file = file
        self.line = line
        self.block = block
        self.thread = thread
        self.instruction = instruction
        self.cuda_error = cuda_error


class ActivationError(PtxlinkError, RuntimeError):
    """The plugin cannot replace numba-cuda's linker in this process."""


class CacheError(PtxlinkError, RuntimeError):
    """A cache directory or server cannot be used. Only the cache's own tools raise it; a build never does."""


T = TypeVar("T", bound=PtxlinkError)


def converted(error: PtxlinkError, kind: type[T], message: str = "") -> T:
    """Return *error* as one of *kind*, with its own message or another."""
    return kind(message or str(error), flags=error.flags, inputs=error.inputs, log=error.log)


def located(location: str, message: object, severity: str = "error") -> str:
    """Return *message* in the form of compilers, "file.py:line: error: ...", if the *location* is known."""
    return f"{location}: {severity}: {message}" if location else str(message)


def shown(value: object, longest: int = 80) -> str:
    """Return the text of *value* for messages, in at most *longest* characters."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - it is another package's
        # Integers of more than 4,300 digits raise.
        text = "a value"
    return text if len(text) < longest else f"{text[: longest - 4]} ..."


def raise_all(errors: Sequence[PtxlinkError]) -> None:
    """Raise *errors* as one, if there are any."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        kinds = {type(error) for error in errors}
        kind = kinds.pop() if len(kinds) == 1 else ExportError
        raise kind("\n".join(dict.fromkeys(map(str, errors)))) from errors[0]
