"""Exports into a folder of another export, and arguments of `export` that it cannot mean."""

from __future__ import annotations

from typing import NamedTuple

import front_ends
import numpy as np
import pytest

import numba_ptxlink as pl


@pl.kernel("void(CPointer(int32))")
def store(out):
    """Write one number."""
    out[0] = 1


@pytest.mark.parametrize("name", ["a.launch", "b.a.kernels"])
def test_no_export_writes_over_another(name):
    """A stem that makes the name of another export's file is refused."""
    with pytest.raises(pl.ExportError, match=r"neither \.launch nor \.kernels at the end"):
        pl.export([store], name=name, emit="ptx")


@pytest.mark.parametrize(
    "arguments",
    [
        {"source": 5},
        {"source": None},
        {"source": []},
        {"source": [len]},
        {"arch": []},
        {"arch": "sm_42"},
        {"include_dirs": 5},
        {"include_dirs": [5]},
        {"include_dirs": "a\0b"},
        {"fastmath": {"nnan"}},
        {"opt": 3},
        {"lineinfo": "no"},
        {"name": 5},
        {"emit": 5},
        {"emit": [5]},
        {"out_dir": 5},
        {"out_dir": "a\0b"},
        {"out_dir": "out", "depfile": "\ud800"},
    ],
    ids=str,
)
def test_what_it_cannot_mean_is_refused(arguments):
    """The error says which value to pass."""
    call = {"source": [store], "arch": "sm_90", **arguments}
    with pytest.raises(pl.PtxlinkError, match=r"pass|choose|takes|give|mark|such as|map a|is not a type"):
        pl.export(call.pop("source"), **call)


def mixed(call):
    """Return a function that calls a closure with defaults."""

    def by_name(a):
        def mix(x, y, k=1):
            return x + y * k

        return mix(a, 10, k=5)

    def by_name_alone(a):
        def mix(x, y, k=1):
            return x + y * k

        return mix(a, y=10)

    def one_default(a):
        def mix(x, y=10, z=20):
            return x + 1000 * y + z

        return mix(a, 5)

    def too_many(a):
        def same(x):
            return x

        return same(a, 5)

    return locals()[call]


@pytest.mark.parametrize("front_end", front_ends.NAMES)
@pytest.mark.parametrize("call", ["by_name", "by_name_alone", "one_default", "too_many"])
def test_closures_whose_arguments_would_be_mixed_up_are_refused(front_end, call):
    """The compilers would pass a default, or another value, in place of an argument."""
    udf = pl.udf("int64(int64)", name="f", front_end=front_end)(mixed(call))
    with pytest.raises(pl.ExportError, match=r"py:\d+: the closure '.*' is called .*; pass a value for each"):
        pl.export([udf], arch="sm_90", emit="ptx")


HALF = np.float16(1.5)
RECORD = np.dtype([("n", "i4"), ("x", "f4")], align=True)
UNALIGNED = np.dtype([("n", "i1"), ("z", "f4")])
FLAGS = np.dtype([("n", "i4"), ("flags", "?", 4)], align=True)
# Functions that authors write, with the error of both compilers or of one.
UNCLEAR = {
    "lambda r: r.y": ("float32(RECORD)", r"py:\d+: a record has no field 'y'; it has 'n', 'x'", ""),
    "lambda a: a[0].y": ("float32(RECORD[::1])", r"py:\d+: a record has no field 'y'; it has 'n', 'x'", ""),
    "lambda x: np.sqrt(x)": ("float64(float64)", r"py:\d+: .* no NumPy 'sqrt' .*; use math\.sqrt", ""),
    "lambda x: np.abs(x)": ("float64(float64)", "no NumPy 'absolute' .*; use abs", "numba-cuda"),
    "lambda x: np.zeros(1)[0]": (
        "float64(float64)",
        r"py:\d+: .* cannot allocate arrays, as by np\.zeros\(\); use cuda\.local\.array",
        "",
    ),
    "lambda x: [x, x][0]": ("float64(float64)", r"py:\d+: .* cannot allocate memory.*; use tuples", ""),
    "lambda x: x + 1": (
        "int32(Optional(int32))",
        r"py:\d+: numba-cuda-mlir cannot compile this; rewrite it, or choose front_end",
        "numba-cuda-mlir",
    ),
    "lambda a: tail(a)[0]": ("float32(float32[::1])", "returns an array.*; pass it an array", "numba-cuda"),
    "lambda z: z": ("float32(complex64)", "result is complex64, .*float32 of the signature; .* z.real", ""),
    "lambda x: int(x)": ("int32(bfloat16)", r"no int\(\) of a bfloat16; write int\(np.float32\(x\)\)", ""),
    "lambda r: r.z": (
        "float32(UNALIGNED)",
        r"py:\d+: .*field 'z' .* not aligned; .*align=True",
        "numba-cuda",
    ),
    "lambda n: fib(n)": (
        "int32(int32)",
        r"(calls itself|recursive call) .*; write a loop, or (give|convert) the arg",
        "",
    ),
    "lambda n: keyword_only(n, k=4)": (
        "int32(int32)",
        "has keyword-only parameters.* take out",
        "numba-cuda",
    ),
    "lambda x: x * half": (
        "float16(float16)",
        r"py:\d+: .*reads one from half; write the number in the function",
        "numba-cuda",
    ),
    "lambda x: x * halves[0][1]": (
        "float16(float16)",
        r"py:\d+: .*reads one from halves; write the number in the function",
        "numba-cuda",
    ),
    "lambda x: with_half(x)": (
        "float16(float16)",
        r"py:\d+: .*reads one from s; write the number in the function",
        "numba-cuda",
    ),
    "lambda x: (lambda y: y * half)(x)": (
        "float16(float16)",
        r"py:\d+: .*reads one from half; write the number in the function",
        "numba-cuda",
    ),
    "lambda x: 1 if x else 2": (
        "int32(float16)",
        r"py:\d+: .*no truth value of a float16; compare it with 0",
        "numba-cuda",
    ),
    "lambda x: bool(x)": (
        "int32(float16)",
        r"py:\d+: .*no truth value of a float16; compare it with 0",
        "numba-cuda",
    ),
}


