"""
Compile the functions of a file in a child process, or groups of them on an executor of `concurrent.futures`.

A worker of the executor, perhaps on another machine, imports the same file. If its files or compiler
versions differ from those of this process, it refuses its groups, and a child of this process compiles them,
so that the output does not depend on the workers.
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

from . import children, choice, link_files, progress
from .compile import Group, compile_group, compile_in_groups, split, symbols
from .load import Source, load
from .signatures import resolve
from .write import build_in_memory, check_stem

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
        source: A `Source` (a file, or the name of a module), which a child imports; or a module or functions
            of this process.
        request: The arguments of the export.
        executor: The executor that compiles groups of functions of a file; None for a child of this process.

    Raises:
        PtxlinkError: As `export` of the package.
    """
    with progress.display():
        if not isinstance(source, Source):
            return _export(source, request.front_end, request, {})
        progress.step("start the compiler")
        compiled_elsewhere: dict[GroupKey, Group] = {}
        if executor is not None:
            # The executors of `concurrent.futures` have this attribute.
            worker_count = getattr(executor, "_max_workers", None)
            compiled_elsewhere = _compile_on_executor(executor, worker_count, source, request)
            # The caller allows this number of compilations at once, in this process as well.
            request = replace(request, threads=worker_count or 1)
        exported: Export = in_child(_export, source, request.front_end, request, compiled_elsewhere)
        return exported


def _compile_on_executor(
    executor: Executor, worker_count: int | None, source: Source, request: Request
) -> dict[GroupKey, Group]:
    """
    Compile groups on *executor*; return those that succeeded.

    A worker gets one share of the groups, for which it imports the file. If *worker_count* is None, a share
    is one group.
    """
    environment_digest, groups = in_child(_divide_functions, source, request.front_end, request.options)
    keys = [(arch, names) for arch in request.archs for names in groups]
    if len(keys) == 1:
        # A single group is compiled in the child that joins the groups.
        return {}
    shares = _divide_evenly(keys, worker_count or len(keys))
    arguments = source, request.front_end, environment_digest, request.options
    # A worker compiles in a child of its own process, as this process does.
    futures = {executor.submit(in_child, _compile, *arguments, share): share for share in shares}
    compiled_elsewhere: dict[GroupKey, Group] = {}
    progress.step("wait for workers")
    try:
        for future in as_completed(futures):
            try:
                compiled_elsewhere |= _check_link_files(future.result())
            except Exception as error:  # noqa: BLE001 - a worker refused, failed or died
                reason = f"{type(error).__name__}: {error}"
                for arch, names in futures[future]:
                    log.warning("%s of %s is compiled here, not by a worker: %s", names[0], arch.sm, reason)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return compiled_elsewhere


def _divide_evenly(keys: Sequence[GroupKey], count: int) -> list[list[GroupKey]]:
    """Divide *keys* into at most *count* shares with about the same number of functions."""
    shares: list[list[GroupKey]] = [[] for _ in range(min(count, len(keys)))]
    for key in sorted(keys, key=lambda key: len(key[1]), reverse=True):
        smallest = min(shares, key=lambda share: sum(len(names) for _, names in share))
        smallest.append(key)
    return shares


def _export(
    source: Any,
    front_end: str | None,
    request: Request,
    compiled_elsewhere: Mapping[GroupKey, Group],
) -> Export:
    """Import *source* if it is a `Source`, compile its functions, and return the export."""
    progress.step(f"import {source.name}" if isinstance(source, Source) else "")
    loaded, functions = functions_of(source, front_end)
    request = replace(
        request,
        stem=request.stem or check_stem(loaded.stem),
        include_dirs=tuple(dict.fromkeys((*request.include_dirs, *loaded.folders))),
    )
    return build_in_memory(
        compile_in_groups(functions, request.archs, request.options, compiled_elsewhere),
        request,
        loaded.files,
    )


def in_child(
    function: Callable[..., Any],
    source: Source,
    front_end: str | None,
    *args: Any,
) -> Any:
    """
    Call *function* with *source*, *front_end* and *args* in a child of this process, and return its result.

    Args:
        function: A function of a module, as pickle requires.
        source: The file or module to import.
        front_end: The requested front end; None to choose it by the types and functions that *source* uses.
        args: The arguments of *function* after *source* and *front_end*.
    """
    prepare = (_prepare, front_end or _likely_front_end(source))
    return children.run(function, source, front_end, *args, prepare=prepare)


