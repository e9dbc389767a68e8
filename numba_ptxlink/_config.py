"""Read the environment variables once into a frozen configuration."""

from __future__ import annotations

import functools
import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from ._locks import Lock
from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

# The values of NUMBA_PTXLINK that mean "0". The import hook has a copy: it must not import this package.
_OFF_VALUES = ("0", "off", "false", "no")
_MODES = ("1", *_OFF_VALUES, "auto")
Backend = Literal["auto", "nvptxcompiler", "nvjitlink", "pynvjitlink"]
Checks = Literal["all", "none"]
Inline = Literal["auto", "all", "none"]
# In order of preference. `_front_end.registry` maps each name to its package.
FrontEndName = Literal["numba-cuda", "numba-cuda-mlir"]
BACKENDS: tuple[str, ...] = get_args(Backend)
CHECKS: tuple[str, ...] = get_args(Checks)
INLINE: tuple[str, ...] = get_args(Inline)
FRONT_ENDS: tuple[str, ...] = get_args(FrontEndName)
# Checks of kernels on the CPU, by the names of compute-sanitizer's tools.
CPU_CHECKS = ("memcheck", "initcheck", "racecheck", "synccheck")
# As MAX_DEVICES in _native/cuda_driver/driver.h, the size of its tables.
MAX_CPU_DEVICES = 16
# Machines have fewer cores: a larger number is a mistake.
_MAX_CPU_THREADS = 1024
# The schemes of URLs of Redis servers, which are stores of the cache: `cache.tiered` connects to them.
STORES = ("redis", "rediss", "unix")
# The patterns are not compiled here, since most processes do not set the variables that they read.
# A size is a number, a unit and "B", such as "2GiB", "500 MB" or "1.5tb". A float holds 15 digits exactly.
_SIZE = r"(\d{1,15}(?:\.\d+)?)\s*([kmgt]?)i?b"
# The URL in "/first:/second:redis://host:6379/0" comes last: a URL contains the colon, which separates
# directories.
_URL = rf"(?i)(?:^|(?<={re.escape(os.pathsep)}))(?:{'|'.join(STORES)})://.*$"
_LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
# The fields of `Config` that its `repr` leaves out.
_SECRET_FIELDS = ("cache_url", "cache_secret")


VARIABLES = (
    "NUMBA_PTXLINK",
    "NUMBA_PTXLINK_BACKEND",
    "NUMBA_PTXLINK_CHECKS",
    "NUMBA_PTXLINK_INLINE",
    "NUMBA_PTXLINK_LOG",
    "NUMBA_PTXLINK_CACHE",
    "NUMBA_PTXLINK_CACHE_SECRET",
    "NUMBA_PTXLINK_CACHE_SIZE",
    "NUMBA_PTXLINK_DEVICE",
    "NUMBA_PTXLINK_CPU_ARCH",
    "NUMBA_PTXLINK_CPU_DEVICES",
    "NUMBA_PTXLINK_CPU_CHECKS",
    "NUMBA_PTXLINK_CPU_THREADS",
    # `numba-ptxlink cpu` sets the next two, for programs without Python.
    "NUMBA_PTXLINK_CPU_PYTHON",
    "NUMBA_PTXLINK_CPU_LIBPYTHON",
)
"""The environment variables of this package."""


