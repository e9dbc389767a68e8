"""Define the exceptions of this package."""

from __future__ import annotations

__all__ = [
    "AbiError",
    "ActivationError",
    "AssembleError",
    "CacheError",
    "ConfigError",
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
        super().__init__(message)
        self.flags = flags
        self.inputs = inputs
        self.log = log


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


class ActivationError(PtxlinkError, RuntimeError):
    """The plugin cannot replace numba-cuda's linker in this process."""


class CacheError(PtxlinkError, RuntimeError):
    """A cache directory or server cannot be used. Only the cache's own tools raise it; a build never does."""