def _divide_functions(
    source: Source, front_end: str | None, options: Options
) -> tuple[str, list[tuple[str, ...]]]:
    """Return the digest of the environment, and the C names of each group's functions; run in a child."""
    loaded, functions = functions_of(source, front_end)
    return _environment_digest(loaded, functions), list(map(symbols, split(functions, options)))


def _compile(
    source: Source,
    front_end: str | None,
    environment_digest: str,
    options: Options,
    share: Sequence[GroupKey],
) -> dict[GroupKey, Group]:
    """
    Compile the groups of a share; run in a child of a worker.

    A group that fails is omitted: the child that joins the groups compiles it again, and reports the error if
    it fails there, too.

    Raises:
        ExportError: The digest of this environment is not *environment_digest*, so that code could differ.
    """
    loaded, functions = functions_of(source, front_end)
    functions_by_name = {function.symbol: function for function in functions}
    requested_names = {name for _, names in share for name in names}
    if (
        _environment_digest(loaded, functions) != environment_digest
        or not requested_names <= functions_by_name.keys()
    ):
        raise ExportError(
            "the worker has other files or compiler versions than this process; install the same on all "
            "workers"
        )
    compiled_groups = {}
    progress.step(expected=sum(len(names) for _, names in share))
    for arch, names in share:
        try:
            members = [functions_by_name[name] for name in names]
            compiled_groups[arch, names] = compile_group(members, arch, options)
        except PtxlinkError as error:
            log.info("%s of %s is not compiled by a worker: %s", names[0], arch.sm, error)
    return compiled_groups


def functions_of(source: Any, front_end: str | None) -> tuple[Loaded, tuple[ResolvedFunction, ...]]:
    """Load *source*; return the result of `load`, and the marked functions with their types."""
    loaded = load(source, front_end)
    return loaded, resolve(loaded.marked, choice.common_front_end(loaded.marked, front_end))


def _environment_digest(loaded: Loaded, functions: Sequence[ResolvedFunction]) -> str:
    """Return a digest of the releases of Python and the compilers, and of the files of the export."""
    releases = [metadata.version(name) for name in functions[0].front_end.distributions]
    files = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in loaded.files)
    parts = [platform.python_version(), cache.package_version(), *releases, *files]
    with contextlib.suppress(LinkError):  # If libNVVM is missing, the first function's compilation fails.
        parts.append(find.build_id(find.library("nvvm")))
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def _check_link_files(groups: dict[GroupKey, Group]) -> dict[GroupKey, Group]:
    """Return *groups*, which a worker has compiled, if their link files have the same content here."""
    if all(link_files.is_unchanged(link) for group in groups.values() for link in group.links):
        return groups
    raise ExportError("the worker has another version of a link file; copy the same file to all workers")


def _likely_front_end(source: Source) -> str:
    """
    Return the front end that *source* probably uses: one that its text names, or the first installed one.

    Returns "" if none is installed.
    """
    path = source.name.replace(".", "/") + ".py" if source.is_module else source.name
    source_text = Path(path).read_text(errors="replace") if Path(path).is_file() else ""
    front_ends = choice.installed_front_ends()
    for front_end in front_ends:
        if re.search(rf"\b{front_end.module}\b", source_text):
            return front_end.name
    return front_ends[0].name if front_ends else ""


def _prepare(name: str) -> None:
    """
    Import the front end *name*, and compile an example, which fills its type and intrinsic tables.

    The server that forks the children calls this function, so that each child begins with the full tables.
    """
    front_end = registry.require(registry.get(name))
    arch, options, float32 = Arch.of("sm_75"), Options(), front_end.types.float32

    def declare(args: tuple[Any, ...], result: Any, /, *, raises: bool) -> CFunction:  # noqa: ARG001 - as in `Declare`
        return CFunction(abi.c_signature("example", result, map(abi.Parameter, "x", args)))

    front_end.lower(
        _example, (float32,), float32, arch=arch, options=options, abi=AbiOptions(), declare=declare
    )


def _example(x: Any) -> Any:
    """Compute with arithmetic and a branch, to fill the tables of the compiler."""
    return x * x + 1 if x > 0 else -x
