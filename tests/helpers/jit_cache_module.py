"""A module with a cached kernel that links a CUDA C++ file; as a program, it prints counts of the cache."""

from __future__ import annotations

import ast
import json
import sys
import warnings

import fakedevice
from numba import cuda

import numba_ptxlink as pl


def compile_with(options: dict[str, object]) -> dict[str, object]:
    """
    Compile the kernel with *options*; return counts of hits, misses and compilations.

    The option "late" enables the plugin after the decorator has run.
    """
    before = pl.status().cache_misses
    late = options.pop("late", False)
    if late:
        pl.disable()
    twice = cuda.declare_device("twice", "int32(int32)")

    @cuda.jit(cache=True, link=[sys.argv[1]], **options)
    def kernel(array):
        array[0] = twice(array[0])

    if late:
        pl.enable()
    kernel.compile("void(int32[::1])")
    library = kernel.overloads[kernel.signatures[0]]._codelibrary
    (cubin,) = library._cubin_cache.values()
    return {
        "hits": sum(kernel.stats.cache_hits.values()),
        "misses": sum(kernel.stats.cache_misses.values()),
        "made": pl.status().cache_misses - before,
        "can compile": "numba.cuda.libdeviceimpl" in sys.modules,
        "named": library._entry_name.encode() in cubin.code,
    }


def main() -> None:
    """Take the link file and a list of options, as Python, from the command line."""
    fakedevice.install()
    warnings.simplefilter("ignore")
    option_sets = ast.literal_eval(sys.argv[2])
    sys.stdout.write(json.dumps([compile_with(options) for options in option_sets]) + "\n")


if __name__ == "__main__":
    main()
