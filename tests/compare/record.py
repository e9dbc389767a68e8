"""
Record what the installed package makes of one corpus, as JSON: `python record.py OUT.json`.

`differences.py` compares two such files, of this version and of an earlier one.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "helpers"))

import numba_ptxlink as pl  # noqa: E402 - after the path of the helpers

if TYPE_CHECKING:
    from collections.abc import Callable

ARCH = "sm_90"
SIGNATURES = {
    "void": ("void(float32[:], int32)", "def f(x, i): x[i] = i"),
    "float": ("float32(float32, float32)", "def f(x, y): return x * y + x"),
    "narrow": ("int8(int8, int8)", "def f(x, y): return x + y"),
    "mixed": ("int64(int32, uint32)", "def f(x, y): return x * y"),
    "complex": ("complex64(complex64)", "def f(z): return z * z"),
    "divide": ("int32(int32, int32)", "def f(x, y): return x // y"),
    "branch": ("float64(float64)", "def f(x):\n  if x > 1: return x\n  return -x"),
}
KERNELS = {
    "scale": ("void(float32[::1], float32)", "def k(x, a):\n  i = cuda.grid(1)\n  if i < x.size: x[i] *= a"),
    "reduce": (
        "void(float32[::1], float32[::1])",
        """def k(x, out):
  s = cuda.shared.array(64, float32)
  t = cuda.threadIdx.x
  s[t] = x[cuda.grid(1)]
  cuda.syncthreads()
  if t == 0:
    r = float32(0)
    for i in range(64):
      r += s[i]
    cuda.atomic.add(out, 0, r)""",
    ),
    "sum": ("void(int64[:], int32[:, :])", "def k(o, x):\n  i, j = cuda.grid(2)\n  o[i] += x[i, j]"),
}


def digest(code: bytes) -> str:
    """Return the machine code in a cubin, as a hash of what nvdisasm prints without names and addresses."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.cubin"
        path.write_bytes(code)
        run = subprocess.run([_nvdisasm(), "-c", path], capture_output=True, text=True, check=False)
    text = re.sub(r"/\*[0-9a-f]+\*/|//.*", "", run.stdout or run.stderr)
    return hashlib.sha256(re.sub(r"[ \t]+", " ", text).encode()).hexdigest()[:16]


def _nvdisasm() -> str:
    return str(next(Path(sys.prefix).glob("lib/python3*/site-packages/nvidia/*/bin/nvdisasm")))


def outcome(make: Callable[[], Any]) -> Any:
    """Return what *make* returns, or its exception as kind and first line."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the outcome
        return {"error": type(error).__name__, "line": str(error).partition("\n")[0]}


def prototypes(text: str) -> list[str]:
    """Return the headings of the visible functions of PTX."""
    found = re.findall(r"\.visible \.(?:func|entry)[^{;]*", text)
    return sorted(re.sub(r"_param_\w+|\s+|func_retval\d+", " ", heading) for heading in found)


def plain(ptx: str) -> str:
    """Return PTX without comments, debug lines and version, and with symbols by their order."""
    names: dict[str, str] = {}
    ptx = re.sub(r"//.*|\.(?:loc|file|version).*", "", ptx)
    ptx = re.sub(r"_Z\w+|_cudapy\w+", lambda found: names.setdefault(found[0], f"n{len(names)}"), ptx)
    return hashlib.sha256(re.sub(r"\s+", " ", ptx).encode()).hexdigest()[:16]


def exported(front_end: str) -> Any:
    """Export the corpus."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        arch = {"arch" if "arch" in inspect.signature(pl.export).parameters else "archs": [ARCH]}
        pl.export(HERE / "corpus_udfs.py", out, emit=["ptx", "ltoir", "cubin"], front_end=front_end, **arch)
        ptx = (out / f"corpus_udfs.{ARCH}.ptx").read_text()
        header = (out / "corpus_udfs.h").read_text()
        manifest = json.loads((out / "corpus_udfs.json").read_text())
        return {
            "prototypes": prototypes(ptx),
            "header": re.sub(r"[0-9a-f]{16,}", "", header).splitlines(),
            "functions": manifest.get("functions"),
            "code": digest((out / f"corpus_udfs.{ARCH}.cubin").read_bytes()),
        }


