"""Give the file of an export an import state: its own modules come from its folders, and leave afterwards."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import logging
import os
import site
import sys
import sysconfig
import threading
from contextlib import contextmanager, suppress
from importlib.machinery import FileFinder, SourcelessFileLoader
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from numba_ptxlink._config import FRONT_ENDS, STORES
from numba_ptxlink._locks import Lock

from .source_loader import FromSource, Given, current, from_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
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
NEVER_HIDDEN = PROTECTED.union(_MAIN)
"""These, and the program."""

log = logging.getLogger(__name__)

_PATIENCE = 30.0
"""After how many seconds a thread tells that it waits."""

_lock = Lock()


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

    def is_of_user(self, file: str) -> bool:
        """Return whether *file* is in no folder of installed packages."""
        return not any(str(above) in self._installed for above in Path(os.path.realpath(file)).parents)

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


def _tell_of_waiting() -> None:
    if _lock.held.acquire(timeout=_PATIENCE):
        _lock.held.release()
        return
    log.warning(
        "an export waits for that of another thread; if that one waits for this thread, neither ends: let an "
        "export end before another thread's is waited for"
    )


@contextmanager
def import_state(
    home: Path, last: Path | None = None, given: Mapping[str, bytes] = MappingProxyType({})
) -> Iterator[None]:
    """
    Import from *home* first, and from source, in a `with` block. Other threads' blocks wait; blocks may nest.

    Args:
        home: The folder that comes first on `sys.path`.
        last: The folder that comes last there.
        given: The source that takes the place of files, by path.
    """
    _tell_of_waiting()
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
            never_hidden=NEVER_HIDDEN,
        )
        state = _State(home.resolve(), path)
        names = set() if state.is_installed else _offered(home)
        names = (names | _owned(former, state)) - NEVER_HIDDEN
        hook, by_path = state.find, importlib.util.spec_from_file_location
        try:
            importlib.util.spec_from_file_location = from_source(by_path, state.is_of_user)
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
            importlib.util.spec_from_file_location = by_path
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
        if _top(name) not in NEVER_HIDDEN and state.owns_module(module)
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


def is_installed(module: Any) -> bool:
    """Return whether *module* was found in a folder of the standard library or of installed packages."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and not _real(_installed()).isdisjoint(
        map(str, Path(os.path.realpath(file)).parents)
    )


def _installed() -> set[str]:
    """Return the folders of the standard library and of installed packages."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return {*filter(None, folders), *site.getsitepackages(), site.getusersitepackages()}


def _real(folders: Iterable[str]) -> set[str]:
    found = set()
    for folder in folders:
        # A relative one leads nowhere where the working directory was deleted.
        with suppress(FileNotFoundError):
            found.add(os.path.realpath(folder or "."))
    return found
