"""Choose the front end that compiles a marked function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba_ptxlink._front_end import registry
from numba_ptxlink.errors import ExportError

from . import reached, type_names
from .reached import Marked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._front_end.protocol import FrontEnd


def chosen(function: Marked, asked: str | None = None) -> FrontEnd:
    """
    Return the front end of *function*.

    It is the one that its decorator names, or *asked*; else the one whose types its signature has, or whose
    functions and modules it and its callees read; else the first one that is
    installed.

    Raises:
        ConfigError: The one that is named is unknown.
        ExportError: *function* reads what belongs to another, or to several; or none is installed.
    """
    named = function.asked or asked
    told = _told(function)
    if named is not None:
        front_end = registry.get(named)
        for what, other in told.items():
            if other is not front_end:
                raise ExportError(
                    f"{function.name} ({function.source}) is to be compiled by {named}, and uses {what}, "
                    f"which belongs to {other.name}; use what {named} has in its place, or choose "
                    f"{other.name}."
                )
        return front_end
    if len({front_end.name for front_end in told.values()}) > 1:
        uses = " and ".join(f"{what}, which belongs to {front_end.name}" for what, front_end in told.items())
        raise ExportError(
            f"{function.name} ({function.source}) uses {uses}; one front end compiles a function with all "
            "that it calls: take all of them from one."
        )
    if told:
        return next(iter(told.values()))
    return default()


def common(functions: Sequence[Marked], asked: str | None = None) -> FrontEnd:
    """
    Return the one front end of *functions*, with its compiler imported.

    Raises:
        ExportError: They have several; or as for `chosen` and `registry.require`.
    """
    marked = [variant for function in functions for variant in (*function.others, function)]
    by_name = {chosen(function, asked).name: function for function in reversed(marked)}
    if len(by_name) > 1:
        listed = " and ".join(
            f"{function.name} ({function.source}) by {name}" for name, function in sorted(by_name.items())
        )
        asked_for = [function for function in marked if function.asked]
        settled = all(function.asked or _told(function) for function in marked)
        cure = "" if settled else ", or choose one with front_end="
        if asked_for and settled:
            cure = ", or give their decorators one front_end="
        raise ExportError(
            f"{listed}: the functions of one export are compiled by one front end. Export them apart, under "
            f"two names{cure}."
        )
    return registry.require(registry.get(next(iter(by_name))))


def default() -> FrontEnd:
    """
    Return the front end of functions that do not tell.

    Raises:
        ExportError: None is installed. Names the extras.
    """
    for front_end in registry.front_ends():
        if registry.installed(front_end):
            return front_end
    cures = " or ".join(
        f"`pip install 'numba-ptxlink[{front_end.extra}]'` ({front_end.name})"
        for front_end in registry.front_ends()
    )
    raise ExportError(f"No compiler for Python functions is installed; run {cures}.")


def prepare(asked: str | None = None) -> None:
    """
    Import the compiler before a file that uses it, as far as it is known which one that is.

    Raises:
        ExportError: It is not installed or cannot be used, or none is.
    """
    there = [front_end for front_end in registry.front_ends() if registry.installed(front_end)]
    if asked is not None:
        registry.require(registry.get(asked))
    elif len(there) < 2:
        registry.require(default())


def advice(error: BaseException) -> str:
    """Return what to import in place of a front end that is not installed, where *error* is that; else ""."""
    missing = registry.of_module(error.name or "") if isinstance(error, ModuleNotFoundError) else None
    there = [front_end for front_end in registry.front_ends() if registry.installed(front_end)]
    if missing is None or missing in there or not there:
        return ""
    return (
        f"{missing.name} is not installed, and {there[0].name} is: write "
        f"`from {there[0].root} import cuda, types`, or run `pip install 'numba-ptxlink[{missing.extra}]'`."
    )


def _told(function: Marked) -> dict[str, FrontEnd]:
    """Return what *function* has of front ends: what it is, and whose."""
    told: dict[str, FrontEnd] = {}
    common: dict[str, FrontEnd] = {}
    for name, value in type_names.named(function.signature, function.function):
        if (front_end := registry.owner(value)) is not None:
            there = registry.installed(front_end)
            own = getattr(front_end.types, name, None) if there else value
            # Written by its name, such as float32, a type is one that any front end has.
            if str(own) != str(value):
                told.setdefault(name, front_end)
            elif there:
                common.setdefault(name, front_end)
    for reader, name, value in reached.names([function.function]):
        if isinstance(value, Marked):
            front_end = registry.get(value.asked) if value.asked else None
        else:
            front_end = registry.owner(value)
        if front_end is not None:
            told.setdefault(f"{name} in {reader.__qualname__}", front_end)
    return told or common
