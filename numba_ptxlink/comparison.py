"""
Compare what functions compute in Python with what compilers make of them, on the CPU: `compare`.

Each function is called both ways on the corners of its types and on random values. Python gets integers and
64-bit floats as its own numbers, and narrower floats as NumPy's, which round as compiled code does.
"""

from __future__ import annotations

import copy
import dis
import functools
import math
import secrets
import sys
from types import CellType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from ._export import choice, jobs
from ._export.load import Source, check_file, load
from ._front_end import registry
from ._launch import arrays, library, results
from .errors import DeviceFaultError, ExportError, PtxlinkError, shown
from .exporter import Udf, export

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path


__all__ = ["Difference", "compare"]

_ARCH = "sm_90"
# Calls of a function, and elements along each dimension of an array.
_CALLS, _LENGTH = 500, 6
# Lines of Python, and steps of compiled code, that a call may take.
_LINES, _STEPS = 100_000, 10_000_000
# In units in the last place: fused multiplications and approximations of a compiler, and what cancels behind.
_APART = 2048
# The same for halves and bfloat16, relative.
_COARSE = 2**-5
_WRITTEN = {"view", "pointer"}
_WHOLE = {"bool": bool, "int": int, "uint": int}
# Every third value or so, by NumPy's kind of a type.
_CORNERS: dict[str, tuple[Any, ...]] = {
    "f": (0.0, -0.0, 1.0, -1.5, 2.5, 1e-3, -1e4, math.inf, -math.inf, math.nan),
    "b": (False, True),
    "S": (b"", b"ab"),
}
# What is in the instructions by which compiled functions stop for an exception.
_STOPS = ("trap", "__assertfail")
# What a function that only a GPU can run raises in Python.
_NOT_PYTHON = (AttributeError, NameError, NotImplementedError, TypeError)
_SYMBOLS = {
    "BINARY_FLOOR_DIVIDE": "//", "BINARY_MODULO": "%", "BINARY_POWER": "**", "BINARY_LSHIFT": "<<",
    "BINARY_SUBTRACT": "-", "UNARY_NEGATIVE": "-x", "UNARY_INVERT": "~x",
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
    the last place, and zeros by their sign. A trap agrees with an exception of Python, an access out of an
    array with its IndexError. Arrays are compared after the call as well; Python gets copies.

    Args:
        function: A function with @udf.
        arguments: Those of one call. By default corners of the types of its parameters, and random values.
        seed: What the random values are drawn by; another one each time by default.

    Returns:
        The differences; none where both agree: `assert not compare(damp, 2.0, 0.5)`.

    Raises:
        ExportError: It could not be compiled, or could not be called both ways with these arguments.
        LaunchError: There is no llvmlite.
    """
    if not isinstance(function, Udf) or function.is_kernel:
        raise ExportError(f"compare() takes a function with @udf, not {shown(function)}.")
    if seed is not None and not (type(seed) is int and seed >= 0):
        raise ExportError(
            f"seed is {shown(seed)}; pass a whole number from 0 on, or None for another one each time."
        )
    found = compared([function], seed, [arguments] if arguments else None)
    for name, reason in found.left_out.items():
        raise ExportError(f"{name} was not compared: {reason}; give other arguments.")
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
    every = dict.fromkeys(each for of in marked for each in (*of.other_signatures, of))
    udfs = [each for each in every if not each.is_kernel]
    left_out = {each.name: "a kernel is not called in Python" for each in every if each.is_kernel}
    if not udfs:
        raise ExportError(f"{', '.join(left_out)}: kernels are not compared; mark functions with @udf.")
    seed = secrets.randbits(32) if seed is None else seed
    exported = export(udfs, name="compared", arch=_ARCH, emit=["ptx"], front_end=front_end)
    compiler = choice.common(udfs, front_end).name
    loaded: Any = library.load(exported, device="cpu", steps=_STEPS)
    counts: dict[str, int] = {}
    differences: list[Difference] = []
    for udf, function in zip(udfs, loaded.values(), strict=True):
        try:
            count, found = _compared(udf.function, function, compiler, seed, calls)
        except PtxlinkError as error:
            left_out[function.name] = str(error).rstrip(".")
            continue
        if count:
            counts[function.declaration] = count
        else:
            left_out[function.name] = "no call of it ended in Python"
        differences += found
    return Compared(counts, differences, left_out, seed)


def _compared(
    function: FunctionType, compiled: Any, compiler: str, seed: int, calls: Sequence[tuple[Any, ...]] | None
) -> tuple[int, list[Difference]]:
    """Return how many calls of a function ended in Python, and where the compiled one differs."""
    types, facts = compiled.types, _facts(function)
    names = [formal.type for formal in compiled.parameters.formals]
    kinds = {compiler, *facts, *names, *(types[name]["kind"] for name in names)}
    arrays_of = functools.partial(_arrays_in, types, names)
    python = functools.partial(_limited, _as_python(function))
    count, apart = 0, []
    # Python ends with a power, or a shift, by eight bits.
    small = bool({"**", "<<"} & facts)
    for given in calls or _samples(types, names, [seed, *compiled.name.encode()], small=small):
        outcome = [compiled.result, *(name for name, _ in arrays_of(given))]
        wanted = _outcome(python, given, arrays_of)
        if isinstance(wanted, TimeoutError):
            continue
        got, count = _outcome(compiled, given, arrays_of), count + 1
        if isinstance(wanted, Exception) and isinstance(got, DeviceFaultError):
            # An exception may be a trap, and an index out of an array the access there.
            agree = isinstance(wanted, LookupError) or any(map(got.instruction.__contains__, _STOPS))
        elif isinstance(wanted, Exception) or isinstance(got, Exception):
            agree = False
        else:
            agree = all(map(functools.partial(_agrees, types), outcome, wanted, got))
        if not agree:
            known = kinds | {f"given:{each}".replace(":-", ":") for each in given}
            known |= {f"raises:{each.__name__}" for each in type(wanted).__mro__}
            fits = (why for why, rows in WHY.items() if any(known.issuperset(row.split()) for row in rows))
            texts = (_text(given), _text(wanted), _text(got))
            apart.append(Difference(compiled.declaration, *texts, next(fits, "")))
    # A corner is drawn more than once.
    return count, [*dict.fromkeys(apart)]


def _samples(
    types: arrays.Types, names: Sequence[str], seed: Sequence[int], *, small: bool
) -> list[tuple[Any, ...]]:
    """Return arguments of the C types *names* for several hundred calls."""
    import numpy as np

    rng = np.random.default_rng(seed)
    columns = []
    for name in names:
        entry = types[name]
        if entry["kind"] not in _WRITTEN:
            drawn = _drawn(rng, results.dtype(types, name), _CALLS, small=small)
            columns.append([results.unpack(types, name, each.tobytes()) for each in drawn])
            continue
        element = results.dtype(types, entry.get("element", entry.get("target")))
        whole = np.dtype((element, (_LENGTH,) * entry.get("ndim", 1)))
        drawn = _drawn(rng, whole, _CALLS, small=small)
        # Elements have their members as attributes, as in compiled code.
        drawn = drawn.view(np.recarray) if element.names else drawn
        columns.append([each.copy("F" if entry.get("layout") == "f" else "C") for each in drawn])
    return list(zip(*columns, strict=True)) or [()]


def _drawn(rng: Any, dtype: Any, count: int, *, small: bool) -> Any:
    """Return so many elements of a type of NumPy; integers have eight bits if they are *small*."""
    import numpy as np

    kind, size = dtype.kind, dtype.itemsize
    draw = functools.partial(_drawn, rng, small=small)
    if dtype.names:
        made = np.zeros(count, dtype)
        for name in dtype.names:
            made[name] = draw(dtype[name], count)
        return made
    if dtype.subdtype:
        element, shape = dtype.subdtype
        return draw(element, count * math.prod(shape)).reshape(count, *shape)
    if kind == "c":
        return draw(np.dtype(f"f{size // 2}"), 2 * count).view(dtype)
    if kind == "V" and size == 2:
        # The upper half of a float is a bfloat16.
        return draw(np.dtype("<f4"), count).view("<u2")[1::2].copy().view(dtype)
    if kind in "iu":
        limits = np.iinfo(f"{kind}1" if small else dtype)
        corners: tuple[Any, ...] = (0, 1, limits.min, limits.max)
        drawn = rng.integers(limits.min, limits.max, count, dtype, endpoint=True)
        # As many small ones as large ones.
        drawn >>= rng.integers(8 if small else 8 * size, size=count).astype(dtype)
    elif kind in _CORNERS:
        corners = _CORNERS[kind]
        drawn = rng.choice(np.array(corners, dtype), count)
    else:
        raise ExportError("NumPy has no type for what it is, or points to")
    if kind == "f":
        drawn = (rng.normal(size=count) * 10.0 ** rng.integers(-3, 4, count)).astype(dtype)
    return np.where(rng.random(count) < 1 / 3, rng.choice(np.array(corners, dtype), count), drawn)


def _outcome(call: Callable[..., Any], given: tuple[Any, ...], arrays_of: Callable[..., Any]) -> Any:
    """Return what a call returns, and the arrays after it, as *arrays_of* finds them; or the exception."""
    own = copy.deepcopy(given)
    try:
        return (call(*own), *(array for _, array in arrays_of(own)))
    except _NOT_PYTHON as error:
        raise ExportError(f"Python raises {type(error).__name__}: {error}") from error
    except Exception as error:
        if isinstance(error, PtxlinkError) and not isinstance(error, DeviceFaultError):
            raise
        return error


def _arrays_in(types: arrays.Types, names: Iterable[str], values: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Return the arrays among values of the C types *names*, and in tuples, each with its type."""
    for name, value in zip(names, values, strict=False):
        if types[name]["kind"] in _WRITTEN and arrays.is_numpy(value, "ndarray"):
            yield name, value
        elif isinstance(value, (tuple, list)):
            members = [each["type"] for each in types[name].get("members", ())]
            yield from _arrays_in(types, members, value)


def _is_compiler(frame: FrameType | None) -> bool:
    return frame is not None and registry.of_module(frame.f_globals.get("__name__", "")) is not None


def _as_python(function: FunctionType) -> FunctionType:
    """
    Return a copy of *function* that calls Python functions in the place of a compiler's dispatchers.

    So do these, whichever modules they are in.
    """
    dotted = {name for _, name, value in choice.names([function]) if choice.decorated(value)}
    modules = {name.partition(".")[0] for name in dotted if "." in name}
    scopes: dict[int, dict[str, Any]] = {}

    def copied(each: FunctionType) -> FunctionType:
        cells = None if each.__closure__ is None else tuple(map(cell, each.__closure__))
        return FunctionType(each.__code__, scope(each.__globals__), each.__name__, each.__defaults__, cells)

    def cell(each: CellType) -> CellType:
        try:
            return CellType(python(each.cell_contents))
        except ValueError:
            # Nothing is in it yet.
            return each

    def scope(there: dict[str, Any]) -> dict[str, Any]:
        if id(there) not in scopes:
            scopes[id(there)] = own = dict(there)
            own.update((name, python(value, name)) for name, value in there.items())
        return scopes[id(there)]

    def python(value: Any, name: str = "") -> Any:
        if name in modules and isinstance(value, ModuleType):
            module = ModuleType(value.__name__)
            vars(module).update(scope(vars(value)))
            return module
        called = choice.decorated(value)
        return value if called is None else copied(called)

    return copied(function)


def _limited(function: Callable[..., Any], *given: Any) -> Any:
    """
    Call *function* for as many lines as a call may take.

    Raises:
        TimeoutError: It takes more.
        NotImplementedError: It called what a compiler has no Python for, such as `libdevice.expf`.
    """
    import numpy as np

    left = _LINES

    def trace(frame: FrameType, event: str, value: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise TimeoutError
        # Functions that stand for code of a device do nothing, and a dispatcher asks for a launch.
        if event == "return" and value is None and _is_compiler(frame) and not _is_compiler(frame.f_back):
            raise NotImplementedError(f"{frame.f_globals['__name__']}.{frame.f_code.co_name} has no Python")
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        with np.errstate(all="ignore"):
            return function(*given)
    finally:
        sys.settrace(former)


def _agrees(types: arrays.Types, name: str, wanted: Any, got: Any) -> bool:
    """Return whether Python's result, converted to the C type *name*, is the compiled one."""
    entry = types[name]
    members = [member["type"] for member in entry.get("members", ())]
    if wanted is None or got is None:
        return wanted is got
    if arrays.is_optional(types, name):
        return _agrees(types, members[0], wanted, got)
    if entry["kind"] == "struct":
        agree = functools.partial(_agrees, types)
        return len(wanted) == len(got) and all(map(agree, members, wanted, got))
    try:
        if entry["kind"] in _WHOLE:
            return not (_WHOLE[entry["kind"]](wanted) - got) % (1 << 8 * entry["size"])
        wanted = float(wanted) if isinstance(wanted, int) else wanted
    except (OverflowError, TypeError, ValueError):
        return False
    return _close(wanted, got, _COARSE if entry["kind"] == "bfloat16" else 0)


def _close(wanted: Any, got: Any, near: float = 0) -> bool:
    """Return whether values, or all elements of arrays, are equal or floats that are close."""
    import numpy as np

    left, right = np.asarray(wanted), np.asarray(got)
    if right.dtype.names:
        return all(_close(left[name], right[name]) for name in right.dtype.names)
    floats = [np.finfo(each.dtype) for each in (left, right) if each.dtype.kind in "fc"]
    if left.shape != right.shape or not floats:
        return np.array_equal(left, right)
    coarsest = max(floats, key=lambda each: each.eps)
    near = max(near, min(_APART * float(coarsest.eps), _COARSE))
    with np.errstate(all="ignore"):
        if np.can_cast(left.dtype, right.dtype, "same_kind"):
            left = left.astype(right.dtype)
        # Both parts of a complex number are as close as that is large.
        size = np.abs(right)
        apart = float(coarsest.tiny) + near * np.where(size < np.inf, size, 0)
        close = functools.partial(np.isclose, rtol=0, atol=apart, equal_nan=True)
        return bool((close(left.real, right.real) & close(left.imag, right.imag)).all())


def _facts(function: FunctionType) -> set[str]:
    """Return the operators and the names that the text of a function has."""
    code = dis.Bytecode(function)
    symbols = {_SYMBOLS.get(each.opname, each.argrepr.rstrip("=")) for each in code}
    return symbols | {*code.codeobj.co_names}


WHY = {
    "Division by zero raises in Python. Compiled, a float becomes infinite or NaN; an integer is 0 with "
    "numba-cuda, and undefined with numba-cuda-mlir.": ["raises:ZeroDivisionError"],
    "Functions of `math`, and `**`, raise in Python outside of their domain and range. Compiled, they return "
    "NaN or an infinity.": ["math raises:OverflowError", "math raises:ValueError", "** raises:OverflowError"],
    "An index out of an array raises in Python. Compiled, it is not checked; numba-cuda checks it with "
    "`checked=True`.": ["raises:LookupError"],
    'An exception has no channel in C: the function returns zero, or stops with `on_error="trap"`.': [
        "raises:Exception"
    ],
    "`//` and `%` of a float by an infinity are NaN with numba-cuda.": [
        "numba-cuda given:inf //",
        "numba-cuda given:inf %",
    ],
    "`min` and `max` leave NaN out.": ["given:nan min", "given:nan max"],
    "numba-cuda-mlir takes NaN for equal to itself, and for false.": ["numba-cuda-mlir given:nan"],
    "A power of integers is an integer, also of a negative exponent, and numba-cuda-mlir keeps the bits of "
    "the base.": ["**"],
    "`-x`, and with numba-cuda `~x`, of a narrow unsigned integer has its bits, filled up with zeros to "
    "64.": ["uint -x", "uint ~x"],
    "A `uint64` beside a signed integer or a constant is computed as an `int64`.": ["uint64_t"],
    "`a - b` of unsigned integers is an unsigned one of 64 bits, which wraps around below zero.": ["uint -"],
    "`round` takes halves to the even number in Python and with numba-cuda, and up with numba-cuda-mlir.": [
        "numba-cuda-mlir round"
    ],
    "Functions of `math` of integers are computed in `float32` and typed as integers by numba-cuda-mlir.": [
        "numba-cuda-mlir math int",
        "numba-cuda-mlir math uint",
    ],
}
"""
What explains a difference: each sentence of docs/reference/compilers.md with the facts that come together.

A fact is an operator or a name in the function, its compiler, the type or the kind of a parameter, `given:` a
float that is not finite, or what it `raises:` in Python.
"""


def _text(values: Any) -> str:
    """Return arguments, or an outcome, as a table shows them."""
    if isinstance(values, Exception):
        return type(values).__name__
    return ", ".join(" ".join(str(each).split()) for each in values)
