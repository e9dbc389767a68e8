"""
Describe all that the lowering of a function depends on, so that its result can be used again.

Numba reads the code of the function and of the functions that it calls, and the values of the names that they
read, which become constants. All of these are described by content. What cannot be described leaves the
function without a key, and it is lowered again each time.

What Numba knows beside that, such as `@overload` of a module, belongs to the process: `extended` has it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from dataclasses import dataclass, replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

from numba_ptxlink import cache
from numba_ptxlink._front_end.describe import IndescribableError
from numba_ptxlink._native.modules import find_module

from . import described, extended

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numba_ptxlink._front_end.protocol import FrontEnd

    from .signatures import Typed

# The settings that no code depends on.
_UNRELATED = ("NUMBA_PTXLINK_CACHE", "NUMBA_PTXLINK_LOG", "NUMBA_CUDA_LOG", "NUMBA_CACHE_DIR")
# What a machine has, and no code for a GPU depends on.
_OF_MACHINE = ("CPU", "NUM_THREADS", "_DIR", "PATH", "CACHE", "THREADING_LAYER", "JIT_PROFILING")


@dataclass(frozen=True)
class FunctionKey:
    """
    What a function depends on.

    Args:
        code: A digest of all but line numbers; None where it cannot be told.
        lines: A digest of file names and line numbers.
        reason: Why there is no digest.
        environment: What all functions depend on.
        compiler: The front end, with its release.
    """

    code: str | None
    lines: str = ""
    reason: str = ""
    environment: tuple[str, ...] = ()
    compiler: str = ""

    @property
    def once(self) -> bool:
        """Whether no other export can have the same."""
        return any(part.startswith(extended.ONCE) for part in self.environment)


def environment(front_end: FrontEnd, modules: Iterable[str], export: str) -> tuple[str, ...]:
    """
    Return what all functions depend on: versions, tools and settings, and what extends the front end.

    Args:
        front_end: What compiles them.
        modules: The names of the modules that define them.
        export: A name that no other export has.
    """
    settings = [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name.startswith("NUMBA_") and not name.startswith(_UNRELATED) and not _is_of_machine(name)
    ]
    return (
        f"Python {platform.python_implementation()} {platform.python_version()}",
        f"numba-ptxlink {cache.package_version()}",
        *_installed(),
        *settings,
        *_configured(front_end),
        *extended.of_program(front_end, modules, export),
    )


def _installed() -> Iterator[str]:
    """Yield the releases that the code can be of."""
    for name in described.DISTRIBUTIONS:
        try:
            yield f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            spec = find_module(name.replace("-", "_"))
            # Any folder of that name has a spec, but no file of its own.
            if spec is not None and spec.origin is not None:
                # Whatever its release is, it is not what another process has.
                yield f"{name} {os.urandom(16).hex()}"


def _configured(front_end: FrontEnd) -> Iterator[str]:
    """Yield the settings of the front end, which a program may change."""
    for name, module in sorted(sys.modules.items()):
        if name.split(".")[0] == front_end.root and name.endswith(".core.config"):
            for setting, value in sorted(vars(module).items()):
                known = value is None or isinstance(value, described.PLAIN)
                if setting.isupper() and known and not _is_of_machine(setting):
                    yield f"{name}.{setting}={value!r}"


def _is_of_machine(setting: str) -> bool:
    return any(part in setting for part in _OF_MACHINE)


def of_each(functions: Sequence[Typed], around: tuple[str, ...]) -> list[FunctionKey]:
    """
    Return what each of *functions*, which are of one front end, depends on.

    Args:
        functions: The functions.
        around: What all functions depend on.
    """
    front_end = functions[0].front_end
    digest = _digest(around)
    compiler = f"{front_end.name} {metadata.version(front_end.name)}"
    keys = (_of(function, digest) for function in functions)
    return [replace(key, environment=around, compiler=compiler) if key.code else key for key in keys]


def _of(function: Typed, around: str) -> FunctionKey:
    """Return what *function* depends on, in the environment with the digest *around*."""
    text = described.Description(function.front_end)
    udf = function.udf
    try:
        parts = [
            around,
            function.front_end.name,
            function.symbol,
            repr(udf.options),
            repr(udf.launch_bounds),
            "kernel" if udf.is_kernel else "udf",
            *function.labels,
            *(text.value(ty) for ty in (*function.args, function.result)),
            *(f"{name}={text.value(ty)}" for ty, name in sorted_records(function.records)),
            *(f"{existing!r}={text.value(ty)}" for ty, existing in function.structs.items()),
            f"const {sorted(function.const)}",
            f"restrict {sorted(function.restrict)}",
            text.function(udf.function),
        ]
    except IndescribableError as error:
        return FunctionKey(None, reason=str(error))
    except RecursionError:
        return FunctionKey(None, reason="values within values within values")
    return FunctionKey(_digest(parts), _digest(text.lines))


def sorted_records(records: Mapping[Any, str]) -> list[tuple[Any, str]]:
    """Return the record types and their names, in the order of the names."""
    return sorted(records.items(), key=lambda item: item[1])


def _digest(parts: Iterable[str]) -> str:
    encoded = (part.encode("utf-8", "surrogateescape") for part in parts)
    whole = b"".join(len(part).to_bytes(8, "little") + part for part in encoded)
    return hashlib.sha256(whole).hexdigest()
