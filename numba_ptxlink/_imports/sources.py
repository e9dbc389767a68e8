"""
Import a Python file from its source, and tell of which files it is made.

The process ends with the export: `children` has forked it of one that has imported a compiler alone. So the
modules that are new after the import are those that the file has imported.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import site
import sys
import sysconfig
import traceback
from dataclasses import dataclass
from importlib import machinery
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import CodeType, ModuleType

_IMPORTING = "PTXLINK_IMPORTING"


@dataclass(frozen=True)
class Imported:
    """
    A module with the files that it is made of.

    Args:
        module: The module.
        files: Those of the modules that it has imported, and those that were read meanwhile.
    """

    module: ModuleType
    files: frozenset[Path]


def import_file(path: Path, advice: Callable[[BaseException], str]) -> Imported:
    """
    Import the Python file *path*; one in a package under its full name.

    Args:
        path: The file.
        advice: Returns what helps where the import failed, "" where it does not know.

    Raises:
        ExportError: It failed while it was imported. Names the line.
    """
    real = path.resolve()
    outer = os.environ.get(_IMPORTING, "")
    if str(real) in outer.split(os.pathsep):
        raise ExportError(
            f"{path} asks for an import of itself while it is imported, which would never end; put the call "
            'that exports or links the file below `if __name__ == "__main__":`, or pass it the functions.'
        )
    os.environ[_IMPORTING] = f"{real}{os.pathsep}{outer}"
    package = _packages_above(real)
    if package:
        name = ".".join(package if real.stem == "__init__" else (*package, real.stem))
        home, last = real.parents[len(package)], [str(real.parent)]
        return _imported(path, home, last, lambda: importlib.import_module(name), advice)
    return _imported(path, real.parent, [], lambda: _execute(path), advice)


def import_module(name: str, advice: Callable[[BaseException], str]) -> Imported:
    """
    Import the module *name*, as `python -m` finds it: from the working directory first.

    Raises:
        ExportError: There is no such module, or it failed while it was imported.
    """
    if not all(part.isidentifier() for part in name.split(".")):
        raise ExportError(f"{name!r} is not the name of a module; write it like package.module.")
    return _imported(name, Path.cwd(), [], lambda: importlib.import_module(name), advice)


def check_file(path: Path) -> None:
    """
    Refuse what is no Python file.

    Raises:
        ExportError: It is none, or cannot be read.
    """
    try:
        if path.is_dir():
            raise ExportError(f"{path} is a folder; give the path of a Python file.")
        if not path.is_file():
            raise ExportError(f"{path} is not a file; give the path of a Python file.")
        if path.suffix != ".py":
            raise ExportError(f"{path} cannot be imported as Python; give the path of a .py file.")
        with path.open("rb"):
            pass
    except OSError as error:
        raise ExportError(f"{path} could not be read: {error.strerror}; check the path.") from error


def of_process() -> frozenset[Path]:
    """Return the files of this process's modules, installed packages left out."""
    return frozenset(path for path in _files(list(sys.modules)) if _is_of_user(str(path)))


def _imported(
    what: Path | str,
    home: Path,
    last: list[str],
    load: Callable[[], ModuleType],
    advice: Callable[[BaseException], str],
) -> Imported:
    reading: list[set[str]] = [set()]

    def note(event: str, args: tuple[Any, ...]) -> None:
        # Nothing removes the hook.
        if reading and event == "open" and isinstance(args[0], str) and not args[2] & os.O_ACCMODE:
            reading[0].add(os.path.abspath(args[0]))  # noqa: PTH100 - a path of the user's

    if not _is_installed(home):
        sys.path[:] = [str(home), *sys.path, *last]
    _read_source()
    former, folder = set(sys.modules), Path.cwd()
    sys.addaudithook(note)
    try:
        module = load()
    except (Exception, SystemExit) as error:
        raise _failure(what, error, advice) from error
    finally:
        read = reading.pop()
        # Paths that were given are relative to it.
        os.chdir(folder)
    data = (path for path in map(Path, read) if not _is_installed(path) and path.suffix != ".pyc")
    # What the process had imported before is a compiler, of which some modules are imported late.
    own = [name for name in sys.modules if not {name, name.partition(".")[0]} & former]
    return Imported(module, _files(own) | {path for path in data if path.is_file()})


def _files(names: Iterable[str]) -> frozenset[Path]:
    """Return the files of the modules *names*, without the standard library."""
    standard = Path(sysconfig.get_path("stdlib"))
    found = set()
    for name in names:
        file = getattr(sys.modules.get(name), "__dict__", {}).get("__file__")
        if isinstance(file, str) and name.partition(".")[0] not in sys.stdlib_module_names:
            path = Path(file).absolute()
            # A module in an archive stands for the archive.
            found.add(next((each for each in (path, *path.parents) if each.is_file()), path))
    # Such as _sysconfigdata_..., which no list of the standard library has.
    return frozenset(path for path in found if path.parent != standard)


@functools.cache
def _installed() -> frozenset[str]:
    """Return the folders of the standard library and of installed packages."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {*site.getsitepackages(), site.getusersitepackages()}
    return frozenset(os.path.realpath(folder) for folder in folders if folder)


def _is_installed(path: Path) -> bool:
    folders = _installed()
    return any(str(each) in folders for each in (path.resolve(), *path.resolve().parents))


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
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no loader takes {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _failure(what: Path | str, error: BaseException, advice: Callable[[BaseException], str]) -> ExportError:
    """Return the error of an import, with the innermost line of the user's."""
    says = f"{type(error).__name__}: {error}".rstrip(": ").rstrip(".")
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    else:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename[:1] != "<" and _is_of_user(frame.filename)]
        where = f"{own[-1].filename}:{own[-1].lineno}" if own else ""
    message = f"{what} failed while it was imported: {says}. {advice(error) or 'Mend the file.'}"
    return ExportError(f"{where}: error: {message}" if where else message)


def _is_of_user(file: str) -> bool:
    # This package may be imported from its source.
    return not _is_installed(Path(file)) and Path(__file__).parents[1] not in Path(file).parents
