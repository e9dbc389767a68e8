"""
Load the marked functions of an export from a file or module that a child imports, or from this process.

The child process ends with the export. `children` forks it from a server that has imported only
a compiler, so that modules that are new after the import are the file's own dependencies.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
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
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink.errors import ExportError, PtxlinkError, with_location

from . import choice
from .marks import Udf

if TYPE_CHECKING:
    from types import CodeType

# The environment variable that lists the files that are being imported, separated as in PATH.
_IMPORTING_VARIABLE = "PTXLINK_IMPORTING"


@dataclass(frozen=True)
class Source:
    """
    A file or a module that defines marked functions.

    Args:
        name: The path of the file, or the full name of the module.
        is_module: Whether *name* is that of a module.
        will_be_written: Whether the caller writes the files of the export later, from memory. If so, nvcc may
            be called to check the header.
    """

    name: str
    is_module: bool = False
    will_be_written: bool = False


@dataclass(frozen=True)
class Loaded:
    """
    The marked functions of a source.

    Args:
        stem: The default beginning of the names of an export's files.
        marked: The functions.
        files: The files that the functions depend on: modules, and files read while these were imported.
    """

    stem: str
    marked: tuple[Udf, ...]
    files: frozenset[Path]

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders of the Python files that define the functions."""
        files = (Path(function.function.__code__.co_filename) for function in self.marked)
        return tuple(dict.fromkeys(file.parent.absolute() for file in files if file.is_file()))


class _Location(NamedTuple):
    """
    The location of a source among Python's modules.

    Args:
        stem: The default beginning of the names of an export's files.
        name: The full name of the module; "" for a file outside of packages, whose name `_import_file`
            chooses.
        path_front: The folder to add at the front of `sys.path`.
        path_back: The folders to add at the end of `sys.path`.
    """

    stem: str
    name: str
    path_front: Path
    path_back: list[str]


def load(source: Any, front_end: str | None) -> Loaded:
    """
    Return the functions of *source*: a file or module to import, or a module or functions of this process.

    Raises:
        ExportError: *source* is of another type, marks nothing, or failed while it was imported. The message
            names the line.
    """
    return _import_source(source, front_end) if isinstance(source, Source) else _load_from_process(source)


def _import_source(source: Source, front_end: str | None) -> Loaded:
    """
    Import *source* from its text, not from byte code, into this process, which ends with the export.

    A file in a package is imported under its full name. A module is found as `python -m` finds it: in the
    working directory first.
    """
    choice.import_compiler(front_end)
    working_folder = Path.cwd()
    stem, name, path_front, path_back = (
        _module_location(source.name) if source.is_module else _file_location(Path(source.name))
    )
    # A folder of installed packages is in `sys.path` already, behind the standard library: leave it there.
    if not _is_within_package_folders(path_front):
        sys.path[:] = [str(path_front), *sys.path, *path_back]
    _compile_from_source()
    modules_before = set(sys.modules)
    opened_files: set[str] = set()

    def record_open(event: str, args: tuple[Any, ...]) -> None:
        # The arguments of "open" are path, mode and flags.
        if event == "open" and isinstance(args[0], str) and not args[2] & (os.O_WRONLY | os.O_CREAT):
            opened_files.add(os.path.abspath(args[0]))  # noqa: PTH100 - a path of the user's

    sys.addaudithook(record_open)
    try:
        module = importlib.import_module(name) if name else _import_file(Path(source.name))
    except (Exception, SystemExit) as error:
        raise _import_error(source.name, error) from error
    finally:
        # The import may have changed the working directory, which the user's relative paths refer to.
        os.chdir(working_folder)
    # New modules are dependencies, except for further modules of packages that were imported before, such as
    # those of Numba.
    new_modules = [
        module_name
        for module_name in sys.modules
        if module_name not in modules_before and module_name.partition(".")[0] not in modules_before
    ]
    # A copy, since the hook adds files that this process opens meanwhile.
    data_files = (file for file in tuple(opened_files) if _is_of_user(file) and not file.endswith(".pyc"))
    return Loaded(stem, _marked_in(module), _existing_files((*_module_files(new_modules), *data_files)))


