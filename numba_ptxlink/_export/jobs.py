"""
Compile the functions of a file in child processes: all in one, or groups of them anywhere.

A group is compiled by the same function whoever calls it: it imports the file, and returns what the functions
became. What a worker cannot do to the same result is done by the last child, which joins the groups: so the
bytes do not depend on who did the work.
"""

from __future__ import annotations

import hashlib
import logging
import platform
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink import cache
from numba_ptxlink._arch import Arch
from numba_ptxlink._cabi.options import AbiOptions
from numba_ptxlink._front_end import registry
from numba_ptxlink._front_end.protocol import CompileOptions
from numba_ptxlink.errors import ExportError, PtxlinkError

from . import children, choice
from .compile import Group, compile_group, programs, split, title
from .load import Source, load
from .signatures import raise_all, typed
from .write import check_stem, made

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from .artifacts import Request
    from .load import Loaded
    from .signatures import Typed
    from .write import Export

    Progress = Callable[[int, int, str], object]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Unit:
    """
    A group of functions of a file to compile for one architecture.

    Args:
        source: The file.
        front_end: The name of what compiles them, None for what they use.
        names: Their C names.
        arch: The GPU.
        options: The options of the export.
        identity: What they depend on: the releases of what compiles, and a digest of the files.
    """

    source: Source
    front_end: str | None
    names: tuple[str, ...]
    arch: Arch
    options: CompileOptions
    identity: str


def export(
    source: Any, request: Request, executor: Executor | None = None, progress: Progress | None = None
) -> Export:
    """
    Return the export of *source*, in memory.

    Args:
        source: A `Source`, which a child imports, or a module or functions of this process.
        request: What is exported.
        executor: Where groups of functions of a file are compiled, None for one child of this process.
        progress: Called after each group.

    Raises:
        PtxlinkError: As `export` of the package.
    """
    done: dict[tuple[Arch, tuple[str, ...]], Group] = {}
    if not isinstance(source, Source):
        return _made(source, request, done, progress or (lambda *_: None))
    if executor is not None:
        units = _run(_divide, source, request)
        if len(units) > 1:
            done = _share_out(units, executor, progress)
    exported: Export = _run(_made, source, request, done, heard=None if done else progress)
    return exported


def _made(
    source: Any,
    request: Request,
    done: Mapping[tuple[Arch, tuple[str, ...]], Group],
    progress: Progress = children.tell,
) -> Export:
    loaded = load(source, request.front_end)
    functions = _typed(loaded, request.front_end)
    request = replace(
        request,
        stem=request.stem or check_stem(loaded.stem),
        include_dirs=tuple(dict.fromkeys((*request.include_dirs, *loaded.folders))),
    )
    return made(programs(functions, request.archs, request.options, done, progress), request, loaded.files)


def run(unit: Unit) -> Group | str:
    """
    Compile *unit* in a child of this process; return why not where that would be another result.

    Raises:
        PtxlinkError: A compiler refused a function.
    """
    outcome: Group | str = _run(_compile, unit.source, unit)
    return outcome


def _run(
    function: Callable[..., Any], source: Source, what: Any, *more: Any, heard: Progress | None = None
) -> Any:
    prepare = preparation(what.front_end, source)
    return children.run(function, source, what, *more, prepare=prepare, heard=heard)


def _divide(source: Source, request: Request) -> list[Unit]:
    """Return groups of the functions; run in a child."""
    loaded = load(source, request.front_end)
    functions = _typed(loaded, request.front_end)
    names, identity = [each.symbol for each in functions], _identity(loaded, functions)
    return [
        Unit(
            source, request.front_end, tuple(names[group.start : group.stop]), arch, request.options, identity
        )
        for arch in request.archs
        for group in split(names, request.options)
    ]


def _compile(source: Source, unit: Unit) -> Group | str:
    try:
        loaded = load(source, unit.front_end)
        functions = _typed(loaded, unit.front_end)
    except PtxlinkError as error:
        return f"a worker cannot import it: {error}"
    own = [each for each in functions if each.symbol in unit.names]
    found = _identity(loaded, functions)
    if found != unit.identity or len(own) != len(unit.names):
        return f"what compiles it differs in a worker: {found} and not {unit.identity}"
    return compile_group(own, unit.arch, unit.options)


