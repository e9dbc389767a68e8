"""
Compare the results of functions that Python runs with those of the compiled functions on the CPU.

Both are called with corner values of the parameters' types, such as the largest integer, and with random
values. Python computes with int, float and complex. If the results differ, Python is called again with NumPy
scalars in place of array elements and of floats narrower than 64 bits.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from ._export import choice, jobs, signatures
from ._export.load import Source, check_file, load
from ._launch import library
from .errors import ExportError, PtxlinkError, short_repr
from .exporter import Udf, export

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ._front_end.base import FrontEnd


__all__ = ["Difference", "compare"]

# The CPU runs PTX for any architecture.
_ARCH = "sm_90"
# A compiled call whose loops make more iterations than this ends with a fault.
_MAX_STEPS = 10_000_000


class Difference(NamedTuple):
    """
    A call with different results in Python and in the compiled function.

    Args:
        function: The function's declaration in C.
        arguments: The arguments.
        python: The result in Python and the arrays after the call, or the exception.
        compiled: The result of the compiled function and the arrays after the call, or the fault.
    """

    function: str
    arguments: str
    python: str
    compiled: str


class Comparison(NamedTuple):
    """
    The results of comparing the functions of a file.

    Args:
        calls: The number of compared calls of each function, by its declaration.
        differences: The calls with different results.
        left_out: The reason for each function that was not compared, by its name.
        seed: The seed of the random values.
    """

    calls: dict[str, int]
    differences: list[Difference]
    left_out: dict[str, str]
    seed: int


def compare(function: Udf, *arguments: Any, seed: int | None = None) -> list[Difference]:
    """
    Call *function* in Python and, compiled, on the CPU; return the calls whose results differ. Needs no GPU.

    Python computes with int, float and complex. If the results differ, it computes again with NumPy scalars,
    for elements of arrays, and for corner values and random values of floats narrower than 64 bits. A call is
    a difference only if the compiled result agrees with neither result of Python. Python's result is
    converted to the C type: integers wrap around. Floats may differ by 2048 units in the last place of the
    narrowest type of the signature, and zeros by their sign. A trap agrees with an exception in Python, an
    access out of an array with an IndexError. Arrays, of which Python gets copies, are compared after the
    call.

    Args:
        function: A function with @udf.
        arguments: The arguments of one call. By default several hundred calls are made, with corner values of
            the parameters' types and random values. Calls that Python cannot make, or that take it too long,
            are left out.
        seed: The seed of the random values; None for a new one each time that `compare` is called.

    Returns:
        The differences; empty if the results agree: `assert not compare(damp, 2.0, 0.5)`.

    Raises:
        ExportError: The function could not be compiled, or called both ways with these arguments.
        LaunchError: llvmlite is not installed.
    """
    if not isinstance(function, Udf) or function.is_kernel:
        raise ExportError(f"compare() takes a function with @udf, not {short_repr(function)}.")
    comparison = compare_functions([function], seed, [arguments] if arguments else None)
    for name, reason in comparison.left_out.items():
        raise ExportError(f"{name} was not compared: {reason}; give other arguments.")
    return comparison.differences


def compare_file(path: Path, seed: int | None = None, front_end: str | None = None) -> Comparison:
    """
    Compare all functions of a Python file, which a child process imports.

    Raises:
        ExportError: The file could not be imported or compiled, or has no functions.
        LaunchError: llvmlite is not installed.
    """
    check_file(path)
    comparison: Comparison = jobs.in_child(_compare_source, Source(str(path)), front_end, seed)
    return comparison


def _compare_source(source: Source, front_end: str | None, seed: int | None) -> Comparison:
    """Import *source*, and compare its functions; run in a child."""
    return compare_functions(load(source, front_end).marked, seed, None, front_end)


def compare_functions(
    marked: Sequence[Udf],
    seed: int | None,
    calls: Sequence[tuple[Any, ...]] | None = None,
    front_end: Any = None,
) -> Comparison:
    """
    Compare marked functions.

    Args:
        marked: The functions; kernels are left out.
        seed: The seed of the random values; None for a new one.
        calls: The arguments of each call; None for corner values and random values.
        front_end: The name of the front end; None to choose it by the functions.
    """
    if seed is not None and not (type(seed) is int and seed >= 0):
        raise ExportError(
            f"seed is {short_repr(seed)}; pass a whole number from 0 on, or None for a new one in each call."
        )
    # If a function is marked several times, with other types, each mark is a `Udf`, and the last one lists
    # the others.
    all_marked = dict.fromkeys(mark for udf in marked for mark in (*udf.earlier_marks, udf))
    udfs = [udf for udf in all_marked if not udf.is_kernel]
    left_out = {udf.name: "a kernel is not called in Python" for udf in all_marked if udf.is_kernel}
    if not udfs:
        raise ExportError(f"{', '.join(left_out)}: kernels are not compared; mark functions with @udf.")
    seed = secrets.randbits(32) if seed is None else seed
    compiler = choice.common_front_end(udfs, front_end)
    exported = export(udfs, name="compared", arch=_ARCH, emit=["ptx"], front_end=front_end)
    compiled_library: Any = library.load(exported, device="cpu", steps=_MAX_STEPS)
    # Deferred, since importing this module must not require NumPy, which `library.load` has checked for.
    from ._comparison.tally import Tally

    comparison = Comparison(calls={}, differences=[], left_out=left_out, seed=seed)
    # The library has the functions in the order in which they were exported.
    for udf, name in zip(udfs, compiled_library, strict=True):
        # The type of the result is None if the signature has only the types of the parameters.
        types, result = signatures.signature_types(udf, compiler)
        compiled_function = compiled_library[name]
        if any(_holds_dates(compiler, ty) for ty in types):
            left_out[name] = "dates are integers in C, which have no NaT"
            continue
        if compiled_function.types[compiled_function.result].kind == "pointer":
            left_out[name] = "it returns an address"
            continue
        tally = Tally(udf.function, compiled_function, converts=result is not None)
        try:
            tally.call_all(calls or tally.draw_arguments(seed))
        except PtxlinkError as error:
            tally.skip(error)
        declaration = compiled_function.declaration
        comparison.differences.extend(Difference(declaration, *row) for row in tally.differences)
        if tally.count:
            comparison.calls[declaration] = tally.count
        else:
            left_out[name] = tally.skip_reason
    return comparison


def _holds_dates(compiler: FrontEnd, ty: Any) -> bool:
    """Return whether *ty* is a type of dates or time differences, or of arrays of them."""
    dates = (compiler.types.NPDatetime, compiler.types.NPTimedelta)
    return isinstance(ty, dates) or isinstance(getattr(ty, "dtype", None), dates)
