"""The files that functions link by `cuda.declare_device(link=)` and `cuda.jit(link=)`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._front_end.protocol import LinkFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def read(items: Iterable[Any]) -> Iterator[LinkFile]:
    """Yield the files that *items* stand for, each once: paths, or linkable code in memory."""
    from numba_cuda_mlir.numba_cuda.cudadrv.linkable_code import LinkableCode

    for item in dict.fromkeys(items):
        code = LinkableCode.from_path_or_obj(item)
        content = code.data if isinstance(code.data, bytes) else code.data.encode()
        path = Path(item).absolute() if isinstance(item, (str, Path)) else None
        yield LinkFile(code.name, code.kind, content, path)
