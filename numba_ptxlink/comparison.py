"""
Compare what functions compute in Python with what compilers make of them, on the CPU: `compare`.

Each function is called both ways on the corners of its types and on random values. Python gets integers and
64-bit floats as its own numbers, and narrower floats as NumPy's, which round as compiled code does.
"""

from __future__ import annotations

import dis
import json
import math
import secrets
import sys
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from ._export import jobs
from ._export.load import Source, check_file, load
from ._launch import arrays, library, results
from ._launch.samples import Samples
from .errors import ExportError, LaunchError, shown
from .exporter import Udf, export

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ._launch.on_cpu import CpuFunction

__all__ = ["Difference", "compare"]

_ARCH = "sm_90"
# Lines of Python, and steps of compiled code, that a call may take.
_LINES, _STEPS = 100_000, 10_000_000
# In units in the last place: fused multiplications and approximations of a compiler, and what cancels behind.
_APART = 2048
# The same for halves and bfloat16, relative.
_COARSE = 2**-5
# What a function that only a GPU can run raises in Python.
_NOT_PYTHON = (AttributeError, NameError, NotImplementedError, TypeError)
_SYMBOLS = {
    "BINARY_FLOOR_DIVIDE": "//", "BINARY_MODULO": "%", "BINARY_POWER": "**", "BINARY_LSHIFT": "<<",
    "UNARY_NEGATIVE": "-x", "UNARY_INVERT": "~x", "UNARY_NOT": "not",
}  # fmt: skip


class Difference(NamedTuple):
    """
    A call that Python and the compiled function answer differently.

    Args:
        function: The function's declaration in C.
        arguments: The arguments.
        python: What Python returned, and left in arrays, or the exception.
        compiled: What the compiled function returned, and left in arrays, or what stopped it.
        why: The sentence of "Where compilers differ" that explains it, "" where none does.
    """

    function: str
    arguments: str
    python: str
    compiled: str
    why: str


class Compared(NamedTuple):
    """
    The functions of a file, compared.

    Args:
        calls: How many calls of each function were compared, by its declaration.
        differences: Where they differ.
        left_out: Why functions were not compared, by their names.
        seed: What the random values were drawn by.
    """

    calls: dict[str, int]
    differences: list[Difference]
    left_out: dict[str, str]
    seed: int


def compare(function: Udf, *arguments: Any, seed: int | None = None) -> list[Difference]:
    """
    Call *function* in Python and, compiled, on the CPU; return where the results differ. Needs no GPU.

    Python's result is converted to the C type first: integers wrap around. Floats may differ by 2048 units in
    the last place. Arrays are compared after the call as well; Python gets copies.

    Args:
        function: A function with @udf.
        arguments: Those of one call. By default corners of the types of its parameters, and random values.
        seed: What the random values are drawn by; another one each time by default.

    Returns:
        The differences; none where both agree: `assert not compare(damp, 2.0, 0.5)`.

    Raises:
        ExportError: It could not be compiled, or could not be called in Python.
        LaunchError: An argument is not what its parameter takes, or there is no llvmlite.
    """
    if not isinstance(function, Udf) or function.is_kernel:
        raise ExportError(f"compare() takes a function with @udf, not {shown(function)}.")
    found = compared([function], seed, [arguments] if arguments else None)
    for name, reason in found.left_out.items():
        raise ExportError(f"{name} was not compared: {reason}. Give arguments of your own.")
    return found.differences


def compare_file(path: Path, seed: int | None = None, front_end: str | None = None) -> Compared:
    """
    Compare all functions of a Python file, which a child process imports.

    Raises:
        ExportError: It could not be imported or compiled, or has no functions.
        LaunchError: There is no llvmlite.
    """
    check_file(path)
    found: Compared = jobs.in_child(_of_source, Source(str(path)), front_end, seed)
    return found


def _of_source(source: Source, front_end: str | None, seed: int | None) -> Compared:
    return compared(load(source, front_end).marked, seed, None, front_end)