@pytest.mark.parametrize("front_end", front_ends.NAMES)
@pytest.mark.parametrize("text", UNCLEAR)
def test_what_a_compiler_says_in_words_of_its_own_is_explained(front_end, text):
    """The error has the line, the cause, and the code to write."""
    signature, message, alone = UNCLEAR[text]
    if alone and front_end != alone:
        pytest.skip("it compiles")
    cuda = front_ends.cuda(front_end)

    @cuda.jit(device=True)
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    @cuda.jit(device=True)
    def keyword_only(x, *, k=3):
        return x * k

    @cuda.jit(device=True)
    def with_half(x, s=HALF):
        return x * s

    @cuda.jit(device=True)
    def tail(array):
        return array[1:]

    types = vars(front_ends.get(front_end).types)
    scope = {"np": np, "fib": fib, "tail": tail, "keyword_only": keyword_only}
    scope |= {"half": HALF, "halves": ((1, HALF),), "with_half": with_half}
    from_dtype = front_ends.get(front_end).from_dtype
    records = {"RECORD": from_dtype(RECORD), "UNALIGNED": from_dtype(UNALIGNED)}
    typed = eval(signature, {**types, **records})  # noqa: S307 - of the table
    function = eval(compile(text, "udfs.py", "eval"), scope)  # noqa: S307 - likewise
    with pytest.raises(pl.ExportError, match=message):
        pl.export([pl.udf(typed, name="f", front_end=front_end)(function)], arch="sm_90", emit="ptx")


@pytest.mark.parametrize("front_end", front_ends.NAMES)
def test_an_exported_function_that_calls_itself_is_explained(front_end):
    """The error names the helper that may call itself."""

    @pl.udf("int64(int64)", front_end=front_end)
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    with pytest.raises(pl.ExportError, match=r"cannot call itself; let it call a helper with @cuda\.jit"):
        pl.export([fib], arch="sm_90", emit="ptx")


@pytest.mark.parametrize("front_end", front_ends.NAMES)
def test_an_array_of_booleans_in_a_record_is_explained(front_end):
    """The error names the type to use instead."""

    @pl.udf("int32(FLAGS[::1])", front_end=front_end)
    def first(records):
        return records[0].n if FLAGS else 0

    with pytest.raises(pl.AbiError, match="no arrays of booleans; declare the array as u1"):
        pl.export([first], arch="sm_90", emit="ptx")


@pytest.mark.parametrize(
    "options",
    [{"structs": ["a"]}, {"structs": {"a": 3}}, {"namespace": 3}, {"include": 3}, {"const": [3]}],
    ids=str,
)
def test_options_that_are_no_names_are_refused(options):
    """The decorator's error says which values the option accepts."""
    with pytest.raises(pl.AbiError, match=r"is not a name; pass|write "):
        pl.udf("void(int32)", **options)(lambda x: None)  # noqa: ARG005


class Pair(NamedTuple):
    """Two floats."""

    x: float32  # noqa: F821 - a type of the front end that compiles it
    y: float32  # noqa: F821


class Other(NamedTuple):
    """Two floats of another name."""

    x: float32  # noqa: F821
    y: float32  # noqa: F821


@pytest.mark.parametrize("front_end", front_ends.NAMES)
@pytest.mark.parametrize("function", [lambda p: Other(p.x, p.y), lambda p: (p.x,), lambda p: Pair(p.x, 1j)])
def test_what_cxx_does_not_convert_is_refused(front_end, function):
    """Another named tuple, another number of members, and a complex number for a real one."""
    front_ends.get(front_end)
    with pytest.raises(pl.ExportError, match=r"No conversion from|does not become .*; convert the values"):
        pl.export(pl.udf("Pair(Pair)", name="f", front_end=front_end)(function), emit=["ptx"])
