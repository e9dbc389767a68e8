"""
Read the files that functions link, compare them with the calls, and tell what an export leaves out of them.

CUDA C++ and LTO-IR become part of an export. LTO-IR cannot be made of PTX and machine code, so the artifacts
leave what these define undefined, all kinds alike, and the linker of the artifacts takes the files.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._formats.kinds import CU
from numba_ptxlink._front_end.protocol import LinkFile
from numba_ptxlink._link import backends, check
from numba_ptxlink._link.check import Symbol
from numba_ptxlink._link.read import Input, as_bytes
from numba_ptxlink._link.read import read as read_input
from numba_ptxlink.errors import ExportError, LinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numba_ptxlink._formats.ptx import Prototype


log = logging.getLogger(__name__)


def given(item: Any) -> str | LinkFile:
    """
    Return a link file as a function gives it: its path, which may be relative, or code in memory.

    A path is not read: what another process or an earlier export found there is not what this one finds.

    Args:
        item: A path, or a `LinkableCode` of a front end.

    Raises:
        ExportError: It is neither, or of no kind that can be linked.
    """
    return os.fspath(item) if _is_path(item) else read(item)


def read(item: Any) -> LinkFile:
    """
    Read a link file: a path, which is relative to the working directory, or a `LinkableCode` of a front end.

    Raises:
        ExportError: It does not exist, cannot be read, or is of no kind that can be linked. With the cure.
    """
    if isinstance(item, LinkFile):
        return item
    is_path = _is_path(item)
    try:
        if getattr(item, "kind", None) == CU:
            source = Input(CU, str(item.name), as_bytes(item.data))
        elif is_path or hasattr(item, "data"):
            source = read_input(Path(item) if is_path else item)
        else:
            raise ExportError(
                f"link= holds a {type(item).__name__}; give a path, or code in memory such as "
                "cuda.CUSource(text)."
            )
    except LinkError as error:
        raise ExportError(f"link= of a declaration: {error}", inputs=error.inputs) from error
    callbacks = any(getattr(item, f"{name}_callback", None) for name in ("setup", "teardown"))
    path = Path(item).absolute() if is_path else None
    return LinkFile(source.name, source.kind, source.code, path, has_callbacks=callbacks)


def _is_path(item: Any) -> bool:
    return isinstance(item, (str, os.PathLike))


def check_prototypes(
    found: Sequence[Symbol], missing: Mapping[str, Prototype], callers: Mapping[str, str]
) -> None:
    """
    Refuse link files whose functions have other prototypes than the calls.

    Args:
        found: The symbols of the link files.
        missing: The functions that the code calls and does not define, by name.
        callers: Which function calls each of them, for messages.

    Raises:
        ExportError: Prototypes differ. Names both sides and the cure.
    """
    called = [
        Symbol(callers.get(name, "the functions"), name, "func", defined=False, prototype=prototype)
        for name, prototype in missing.items()
    ]
    try:
        check.compare([*found, *called])
    except LinkError as error:
        raise ExportError(str(error), inputs=error.inputs) from error


def check_memory(missing: Iterable[str], callers: Mapping[str, str]) -> None:
    """
    Refuse functions that allocate: the manager of Numba's device memory is no part of an export.

    Raises:
        ExportError: One of the *missing* functions is its.
    """
    needed = sorted(name for name in missing if name.startswith("NRT_") and name not in callers)
    if needed:
        raise ExportError(
            f"The functions allocate arrays or count references ({', '.join(needed)}), and Numba's memory "
            "manager is no part of an export; export without NUMBA_CUDA_ENABLE_NRT, and take arrays as "
            "arguments."
        )


def warn_of_left_out(files: Iterable[LinkFile], others: Iterable[Input], missing: Iterable[str]) -> None:
    """
    Log what C++ has to supply although a function links a file that may define it.

    Args:
        files: The link files.
        others: Those that are no part of the export.
        missing: The functions that are undefined in the export.
    """
    # nvcc and `link` add the device runtime, which numba-cuda-mlir names as a link file of kernels.
    wanted = sorted(name for name in missing if not backends.is_runtime_call(name))
    for other in others if wanted else ():
        log.warning(
            "%s %s for C++ to define: link= gives %s, of kind %s, and an export takes in CUDA C++ and "
            "LTO-IR alone. Give that file to the linker beside the artifact, or CUDA C++ or LTO-IR to link=.",
            ", ".join(wanted),
            "stays" if len(wanted) == 1 else "stay",
            other.name,
            other.kind,
        )
    called_back = ", ".join(dict.fromkeys(file.name for file in files if file.has_callbacks))
    if called_back:
        log.warning(
            "%s: its setup and teardown callbacks are Python, and no part of the export. Do what they do "
            "where the code is loaded and unloaded.",
            called_back,
        )
