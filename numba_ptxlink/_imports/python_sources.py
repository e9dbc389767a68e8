"""Find the Python files that a module is made of: its own, and those of what it imports."""

from __future__ import annotations

import dis
import sys
import sysconfig
from importlib.machinery import SourceFileLoader
from importlib.util import resolve_name
from modulefinder import ModuleFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

from .import_state import PROTECTED
from .source_loader import FromSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_IMPORT = dis.opmap["IMPORT_NAME"]
# By these, modules are imported whose names stand nowhere in the code.
_COMPUTED = {"__import__", "import_module", "exec", "exec_module", "load_module", "entry_points"}


def of_modules(names: Iterable[str], former: Mapping[str, Any]) -> list[Path]:
    """
    Return the Python files that the modules *names* depend on, sorted.

    These are the files of the modules that can be reached from *names* through import statements and global
    names. What another thread or a compiler has imported meanwhile does not count, unless one of the modules
    imports by computed names: then all that is in `sys.modules` and was not in *former* does. The standard
    library, and what compiles functions, such as Numba and NumPy, are left out. A module in an archive stands
    for the archive.
    """
    names = set(names)
    # The program counts where its own functions are exported, and not as what something else names.
    passed_over = PROTECTED | ({"__main__", "__mp_main__"} - names)
    modules = {
        name: module
        for name, module in dict(sys.modules).items()
        if name.partition(".")[0] not in passed_over
    }
    codes: dict[str, list[CodeType]] = {}
    _reach(names, modules, codes)
    if any(_COMPUTED.intersection(code.co_names) for parts in codes.values() for code in parts):
        _reach((name for name, module in modules.items() if former.get(name) is not module), modules, codes)
    files = (_fields(modules[name]).get("__file__") for name in codes)
    paths = {_on_disk(Path(file)) for file in files if isinstance(file, str) and file.endswith(".py")}
    # Such as _sysconfigdata_..., which no list of the standard library has.
    standard = Path(sysconfig.get_path("stdlib"))
    return sorted(path for path in paths if path.parent != standard)


def _on_disk(path: Path) -> Path:
    """Return the file that *path* is, or lies in."""
    path = path.absolute()
    return next((above for above in path.parents if above.is_file()), path)


def _reach(names: Iterable[str], modules: Mapping[str, Any], codes: dict[str, list[CodeType]]) -> None:
    """Add to *codes* what *names*, and all that they lead to in *modules*, are compiled to."""
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in codes or name not in modules:
            continue
        module = modules[name]
        codes[name] = list(_codes(name, module))
        pending += _named_by(module)
        pending += _imported_by(codes[name], str(_fields(module).get("__package__") or ""))
        # A package is run before what is in it.
        pending.append(name.rpartition(".")[0])


def _fields(module: Any) -> dict[str, Any]:
    # Not getattr: what a program puts into sys.modules may compute attributes, or raise.
    fields = getattr(module, "__dict__", None)
    return fields if isinstance(fields, dict) else {}


class _Reader(SourceFileLoader):
    """A loader whose byte code is looked at and not run, so that none is written for it."""

    def set_data(self, *_args: Any, **_options: Any) -> None:
        """Write nothing."""


def _codes(name: str, module: Any) -> Iterator[CodeType]:
    """Yield the code of *module* and of all functions and classes in it; nothing where there is none."""
    file, loader = (_fields(module).get(name) for name in ("__file__", "__loader__"))
    if not isinstance(file, str) or not file.endswith(".py"):
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


def _named_by(module: Any) -> Iterator[str]:
    """Yield the modules that global values of *module* are, or come from."""
    for value in list(_fields(module).values()):
        try:
            # A function has it, and so has what decorators make of one, and an instance from its class.
            of = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        except Exception:  # noqa: BLE001, S112 - whatever a foreign module has put there
            continue
        if isinstance(of, str):
            yield of