def compared(
    marked: Sequence[Udf],
    seed: int | None,
    calls: Sequence[tuple[Any, ...]] | None = None,
    front_end: Any = None,
) -> Compared:
    """Compare *marked* functions, with the arguments of *calls*, or with corners and random values."""
    udfs = [each for each in marked if not each.is_kernel]
    left_out = {each.name: "a kernel is not called in Python" for each in marked if each.is_kernel}
    if not udfs:
        raise ExportError(f"{', '.join(left_out)}: kernels are not compared; mark functions with @udf.")
    seed = secrets.randbits(32) if seed is None else seed
    exported = export(udfs, name="compared", arch=_ARCH, emit=["ptx"], front_end=front_end)
    compiler = json.loads(exported.contents[exported.manifest.name])["front_end"]
    loaded: Any = library.load(exported, device="cpu", steps=_STEPS)
    counts: dict[str, int] = {}
    differences: list[Difference] = []
    for udf, function in zip(udfs, loaded.values(), strict=True):
        used, names = _operators(udf.function), [ctype for _, ctype, _ in function.parameters]
        samples = Samples(function.types, [seed, *function.name.encode()], small=bool({"**", "<<"} & used))
        drawn = samples.calls(names) if calls is None else calls
        try:
            done = [_call(_as_python(udf.function, {}), function, each) for each in drawn]
        except ExportError as error:
            left_out[function.name] = str(error)
            continue
        kept = [each for each in done if each is not None]
        outcomes = {repr(python) for _, python, *_ in kept}
        always = next(iter(outcomes)) if len(outcomes) == 1 and isinstance(kept[0][1], Exception) else ""
        if not kept or (always and calls is None):
            left_out[function.name] = f"Python raises {always}" if kept else "no call of it ended in Python"
            continue
        counts[function.declaration] = len(kept)
        for given, python, compiled, agrees in kept:
            if not agrees:
                why = _explanation(function, used, given, python, compiler)
                texts = (_text(given)[1:-1].rstrip(","), _text(python), _text(compiled))
                differences.append(Difference(function.declaration, *texts, why))
    return Compared(counts, differences, left_out, seed)


def _call(python: Callable[..., Any], function: CpuFunction, given: tuple[Any, ...]) -> Any:
    """Return the arguments of a call, both outcomes and whether they agree; None where Python did not end."""
    ours, theirs = ([_copied(each) for each in given] for _ in range(2))
    kinds = [function.types[ctype]["kind"] for _, ctype, _ in function.parameters]
    wanted: Any
    try:
        wanted = _limited(python, ours)
    except _TooLongError:
        return None
    except _NOT_PYTHON as error:
        raise ExportError(f"Python raises {type(error).__name__}: {error}") from error
    except Exception as error:  # noqa: BLE001 - an outcome like any other
        wanted = error
    try:
        got = function(*theirs)
    except LaunchError as error:
        if not hasattr(error, "thread"):
            raise
        got = error
    if isinstance(wanted, Exception) or isinstance(got, Exception):
        return given, wanted, got, isinstance(wanted, Exception) and isinstance(got, Exception)
    written = [number for number, kind in enumerate(kinds) if kind in {"view", "pointer"}]
    arrays_agree = all(_agree(_sized(ours[number]), _sized(theirs[number])) for number in written)
    agrees = arrays_agree and _agrees(function.types, function.result, wanted, got)
    if written and not arrays_agree:
        wanted, got = (wanted, *(ours[each] for each in written)), (got, *(theirs[each] for each in written))
    return given, wanted, got, agrees


def _as_python(function: Any, done: dict[Any, Any]) -> Any:
    """Return a copy of *function* that calls Python functions in the place of a compiler's dispatchers."""
    if not isinstance(function, (FunctionType, Udf)) and not hasattr(function, "py_func"):
        return function
    function = getattr(function, "py_func", getattr(function, "function", function))
    if function in done:
        return done[function]
    scope = dict(function.__globals__)
    cells = tuple(CellType(each.cell_contents) for each in function.__closure__ or ())
    made = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, cells)
    done[function] = made
    for name in {*function.__code__.co_names} & {*scope}:
        # Dispatchers call no plain functions.
        if not isinstance(scope[name], FunctionType):
            scope[name] = _as_python(scope[name], done)
    for cell in cells:
        if not isinstance(cell.cell_contents, FunctionType):
            cell.cell_contents = _as_python(cell.cell_contents, done)
    return made


class _TooLongError(Exception):
    """A Python function runs on."""


def _limited(function: Callable[..., Any], given: Sequence[Any]) -> Any:
    """Call *function* for as many lines as a call may take."""
    import numpy as np

    left = _LINES

    def trace(_frame: Any, event: str, _argument: Any) -> Any:
        nonlocal left
        left -= event == "line"
        if left < 0:
            raise _TooLongError
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        with np.errstate(all="ignore"):
            return function(*given)
    finally:
        sys.settrace(former)


def _copied(value: Any) -> Any:
    return value.copy() if arrays.is_numpy(value, "ndarray") else value


def _sized(value: Any) -> Any:
    return value if value.dtype.names is None else value.tolist()


def _agrees(types: arrays.Types, name: str, wanted: Any, got: Any) -> bool:
    """Return whether Python's result, converted to the C type *name*, is the compiled one."""
    entry = types[name]
    kind = entry["kind"]
    if kind == "struct" and not results.is_optional(types, name):
        parts = list(wanted)
        return len(parts) == len(entry["members"]) and all(
            _agrees(types, member["type"], *pair)
            for member, pair in zip(entry["members"], zip(parts, got, strict=True), strict=True)
        )
    if kind == "struct" and wanted is not None and got is not None:
        return _agrees(types, entry["members"][0]["type"], wanted, got)
    if kind in {"int", "uint"} and isinstance(wanted, int):
        return not (wanted - got) % (1 << 8 * entry["size"])
    if kind in {"float", "float16", "complex"} and isinstance(wanted, (int, float, complex)):
        import numpy as np

        with np.errstate(all="ignore"):
            wanted = np.array(wanted).astype(results.dtype(types, name))
    return _agree(wanted, got, _COARSE if kind == "bfloat16" else 0)


