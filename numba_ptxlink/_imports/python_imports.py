"""
Import a user's Python file in an import state of its own: from source, and without a trace afterwards.

`sys.modules` and `sys.path` belong to the whole process. Two files in two folders that both import `common`
would share the first one's, and an edited module would stay as it was when it was first imported. So, in a
`with` block:

- the modules of the file's own folder are imported again, from their source; byte code is neither read nor
  written, because it tells edits apart by whole seconds and sizes only;
- the folder comes first on `sys.path`, as for a script. Names of the standard library and of the packages
  that compile the functions are an exception: `numba.py` beside the file would break Numba itself;
- after it, `sys.modules`, `sys.path` and the working directory are as before, except for modules found on the
  former `sys.path`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import threading
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import ExportError

from .import_state import NEVER_HIDDEN, PROTECTED, import_state
from .source_loader import FromSource, Imported, current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

# The files whose bodies run, of nested blocks.
_running: list[Path] = []


# The last program that was imported again: what it is, its modules, and the one that was asked for.
_again: dict[str, Any] = {}


def _unadvised(_error: BaseException) -> str:
    return ""


def imported_now() -> Imported | None:
    """Return what the current `with` block has imported, None outside of this thread's blocks."""
    if current.imported is None or current.thread != threading.get_ident():
        return None
    return replace(current.imported, sources=dict(current.read))


def former_modules() -> Mapping[str, Any]:
    """Return `sys.modules` as it was before this thread's outermost `with` block, or as it is."""
    return current.former if current.thread == threading.get_ident() else dict(sys.modules)


@contextmanager
def imported_again(imported: Imported, prepare: Callable[[], object]) -> Iterator[ModuleType]:
    """
    Import what another process has imported, from the source that it had, for a `with` block.

    The files need not exist here. The same program is run once, and its modules kept for the next block.

    Args:
        imported: What `imported_now` returned there.
        prepare: Called before it is run.

    Raises:
        ExportError: It failed while it was imported.
    """
    last = Path(imported.last) if imported.last else None
    path = Path(imported.path) if imported.path else None
    with import_state(Path(imported.home), last, imported.sources):
        prepare()
        if _again.get("imported") == imported:
            sys.modules.update(_again["modules"])
            yield _again["module"]
            return
        former = dict(sys.modules)
        # What it prints was printed by the first import; the standard output may be JSON of the command.
        with redirect_stdout(sys.stderr):
            if imported.name:
                module = _run(
                    path or imported.name, functools.partial(importlib.import_module, imported.name)
                )
            else:
                module = _run(Path(imported.path), functools.partial(_execute, Path(imported.path)))
        own = {name: value for name, value in sys.modules.items() if former.get(name) is not value}
        _again.update(imported=imported, modules=own, module=module)
        yield module


@contextmanager
def imported_file(
    path: Path, prepare: Callable[[], object], advice: Callable[[BaseException], str] = _unadvised
) -> Iterator[ModuleType]:
    """
    Import the Python file *path* for a `with` block. Thread-safe: other threads' blocks wait.

    A file in a package is imported under its full name, with the folder above the package first on `sys.path`
    and its own folder last.

    Args:
        path: The file.
        prepare: Called before the file is run, where no file beside it shadows protected names.
        advice: Returns what helps where the import failed, "" where it does not know.

    Raises:
        ExportError: It is no Python file, or failed while it was imported.
    """
    _check_file(path)
    real = path.resolve()
    if real in _running:
        raise ExportError(
            f"{path} asks for an import of itself while it is imported, which would never end; put the call "
            'that exports or links the file below `if __name__ == "__main__":`, or pass it the functions.'
        )
    package = _packages_above(real)
    home, last = real.parents[len(package)], real.parent if package else None
    with import_state(home, last):
        prepare()
        names = package if real.stem == "__init__" else (*package, real.stem)
        name = ".".join(names) if package else ""
        current.imported = Imported(name, str(path), str(home), str(last or ""))
        load = (
            functools.partial(importlib.import_module, name) if package else functools.partial(_execute, path)
        )
        _running.append(real)
        try:
            module = _run(path, load, advice)
        finally:
            _running.remove(real)
        yield module


