"""What Numba makes of the signatures of marked functions: types, names of records, distinct symbols."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numba_ptxlink import abi
from numba_ptxlink._cabi import names as cnames
from numba_ptxlink._udf import Udf, parameters, raise_sites
from numba_ptxlink.errors import AbiError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LONGEST_TYPE = 80


@dataclass(frozen=True)
class Typed:
    """
    A marked function with all that its signature and its module say, worked out once for all architectures.

    Args:
        udf: The function.
        args: The Numba types of its parameters.
        result: The Numba type of its result, None where it is to be inferred.
        labels: What its parameters are called in C.
        records: The names that its module has for records.
        raises: Where it raises, each as "file.py:line".
    """

    udf: Udf
    args: tuple[Any, ...]
    result: Any
    labels: tuple[str, ...]
    records: Mapping[Any, str]
    raises: tuple[str, ...]


def typed(marked: Sequence[Udf]) -> tuple[Typed, ...]:
    """
    Return every signature of *marked*, each with a C name of its own.

    Raises:
        AbiError: Two have the same name, or a signature is none of Numba's.
    """
    return tuple(
        Typed(
            each,
            *arguments(each),
            tuple(parameters(each)),
            record_names(each.function),
            tuple(raise_sites(each)),
        )
        for each in expand(marked)
    )


def expand(marked: Sequence[Udf]) -> tuple[Udf, ...]:
    """
    Return every signature of *marked*, each with a C name of its own.

    Raises:
        AbiError: Two have the same name. Proposes one.
    """
    found = tuple(dict.fromkeys(one for each in marked for one in (*each.others, each)))
    taken: dict[str, Udf] = {}
    for each in found:
        other = taken.setdefault(each.name, each)
        if other is not each:
            where = f"{each.function.__qualname__} ({each.source})"
            raise AbiError(
                f"{each.name!r}, the C name of function {where}, is taken by another "
                f"function of this export, {other.function.__module__}."
                f"{other.function.__qualname__} {other.signature}; "
                f"use name={_propose(each, other, taken)!r}, for example."
            )
    return found


def _propose(each: Udf, other: Udf, taken: Mapping[str, Udf]) -> str:
    module = each.function.__module__.rpartition(".")[2]
    if each.function.__code__ is other.function.__code__:
        try:
            args, _ = arguments(each)
            return cnames.propose("_".join([each.name, *(abi.code(abi.c_type(ty)) for ty in args)]), taken)
        except AbiError:
            return cnames.propose(each.name, taken)
    return cnames.propose(f"{module}_{each.name}", taken)


def arguments(each: Udf) -> tuple[tuple[Any, ...], Any]:
    """
    Return the Numba types of the parameters and of the result, None for one that is to be inferred.

    Raises:
        AbiError: The signature is none of Numba's, or does not fit the function.
    """
    from numba.cuda.core import sigutils

    try:
        args, result = sigutils.normalize_signature(each.signature)
    except Exception as error:
        raise AbiError(
            f"Function {each.name} ({each.source}): {each.signature!r} is no Numba signature ({error}); "
            'write it like "float32(float32, int64)".'
        ) from error
    names = parameters(each)
    if len(names) != len(args):
        raise AbiError(
            f"Function {each.name} ({each.source}) has {len(names)} parameters and its signature "
            f"{each.signature} has {len(args)}; make them agree."
        )
    return tuple(args), result


def describe(each: Typed) -> str:
    """Return name and signature in Python's words."""
    name = each.udf.function.__qualname__
    if isinstance(each.udf.signature, str):
        return f"{name}: {each.udf.signature}"
    spelled = ", ".join(_spell(ty, each.records) for ty in each.args)
    returns = "" if each.result is None else f" -> {_spell(each.result, each.records)}"
    return f"{name}: ({spelled}){returns}"


def _spell(ty: Any, names: Mapping[Any, str]) -> str:
    return names.get(ty) or (ty.name if len(ty.name) <= _LONGEST_TYPE else type(ty).__name__)


def record_names(function: Callable[..., Any]) -> dict[Any, str]:
    """Return the names that the module of *function*, and what encloses it, have for records."""
    import numpy as np
    from numba.cuda import types
    from numba.cuda.np.numpy_support import from_dtype

    cells = inspect.getclosurevars(function).nonlocals
    names: dict[Any, str] = {}
    for name, value in (*cells.items(), *function.__globals__.items()):
        ty = value
        if isinstance(value, np.dtype) and value.fields:
            try:
                ty = from_dtype(value)
            except Exception:  # noqa: BLE001, S112 - Numba has no type for it, so no signature names it
                continue
        if isinstance(ty, types.Record):
            names.setdefault(ty, name)
    return names
