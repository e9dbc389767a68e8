"""Load the marked functions of an export: those of a file, in a child process, or those that are given."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from numba_ptxlink._imports import sources
from numba_ptxlink.errors import ExportError

from . import choice
from .marks import Udf

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Source:
    """
    A file or a module that defines marked functions.

    Args:
        name: The path of the file, or the full name of the module.
        is_module: Whether it is the latter.
    """

    name: str
    is_module: bool = False


@dataclass(frozen=True)
class Loaded:
    """
    Marked functions.

    Args:
        stem: What the names of an export's files begin with, unless another name is given.
        marked: The functions.
        files: The files that they are made of.
    """

    stem: str
    marked: tuple[Udf, ...]
    files: frozenset[Path]


def load(source: Source, front_end: str | None) -> Loaded:
    """
    Import *source* into this process, which ends with the export.

    Args:
        source: The file or module.
        front_end: What is to compile it, None for what it uses.

    Raises:
        ExportError: It failed while it was imported, or marks nothing.
        AbiError: Names of functions are refused.
    """
    choice.prepare(front_end)
    with choice.refused_together():
        if source.is_module:
            imported = sources.import_module(source.name, choice.advice)
        else:
            imported = sources.import_file(Path(source.name), choice.advice)
    path = Path(source.name)
    # A package has its folder's name.
    stem = path.resolve().parent.name if path.stem == "__init__" else path.stem
    stem = source.name.rpartition(".")[2] if source.is_module else stem
    return Loaded(stem, _defined_in(imported.module), imported.files)


def given(source: Any) -> Loaded:
    """
    Return the functions of *source*: a module, or one or several marked functions.

    Raises:
        ExportError: It is something else, or empty.
    """
    if isinstance(source, ModuleType):
        stem, marked = source.__name__.rpartition(".")[2], _defined_in(source)
        return Loaded(stem, marked, sources.of_process())
    source = (source,) if isinstance(source, Udf) else source
    if not isinstance(source, Iterable):
        raise ExportError(f"export() takes a module, a path, or functions with @udf, not {source!r}.")
    udfs = tuple(source)
    for function in udfs:
        if not isinstance(function, Udf):
            raise ExportError(f"export() takes functions marked with @udf, not {function!r}.")
    if not udfs:
        raise ExportError("export() was given no UDF; mark functions with @udf.")
    return Loaded(udfs[0].name, udfs, sources.of_process())


def _defined_in(module: ModuleType) -> tuple[Udf, ...]:
    udfs = _of_module(module)
    if not udfs:
        raise ExportError(f"{module.__name__} defines no UDF; mark functions with @udf(signature).")
    return udfs


def _of_module(module: ModuleType) -> tuple[Udf, ...]:
    """
    Return the marked functions that *module* defines, in order of definition.

    They are all that its body has marked, whatever has them in the end, such as a list or a class; and what
    got a name in it later.
    """
    named = [each for each in vars(module).values() if isinstance(each, Udf)]
    own = [each for each in named if each.function.__module__ == module.__name__]
    recorded = getattr(module.__spec__, choice.MARKS, ())
    added = [other for each in dict.fromkeys((*recorded, *own)) for other in (each, *each.others)]
    # The last signature of a function has the others with it.
    with_another = {id(other) for each in added for other in each.others}
    return tuple(each for each in dict.fromkeys(added) if id(each) not in with_another)


def folders(marked: Sequence[Udf]) -> dict[Path, None]:
    """Return the folders of the Python files that define *marked*."""
    files = (Path(each.function.__code__.co_filename) for each in marked)
    return {file.parent.absolute(): None for file in files if file.is_file()}