@contextmanager
def imported_module(
    name: str, prepare: Callable[[], object], advice: Callable[[BaseException], str] = _unadvised
) -> Iterator[ModuleType]:
    """
    Import the module *name* for a `with` block, as `python -m` finds it: from the working directory first.

    Args:
        name: Its full name.
        prepare: Called before the module is run, where no file beside it shadows protected names.
        advice: Returns what helps where the import failed, "" where it does not know.

    Raises:
        ExportError: There is no such module, or it failed while it was imported.
    """
    if not all(part.isidentifier() for part in name.split(".")):
        raise ExportError(f"{name!r} is no module's name; write it like package.module.")
    with import_state(Path.cwd()):
        prepare()
        current.imported = Imported(name, "", str(Path.cwd()))
        yield _run(name, functools.partial(importlib.import_module, name), advice)


def _check_file(path: Path) -> None:
    try:
        if path.is_dir():
            raise ExportError(f"{path} is a folder; give the path of a Python file.")
        if not path.is_file():
            raise ExportError(f"{path} is no file; give the path of a Python file.")
        if path.suffix != ".py":
            raise ExportError(f"{path} cannot be imported as Python; give the path of a .py file.")
        with path.open("rb"):
            pass
    except OSError as error:
        raise ExportError(f"{path} could not be read: {error.strerror}; check the path.") from error


def _packages_above(path: Path) -> tuple[str, ...]:
    """Return the names of the packages around the file *path*, the outermost first."""
    names: list[str] = []
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        names.insert(0, folder.name)
        folder = folder.parent
    importable = path.stem.isidentifier() and names[:1] != [] and names[0] not in PROTECTED
    return tuple(names) if importable else ()


def _execute(path: Path) -> ModuleType:
    stem = path.stem
    name = stem if stem.isidentifier() and stem not in NEVER_HIDDEN else f"_ptxlink_{stem}"
    spec = importlib.util.spec_from_file_location(name, path, loader=FromSource(name, str(path)))
    if spec is None or spec.loader is None:
        raise ImportError(f"no loader takes {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _run(
    what: Path | str, load: Callable[[], ModuleType], advice: Callable[[BaseException], str] = _unadvised
) -> ModuleType:
    try:
        with _working_directory_kept():
            return load()
    except (Exception, SystemExit) as error:
        says = f"{type(error).__name__}: {error}".rstrip(": ")
        raise ExportError(
            f"{what} failed while it was imported: {says.rstrip('.')}. {advice(error) or _cure(error, what)}"
        ) from error


@contextmanager
def _working_directory_kept() -> Iterator[None]:
    """Return to the working directory, which the paths that were given are relative to."""
    former = None
    with suppress(OSError):
        former = Path.cwd()
    try:
        yield
    finally:
        with suppress(OSError):
            if former is not None and Path.cwd() != former:
                os.chdir(former)


def _cure(error: BaseException, what: Path | str) -> str:
    """Return what helps: a file beside it of a protected name is easily taken for what was imported."""
    name = getattr(error, "name", None)
    if isinstance(error, AttributeError):
        name = getattr(getattr(error, "obj", None), "__name__", None)
    top = str(name or "").partition(".")[0]
    folder = what.resolve().parent if isinstance(what, Path) else Path.cwd()
    missed = isinstance(error, (ImportError, AttributeError))
    if missed and top in PROTECTED and (folder / f"{top}.py").is_file():
        return (
            f"{folder / top}.py was not imported: the standard library or a package that compiles the "
            "functions has that name; rename the file."
        )
    if isinstance(what, str) and isinstance(error, ModuleNotFoundError):
        return "Check the name, and that it is found from the working directory."
    return "Mend the file."
