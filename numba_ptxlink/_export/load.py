"""
Load the marked functions of an export: those of a file, in a child process, or those that are given.

The process that imports a file ends with the export: `children` has forked it of one that has imported a
compiler alone. So the modules that are new after the import are what the file is made of.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import site
import stat
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import machinery
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import ExportError, PtxlinkError, located

from . import choice
from .marks import Udf

if TYPE_CHECKING:
    from types import CodeType

_IMPORTING = "PTXLINK_IMPORTING"


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
        files: The files that they are made of: modules, and what was read while these were imported.
    """

    stem: str
    marked: tuple[Udf, ...]
    files: frozenset[Path]

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders of the Python files that define them."""
        files = (Path(each.function.__code__.co_filename) for each in self.marked)
        return tuple(dict.fromkeys(file.parent.absolute() for file in files if file.is_file()))


def load(source: Any, front_end: str | None) -> Loaded:
    """
    Return the functions of *source*: a file or module to import, or a module or functions of this process.

    Raises:
        ExportError: It is something else, marks nothing, or failed while it was imported. Names the line.
    """
    return _imported(source, front_end) if isinstance(source, Source) else _given(source)


def _imported(source: Source, front_end: str | None) -> Loaded:
    """
    Import *source* from its text into this process, which ends with the export.

    A file in a package is imported under its full name; a module as `python -m` finds it, from the working
    directory first.
    """
    choice.prepare(front_end)
    path, folder = Path(source.name), Path.cwd()
    home, last, name, stem = folder, [], source.name, source.name.rpartition(".")[2]
    if not source.is_module:
        real = path.resolve()
        _check_outer(path, real)
        # A package has its folder's name.
        stem = real.parent.name if path.stem == "__init__" else path.stem
        package = _packages_above(real)
        name = ".".join(package if real.stem == "__init__" else (*package, real.stem)) if package else ""
        home, last = real.parents[len(package)], [str(real.parent)] if package else []
    elif not all(part.isidentifier() for part in name.split(".")):
        raise ExportError(f"{name!r} is not the name of a module; write it like package.module.")
    if not _holds_packages(home):
        sys.path[:] = [str(home), *sys.path, *last]
    _read_source()
    former = set(sys.modules)
    read: set[str] = set()

    def note(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str) and not args[2] & (os.O_WRONLY | os.O_CREAT):
            read.add(os.path.abspath(args[0]))  # noqa: PTH100 - a path of the user's

    sys.addaudithook(note)
    try:
        module = importlib.import_module(name) if name else _execute(path)
    except (Exception, SystemExit) as error:
        raise _failure(source.name, error) from error
    finally:
        # Paths that were given are relative to it.
        os.chdir(folder)
    # What the process had imported before is a compiler, of which some modules are imported late.
    own = [name for name in sys.modules if not {name, name.partition(".")[0]} & former]
    data = (file for file in tuple(read) if _is_of_user(file) and not file.endswith(".pyc"))
    return Loaded(stem, _defined_in(module), _existing((*_files(own), *data)))


def _given(source: Any) -> Loaded:
    files = _existing(filter(_is_of_user, _files(list(sys.modules))))
    if isinstance(source, ModuleType):
        return Loaded(source.__name__.rpartition(".")[2], _defined_in(source), files)
    udfs = tuple(source) if isinstance(source, Iterable) else (source,)
    for function in udfs:
        if not isinstance(function, Udf):
            raise ExportError(f"export() takes a module, a path, or functions with @udf, not {function!r}.")
    if not udfs:
        raise ExportError("export() was given no UDF; mark functions with @udf.")
    return Loaded(udfs[0].name, udfs, files)


def _defined_in(module: ModuleType) -> tuple[Udf, ...]:
    """
    Return the marked functions of *module*, in the order in which they were marked.

    They are all that its body has marked, whatever defines them and whatever has them in the end, such as a
    list or a class; and those of its own that got a name in it later.
    """
    name = module.__name__
    own = (f for f in vars(module).values() if isinstance(f, Udf) and f.function.__module__ == name)
    marked = tuple(dict.fromkeys((*getattr(module.__spec__, choice.MARKS, ()), *own)))
    if not marked:
        raise ExportError(f"{name} defines no UDF; mark functions with @udf(signature).")
    return marked


def check_file(path: Path) -> None:
    """
    Refuse what is no Python file.

    Raises:
        ExportError: It is none, or cannot be read.
    """
    try:
        mode = path.stat().st_mode
        # A pipe would wait for what writes to it.
        if stat.S_ISREG(mode):
            path.open("rb").close()
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise ExportError(f"{path} is not a file; give the path of a Python file.") from error
    except OSError as error:
        raise ExportError(f"{path} could not be read: {error.strerror}; check the path.") from error
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "not a file"
        raise ExportError(f"{path} is {what}; give the path of a Python file.")
    if path.suffix != ".py":
        raise ExportError(f"{path} cannot be imported as Python; give the path of a .py file.")


def _check_outer(path: Path, real: Path) -> None:
    """Refuse a file that is being imported, and exports or links itself meanwhile."""
    outer = os.environ.get(_IMPORTING, "")
    if str(real) in outer.split(os.pathsep):
        raise ExportError(
            f"{path} asks for an import of itself while it is imported, which would never end; put the call "
            'that exports or links the file below `if __name__ == "__main__":`, or pass it the functions.'
        )
    os.environ[_IMPORTING] = f"{real}{os.pathsep}{outer}"


def _files(names: Iterable[str]) -> Iterator[str]:
    """Yield the absolute paths of the modules *names*, without the standard library."""
    for name in names:
        file = getattr(sys.modules.get(name), "__dict__", {}).get("__file__")
        if isinstance(file, str) and name.partition(".")[0] not in sys.stdlib_module_names:
            yield file if os.path.isabs(file) else str(Path(file).absolute())  # noqa: PTH117 - faster


def _existing(files: Iterable[str]) -> frozenset[Path]:
    standard = Path(sysconfig.get_path("stdlib"))
    # Such as _sysconfigdata_..., which no list of the standard library has.
    return frozenset(path for path in map(Path, files) if path.parent != standard and path.is_file())


@functools.cache
def _installed() -> frozenset[str]:
    """Return the folders of the standard library and of installed packages."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {*site.getsitepackages(), site.getusersitepackages()}
    return frozenset(os.path.realpath(folder) for folder in folders if folder)