def _module_location(name: str) -> _Location:
    """Return how to import the module *name*."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise ExportError(f"{name!r} is not the name of a module; write it like package.module.")
    return _Location(name.rpartition(".")[2], name, Path.cwd(), [])


def _file_location(path: Path) -> _Location:
    """Return how to import the file at *path*."""
    real_path = path.resolve()
    _check_recursion(path, real_path)
    # A package is named after its folder.
    stem = real_path.parent.name if path.stem == "__init__" else path.stem
    packages = _packages_above(real_path)
    # The folder of the outermost package, or of the file if it is in no package.
    path_front = real_path.parents[len(packages)]
    if not packages:
        return _Location(stem, "", path_front, [])
    name = ".".join(packages if real_path.stem == "__init__" else (*packages, real_path.stem))
    # Last in `sys.path`: the file may import files beside it without the names of its packages.
    return _Location(stem, name, path_front, [str(real_path.parent)])


def _load_from_process(source: Any) -> Loaded:
    """Return the functions of *source*: a module of this process, or one or several marked functions."""
    files = _existing_files(filter(_is_of_user, _module_files(list(sys.modules))))
    if isinstance(source, ModuleType):
        return Loaded(source.__name__.rpartition(".")[2], _marked_in(source), files)
    udfs = tuple(source) if isinstance(source, Iterable) else (source,)
    for function in udfs:
        if not isinstance(function, Udf):
            raise ExportError(f"export() takes a module, a path, or functions with @udf, not {function!r}.")
    if not udfs:
        raise ExportError("export() has no UDF to export; mark functions with @udf, and pass them.")
    return Loaded(udfs[0].name, udfs, files)


def _marked_in(module: ModuleType) -> tuple[Udf, ...]:
    """
    Return the marked functions of *module*, in the order in which they were marked.

    A function counts if it was marked while the module was imported, even if another module's function marked
    it, or if it has no name in the module, as in a list or a class. A function of the module that was marked
    later counts if it was assigned to a name of the module.
    """
    name = module.__name__
    assigned_later = (
        value
        for value in vars(module).values()
        if isinstance(value, Udf) and value.function.__module__ == name
    )
    marked = tuple(dict.fromkeys((*getattr(module.__spec__, choice.MARKS, ()), *assigned_later)))
    if not marked:
        raise ExportError(f"{name} defines no UDF; mark functions with @udf(signature).")
    return marked


def check_file(path: Path) -> None:
    """
    Check that *path* is a Python file.

    Raises:
        ExportError: *path* is not a Python file, or cannot be read.
    """
    try:
        mode = path.stat().st_mode
        # Opening a named pipe would wait for a writer.
        if stat.S_ISREG(mode):
            path.open("rb").close()
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise ExportError(f"{path} is not a file; give the path of a Python file.") from error
    except OSError as error:
        raise ExportError(f"{path} could not be read: {error.strerror}; check the path.") from error
    if not stat.S_ISREG(mode):
        description = "a folder" if stat.S_ISDIR(mode) else "not a file"
        raise ExportError(f"{path} is {description}; give the path of a Python file.")
    if path.suffix != ".py":
        raise ExportError(f"{path} cannot be imported as Python; give the path of a .py file.")


def _check_recursion(path: Path, real_path: Path) -> None:
    """Refuse a file that exports or links itself while it is imported."""
    path_list = os.environ.get(_IMPORTING_VARIABLE, "")
    if str(real_path) in path_list.split(os.pathsep):
        raise ExportError(
            f"{path} exports or links itself while it is imported; move that call below "
            '`if __name__ == "__main__":`, or pass it the functions.'
        )
    os.environ[_IMPORTING_VARIABLE] = f"{real_path}{os.pathsep}{path_list}"


def _module_files(names: Iterable[str]) -> Iterator[str]:
    """Yield the absolute paths of the modules *names*, without the standard library."""
    for name in names:
        file = getattr(sys.modules.get(name), "__dict__", {}).get("__file__")
        if isinstance(file, str) and name.partition(".")[0] not in sys.stdlib_module_names:
            yield file if os.path.isabs(file) else str(Path(file).absolute())  # noqa: PTH117 - faster


def _existing_files(files: Iterable[str]) -> frozenset[Path]:
    """Return the *files* that exist, without those of the standard library."""
    standard_library = Path(sysconfig.get_path("stdlib"))
    # `_module_files` lists modules such as _sysconfigdata_..., which are missing in sys.stdlib_module_names.
    return frozenset(path for path in map(Path, files) if path.parent != standard_library and path.is_file())


@functools.cache
def _package_folders() -> frozenset[str]:
    """Return the folders of the standard library and of installed packages."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {*site.getsitepackages(), site.getusersitepackages()}
    return frozenset(os.path.realpath(folder) for folder in folders if folder)


