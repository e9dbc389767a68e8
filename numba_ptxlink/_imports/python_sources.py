"""Find the Python files that a module is made of: its own, and those of what it imports."""

from __future__ import annotations

import dis
import os
import sys
import sysconfig
from importlib.machinery import SourceFileLoader
from importlib.util import resolve_name
from modulefinder import ModuleFinder
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

from .import_state import PROTECTED
from .source_loader import FromSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_IMPORT = dis.opmap["IMPORT_NAME"]
# The global values of modules, by name; and a module by its name, with its values where they are known.
_Modules = dict[str, dict[str, Any]]
_Place = tuple[str, "dict[str, Any] | None"]
# By these, modules are imported whose names stand nowhere in the code.
_COMPUTED = {
    *("__import__", "import_module", "exec", "exec_module", "load_module", "entry_points"),
    *("run_module", "run_path"),
}


def of_modules(
    names: Iterable[str], former: Mapping[str, Any], functions: Iterable[FunctionType] = ()
) -> list[Path]:
    """
    Return the Python files that the modules *names*, and those that define *functions*, depend on, sorted.

    These are the files of the modules that can be reached from these through import statements and global
    names, whether they are in `sys.modules` or were loaded from a file beside it. What another thread or a
    compiler has imported meanwhile does not count, unless one of the modules imports by computed names: then
    all that is in `sys.modules` and was not in *former* does. The standard library, and what compiles
    functions, such as Numba and NumPy, are left out. A module in an archive stands for the archive.
    """
    names = set(names)
    # The program counts where its own functions are exported, and not as what something else names.
    passed_over = PROTECTED | ({"__main__", "__mp_main__"} - names)
    loaded = dict(sys.modules)
    modules = {
        name: _fields(module) for name, module in loaded.items() if name.partition(".")[0] not in passed_over
    }
    codes: dict[str, list[CodeType]] = {}
    _reach([*names, *_keys(map(_defined_in, functions), modules)], modules, codes)
    if any(_COMPUTED.intersection(code.co_names) for parts in codes.values() for code in parts):
        _reach([name for name in modules if former.get(name) is not loaded.get(name)], modules, codes)
    paths = {_on_disk(Path(file)) for file in (_file(modules[name]) for name in codes) if file}
    # Such as _sysconfigdata_..., which no list of the standard library has.
    standard = Path(sysconfig.get_path("stdlib"))
    return sorted(path for path in paths if path.parent != standard)


def _on_disk(path: Path) -> Path:
    """Return the file that *path* is, or lies in."""
    path = path.absolute()
    return next((above for above in path.parents if above.is_file()), path)


def _reach(names: Iterable[str], modules: _Modules, codes: dict[str, list[CodeType]]) -> None:
    """Add to *codes* what *names*, and all that they lead to in *modules*, are compiled to."""
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in codes or name not in modules:
            continue
        fields = modules[name]
        codes[name] = list(_codes(name, fields))
        pending += _keys(_named_by(fields), modules)
        pending += _imported_by(codes[name], str(fields.get("__package__") or ""))
        # A package is run before what is in it.
        pending.append(name.rpartition(".")[0])


def _keys(found: Iterable[_Place], modules: _Modules) -> Iterator[str]:
    """Yield the names of *found* in *modules*, and add those that are loaded under no name."""
    for name, fields in found:
        yield name
        if fields is None or name.partition(".")[0] in PROTECTED:
            continue
        if fields is not modules.get(name) and fields is not _fields(sys.modules.get(name)):
            # Two of them may have one name, as what `run_path` runs has.
            modules[f"{name} {id(fields)}"] = fields
            yield f"{name} {id(fields)}"


def _fields(module: Any) -> dict[str, Any]:
    # Not getattr: what a program puts into sys.modules may compute attributes, or raise.
    fields = getattr(module, "__dict__", None)
    return fields if isinstance(fields, dict) else {}


def _file(fields: dict[str, Any]) -> str:
    """Return the Python file of a module, "" where it has none."""
    file = fields.get("__file__")
    # `run_path` leaves what it was given there.
    path = os.fspath(file) if isinstance(file, (str, os.PathLike)) else ""
    return path if isinstance(path, str) and path.endswith(".py") else ""


class _Reader(SourceFileLoader):
    """A loader whose byte code is looked at and not run, so that none is written for it."""

    def set_data(self, *_args: Any, **_options: Any) -> None:
        """Write nothing."""


def _codes(name: str, fields: dict[str, Any]) -> Iterator[CodeType]:
    """Yield the code of a module and of all functions and classes in it; nothing where there is none."""
    file, loader = _file(fields), fields.get("__loader__")
    if not file:
        return
    reader = _Reader(name, file)
    whole: CodeType | None
    try:
        if isinstance(loader, zipimporter):
            whole = loader.get_code(name)
        elif isinstance(loader, FromSource):
            # Byte code is not trusted where it is not run either.
            whole = reader.source_to_code(reader.get_data(file), file)
        else:
            whole = reader.get_code(name)
    except (OSError, ImportError, SyntaxError, ValueError, EOFError):
        # It was deleted or edited since.
        return
    pending = [] if whole is None else [whole]
    while pending:
        code = pending.pop()
        pending += [value for value in code.co_consts if isinstance(value, CodeType)]
        yield code


def _imported_by(codes: Iterable[CodeType], package: str) -> Iterator[str]:
    """Yield the full names of what *codes* of a module in *package* import, with attributes of modules."""
    scanner: Any = ModuleFinder()
    for code in codes:
        # Most code imports nothing, which is told by its bytes in a tenth of the time.
        found_in = scanner.scan_opcodes(code) if _IMPORT in code.co_code[::2] else ()
        for what, found in found_in:
            if what == "store":
                continue
            level, members, name = found if what == "relative_import" else (0, *found)
            try:
                base = resolve_name("." * level + name, package)
            except ImportError:
                continue
            yield base
            yield from (f"{base}.{member}" for member in members or ())


def _named_by(fields: dict[str, Any]) -> Iterator[_Place]:
    """Yield the modules that global values of a module are, or come from."""
    for value in list(fields.values()):
        if isinstance(value, ModuleType):
            yield value.__name__, _fields(value)
            continue
        try:
            # A function has it, and so has what decorators make of one, and an instance from its class.
            name, inner = getattr(value, "__module__", None), getattr(value, "__wrapped__", None)
        except Exception:  # noqa: BLE001, S112 - whatever a foreign module has put there
            continue
        function = next((each for each in (value, inner) if isinstance(each, FunctionType)), None)
        if function is not None:
            yield _defined_in(function)
        if isinstance(name, str):
            yield name, None


def _defined_in(function: FunctionType) -> _Place:
    scope = function.__globals__
    return str(scope.get("__name__")), scope
