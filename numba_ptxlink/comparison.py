"""
Compare what functions compute in Python with what compilers make of them, on the CPU: `compare`.

Each function is called both ways with corners of its types and with random values. In Python all numbers are
Python's own; where the results differ, narrow floats and elements of arrays are NumPy's in a second call.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from ._export import choice, jobs, signatures
from ._export.load import Source, check_file, load
from ._launch import library
from .errors import ExportError, PtxlinkError, shown
from .exporter import Udf, export

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


__all__ = ["Difference", "compare"]

_ARCH = "sm_90"
_MAX_STEPS = 10_000_000


class Difference(NamedTuple):
    """
    A call that Python and the compiled function answer differently.

    Args:
        function: The function's declaration in C.
        arguments: The arguments.
        python: What Python returned, and left in arrays, or the exception.
        compiled: What the compiled function returned, and left in arrays, or what stopped it.
    """

    function: str
    arguments: str
    python: str
    compiled: str


class Comparison(NamedTuple):
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

    Python computes with its own numbers. If the results differ, it also computes with NumPy's: elements of
    arrays, and random floats that are narrower than Python's. A call that agrees with either is no
    difference. Python's result is converted to the C type: integers wrap around. Floats may differ by 2048
    units in the last place of the narrowest type of the signature, and zeros by their sign. A trap agrees
    with an exception in Python, an access out of an array with an IndexError. Arrays, of which Python gets
    copies, are compared after the call.

    Args:
        function: A function with @udf.
        arguments: Those of one call. By default corners of the types of its parameters, and random values, of
            which calls are skipped that Python cannot make.
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
    comparison = compare_functions([function], seed, [arguments] if arguments else None)
    for name, reason in comparison.left_out.items():
        raise ExportError(f"{name} was not compared: {reason}; give other arguments.")
    return comparison.differences


def compare_file(path: Path, seed: int | None = None, front_end: str | None = None) -> Comparison:
    """
    Compare all functions of a Python file, which a child process imports.

    Raises:
        ExportError: It could not be imported or compiled, or has no functions.
        LaunchError: There is no llvmlite.
    """
    check_file(path)
    comparison: Comparison = jobs.in_child(_compare_source, Source(str(path)), front_end, seed)
    return comparison


def _compare_source(source: Source, front_end: str | None, seed: int | None) -> Comparison:
    return compare_functions(load(source, front_end).marked, seed, None, front_end)


def compare_functions(
    marked: Sequence[Udf],
    seed: int | None,
    calls: Sequence[tuple[Any, ...]] | None = None,
    front_end: Any = None,
) -> Comparison:
    """Compare *marked* functions, with the arguments of *calls*, or with corners and random values."""
    all_marked = dict.fromkeys(variant for udf in marked for variant in (*udf.other_signatures, udf))
    udfs = [udf for udf in all_marked if not udf.is_kernel]
    left_out = {udf.name: "a kernel is not called in Python" for udf in all_marked if udf.is_kernel}
    if not udfs:
        raise ExportError(f"{', '.join(left_out)}: kernels are not compared; mark functions with @udf.")
    seed = secrets.randbits(32) if seed is None else seed
    compiler = choice.common(udfs, front_end)
    exported = export(udfs, name="compared", arch=_ARCH, emit=["ptx"], front_end=front_end)
    loaded: Any = library.load(exported, device="cpu", steps=_MAX_STEPS)
    # Deferred: the import of this module needs no NumPy, which `load` has asked for.
    from ._comparison.tally import Tally

    comparison = Comparison({}, [], left_out, seed)
    for udf, name in zip(udfs, loaded, strict=True):
        _, result = signatures.arguments(udf, compiler)
        tally = Tally(udf.function, loaded[name], converts=result is not None)
        try:
            tally.call_all(calls or tally.draw_arguments(seed))
        except PtxlinkError as error:
            tally.skip(error)
        declaration = loaded[name].declaration
        comparison.differences.extend(Difference(declaration, *row) for row in tally.differences)
        if tally.count:
            comparison.calls[declaration] = tally.count
        else:
            left_out[name] = tally.skipped
    return comparison
