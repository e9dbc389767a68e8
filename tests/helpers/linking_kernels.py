"""
Cached kernels, each of which names a file that it links in another way; run as a program, it compiles them.

Every file multiplies by 1111 or 2222; the program prints which, and whether a kernel was found on disk.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MLIR, FOLDER, STATE = sys.argv[1] == "numba-cuda-mlir", Path(sys.argv[2]), sys.argv[3]
cuda: Any = importlib.import_module("numba_cuda_mlir.cuda" if MLIR else "numba.cuda")
SOURCE = 'extern "C" __device__ int scale(int* out, int a) {{ *out = a * {}; return 0; }}\n'
# The immediate operands in machine code.
VALUES = {"1111": "0x457", "2222": "0x8ae"}
CHIP = {"chip": "sm_90"} if MLIR else {}


def path(way: str, name: str = "") -> str:
    """Return the path of a link file: one of two that the state chooses, if it has no *name*."""
    return str(FOLDER / way / (name or f"{STATE}.cu"))


def declare(link: str) -> Any:
    """Return the function that the file *link* defines."""
    return cuda.declare_device("scale", "int32(int32)", link=link)


undefined = cuda.declare_device("scale", "int32(int32)")
by_global = declare(path("global"))
by_environment = declare(os.environ["LINK_FILE"])
os.environ["LINK_FILE"] = ""
KERNELS: dict[str, Any] = {}


def kernel(way: str, *link: str) -> Callable[[Any], None]:
    """Return the decorator of a kernel, which links the files *link*."""

    def decorate(function: Any) -> None:
        KERNELS[way] = cuda.jit(cache=True, **({"link": [*link]} if link else {}), **CHIP)(function)

    return decorate


@kernel("decorator", path("decorator"))
def _decorator(array: Any) -> None:
    array[0] = undefined(array[0])


@kernel("global")
def _global(array: Any) -> None:
    array[0] = by_global(array[0])


def _make_closure(scale: Any) -> None:
    @kernel("closure")
    def _closure(array: Any) -> None:
        array[0] = scale(array[0])


def _make_default(scale: Any = declare(path("default argument"))) -> None:  # noqa: B008 - the way to link
    @kernel("default argument")
    def _default(array: Any) -> None:
        array[0] = scale(array[0])


_make_closure(declare(path("closure")))
_make_default()


@kernel("environment")
def _environment(array: Any) -> None:
    array[0] = by_environment(array[0])


by_helper = declare(path("helper"))


@cuda.jit(device=True)
def _helped(value: Any) -> Any:
    return by_helper(value)


@kernel("helper")
def _helper(array: Any) -> None:
    array[0] = _helped(array[0])


@kernel("header", path("header", "file.cu"))
def _header(array: Any) -> None:
    array[0] = undefined(array[0])


@kernel("symlink", path("symlink", "file.cu"))
def _symlink(array: Any) -> None:
    array[0] = undefined(array[0])


@kernel("during compilation", path("during compilation", "file.cu"))
def _during(array: Any) -> None:
    array[0] = undefined(array[0])


@kernel("same name", path("same name", f"{STATE}/file.cu"))
def _same_name(array: Any) -> None:
    array[0] = undefined(array[0])


def write_files(state: str) -> None:
    """Write all link files, those with one path with the content of *state*."""
    value = {"first": 1111, "second": 2222}
    for way in KERNELS:
        (FOLDER / way).mkdir(exist_ok=True)
        for name, number in value.items():
            Path(path(way, f"{name}.cu")).write_text(SOURCE.format(number))
            (FOLDER / way / name).mkdir(exist_ok=True)
            Path(path(way, f"{name}/file.cu")).write_text(SOURCE.format(number))
        Path(path(way, "value.h")).write_text(f"#define VALUE {value[state]}\n")
        Path(path(way, "file.cu")).unlink(missing_ok=True)
        Path(path(way, "file.cu")).write_text('#include "value.h"\n' + SOURCE.format("VALUE"))
    Path(path("during compilation", "file.cu")).write_text(SOURCE.format(1111))
    Path(path("symlink", "file.cu")).unlink()
    Path(path("symlink", "file.cu")).symlink_to(f"{state}.cu")


def edit_during_compilation() -> None:
    """Change the file after the kernel is looked up, and restore it before the kernel is stored."""
    file, kernel_cache = Path(path("during compilation", "file.cu")), KERNELS["during compilation"]._cache
    load, save = kernel_cache.load_overload, kernel_cache.save_overload

    def load_overload(*args: Any) -> Any:
        overload = load(*args)
        file.write_text(SOURCE.format(2222))
        return overload

    def save_overload(*args: Any) -> None:
        file.write_text(SOURCE.format(1111))
        save(*args)

    kernel_cache.load_overload, kernel_cache.save_overload = load_overload, save_overload


def compiled(dispatcher: Any) -> tuple[list[str], int]:
    """Compile a kernel; return the values in its machine code, and how often it was found on disk."""
    import numba_ptxlink as pl

    types = importlib.import_module("numba_cuda_mlir.types" if MLIR else "numba.cuda.types")
    dispatcher.compile((types.int32[::1],) if MLIR else "void(int32[::1])")
    (overload,) = dispatcher.overloads.values()
    (cubin,) = [overload.metadata["cubin"]] if MLIR else overload._codelibrary._cubin_cache.values()
    text = pl.inspect(cubin if MLIR else cubin.code).sass
    values = [value for value, immediate in VALUES.items() if immediate in text]
    return values, sum(dispatcher.stats.cache_hits.values())


def main() -> None:
    """Take the front end, the folder, the state of the files, "first" or "second", and the ways."""
    warnings.simplefilter("ignore")
    if not MLIR:
        import fakedevice

        fakedevice.install(cc=(9, 0))
    write_files(STATE)
    if STATE == "first":
        edit_during_compilation()
    sys.stdout.write(json.dumps({way: compiled(KERNELS[way]) for way in sys.argv[4:]}) + "\n")


if __name__ == "__main__":
    main()
