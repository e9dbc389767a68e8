"""
Compile the functions of a file in child processes: all in one, or groups of them anywhere.

A group is compiled by the same function whoever calls it: it imports the file, and returns what the functions
became. What a worker cannot do to the same result is done by the last child, which joins the groups: so the
bytes do not depend on who did the work.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import platform
import re
from concurrent.futures import Executor, as_completed
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink import abi, cache
from numba_ptxlink._arch import Arch
from numba_ptxlink._cabi.header import CFunction
from numba_ptxlink._cabi.options import AbiOptions
from numba_ptxlink._front_end import registry
from numba_ptxlink._tools import find
from numba_ptxlink._tools.options import Options
from numba_ptxlink.errors import ExportError, LinkError, PtxlinkError

from . import children, choice, link_files
from .compile import Group, compile_group, compile_units, split, symbols
from .load import Source, load
from .signatures import units
from .write import check_stem, in_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .artifacts import Request
    from .compile import GroupKey
    from .load import Loaded
    from .signatures import ResolvedFunction
    from .write import Export

log = logging.getLogger(__name__)


def export(source: Any, request: Request, executor: Executor | None = None) -> Export:
    """
    Return the export of *source*, in memory.

    Args:
        source: A `Source`, which a child imports, or a module or functions of this process.
        request: What is exported.
        executor: Where groups of functions of a file are compiled, None for one child of this process.

    Raises:
        PtxlinkError: As `export` of the package.
    """
    if not isinstance(source, Source):
        return _export(source, request.front_end, request, {})
    done: dict[GroupKey, Group] = {}
    if executor is not None:
        # Python's own pools know how many workers they have.
        workers = getattr(executor, "_max_workers", None)
        done = _compile_on_executor(executor, workers, source, request)
        request = replace(request, threads=workers or 1)
    exported: Export = in_child(_export, source, request.front_end, request, done)
    return exported


def _compile_on_executor(
    executor: Executor, workers: int | None, source: Source, request: Request
) -> dict[GroupKey, Group]:
    """
    Return what became of the groups elsewhere, without what was lost or would differ here.

    Each of so many *workers* of *executor* imports the file once; where their number is not known, each group
    does.
    """
    identity, groups = in_child(_divide, source, request.front_end, request.options)
    keys = [(arch, names) for arch in request.archs for names in groups]
    if len(keys) == 1:
        return {}
    shares = _shares(keys, workers or len(keys))
    told = source, request.front_end, identity, request.options
    futures = {executor.submit(in_child, _compile, *told, share): share for share in shares}
    done: dict[GroupKey, Group] = {}
    try:
        for future in as_completed(futures):
            try:
                done |= _same_links(future.result())
            except Exception as error:  # noqa: BLE001 - a pool that is broken, or has lost a worker
                why = f"{type(error).__name__}: {error}"
                for arch, names in futures[future]:
                    log.warning("%s of %s is compiled here, not by a worker: %s", names[0], arch.sm, why)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return done


def _shares(keys: Sequence[GroupKey], count: int) -> list[list[GroupKey]]:
    """Return *keys* in at most *count* shares, of about as many functions each."""
    shares: list[list[GroupKey]] = [[] for _ in range(min(count, len(keys)))]
    for key in sorted(keys, key=lambda key: len(key[1]), reverse=True):
        min(shares, key=lambda share: sum(len(names) for _, names in share)).append(key)
    return shares


def _export(
    source: Any,
    front_end: str | None,
    request: Request,
    done: Mapping[GroupKey, Group],
) -> Export:
    loaded, functions = functions_of(source, front_end)
    request = replace(
        request,
        stem=request.stem or check_stem(loaded.stem),
        include_dirs=tuple(dict.fromkeys((*request.include_dirs, *loaded.folders))),
    )
    return in_memory(compile_units(functions, request.archs, request.options, done), request, loaded.files)


def in_child(
    function: Callable[..., Any],
    source: Source,
    front_end: str | None,
    *args: Any,
) -> Any:
    """
    Return what *function* returns in a child of this process for all that follows.

    Args:
        function: The function, which a module has by its name.
        source: The file or module, which it imports.
        front_end: What is to compile it, None for what it uses.
        args: What else it takes.
    """
    prepare = (_prepare, front_end or _likely(source))
    return children.run(function, source, front_end, *args, prepare=prepare)


def _divide(source: Source, front_end: str | None, options: Options) -> tuple[str, list[tuple[str, ...]]]:
    """Return what the result depends on, and the groups of the functions; run in a child."""
    loaded, functions = functions_of(source, front_end)
    return _identity(loaded, functions), list(map(symbols, split(functions, options)))


def _compile(
    source: Source, front_end: str | None, identity: str, options: Options, share: Sequence[GroupKey]
) -> dict[GroupKey, Group]:
    """
    Compile groups of functions; run in a child.

    What a compiler refuses is left out: the child that joins the groups compiles it again, and tells why if
    that refuses it, too.

    Raises:
        ExportError: It would be another result here.
    """
    loaded, functions = functions_of(source, front_end)
    by_name = {each.symbol: each for each in functions}
    requested = {name for _, names in share for name in names}
    if _identity(loaded, functions) != identity or not requested <= by_name.keys():
        raise ExportError("the files, or the releases of what compiles them, differ there")
    made = {}
    for arch, names in share:
        try:
            made[arch, names] = compile_group([by_name[name] for name in names], arch, options)
        except PtxlinkError as error:
            log.info("%s of %s is not compiled by a worker: %s", names[0], arch.sm, error)
    return made


def functions_of(source: Any, front_end: str | None) -> tuple[Loaded, tuple[ResolvedFunction, ...]]:
    """Return the marked functions of *source*, with their types."""
    loaded = load(source, front_end)
    return loaded, units(loaded.marked, choice.common(loaded.marked, front_end))


def _identity(loaded: Loaded, functions: Sequence[ResolvedFunction]) -> str:
    """Return a digest of the releases of what compiles, and of the files."""
    releases = [metadata.version(name) for name in functions[0].front_end.distributions]
    files = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in loaded.files)
    parts = [platform.python_version(), cache.package_version(), *releases, *files]
    with contextlib.suppress(LinkError):  # Where there is none, the first function that is compiled tells.
        parts.append(find.build_id(find.library("nvvm")))
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def _same_links(groups: dict[GroupKey, Group]) -> dict[GroupKey, Group]:
    if all(link_files.is_here(link) for group in groups.values() for link in group.links):
        return groups
    raise ExportError("a link file differs there")


def _likely(source: Source) -> str:
    """Return the front end that *source* is likely to use: what its text names, or the usual one."""
    path = source.name.replace(".", "/") + ".py" if source.is_module else source.name
    text = Path(path).read_text(errors="replace") if Path(path).is_file() else ""
    there = choice.installed()
    named = (each.name for each in there if re.search(rf"\b{each.module}\b", text))
    return next(named, there[0].name if there else "")


def _prepare(name: str) -> None:
    """Import the front end *name*, and let it fill the tables that its first compilation fills."""
    front_end = registry.require(registry.get(name))
    arch, options, number = Arch.of("sm_75"), Options(), front_end.types.float32

    def declare(args: tuple[Any, ...], result: Any, /, *, raises: bool) -> CFunction:  # noqa: ARG001 - as it is called
        return CFunction(abi.c_signature("example", result, map(abi.Parameter, "x", args)))

    front_end.lower(
        _example, (number,), number, arch=arch, options=options, abi=AbiOptions(), declare=declare
    )


def _example(x: Any) -> Any:
    """Be compiled."""
    return x * x + 1 if x > 0 else -x
