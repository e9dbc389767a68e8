"""
Share out the units of an export between this process and an executor's, and put their code together.

What a worker cannot do to the same result is done by the process that exports: so the bytes do not depend on
who did the work.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    ThreadPoolExecutor,
    wait,
)
from typing import TYPE_CHECKING, Any

from numba_ptxlink._imports import python_imports
from numba_ptxlink._tools.processes import Processes
from numba_ptxlink.errors import ExportError

from . import build, function_keys, groups, linkable, lowering, units
from .units import Done, Program, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._front_end.protocol import CompileOptions

    from .signatures import Typed

log = logging.getLogger(__name__)


def compile_each(
    functions: Sequence[Typed],
    archs: Sequence[Arch],
    options: CompileOptions,
    *,
    cubins: bool,
    executor: Executor | None = None,
    progress: Callable[[int, int, str], object] | None = None,
) -> list[build.Compiled]:
    """
    Lower and compile *functions*, which are of one front end, for each of *archs*.

    Args:
        functions: The functions.
        archs: The GPUs.
        options: The options of the export.
        cubins: Whether relocatable machine code is made, too.
        executor: Where units are done, None for this process alone.
        progress: Called after each unit.

    Raises:
        AbiError: A function's name or types have no counterpart in C.
        ExportError: A compiler refused a function.
        AssembleError: The PTX could not be assembled.
    """
    front_end = functions[0].front_end
    modules = tuple(dict.fromkeys(str(each.udf.function.__module__) for each in functions))
    program = Program(front_end.name, modules, python_imports.imported_now())
    around = function_keys.environment(front_end, modules, program.export)
    keys = function_keys.of_each(functions, around)
    places = groups.split([each.symbol for each in functions], options)
    work = {
        Unit(
            program,
            tuple(functions[place].symbol for place in group),
            tuple(keys[place] for place in group),
            arch,
            options,
            cubins and len(places) > 1 and groups.joins_cubins(),
        ): [functions[place] for place in group]
        for arch in archs
        for group in places
    }
    with units.under_way(program, functions):
        done = _run_all(work, executor, progress or (lambda *_: None))
    compiled = []
    # All archs get the same content, whatever is written meanwhile.
    read = functools.cache(linkable.read)
    for arch in archs:
        parts = [done[unit] for unit in work if unit.arch == arch]
        lowered = tuple(each for part in parts for each in part.lowered)
        compiled.append(
            build.Compiled(
                front_end,
                arch,
                tuple(function.udf.function for function in functions),
                lowered,
                build.read_links(functions, lowered, read),
                tuple(part.code for part in parts),
            )
        )
    return compiled


def check(executor: Any, progress: Any) -> None:
    """Refuse what cannot do units or be told of them, before any is asked for: all may be in the cache."""
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


def _run_all(
    work: dict[Unit, list[Typed]],
    executor: Executor | None,
    progress: Callable[[int, int, str], object],
) -> dict[Unit, Done]:
    done: dict[Unit, Done] = {}

    def finish(unit: Unit, result: Done) -> None:
        done[unit] = result
        progress(len(done), len(work), unit.title)

    # What is in the cache is read sooner than sent.
    sent = {unit for unit in work if executor is not None and _can_be_sent(unit)}
    # The largest first: this process is not busy with one for longer than a worker with the two that it has,
    # and what is left in the end is small.
    waiting = deque(sorted((unit for unit in work if unit in sent), key=_size, reverse=True))
    own = deque(unit for unit in work if unit not in sent)
    futures: dict[Future[Done], Unit] = {}
    try:
        while own or waiting or futures:
            for unit, result in _arrived(futures):
                if result is None:
                    own.append(unit)
                else:
                    finish(unit, result)
            # After that: who is done gets more before this process begins with another unit.
            try:
                _send(waiting, executor, futures)
            except Exception as error:  # noqa: BLE001 - each package has its own for a pool that was shut down
                log.warning("no more work is given to the workers: %s: %s", type(error).__name__, error)
                own.extend(waiting)
                waiting.clear()
            if own or waiting:
                unit = own.popleft() if own else waiting.popleft()
                finish(unit, units.compile_here(unit, work[unit]))
            elif futures:
                own.extend(_wait(executor, futures))
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return done


def _send(waiting: deque[Unit], executor: Executor | None, futures: dict[Future[Done], Unit]) -> None:
    """Give *executor* what is *waiting*; on this machine no more than keeps its processes busy."""
    while executor is not None and waiting:
        if isinstance(executor, Processes):
            # Each has the next one at hand, but the last is for whoever is free, this process included.
            most = executor.count * (2 if len(waiting) > 1 else 1)
            if len(futures) >= most:
                return
        future = executor.submit(units.run, waiting[0])
        futures[future] = waiting.popleft()


def _wait(executor: Executor | None, futures: dict[Future[Done], Unit]) -> list[Unit]:
    """Wait until a unit is done, or take one that no thread has begun out of *futures*."""
    if isinstance(executor, ThreadPoolExecutor):
        # All its threads may wait for this one, or be it.
        for future in futures:
            if future.cancel():
                return [futures.pop(future)]
    wait(futures, return_when=FIRST_COMPLETED)
    return []


def _arrived(futures: dict[Future[Done], Unit]) -> Iterator[tuple[Unit, Done | None]]:
    """Take what is done out of *futures*; yield what each unit became, None where it has to be done here."""
    for future in [future for future in futures if future.done()]:
        unit = futures.pop(future)
        yield unit, _result(future, unit)


def _result(future: Future[Done], unit: Unit) -> Done | None:
    """Return what a worker has done, and keep it; None where it did nothing."""
    try:
        result = future.result()
    except (BrokenExecutor, CancelledError) as error:
        result = Done(refusal=f"its worker ended: {type(error).__name__}: {error}".rstrip(": "))
    if result.refusal:
        log.warning("%s is compiled by this process, because %s", unit.title, result.refusal)
        return None
    for key, lowered in zip(unit.keys, result.lowered, strict=True):
        lowering.keep(lowered, unit.arch, unit.options, key)
    return result


def _size(unit: Unit) -> int:
    return len(unit.names)


def _can_be_sent(unit: Unit) -> bool:
    return all(key.code for key in unit.keys) and not all(
        lowering.is_known(unit.arch, unit.options, key) for key in unit.keys
    )