class Config(NamedTuple):
    """
    The configuration from the environment.

    A NamedTuple, since every start of a program with numba.cuda defines it, and the definition of a frozen
    dataclass takes five times as long.

    Args:
        mode: NUMBA_PTXLINK: `1`, `0` or `auto`. Whether Numba uses this package's linker: always, never, or
            only if the driver is older than the toolkit. `off`, `false` and `no` mean `0`.
        backend: NUMBA_PTXLINK_BACKEND: `auto`, `nvptxcompiler`, `nvjitlink` or `pynvjitlink`. The tool that
            links; a link that the named tool cannot do is an error. Exports, whose cubins are not linked,
            ignore it.
        checks: NUMBA_PTXLINK_CHECKS: `all` or `none`. Whether a link first compares the declarations and
            definitions in its inputs, and those in the manifests of exports.
        inline: NUMBA_PTXLINK_INLINE: `auto`, `all` or `none`. Which calls between PTX inputs are inlined.
        log_level: NUMBA_PTXLINK_LOG: Unset, `debug`, `info`, `warning`, `error` or `critical`. The lowest
            level of the messages of the logger `numba_ptxlink` that stderr shows, unless the program has
            configured logging.
        cache: NUMBA_PTXLINK_CACHE: `1`, `0`, directories separated by colons, or a Redis URL, which comes
            last. Whether and where the results of compilers and linkers are kept.
        cache_dirs: The directories in NUMBA_PTXLINK_CACHE, in order; empty for the user's cache directory.
        cache_url: The URL of the Redis server in NUMBA_PTXLINK_CACHE; None if there is no URL.
        cache_size: NUMBA_PTXLINK_CACHE_SIZE: `2GiB`, or a number with a unit from `B` to `TiB`. The soft
            limit of the first directory that can be written, which gets all new entries. `kB` means `KiB`.
        cache_secret: NUMBA_PTXLINK_CACHE_SECRET: Unset, or any text. The key that authenticates the entries
            of the cache. Without it no server is used.
        device: NUMBA_PTXLINK_DEVICE: Unset, or `cpu`. Whether the CPU is the CUDA device of the process, as
            after `numba_ptxlink.use_cpu()`.
        cpu_arch: NUMBA_PTXLINK_CPU_ARCH: `7.5`, or another compute capability: that of the CPU device.
        cpu_devices: NUMBA_PTXLINK_CPU_DEVICES: `1` to `16`. The number of CUDA devices for which the
            CPU stands.
        cpu_threads: NUMBA_PTXLINK_CPU_THREADS: `1` to `1024`. The number of cores that run the blocks of a
            launch. With several, atomic sums of floats differ from run to run.
        cpu_checks: NUMBA_PTXLINK_CPU_CHECKS: `memcheck`, a list with commas of `memcheck`, `initcheck`,
            `racecheck` and `synccheck`, or `none`. The checks of kernels on the CPU device. `memcheck` runs
            with each other check. With `none`, a wrong access may end the process.
    """

    mode: str = "1"
    backend: str = "auto"
    checks: str = "all"
    inline: str = "auto"
    log_level: int | None = None
    cache: bool = True
    cache_dirs: tuple[str, ...] = ()
    cache_url: str | None = None
    cache_size: int = 2 << 30
    cache_secret: bytes | None = None
    device: str = ""
    cpu_arch: str = "7.5"
    cpu_devices: int = 1
    cpu_threads: int = 1
    cpu_checks: tuple[str, ...] = ("memcheck",)

    def __repr__(self) -> str:
        """Leave out the fields that may contain a password."""
        fields = {name: value for name, value in self._asdict().items() if name not in _SECRET_FIELDS}
        return f"Config({', '.join(f'{name}={value!r}' for name, value in fields.items())})"

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Config:
        """
        Read the variables from *environ*.

        Raises:
            ConfigError: A variable has a value that is not among its choices.
        """
        level = _read_choice(environ, "NUMBA_PTXLINK_LOG", _LOG_LEVELS, "")
        mode = _read_choice(environ, "NUMBA_PTXLINK", _MODES, "1")
        cache, dirs, url = _parse_cache(environ.get("NUMBA_PTXLINK_CACHE", "").strip())
        return cls(
            mode="0" if mode in _OFF_VALUES else mode,
            backend=_read_choice(environ, "NUMBA_PTXLINK_BACKEND", BACKENDS, "auto"),
            checks=_read_choice(environ, "NUMBA_PTXLINK_CHECKS", CHECKS, "all"),
            inline=_read_choice(environ, "NUMBA_PTXLINK_INLINE", INLINE, "auto"),
            log_level=int(logging.getLevelName(level.upper())) if level else None,
            cache=cache,
            cache_dirs=dirs,
            cache_url=url,
            cache_size=_parse_size(environ.get("NUMBA_PTXLINK_CACHE_SIZE", "").strip() or "2GiB"),
            cache_secret=os.fsencode(environ.get("NUMBA_PTXLINK_CACHE_SECRET", "")) or None,
            device=_read_choice(environ, "NUMBA_PTXLINK_DEVICE", ("cpu",), ""),
            cpu_arch=environ.get("NUMBA_PTXLINK_CPU_ARCH", "").strip() or "7.5",
            cpu_devices=_read_number(environ, "NUMBA_PTXLINK_CPU_DEVICES", MAX_CPU_DEVICES),
            cpu_threads=_read_number(environ, "NUMBA_PTXLINK_CPU_THREADS", _MAX_CPU_THREADS),
            cpu_checks=_parse_cpu_checks(environ.get("NUMBA_PTXLINK_CPU_CHECKS", "").strip() or "memcheck"),
        )


def _read_choice(environ: Mapping[str, str], variable: str, choices: tuple[str, ...], default: str) -> str:
    """Return the value of *variable*, one of *choices*; *default* if it is unset or empty."""
    value = environ.get(variable, "").strip().lower() or default
    if value not in (*choices, default):
        raise ConfigError(f"{variable}={environ[variable]!r} is unknown; set it to {', '.join(choices)}.")
    return value


