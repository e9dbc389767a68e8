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
from concurrent.futures import FIRST_COMPLETED, Executor, wait
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink import cache
from numba_ptxlink._arch import Arch
from numba_ptxlink._cabi.options import AbiOptions
from numba_ptxlink._front_end import registry
from numba_ptxlink._front_end.protocol import CompileOptions
from numba_ptxlink.errors import ExportError, PtxlinkError

from . import children, choice, groups, load, make
from .groups import Done
from .signatures import raise_all, typed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from .artifacts import Request
    from .load import Loaded, Source
    from .make import Made
    from .signatures import Typed

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
    """

    source: Source
    front_end: str | None
    names: tuple[str, ...]
    arch: Arch
    options: CompileOptions

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        return groups.title(self.arch, self.names)


def export(
    source: Source, request: Request, executor: Executor | None = None, progress: Progress | None = None
) -> Made:
    """
    Return the files of an export of *source*.

    Args:
        source: The file.
        request: What is exported.
        executor: Where groups of functions are compiled, None for one child of this process.
        progress: Called after each group.

    Raises:
        PtxlinkError: As `export` of the package.
    """
    done: dict[Unit, Done] = {}
    if executor is not None:
        identity, units = _run(_divide, source, request)
        if len(units) > 1:
            done = _share_out(units, identity, executor, progress)
    made: Made = _run(_make, source, request, done, heard=None if done else progress)
    return made


def run(unit: Unit) -> tuple[str, Done | str]:
    """
    Compile *unit* in a child of this process.

    Returns:
        What the result depends on, and the result; or why there is none.

    Raises:
        PtxlinkError: A compiler refused a function.
    """
    outcome: tuple[str, Done | str] = _run(_compile, unit.source, unit)
    return outcome


def _run(
    function: Callable[..., Any], source: Source, what: Any, *more: Any, heard: Progress | None = None
) -> Any:
    prepare = preparation(what.front_end, source)
    return children.run(function, source, what, *more, prepare=prepare, heard=heard)


def _make(source: Source, request: Request, done: dict[Unit, Done]) -> Made:
    loaded = load.load(source, request.front_end)
    known = {(unit.arch, unit.names): each for unit, each in done.items()}
    return make.make(loaded, request, known, children.tell)


def _divide(source: Source, request: Request) -> tuple[str, list[Unit]]:
    """Return what the functions depend on, and groups of them; run in a child."""
    loaded = load.load(source, request.front_end)
    functions = _typed(loaded, request.front_end)
    names = [each.symbol for each in functions]
    places = groups.split(names, request.options)
    return _identity(loaded, functions), [
        Unit(source, request.front_end, tuple(names[place] for place in group), arch, request.options)
        for arch in request.archs
        for group in places
    ]


def _compile(source: Source, unit: Unit) -> tuple[str, Done | str]:
    try:
        loaded = load.load(source, unit.front_end)
        functions = {each.symbol: each for each in _typed(loaded, unit.front_end)}
    except PtxlinkError as error:
        return "", f"a worker cannot import it: {error}"
    if not functions.keys() >= {*unit.names}:
        return "", "a worker finds other functions in it"
    own = [functions[name] for name in unit.names]
    return _identity(loaded, tuple(functions.values())), groups.compile_group(own, unit.arch, unit.options)


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
        what = f"the class {executor.__name__}" if isinstance(executor, type) else repr(executor)
        cure = (
            "pass its get_executor()"
            if callable(getattr(executor, "get_executor", None))
            else "pass an instance of a concurrent.futures.Executor, such as ProcessPoolExecutor()"
        )
        raise ExportError(f"executor is {what}; {cure}.")
    if progress is not None and not callable(progress):
        raise ExportError(f"progress is {progress!r}; pass a function of done, total and title.")


def _share_out(
    units: Sequence[Unit], identity: str, executor: Executor, progress: Progress | None
) -> dict[Unit, Done]:
    """Let *executor* compile *units*; return what became of those that it compiled to the same result."""
    futures: dict[Future[tuple[str, Done | str]], Unit] = {}
    done: dict[Unit, Done] = {}
    errors: dict[Unit, PtxlinkError] = {}
    try:
        for unit in units:
            futures[executor.submit(run, unit)] = unit
    except Exception as error:  # noqa: BLE001 - each package has its own for a pool that was shut down
        log.warning("no more work is given to the workers: %s: %s", type(error).__name__, error)
    waiting = {*futures}
    try:
        while waiting:
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for count, future in enumerate(ended, start=len(futures) - len(waiting) - len(ended) + 1):
                unit = futures[future]
                result = _result(future, identity)
                if isinstance(result, Done):
                    done[unit] = result
                elif isinstance(result, PtxlinkError):
                    errors[unit] = result
                else:
                    log.warning("%s is compiled by this process, because %s", unit.title, result)
                if progress is not None:
                    progress(count, len(units), unit.title)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    raise_all([errors[unit] for unit in units if unit in errors])
    return done


def _result(future: Future[tuple[str, Done | str]], identity: str) -> Done | PtxlinkError | str:
    """Return what became of a unit: the result, the refusal of a compiler, or why it is to be done here."""
    try:
        found, result = future.result()
    except PtxlinkError as error:
        return error
    except Exception as error:  # noqa: BLE001 - a pool that is broken, or has lost a worker
        return f"its worker ended: {type(error).__name__}: {error}".rstrip(": ")
    if isinstance(result, Done) and found != identity:
        return f"what compiles it differs in a worker: {found} and not {identity}"
    return result


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
    front_end.lower(_example, (number,), number, arch=arch, options=options, abi=AbiOptions())


def _example(x: Any) -> Any:
    """Be compiled."""
    return x * x + 1 if x > 0 else -x
