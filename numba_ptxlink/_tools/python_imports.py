"""
Import a user's Python file in an import state of its own: from source, and without a trace afterwards.

`sys.modules` and `sys.path` belong to the whole process. Two files in two folders that both import `common`
would share the first one's, and an edited module would stay as it was when it was first imported. So, in a
`with` block:

- the modules of the file's own folder are imported again, from their source; byte code is neither read nor
  written, because it tells edits apart by whole seconds and sizes only;
- the folder comes first on `sys.path`, as for a script. Names of the standard library and of the packages
  that compile the functions are an exception: `numba.py` beside the file would break Numba itself;
- after it, `sys.modules` and `sys.path` are as before, except for modules found on the former `sys.path`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import os
import site
import sys
import sysconfig
import threading
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from importlib.machinery import FileFinder, SourcelessFileLoader
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from numba_ptxlink._config import FRONT_ENDS, STORES
from numba_ptxlink._locks import Lock
from numba_ptxlink.errors import ExportError

from .source_loader import FromSource, Given, Imported, current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

PROTECTED = sys.stdlib_module_names | {
    *("numba", "numba_ptxlink", "llvmlite", "numpy", "scipy", "cuda"),
    *(name.replace("-", "_") for name in FRONT_ENDS),
    *STORES.values(),
    *("_numba_ptxlink_hook", "_numba_cuda_redirector", "_cffi_backend", "cffi", "ml_dtypes"),
    *("nvidia", "packaging", "typing_extensions", "backports", "lz4", "pynvjitlink"),
    *("pycparser", "yaml"),
}
"""The names that a file's folder does not shadow: of the standard library, and of what compiles functions."""

_MAIN = ("__main__", "__mp_main__")
_NEVER_HIDDEN = PROTECTED.union(_MAIN)
_lock = Lock()
# The files whose bodies run, of nested blocks.
_running: list[Path] = []