def _agree(wanted: Any, got: Any, near: float = 0) -> bool:
    """Return whether values, or all elements of arrays, are equal or floats that are close."""
    import numpy as np

    if wanted is None or got is None:
        return wanted is got
    left, right = np.asarray(wanted), np.asarray(got)
    if left.shape != right.shape:
        return False
    if left.dtype.kind not in "fc" and right.dtype.kind not in "fc":
        return bool((left == right).all())
    floats = [each.dtype for each in (left, right) if each.dtype.kind in "fc"]
    coarsest = max((np.finfo(each) for each in floats), key=lambda each: each.eps)
    near = max(near, min(_APART * float(coarsest.eps), _COARSE))
    return bool(np.isclose(left, right, rtol=near, atol=float(coarsest.tiny), equal_nan=True).all())


def _operators(function: Any) -> set[str]:
    """Return the operators and the names that the text of a function has."""
    code = dis.Bytecode(function)
    symbols = {_SYMBOLS.get(each.opname, each.argrepr.rstrip("=")) for each in code}
    return symbols | {*code.codeobj.co_names}


# Sentences of docs/reference/compilers.md.
_DIVISION = (
    "Division by zero raises in Python. Compiled, a float becomes infinite or NaN; an integer is 0 with "
    "numba-cuda, and undefined with numba-cuda-mlir."
)
_DOMAIN = (
    "Functions of `math` raise in Python outside of their domain and range. Compiled, they return NaN or an "
    "infinity."
)
_INDEX = (
    "An index out of an array raises in Python. Compiled, it is not checked; numba-cuda checks it with "
    "`checked=True`."
)
_RAISED = 'An exception has no channel in C: the function returns zero, or stops with `on_error="trap"`.'
_INFINITE = "`//` and `%` of a float by an infinity are NaN with numba-cuda."
_LEFT_OUT = "`min` and `max` leave NaN out."
_NAN = "numba-cuda-mlir takes NaN for equal to itself, and for false."
_POWER = (
    "A power of integers is an integer, also of a negative exponent, and numba-cuda-mlir keeps the bits of "
    "the base."
)
_UNSIGNED = (
    "`-x`, and with numba-cuda `~x`, of a narrow unsigned integer has its bits, filled up with zeros to 64."
)
_MIXED = "A `uint64` beside a signed integer or a constant is computed as an `int64`."
_ROUND = "`round` takes halves to the even number in Python and with numba-cuda, and up with numba-cuda-mlir."
_MATH = "Functions of `math` of integers are computed in `float32` and typed as integers by numba-cuda-mlir."
WHY = (
    _DIVISION,
    _DOMAIN,
    _INDEX,
    _RAISED,
    _INFINITE,
    _LEFT_OUT,
    _NAN,
    _POWER,
    _UNSIGNED,
    _MIXED,
    _ROUND,
    _MATH,
)
"""The sentences that explain differences."""


def _explanation(
    function: CpuFunction, used: set[str], given: Sequence[Any], python: Any, compiler: str
) -> str:
    """Return the sentence that explains a difference, "" where none does."""
    is_mlir = compiler == "numba-cuda-mlir"
    types = [function.types[ctype] for _, ctype, _ in function.parameters]
    kinds = {(entry["kind"], entry["size"]) for entry in types}
    has_nan = any(isinstance(each, (float, complex)) and each != each for each in given)  # noqa: PLR0124 - NaN
    has_infinity = any(abs(each) == math.inf for each in given if isinstance(each, float))
    rows = (
        (isinstance(python, ZeroDivisionError), _DIVISION),
        (isinstance(python, (OverflowError, ValueError)) and "math" in used, _DOMAIN),
        (isinstance(python, LookupError), _INDEX),
        (isinstance(python, Exception), _RAISED),
        (has_infinity and not is_mlir and bool(used & {"//", "%"}), _INFINITE),
        (has_nan and bool(used & {"min", "max"}), _LEFT_OUT),
        (has_nan and is_mlir, _NAN),
        ("**" in used, _POWER),
        (bool(used & {"-x", "~x"}) and "uint" in dict(kinds), _UNSIGNED),
        (("uint", 8) in kinds, _MIXED),
        (is_mlir and "round" in used, _ROUND),
        (is_mlir and "math" in used and bool({"int", "uint"} & dict(kinds).keys()), _MATH),
    )
    return next((sentence for fits, sentence in rows if fits), "")


def _text(value: Any) -> str:
    """Return a value as a table shows it."""
    if isinstance(value, Exception):
        return type(value).__name__
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_text, value))}{',' * (len(value) == 1)})"
    return " ".join(str(value).split()) if not isinstance(value, (str, bytes)) else repr(value)
