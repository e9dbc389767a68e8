"""
Load modules from source that is on disk, or that another process had, and record what was read.

What is recorded and given belongs to the one block of `python_imports` that the process is in.
"""

from __future__ import annotations

import functools
import importlib.util
import linecache
import os
import sys
import threading
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import CodeType, ModuleType


@dataclass(frozen=True)
class Imported:
    """
    What was imported, with the source of it, so that another process can import the same.

    Args:
        name: The module's full name; "" for a file that is in no package.
        path: The file, "" where the module was found by its name.
        home: The folder that comes first on `sys.path`.
        last: The folder that comes last there, "" for none.
        sources: The source of each file of its own that was read, by path.
    """

    name: str
    path: str
    home: str
    last: str = ""
    sources: Mapping[str, bytes] = field(default_factory=dict, repr=False)


@dataclass
class Current:
    """
    What is being imported.

    Args:
        imported: What it is.
        thread: The thread that imports it.
        former: `sys.modules` as it was before.
        read: The source that was read, by path.
        given: The source that takes the place of files, by path.
        never_hidden: The names that no source stands for.
    """

    imported: Imported | None = None
    thread: int = 0
    former: Mapping[str, Any] = field(default_factory=dict)
    read: dict[str, bytes] = field(default_factory=dict)
    given: Mapping[str, bytes] = field(default_factory=dict)
    never_hidden: frozenset[str] = frozenset()


current = Current()


class FromSource(SourceFileLoader):
    """A loader that neither reads nor writes byte code, and lets tracebacks quote the source of now."""

    def get_data(self, path: str) -> bytes:
        given = current.given.get(path)
        source = super().get_data(path) if given is None else given
        current.read[path] = source
        return source

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        linecache.cache.pop(path, None)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def from_source(make: Callable[..., ModuleSpec | None], of_user: Callable[[str], bool]) -> Any:
    """
    Return *make*, which is `spec_from_file_location`, with such a loader for files of the user's.

    It is this for the thread that imports, while it does; a module may keep it for later.
    """

    @functools.wraps(make)
    def made(name: str, location: Any = None, **options: Any) -> ModuleSpec | None:
        if current.thread == threading.get_ident() and isinstance(location, (str, os.PathLike)):
            path = os.fspath(location)
            if isinstance(path, str) and path.endswith(".py") and of_user(path):
                options.setdefault("loader", FromSource(name, path))
        return make(name, location, **options)

    return made


class Given:
    """A finder of the modules whose source was given, whether there are such files or not."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del target
        if fullname in current.never_hidden:
            return None
        tail = fullname.rpartition(".")[2]
        for entry in sys.path if path is None else path:
            folder = os.path.join(entry or ".", tail)  # noqa: PTH118 - called for each import
            for file, inner in ((os.path.join(folder, "__init__.py"), [folder]), (f"{folder}.py", None)):  # noqa: PTH118
                if file in current.given:
                    return importlib.util.spec_from_file_location(
                        fullname,
                        file,
                        loader=FromSource(fullname, file),
                        submodule_search_locations=inner,
                    )
            if any(file.startswith(folder + os.sep) for file in current.given):
                spec = ModuleSpec(fullname, None, is_package=True)
                spec.submodule_search_locations = [folder]
                return spec
        return None