def _typed(loaded: Loaded, front_end: str | None) -> tuple[Typed, ...]:
    return typed(loaded.marked, choice.common(loaded.marked, front_end))


def _identity(loaded: Loaded, functions: Sequence[Typed]) -> str:
    """Return the releases of what compiles, and a digest of the files, as text."""
    front_end = functions[0].front_end
    releases = [f"{name} {metadata.version(name)}" for name in front_end.distributions]
    files = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in loaded.files if path.is_file())
    digest = hashlib.sha256(" ".join(files).encode()).hexdigest()[:16]
    python = f"Python {platform.python_version()}"
    return ", ".join([python, f"numba-ptxlink {cache.package_version()}", *releases, f"files {digest}"])


def check(executor: Any, progress: Any) -> None:
    """Refuse what cannot compile units or be told of them."""
    if executor is not None and not isinstance(executor, Executor):
        raise ExportError(
            f"executor is {executor!r}; pass an instance of a concurrent.futures.Executor, such as "
            "ProcessPoolExecutor() or the get_executor() of a Dask client."
        )
    if progress is not None and not callable(progress):
        raise ExportError(f"progress is {progress!r}; pass a function of done, total and title.")


def _share_out(
    units: Sequence[Unit], executor: Executor, progress: Progress | None
) -> dict[tuple[Arch, tuple[str, ...]], Group]:
    """Let *executor* compile *units*; return what became of those that it compiled to the same result."""
    futures: dict[Future[Group | str], Unit] = {}
    done: dict[tuple[Arch, tuple[str, ...]], Group] = {}
    errors: dict[Unit, PtxlinkError] = {}
    try:
        for unit in units:
            futures[executor.submit(run, unit)] = unit
    except Exception as error:  # noqa: BLE001 - each package has its own for a pool that was shut down
        log.warning("no more work is given to the workers: %s: %s", type(error).__name__, error)
    try:
        for count, future in enumerate(as_completed(futures), start=1):
            unit = futures[future]
            what = title(unit.arch, unit.names)
            result = _outcome(future)
            if isinstance(result, Group):
                done[unit.arch, unit.names] = result
            elif isinstance(result, PtxlinkError):
                errors[unit] = result
            else:
                log.warning("%s is compiled by this process, because %s", what, result)
            if progress is not None:
                progress(count, len(units), what)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    raise_all([errors[unit] for unit in units if unit in errors])
    return done


def _outcome(future: Future[Group | str]) -> Group | PtxlinkError | str:
    """Return what became of a unit: the result, the refusal of a compiler, or why it is to be done here."""
    try:
        return future.result()
    except PtxlinkError as error:
        return error
    except Exception as error:  # noqa: BLE001 - a pool that is broken, or has lost a worker
        return f"its worker ended: {type(error).__name__}: {error}".rstrip(": ")


def preparation(front_end: str | None, source: Source) -> tuple[Any, ...]:
    """
    Return what the process does first of which a child imports *source*: a function and its argument.

    Args:
        front_end: What is to compile it, None for what it uses.
        source: The file or module.
    """
    return _prepare, front_end or _likely(source)


def _likely(source: Source) -> str:
    """Return the front end that *source* is likely to use: what its text names, or the usual one."""
    try:
        text = "" if source.is_module else Path(source.name).read_text(errors="replace")
    except OSError:
        text = ""
    for each in registry.front_ends():
        if each.module in text and registry.installed(each):
            return each.name
    try:
        return choice.default().name
    except ExportError:
        return ""


def _prepare(name: str) -> None:
    """Import the front end *name*, and let it fill the tables that its first compilation fills."""
    front_end = registry.require(registry.get(name))
    arch, options, number = Arch.of("sm_75"), CompileOptions(), front_end.types.float32
    front_end.code.lower(_example, (number,), number, arch=arch, options=options, abi=AbiOptions())


def _example(x: Any) -> Any:
    """Be compiled."""
    return x * x + 1 if x > 0 else -x