# The last program that was imported again: what it is, its modules, and the one that was asked for.
_again: dict[str, Any] = {}


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
    with _import_state(Path(imported.home), last, imported.sources):
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
def imported_file(path: Path, prepare: Callable[[], object]) -> Iterator[ModuleType]:
    """
    Import the Python file *path* for a `with` block. Thread-safe: other threads' blocks wait.

    A file in a package is imported under its full name, with the folder above the package first on `sys.path`
    and its own folder last.

    Args:
        path: The file.
        prepare: Called before the file is run, where no file beside it shadows protected names.

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
    with _import_state(home, last):
        prepare()
        names = package if real.stem == "__init__" else (*package, real.stem)
        name = ".".join(names) if package else ""
        current.imported = Imported(name, str(path), str(home), str(last or ""))
        load = (
            functools.partial(importlib.import_module, name) if package else functools.partial(_execute, path)
        )
        _running.append(real)
        try:
            module = _run(path, load)
        finally:
            _running.remove(real)
        yield module


@contextmanager
def imported_module(name: str, prepare: Callable[[], object]) -> Iterator[ModuleType]:
    """
    Import the module *name* for a `with` block, as `python -m` finds it: from the working directory first.

    Args:
        name: Its full name.
        prepare: Called before the module is run, where no file beside it shadows protected names.

    Raises:
        ExportError: There is no such module, or it failed while it was imported.
    """
    if not all(part.isidentifier() for part in name.split(".")):
        raise ExportError(f"{name!r} is no module's name; write it like package.module.")
    with _import_state(Path.cwd()):
        prepare()
        current.imported = Imported(name, "", str(Path.cwd()))
        yield _run(name, functools.partial(importlib.import_module, name))


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
    name = stem if stem.isidentifier() and stem not in _NEVER_HIDDEN else f"_ptxlink_{stem}"
    spec = importlib.util.spec_from_file_location(name, path, loader=FromSource(name, str(path)))
    if spec is None or spec.loader is None:
        raise ImportError(f"no loader takes {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _run(what: Path | str, load: Callable[[], ModuleType]) -> ModuleType:
    try:
        return load()
    except (Exception, SystemExit) as error:
        says = f"{type(error).__name__}: {error}".rstrip(": ")
        raise ExportError(
            f"{what} failed while it was imported: {says.rstrip('.')}. {_cure(error, what)}"
        ) from error


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


class _Finder(FileFinder):
    """A finder of the modules in one folder that leaves protected names to other folders."""

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        return None if fullname in PROTECTED else super().find_spec(fullname, target)


class _State:
    """
    Which folders belong to the file that is imported, rather than to the process.

    Args:
        home: The folder of the file, or the one above its package.
        path: `sys.path` as it was.
    """

    def __init__(self, home: Path, path: Sequence[str]) -> None:
        self._home = str(home)
        self._shared = _real(path)
        self._installed = _real(_installed())
        self._seen: tuple[str, ...] = ()
        self._added: set[str] = set()
        self._known: dict[str, bool] = {}

    @property
    def is_installed(self) -> bool:
        """Whether the home is a folder of installed packages, which are the process's."""
        return self._home in self._installed

    def owns(self, folder: str) -> bool:
        """Return whether *folder* is the home, below it, or below what the file has put on `sys.path`."""
        if self._seen != (entries := tuple(sys.path)):
            added = _real(entries) - self._shared - {self._home}
            if added != self._added:
                self._added, self._known = added, {}
            self._seen = entries
        if folder not in self._known:
            self._known[folder] = self._decide(Path(os.path.realpath(folder or ".")))
        return self._known[folder]

    def _decide(self, folder: Path) -> bool:
        # The nearest known folder decides: a virtual environment may lie in the home, or the home in one.
        for above in map(str, (folder, *folder.parents)):
            if above in self._installed:
                return False
            if above == self._home:
                return True
            if above in self._shared:
                return False
            if above in self._added:
                return True
        return False

    def owns_module(self, module: Any) -> bool:
        """Return whether *module* was found in a folder that is owned."""
        fields: Mapping[str, Any] = getattr(module, "__dict__", {})
        file = fields.get("__file__")
        if isinstance(file, str):
            return self.owns(os.path.dirname(file))  # noqa: PTH120 - called for every module of the process
        try:
            portions = [entry for entry in fields.get("__path__", ()) if isinstance(entry, str)]
        except Exception:  # noqa: BLE001 - whatever a foreign module has put there
            return False
        return any(map(self.owns, portions))

    def find(self, entry: str) -> FileFinder:
        """Return a finder that loads from source, where *entry* is owned; a hook for `sys.path_hooks`."""
        if not os.path.isdir(entry or ".") or not self.owns(entry):  # noqa: PTH112 - called for each import
            raise ImportError(f"{entry} is not the export's own")
        return _Finder(
            entry or ".",
            (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
            (FromSource, importlib.machinery.SOURCE_SUFFIXES),
            (SourcelessFileLoader, importlib.machinery.BYTECODE_SUFFIXES),
        )


@contextmanager
def _import_state(
    home: Path, last: Path | None = None, given: Mapping[str, bytes] = MappingProxyType({})
) -> Iterator[None]:
    with _lock.held:
        path, former = list(sys.path), dict(sys.modules)
        # A module that is imported may export another one: blocks are nested.
        outer = vars(current).copy()
        vars(current).update(
            imported=None,
            thread=threading.get_ident(),
            former=outer["former"] if outer["thread"] else former,
            read={},
            given=given,
            never_hidden=_NEVER_HIDDEN,
        )
        state = _State(home.resolve(), path)
        names = set() if state.is_installed else _offered(home)
        names = (names | _owned(former, state)) - _NEVER_HIDDEN
        hook = state.find
        try:
            for name in former:
                if _top(name) in names:
                    sys.modules.pop(name, None)
            _forget_finders(state)
            sys.path_hooks.insert(0, hook)
            if given:
                sys.meta_path.insert(0, Given)
            if not state.is_installed:
                sys.path[:] = [str(home), *path, *([] if last is None else [str(last)])]
            yield
        finally:
            # A copy: other threads import meanwhile.
            now = dict(sys.modules)
            names |= _owned({name: module for name, module in now.items() if name not in former}, state)
            for name in now:
                if _top(name) in names:
                    sys.modules.pop(name, None)
            sys.modules.update({name: module for name, module in former.items() if _top(name) in names})
            with suppress(ValueError):
                sys.path_hooks.remove(hook)
            if given:
                with suppress(ValueError):
                    sys.meta_path.remove(Given)
            vars(current).update(outer)
            _forget_finders(state)
            sys.path[:] = path


def _owned(modules: Mapping[str, Any], state: _State) -> set[str]:
    """Return the top-level names, protected ones left out, of *modules* found in folders that are owned."""
    return {
        _top(name)
        for name, module in modules.items()
        if _top(name) not in _NEVER_HIDDEN and state.owns_module(module)
    }


def _top(name: str) -> str:
    return name.partition(".")[0]


def _offered(folder: Path) -> set[str]:
    """Return the names of the modules and regular packages in *folder*."""
    suffixes = tuple(importlib.machinery.all_suffixes())
    with suppress(OSError):
        return {
            entry.name.partition(".")[0]
            for entry in folder.iterdir()
            if entry.name.endswith(suffixes) or (entry / "__init__.py").is_file()
        }
    return set()


def _forget_finders(state: _State) -> None:
    """Drop the finders that `sys.path_importer_cache` keeps of the folders that are owned."""
    for entry in list(sys.path_importer_cache):
        if isinstance(entry, str) and state.owns(entry):
            del sys.path_importer_cache[entry]


def _installed() -> set[str]:
    """Return the folders of the standard library and of installed packages."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return {*filter(None, folders), *site.getsitepackages(), site.getusersitepackages()}


def _real(folders: Iterable[str]) -> set[str]:
    return {os.path.realpath(folder or ".") for folder in folders}