def compiled(cuda: Any, signature: str, text: str, **options: Any) -> Any:
    """Compile a function from its text."""
    namespace: dict[str, Any] = {"cuda": cuda, "float32": getattr(cuda, "float32", None)}
    if namespace["float32"] is None:
        import numpy as np

        namespace["float32"] = np.float32
    exec(text, namespace)  # noqa: S102 - the corpus
    function = namespace.get("f") or namespace["k"]
    ptx, result = cuda.compile(function, _signature(cuda, signature), cc=(9, 0), **options)
    return {"result": str(result), "prototypes": prototypes(ptx), "ptx": plain(ptx)}


def _signature(cuda: Any, text: str) -> Any:
    if "mlir" in cuda.__name__:
        from numba_cuda_mlir.numba_cuda.core import sigutils
    else:
        from numba.core import sigutils
    args, result = sigutils.normalize_signature(text)
    return result(*args) if result is not None else args


def linked(inputs: list[Any], **options: Any) -> Any:
    """Link inputs."""
    made = pl.link(*inputs, arch=ARCH, **options)
    return {"backend": made.backend, "lto": made.lto, "inlined": made.inlined, "code": digest(made.cubin)}


def commands(arguments: list[str]) -> Any:
    """Run the command line."""
    run = subprocess.run(
        [sys.executable, "-m", "numba_ptxlink", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tempfile.gettempdir(),
    )
    return {"status": run.returncode, "lines": (run.stdout + run.stderr).splitlines()[:3]}


def links() -> dict[str, Any]:
    """Link pairs of random CUDA C++ as PTX, as LTO-IR and as sources; and wrong inputs."""
    from cxx_pairs import Program

    found: dict[str, Any] = {}
    for seed in range(24):
        program = Program(seed)
        pair = [program.caller, program.callee]
        found[f"pair {seed}"] = outcome(lambda pair=pair: linked(pair, lto=False))
        if seed < 6:
            found[f"pair {seed} lto"] = outcome(lambda pair=pair: linked(pair, lto=True))
            found[f"pair {seed} apart"] = outcome(lambda pair=pair: linked(pair, lto=False, inline="none"))
    caller = 'extern "C" __device__ int f(int); extern "C" __global__ void k(int* p) { *p = f(1); }\n'
    callee = 'extern "C" __device__ {} f({} a) {{ return a; }}\n'
    pairs = {
        "right": [caller, callee.format("int", "int")],
        "wrong parameter": [caller, callee.format("int", "double")],
        "wrong result": [caller, callee.format("double", "int")],
        "undefined": [caller],
        "twice": [caller, callee.format("int", "int"), callee.format("int", "int").replace("a;", "a + 1;")],
        "twice equal": [caller, callee.format("int", "int"), callee.format("int", "int")],
        "no such file": [Path("missing.cu")],
        "syntax": ["extern nonsense;\n"],
        "python": [b"import os\n"],
        "empty": [b""],
    }
    for name, inputs in pairs.items():
        for options in ({}, {"lto": False}):
            found[f"{name} {options}"] = outcome(
                lambda inputs=inputs, options=options: linked(inputs, **options)
            )
    return found


def main() -> None:
    """Record everything."""
    logging.getLogger("numba_ptxlink").setLevel(logging.ERROR)
    record: dict[str, Any] = {}
    for front_end in ("numba-cuda", "numba-cuda-mlir"):
        record[f"export {front_end}"] = outcome(lambda front_end=front_end: exported(front_end))
    from numba import cuda
    from numba_cuda_mlir import cuda as mlir

    for module in (cuda, mlir):
        for name, (signature, text) in SIGNATURES.items():
            for options in ({}, {"abi": "c"}, {"abi": "c", "abi_info": {"abi_name": "f"}}):
                key = f"compile {module.__name__} {name} {options}"
                record[key] = outcome(
                    lambda module=module, signature=signature, text=text, options=options: compiled(
                        module, signature, text, device=True, **options
                    )
                )
        for name, (signature, text) in KERNELS.items():
            record[f"kernel {module.__name__} {name}"] = outcome(
                lambda module=module, signature=signature, text=text: compiled(module, signature, text)
            )
    record.update({f"link {name}": made for name, made in links().items()})
    for arguments in (
        ["--version"],
        ["nonsense"],
        ["link"],
        ["export"],
        ["link", "missing.cu"],
        ["inspect", "missing"],
    ):
        record[f"command {' '.join(arguments)}"] = commands(arguments)
    Path(sys.argv[1]).write_text(json.dumps(record, indent=1, sort_keys=True, default=str) + "\n")


if __name__ == "__main__":
    main()
