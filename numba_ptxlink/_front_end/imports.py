"""The state of a front end's import: whether a module is complete, and the lock of the compiler."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def is_imported(name: str) -> bool:
    """Return whether the module *name* is imported, and no thread is still importing it."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


@contextlib.contextmanager
def compilation_stopped(home: str) -> Iterator[None]:
    """
    Wait for other threads' compilations, and block new ones during a `with` block.

    Args:
        home: The module that has the compiler's lock, which counts if it is imported.
    """
    lock = _lock_of(home)
    with contextlib.nullcontext() if lock is None else lock:
        yield


def free_compiler_lock(home: str) -> None:
    """Release the lock in a forked child, if it was held by a thread that the child lacks."""
    lock = _lock_of(home)
    # It is a pair with Numba's, or one where there is no Numba.
    for part in (getattr(lock, "_numba_lock", None), getattr(lock, "_cuda_lock", lock)):
        inner = getattr(part, "_lock", None)
        if inner is not None and not inner._is_owned():  # noqa: SLF001 - as `threading.Condition` does
            inner._at_fork_reinit()  # noqa: SLF001 - as `threading` does


def _lock_of(home: str) -> Any:
    return getattr(sys.modules.get(home), "global_compiler_lock", None)
