"""Resolve the signatures of marked functions with Numba: types, record names and distinct symbols."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numba_ptxlink import abi
from numba_ptxlink._cabi import names as cnames
from numba_ptxlink._udf import Udf, parameters
from numba_ptxlink.errors import AbiError

from . import type_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LONGEST_TYPE = 80


@dataclass(frozen=True)
class Typed:
    """
    A marked function with what its signature and module determine, resolved once for all architectures.

    Args:
        udf: The function.
        args: The Numba types of its parameters.
        result: The Numba type of its result, None if Numba infers it.
        labels: The C names of its parameters.
        records: The names of record types in its module.
    """

    udf: Udf
    args: tuple[Any, ...]
    result: Any
    labels: tuple[str, ...]
    records: Mapping[Any, str]


def typed(marked: Sequence[Udf]) -> tuple[Typed, ...]:
    """
    Return every signature of *marked* with its Numba types, each under a unique C name.

    Raises:
        AbiError: Two functions have the same C name, or a signature is not a Numba signature.
    """
    return tuple(
        Typed(
            function,
            *arguments(function),
            tuple(parameters(function)),
            record_names(function.function),
        )
        for function in expand(marked)
    )


def expand(marked: Sequence[Udf]) -> tuple[Udf, ...]:
    """
    Return every signature of *marked* as a function with a unique C name.

    Raises:
        AbiError: Two functions have the same C name. The message proposes another.
    """
    functions = tuple(
        dict.fromkeys(variant for function in marked for variant in (*function.others, function))
    )
    taken: dict[str, Udf] = {}
    for function in functions:
        other = taken.setdefault(function.name, function)
        if other is not function:
            where = f"{function.function.__qualname__} ({function.source})"
            raise AbiError(
                f"{function.name!r}, the C name of function {where}, is taken by another "
                f"function of this export, {other.function.__module__}."
                f"{other.function.__qualname__} {other.signature}; "
                f"use name={_propose(function, other, taken)!r}, for example."
            )
    return functions


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
    Return the Numba types of the parameters and of the result; None for a result that Numba infers.

    Raises:
        AbiError: The signature is not a Numba signature, its parameter count differs from the function's, or
            it has a type that stands for a value of its own.
    """
    from numba.cuda.core import sigutils

    where = f"Function {each.name} ({each.source})"

    try:
        args, result = sigutils.normalize_signature(type_names.resolve(each.signature, each.function))
    except Exception as error:
        raise AbiError(
            f"{where}: {each.signature!r} is no Numba signature ({error}); "
            'write it like "float32(float32, Particle)", where Particle is a global of its module: a Numba '
            "type, a NumPy dtype, a typing.NamedTuple or an IntEnum; or pass a tuple of types."
        ) from error
    names = parameters(each)
    if len(names) != len(args):
        raise AbiError(
            f"{where} has {len(names)} parameters and its signature {each.signature} has {len(args)}; "
            f"{_missing(names[len(args) :]) or f'leave out {len(args) - len(names)} of its types'}."
        )
    for name, ty in zip(names, args, strict=True):
        _check_open(ty, f"{where}: parameter {name!r}")
    if result is not None:
        _check_open(result, f"{where}: the return value")
    return tuple(args), result


def _missing(names: Sequence[str]) -> str:
    spelled = ", ".join(repr(name) for name in names)
    return f"give a type to {spelled} too, since C has no default values" if names else ""


def _check_open(ty: Any, what: str) -> None:
    """Refuse a type that stands for one value, in place of which the caller's would be ignored."""
    from numba.cuda import types

    if isinstance(ty, types.Omitted):
        raise AbiError(f"{what} has the type {ty}, and C has no default values; give it the value's type.")
    plain = types.unliteral(ty)
    if plain != ty:
        raise AbiError(f"{what} has the type {ty}, which fixes the value for any caller; use {plain}.")


def describe(each: Typed) -> str:
    """Return the function's Python name and signature."""
    name = each.udf.function.__qualname__
    if isinstance(each.udf.signature, str):
        return f"{name}: {each.udf.signature}"
    spelled = ", ".join(_spell(ty, each.records) for ty in each.args)
    returns = "" if each.result is None else f" -> {_spell(each.result, each.records)}"
    return f"{name}: ({spelled}){returns}"


def _spell(ty: Any, names: Mapping[Any, str]) -> str:
    return names.get(ty) or (ty.name if len(ty.name) <= _LONGEST_TYPE else type(ty).__name__)


def record_names(function: Callable[..., Any]) -> dict[Any, str]:
    """Return the names of record types in the module of *function* and in its enclosing scopes."""
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
            except Exception:  # noqa: BLE001, S112 - a dtype without a Numba type occurs in no signature
                continue
        if isinstance(ty, types.Record):
            names.setdefault(ty, name)
    return names