@functools.cache
def _is_within_package_folders(folder: Path) -> bool:
    """Return whether *folder* is one of `_package_folders`, or within one of them."""
    real_folder = folder.resolve()
    return not _package_folders().isdisjoint(map(str, (real_folder, *real_folder.parents)))


def _compile_from_source() -> None:
    """
    From now on, import the user's modules from their source instead of byte code.

    Python compares byte code with its source by time in whole seconds and by size, which misses quick edits.
    """
    get_code = machinery.SourceFileLoader.get_code

    def compile_source(self: machinery.SourceFileLoader, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        if not _is_of_user(path):
            return get_code(self, fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code

    machinery.SourceFileLoader.get_code = compile_source  # type: ignore[assignment, method-assign]


def _packages_above(path: Path) -> tuple[str, ...]:
    """
    Return the names of the packages around the file *path*, the outermost first.

    Returns () if the file is in no package, or cannot be imported by its full name.
    """
    names: list[str] = []
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        names.insert(0, folder.name)
        folder = folder.parent
    is_importable = path.stem.isidentifier() and bool(names) and not _is_taken(names[0])
    return tuple(names) if is_importable else ()


def _is_taken(name: str) -> bool:
    """Return whether a module called *name* is imported already, or belongs to the standard library."""
    return name in sys.modules or name in sys.stdlib_module_names


def _import_file(path: Path) -> ModuleType:
    """Import the file at *path*, under a name that no other module has."""
    stem = path.stem
    name = f"_ptxlink_{stem}" if _is_taken(stem) or not stem.isidentifier() else stem
    loader = machinery.SourceFileLoader(name, str(path.absolute()))
    spec = machinery.ModuleSpec(name, loader, origin=loader.path)
    spec.has_location = True
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _import_error(source: str, error: BaseException) -> ExportError:
    """Return the error for a failed import, with the innermost line of the user's code."""
    message = f"{type(error).__name__}: {error}".rstrip(": ").rstrip(".")
    if isinstance(error, SyntaxError) and error.filename:
        location = f"{error.filename}:{error.lineno}"
    else:
        frames = traceback.extract_tb(error.__traceback__)
        # Python's own frames have names such as "<frozen importlib._bootstrap>".
        user_frames = [frame for frame in frames if frame.filename[:1] != "<" and _is_of_user(frame.filename)]
        location = f"{user_frames[-1].filename}:{user_frames[-1].lineno}" if user_frames else ""
    if isinstance(error, PtxlinkError):
        # A decorator of this package raised it, with its own cure.
        return ExportError(with_location(location, error))
    cure = "correct the file, or install the packages that it imports"
    # A module of the standard library or of a compiler may hide a file of the same name beside the source.
    # The message is then "cannot import name 'f' from 'random'" or "module 'random' has no attribute 'f'".
    imported = re.search(r"(?:from|module) '(\w+)'", message)
    if imported and location and Path(location.rpartition(":")[0]).with_name(f"{imported[1]}.py").exists():
        cure = f"rename {imported[1]}.py beside the file, since another module has its name"
    message = f"{source} failed while it was imported: {message}; {cure}."
    return ExportError(with_location(location, message))


# Cached: a process has thousands of modules, and each export checks all of them.
@functools.cache
def _is_of_user(file: str) -> bool:
    """Return whether *file* belongs neither to Python, nor to an installed package, nor to this package."""
    path = Path(file)
    folder = (path.resolve() if path.is_symlink() else path).parent
    # A checkout of this package is not in a package folder, and is not the user's code.
    return not _is_within_package_folders(folder) and Path(__file__).parents[1] not in path.parents