@functools.cache
def _holds_packages(folder: Path) -> bool:
    """Return whether *folder* is one of `_installed`, or is in one of them."""
    real = folder.resolve()
    return not _installed().isdisjoint(map(str, (real, *real.parents)))


def _read_source() -> None:
    """
    Let modules that are not installed be compiled from their source.

    Byte code tells edits apart by whole seconds and sizes only.
    """
    get_code = machinery.SourceFileLoader.get_code

    def compiled(self: machinery.SourceFileLoader, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        if not _is_of_user(path):
            return get_code(self, fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code

    machinery.SourceFileLoader.get_code = compiled  # type: ignore[assignment, method-assign]


def _packages_above(path: Path) -> tuple[str, ...]:
    """Return the names of the packages around the file *path*, the outermost first."""
    names: list[str] = []
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        names.insert(0, folder.name)
        folder = folder.parent
    importable = path.stem.isidentifier() and names[:1] != [] and not _is_taken(names[0])
    return tuple(names) if importable else ()


def _is_taken(name: str) -> bool:
    """Return whether a compiler or the standard library has a module called *name*."""
    return name in sys.modules or name in sys.stdlib_module_names


def _execute(path: Path) -> ModuleType:
    stem = path.stem
    name = f"_ptxlink_{stem}" if _is_taken(stem) or not stem.isidentifier() else stem
    loader = machinery.SourceFileLoader(name, str(path.absolute()))
    spec = machinery.ModuleSpec(name, loader, origin=loader.path)
    spec.has_location = True
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _failure(what: str, error: BaseException) -> ExportError:
    """Return the error of an import, with the innermost line of the user's."""
    says = f"{type(error).__name__}: {error}".rstrip(": ").rstrip(".")
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    else:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename[:1] != "<" and _is_of_user(frame.filename)]
        where = f"{own[-1].filename}:{own[-1].lineno}" if own else ""
    if isinstance(error, PtxlinkError):
        # Of a decorator, which has the cure.
        return ExportError(located(where, error))
    says = f"{what} failed while it was imported: {says}. Mend the file, or install what it imports."
    return ExportError(located(where, says))


# A process has thousands of modules, in a tenth as many folders, and each export in it asks for all.
@functools.cache
def _is_of_user(file: str) -> bool:
    path = Path(file)
    folder = (path.resolve() if path.is_symlink() else path).parent
    # This package may be imported from its source.
    return not _holds_packages(folder) and Path(__file__).parents[1] not in path.parents
