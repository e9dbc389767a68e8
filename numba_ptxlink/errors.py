"""The exceptions this package raises on purpose."""

from __future__ import annotations

__all__ = [
    "AbiError",
    "ActivationError",
    "AssembleError",
    "CacheError",
    "ConfigError",
    "ExportError",
    "LinkError",
    "PtxlinkError",
]


class PtxlinkError(Exception):
    """
    Base of every error raised on purpose. Survives pickling.

    Args:
        message: What went wrong, ending with the cure.
        flags: The exact arguments the failing tool was given.
        inputs: The names of the inputs involved, in the order they were given.
        log: The failing tool's log, verbatim but for its trailing NUL.
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
    """An environment variable, an arch or an option has a value this package does not know."""


class AssembleError(PtxlinkError, RuntimeError):
    """PTX could not be compiled to a cubin."""


class LinkError(PtxlinkError, RuntimeError):
    """The inputs of a link could not be read, compiled or linked."""


class AbiError(PtxlinkError, ValueError):
    """A function's name, types or ABI options have no counterpart in C."""


class ExportError(PtxlinkError, RuntimeError):
    """A module of Python functions could not be exported."""


class ActivationError(PtxlinkError, RuntimeError):
    """The plugin cannot take over from numba-cuda's linker here."""


class CacheError(PtxlinkError, RuntimeError):
    """A cache directory or server cannot be used. Only the cache's own tools raise it; a build never does."""
