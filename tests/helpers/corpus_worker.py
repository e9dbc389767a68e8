"""Compile the corpus, and print each entry's code without names: `python corpus_worker.py FRONT_END ABI`."""

from __future__ import annotations

import json
import math
import re
import sys
import warnings
from typing import Any

import corpus
import fakedevice
import front_ends
import numpy as np

_BLOCK = re.compile(r"^(?=\.(?:visible|extern|weak|common|func|entry|global|const|shared)\b)", re.MULTILINE)
_SYMBOL = re.compile(r"\b(?:_Z|_cuda|__|f\b|numba|static_shared|constant_array)\w*")


def _device_of_mlir() -> None:
    from numba_cuda_mlir import tools

    tools._cached_cc = (9, 0)


# Without a device, stock compiles nothing, or no helper: what stands in for one.
_STAND_INS = {"numba-cuda": lambda: fakedevice.install(cc=(9, 0)), "numba-cuda-mlir": _device_of_mlir}


def without_names(ptx: str) -> list[str]:
    """Return the functions and variables of *ptx*, sorted, in each the symbols numbered in their order."""
    blocks = (block.strip() for block in _BLOCK.split(re.sub(r"//.*", "", ptx)))
    # Numba's environments are variables that no code on a GPU uses.
    return sorted(_numbered(block) for block in blocks if block and "NumbaEnv" not in block)


def _numbered(block: str) -> str:
    seen: dict[str, str] = {}
    return _SYMBOL.sub(lambda match: seen.setdefault(_base(match[0]), f"S{len(seen)}"), block)


def _base(symbol: str) -> str:
    return re.sub(r"_param_\d+$", "", symbol)


def compiled(cuda: Any, function: Any, signature: Any, **options: Any) -> Any:
    """Return what came of compiling *function*: its code without names and its type, or the error's name."""
    try:
        code, result = cuda.compile(function, signature, cc=(9, 0), output="ptx", **options)
    except Exception as error:  # noqa: BLE001 - an outcome like any other
        return type(error).__name__
    return [*without_names(code if isinstance(code, str) else code.decode()), str(result)]


def outcomes(name: str, abi: str) -> dict[str, Any]:
    """Return what came of each entry of the corpus with the front end *name*."""
    cuda, front_end = front_ends.cuda(name), front_ends.get(name)
    found = {}
    for text, types in corpus.EXPRESSIONS:
        scope: dict[str, Any] = {"math": math, "np": np}
        parameters = "a, b" if re.search(r"\bb\b", text) else "a"
        exec(f"def f({parameters}): return {text}", scope)  # noqa: S102 - the corpus is our own
        found[f"{text} ({types})"] = compiled(cuda, scope["f"], f"({types},)", abi=abi)
    records = map(front_end.from_dtype, (corpus.RECORD, corpus.PACKED))
    for label, (function, signature) in corpus.kernels(cuda, *records).items():
        found[label] = compiled(cuda, function, signature, abi="numba", device=False)
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    _, name, abi = sys.argv
    _STAND_INS[name]()
    sys.stdout.write(json.dumps(outcomes(name, abi)) + "\n")
