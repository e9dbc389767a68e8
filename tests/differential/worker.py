"""
Compile programs in this process and write the result of each: `python worker.py MANIFEST RESULTS`.

MANIFEST is a JSON list of paths of programs; RESULTS gets a line of JSON for each, as soon as it is done, so
that whoever started this process knows where it died. The environment says which linker is in use, where the
cache is and which hash seed holds; DIFFERENTIAL_EXECUTE=1 launches on the device instead of compiling for a
stand-in.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import json
import os
import runpy
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "helpers")]

import driver  # noqa: E402
import fakedevice  # noqa: E402 - found by the line above
import machine  # noqa: E402

import numba_ptxlink as pl  # noqa: E402


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else ""


def failure(error: BaseException) -> dict[str, Any]:
    """Return an exception as an outcome: its classes, the nearest first, its first line and the text."""
    classes = [ancestor.__name__ for ancestor in type(error).__mro__ if ancestor is not object]
    return {"error": classes, "message": first_line(error), "text": str(error)[-3000:]}


def compile_launch(dispatcher: Any, args: tuple[Any, ...]) -> dict[str, Any]:
    """Compile the kernel for these arguments, link it, and return its names and machine code."""
    kernel = dispatcher.compile(tuple(dispatcher.typeof_pyval(argument) for argument in args))
    return describe(kernel, kernel._codelibrary.get_cubin().code)


def describe(kernel: Any, cubin: bytes) -> dict[str, Any]:
    """Return names and machine code of a kernel."""
    names = machine.kernels(cubin)
    return {
        "kernels": sorted(map(machine.plain_name, names)),
        "entry": machine.plain_name(kernel.entry_name),
        "entry_in_cubin": kernel.entry_name in names,
        "entry_in_ir": f'@"{kernel.entry_name}"' in "".join(kernel.inspect_llvm()),
        "code": machine.code(cubin),
    }


def give_up_lto() -> None:
    """Let stock link without LTO if there are no link files."""
    from numba.cuda.codegen import CUDACodeLibrary

    original = CUDACodeLibrary.get_cubin

    def get_cubin(self, cc=None):
        self._lto = self._lto and bool(self._linking_files or self.needs_cudadevrt)
        return original(self, cc)

    CUDACodeLibrary.get_cubin = get_cubin


def is_broken() -> bool:
    """Return whether the context fails from now on, after a fault."""
    from numba import cuda

    try:
        cuda.synchronize()
        cuda.to_device(np.zeros(1))
    except Exception:  # noqa: BLE001 - whatever the driver says
        return True
    return False


def execute_launch(dispatcher: Any, shape: tuple[int, int, int], args: tuple[Any, ...]) -> dict[str, Any]:
    """Launch, wait, and return a digest of the arguments' memory, and the printed text."""
    from numba import cuda

    grid, block, shared = shape
    error = None
    with printed() as text:
        try:
            dispatcher[grid, block, 0, shared](*args)
            cuda.synchronize()
        except Exception as raised:  # noqa: BLE001 - an outcome
            error = failure(raised)
    memory = [argument.tobytes() for argument in args if isinstance(argument, np.ndarray)]
    digests = [hashlib.sha256(content).hexdigest()[:12] for content in memory]
    return {"memory": digests, "printed": "".join(text), **(error or {})}


@contextlib.contextmanager
def printed():
    """Collect the output of the device, which does not pass through Python's sys.stdout."""
    text: list[str] = []
    sys.stdout.flush()
    saved = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield text
        finally:
            os.dup2(saved, 1)
            os.close(saved)
            file.seek(0)
            text.append(file.read().decode(errors="replace"))


def run(path: Path, *, execute: bool) -> list[dict[str, Any]]:
    """Return the outcome of each launch of the program at *path*, and of an error outside of launches."""
    outcomes: list[dict[str, Any]] = []
    source = path.read_text()
    try:
        program = runpy.run_path(str(path), run_name=path.stem)
        for dispatcher, shape, args in program["launches"]():
            try:
                outcomes.append(
                    execute_launch(dispatcher, shape, args) if execute else compile_launch(dispatcher, args)
                )
            except Exception as error:  # noqa: BLE001 - exceptions are outcomes
                outcomes.append(failure(error))
            outcomes[-1]["padding"] = "align=True" in source and "const.array_like" in source
    except Exception as error:  # noqa: BLE001 - likewise
        outcomes.append({**failure(error), "trace": traceback.format_exc()[-2000:]})
    return outcomes


def main() -> None:
    """Run the programs that the manifest names."""
    warnings.simplefilter("ignore")
    execute = os.environ.get("DIFFERENTIAL_EXECUTE") == "1"
    if os.environ.get("DIFFERENTIAL_WITHOUT_LTO") == "1":
        give_up_lto()
    if not execute:
        fakedevice.install()
    # Numba's own objects stay, and are left out of every search for garbage.
    gc.freeze()
    with Path(sys.argv[2]).open("a") as results:
        results.write("\n")
        results.flush()
        for path in map(Path, json.loads(Path(sys.argv[1]).read_text())):
            before = pl.status()
            with contextlib.redirect_stdout(io.StringIO()) if not execute else contextlib.nullcontext():
                outcomes = run(path, execute=execute)
            after = pl.status()
            line = {
                "program": path.stem,
                "launches": outcomes,
                "active": after.active,
                "hits": after.cache_hits - before.cache_hits,
                "misses": after.cache_misses - before.cache_misses,
            }
            results.write(json.dumps(line) + "\n")
            results.flush()
            if execute and is_broken():
                results.close()
                os._exit(driver.LEFT_CONTEXT)


if __name__ == "__main__":
    main()
