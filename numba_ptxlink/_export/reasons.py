"""Explain to a function's author why a compiler refused it: the line, the cause and the cure, if known."""

from __future__ import annotations

import contextlib
import math
import re
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._tools import find

from . import choice

if TYPE_CHECKING:
    from types import FrameType

# The name of a NumPy function, as in "No implementation of function <ufunc 'cbrt'>".
_UFUNC_NAME = re.compile(r"<ufunc '(\w+)'>")
_EXPLANATIONS = {
    r"(?:No implementation of function Function\(|lowering call to )<(?:built-in )?function "
    r"((?:zeros|ones|empty|full)(?:_like)?|arange|linspace|array)\b": (
        "compiled functions cannot allocate arrays, as by np.{}(); use cuda.local.array(shape, dtype), or "
        "pass an array to write to"
    ),
    r"NRT required but not enabled|lowering expression assignment build_(?:list|set|map)": (
        "compiled functions cannot allocate memory, and a value of this line requires it; use tuples, "
        "cuda.local.array(shape, dtype), or an array that the caller passes"
    ),
    r"Record\(.*\)\.(\w+) of type \S+ is not aligned": (
        "the field {!r} of a record is not aligned; create its dtype with align=True"
    ),
    r"Only accept returning of array passed into the function": (
        "a called function returns an array, which numba-cuda cannot compile; pass it an array to write to"
    ),
    r"compiler re-entrant to the same function signature": (
        "an exported function cannot call itself; let it call a helper with @cuda.jit(device=True), which can"
    ),
    r"No conversion from (.+?) to (.+?) for '\$\w+return_value": (
        "the result is {}, which does not become the {} of the signature; convert the values, such as by "
        "np.float32(x) for a float64 (0.1 * x is one), or by z.real for a complex z"
    ),
    r">>> (int|float)\(__nv_bfloat16\)": (
        "the compiler has no {0}() of a bfloat16; write {0}(np.float32(x))"
    ),
}
"""Patterns of messages of compilers, each with cause and cure; `{}` and `{0}` stand for groups."""

# NumPy's names of functions that have other names in Python.
_PYTHON_NAMES = {"absolute": "abs", "maximum": "max", "minimum": "min", "power": "pow"}


def explain(function: Any, error: Exception) -> str:
    """Return the reason why a compiler raised *error* for *function*."""
    missing_library = find.missing_library_error(error)
    if missing_library:
        return str(missing_library)
    frames = _frames(error)
    cause = (
        _ufunc_cause(error)
        or _known_cause(error)
        or _record_field_cause(error, frames)
        or _keyword_only_cause(function, error)
    )
    if not cause:
        if str(error).strip():
            return f"{type(error).__name__}: {error}"
        innermost = frames[-1]
        file_name = Path(innermost.f_code.co_filename).name
        cause = (
            f"{type(error).__name__} in the compiler ({file_name}:{innermost.f_lineno}), without a message; "
            "remove expressions until the function compiles, and rewrite the one that you removed last"
        )
    return f"{location(error)}{cause}"


def _frames(error: BaseException) -> list[FrameType]:
    """Return the frames of the traceback of *error*, the innermost last, and then those of its causes."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return frames if error.__cause__ is None else frames + _frames(error.__cause__)


def _ufunc_cause(error: Exception) -> str:
    """Return the explanation for a NumPy function that the compiler lacks; "" for other errors."""
    match = _UFUNC_NAME.search(str(error))
    if match is None:
        return ""
    name = match[1]
    replacement = _PYTHON_NAMES.get(name) or (f"math.{name}" if hasattr(math, name) else "functions of math")
    return f"the compiler has no NumPy {name!r} of these numbers; use {replacement}"


def _known_cause(error: Exception) -> str:
    """Return the explanation of a message that matches a pattern of `_EXPLANATIONS`, else ""."""
    for pattern, explanation in _EXPLANATIONS.items():
        match = re.search(pattern, str(error))
        if match is not None:
            return explanation.format(*match.groups())
    return ""


def _record_field_cause(error: Exception, frames: list[FrameType]) -> str:
    """Return the explanation for a field that a record lacks; "" for other errors."""
    # If a record lacks a field, the innermost frame is a method of the record type. In other errors, `self`
    # of that frame may be an expression of Numba's IR, whose class raises a KeyError, not an AttributeError,
    # for a missing attribute.
    fields = None
    with contextlib.suppress(KeyError):
        fields = getattr(frames[-1].f_locals.get("self"), "fields", None)
    if not isinstance(error, KeyError) or not isinstance(fields, dict):
        return ""
    return f"a record has no field {error.args[0]!r}; it has {', '.join(map(repr, fields))}"


def _keyword_only_cause(function: Any, error: Exception) -> str:
    """Return the explanation for a call with keyword-only parameters; "" for other errors."""
    # The compilers raise an IndexError for such a call.
    if not isinstance(error, IndexError):
        return ""
    for _, _, value in choice.used_names([function]):
        helper = choice.wrapped_function(value)
        if helper is not None and helper.__code__.co_kwonlyargcount:
            return (
                f"{helper.__qualname__} has keyword-only parameters, which the compiler cannot pass; take "
                f"out the `*` in its definition ({Path(choice.location_of(helper)).name})"
            )
    return ""


def location(error: BaseException) -> str:
    """Return "file.py:line: " of the statement that the compiler failed at; "" if no frame has it."""
    # The compilers' methods have the statement in one of these local variables.
    for frame in reversed(_frames(error)):
        for name in ("inst", "self", "expr"):
            loc: Any = getattr(frame.f_locals.get(name), "loc", None)
            if isinstance(getattr(loc, "line", None), int) and isinstance(loc.filename, str):
                return f"{Path(loc.filename).name}:{loc.line}: "
    return ""
