"""The environment variables, read once into a frozen value."""

from __future__ import annotations

import functools
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODES = ("1", "0", "auto")
BACKENDS = ("auto", "nvptxcompiler", "nvjitlink", "pynvjitlink")
_LEVELS = ("debug", "info", "warning", "error", "critical")


@dataclass(frozen=True)
class Config:
    """
    What the environment asks for.

    Args:
        mode: NUMBA_PTXLINK: "1" on, "0" off, "auto" on only where the driver is older than the toolkit.
        backend: NUMBA_PTXLINK_BACKEND: the tool that makes cubins, "auto" for what the inputs need.
        log_level: NUMBA_PTXLINK_LOG as a `logging` level, None where the variable is unset.
    """

    mode: str = "1"
    backend: str = "auto"
    log_level: int | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Config:
        """
        Read the variables out of *environ*.

        Raises:
            ConfigError: A variable has a value that is not among its choices.
        """
        level = _choice(environ, "NUMBA_PTXLINK_LOG", _LEVELS, None)
        return cls(
            mode=_choice(environ, "NUMBA_PTXLINK", _MODES, "1") or "1",
            backend=_choice(environ, "NUMBA_PTXLINK_BACKEND", BACKENDS, "auto") or "auto",
            log_level=None if level is None else int(logging.getLevelName(level.upper())),
        )


def _choice(
    environ: Mapping[str, str], variable: str, choices: tuple[str, ...], default: str | None
) -> str | None:
    value = environ.get(variable, "").strip().lower()
    if not value:
        return default
    if value not in choices:
        raise ConfigError(f"{variable}={environ[variable]!r} is unknown; set it to {', '.join(choices)}.")
    return value


@functools.cache
def config() -> Config:
    """Return what this process's environment asks for, read at the first call."""
    return Config.from_environ(os.environ)