def _read_number(environ: Mapping[str, str], variable: str, maximum: int) -> int:
    """Return the value of *variable*, a number from 1 to *maximum*; 1 if it is unset or empty."""
    value = environ.get(variable, "").strip() or "1"
    if not value.isdecimal() or not 1 <= int(value) <= maximum:
        raise ConfigError(f"{variable}={value!r} is unknown; set it to a number from 1 to {maximum}.")
    return int(value)


def _parse_cpu_checks(value: str) -> tuple[str, ...]:
    """Return the names of checks in *value*, such as "memcheck,initcheck"; () for "none"."""
    lower_value = value.lower()
    names = () if lower_value == "none" else tuple(name.strip() for name in lower_value.split(","))
    if not set(names) <= set(CPU_CHECKS):
        raise ConfigError(
            f"NUMBA_PTXLINK_CPU_CHECKS={value!r} is unknown; set it to none, or to {', '.join(CPU_CHECKS)}, "
            "separated by commas."
        )
    return names


def _parse_cache(value: str) -> tuple[bool, tuple[str, ...], str | None]:
    """Return whether there is a cache, its directories (() for the user's cache directory), and its URL."""
    if value in ("", "0", "1"):
        return value != "0", (), None
    match = re.search(_URL, value)
    dirs_value = value[: match.start()] if match else value
    dirs = tuple(path for path in dirs_value.split(os.pathsep) if path)
    # A relative path would change its meaning with the working directory.
    if not all(path.startswith("~") or Path(path).is_absolute() for path in dirs):
        # The value is not shown: a mistyped URL may contain a password.
        raise ConfigError(
            f"NUMBA_PTXLINK_CACHE is unknown; set it to 1, 0, absolute directories separated by "
            f"{os.pathsep!r}, or a URL that comes last and begins with one of "
            f"{', '.join(f'{scheme}://' for scheme in STORES)}."
        )
    return True, dirs, match[0] if match else None


def _parse_size(value: str) -> int:
    """Return the number of bytes in *value*, such as "2GiB"."""
    match = re.fullmatch(_SIZE, value.lower())
    byte_count = 0
    if match:
        # The position of the prefix in this text is the power of 1024: 0 without a prefix, 1 for "k".
        power = " kmgt".index(match[2] or " ")
        byte_count = int(float(match[1]) * 1024**power)
    if byte_count <= 0:
        raise ConfigError(
            f"NUMBA_PTXLINK_CACHE_SIZE={value!r} is unknown; set it to a number above 0 with a unit, such as "
            "500MiB."
        )
    return byte_count


@functools.cache
def config() -> Config:
    """
    Return the configuration of this process, read from the environment at the first call.

    The first call also sets up logging by NUMBA_PTXLINK_LOG, so every public function begins with a call.
    """
    settings = Config.from_environ(os.environ)
    if settings.log_level is not None:
        _set_up_logging(settings.log_level)
    for name, cure in unknown_variables(os.environ):
        log.warning("the environment variable %s has no effect; %s", name, cure)
    return settings


def unknown_variables(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the names in *environ* that begin with NUMBA_PTXLINK and are unknown, each with the cure."""
    names = sorted(name for name in environ if name.startswith("NUMBA_PTXLINK") and name not in VARIABLES)
    if not names:
        return []
    from difflib import get_close_matches

    # Without a cutoff, three names for each: the most similar ones, however different they are.
    similar = {name: get_close_matches(name, VARIABLES, cutoff=0) for name in names}
    return [(name, f"correct its name to {' or '.join(similar[name])}, or unset it") for name in names]


def working_directory() -> str:
    """
    Return the path of the working directory.

    Raises:
        ConfigError: The directory was removed.
    """
    try:
        return os.getcwd()  # noqa: PTH109 - the callers need a str
    except FileNotFoundError as error:
        raise ConfigError("The working directory was removed; change to a folder that exists.") from error


LOG_FORMAT = "%(name)s %(levelname)s: %(message)s"
"""The format of the messages that NUMBA_PTXLINK_LOG shows."""

_lock = Lock()


def _set_up_logging(level: int) -> None:
    """Show this package's messages on stderr, unless the application has configured its logger."""
    logger = logging.getLogger(__package__)
    with _lock.held:
        if logger.handlers or logger.level != logging.NOTSET:
            return
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        # Otherwise a message would appear twice if the application configures the root logger, now or later.
        handler.addFilter(lambda _: not logging.getLogger().handlers)
        logger.addHandler(handler)
        logger.setLevel(level)
