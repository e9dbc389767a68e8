"""Resolve the signatures of marked functions: types, record names and distinct symbols."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from numba_ptxlink import abi
from numba_ptxlink._cabi import names as cnames
from numba_ptxlink.errors import AbiError

from . import type_names
from .marks import Udf, parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from numba_ptxlink._cabi.cxx import Existing
    from numba_ptxlink._front_end.protocol import FrontEnd

_LONGEST_TYPE = 80

# The names of record types by the identity of the globals that they are in.
_Modules: TypeAlias = "dict[int, dict[Any, str]]"


@dataclass(frozen=True)
class Typed:
    """
    A marked function with what its signature and module determine, resolved once for all architectures.

    Args:
        udf: The function.
        front_end: What compiles it.
        args: The Numba types of its parameters.
        result: The Numba type of its result, None if Numba infers it.
        labels: The C names of its parameters.
        records: The names of record types in its module.
        structs: What C++ has for types.
        symbol: Its C name.
    """

    udf: Udf
    front_end: FrontEnd
    args: tuple[Any, ...]
    result: Any
    labels: tuple[str, ...]
    records: Mapping[Any, str]
    structs: Mapping[Any, Existing]
    symbol: str

    @property
    def const(self) -> frozenset[str]:
        """The C names of the parameters through which it only reads."""
        return self._labelled(self.udf.cxx.const)

    @property
    def restrict(self) -> frozenset[str]:
        """The C names of the parameters that nothing else leads to."""
        return self._labelled(self.udf.cxx.restrict)

    def _labelled(self, names: Collection[str]) -> frozenset[str]:
        known = inspect.signature(self.udf.function, follow_wrapped=False).parameters
        return frozenset(label for name, label in zip(known, self.labels, strict=True) if name in names)


def typed(marked: Sequence[Udf], front_end: FrontEnd) -> tuple[Typed, ...]:
    """
    Return every signature of *marked* with the types of *front_end*, each under a unique C name.

    Raises:
        AbiError: Two functions have the same C name, or a signature is not a Numba signature.
    """
    modules: _Modules = {}
    return tuple(
        resolved(function, front_end, name, modules=modules)
        for name, function in expand(marked, front_end, modules).items()
    )


def resolved(
    function: Udf, front_end: FrontEnd, symbol: str | None = None, *, modules: _Modules | None = None
) -> Typed:
    """
    Return *function* with the types of *front_end*.

    Args:
        function: The function.
        front_end: What compiles it.
        symbol: Its C name, None to work it out.
        modules: What modules name, as for `record_names`.

    Raises:
        AbiError: Its signature is not a Numba signature.
    """
    return Typed(
        function,
        front_end,
        *arguments(function, front_end),
        tuple(parameters(function.function)),
        record_names(function.function, front_end, modules),
        existing_structs(function, front_end),
        _symbol(function, front_end, modules) if symbol is None else symbol,
    )


def expand(marked: Sequence[Udf], front_end: FrontEnd, modules: _Modules | None = None) -> dict[str, Udf]:
    """
    Return every signature of *marked* as a function by its unique C name.

    Raises:
        AbiError: Two functions have the same C name. The message proposes another.
    """
    functions = tuple(
        dict.fromkeys(variant for function in marked for variant in (*function.others, function))
    )
    taken: dict[str, Udf] = {}
    for function in functions:
        symbol = _symbol(function, front_end, modules)
        other = taken.setdefault(symbol, function)
        if other is not function:
            where = f"{function.function.__qualname__} ({function.source})"
            in_cxx, other_in_cxx = ((each.cxx.namespace, each.name) for each in (function, other))
            if function.overloads and other.overloads and in_cxx == other_in_cxx:
                raise AbiError(
                    f"C++ cannot tell function {where} from {other.function.__qualname__} {other.signature} "
                    f"({other.source}): both are in namespace {function.cxx.namespace}, by one name and with "
                    "equal parameters; rename one of them in Python, or take one out of the namespace."
                )
            raise AbiError(
                f"{symbol!r}, the C name of function {where}, is taken by another "
                f"function of this export, {other.function.__module__}."
                f"{other.function.__qualname__} {other.signature} ({other.source}); "
                f"use name={_propose(function, other, taken, front_end)!r}, for example."
            )
    return taken


def _symbol(each: Udf, front_end: FrontEnd, modules: _Modules | None) -> str:
    """Return the C name of *each*; one that overloads others in a namespace has its types in it."""
    if not each.overloads:
        return each.name
    names: dict[Any, str | Existing] = {
        **record_names(each.function, front_end, modules),
        **existing_structs(each, front_end),
    }
    parts = [*each.cxx.namespace.split("::"), each.name]
    return cnames.propose("_".join([*parts, *_codes(each, front_end, names)]))


def _codes(each: Udf, front_end: FrontEnd, names: abi.Names | None = None) -> Iterator[str]:
    """Yield abbreviations of the C types of the parameters, which differ where the types do in C++."""
    args, _ = arguments(each, front_end)
    params = zip(parameters(each.function), args, strict=True)
    where = f"{each.name} ({each.source})"
    signature = abi.c_signature(where, front_end.types.void, params, names=names, const=each.cxx.const)
    yield from (ctype.code for _, ctype in signature.params)


def existing_structs(each: Udf, front_end: FrontEnd) -> dict[Any, Existing]:
    """
    Return what C++ has for types of *front_end*.

    Raises:
        AbiError: What it is given for is no record and no tuple.
    """
    types = front_end.types
    found = {}
    for given, existing in each.cxx.structs:
        ty = type_names.type_of(given, front_end)
        if not isinstance(ty, (types.Record, types.BaseTuple)):
            raise AbiError(
                f"Function {each.name} ({each.source}): structs gives {existing.name} for {given!r}; give it "
                "for a structured dtype, a named tuple or a tuple of types."
            )
        found[ty] = existing
    return found


def _propose(each: Udf, other: Udf, taken: Mapping[str, Udf], front_end: FrontEnd) -> str:
    module = each.function.__module__.rpartition(".")[2]
    if each.function.__code__ is other.function.__code__:
        try:
            return cnames.propose("_".join([each.name, *_codes(each, front_end)]), taken)
        except AbiError:
            return cnames.propose(each.name, taken)
    return cnames.propose(f"{module}_{each.name}", taken)


def arguments(each: Udf, front_end: FrontEnd) -> tuple[tuple[Any, ...], Any]:
    """
    Return the Numba types of the parameters and of the result; None for a result that Numba infers.

    Raises:
        AbiError: The signature is not a Numba signature, its parameter count differs from the function's, or
            it has a type that stands for a value of its own.
    """
    where = f"Function {each.name} ({each.source})"
    try:
        args, result = front_end.normalize(type_names.resolve(each.signature, each.function, front_end))
    except Exception as error:
        raise AbiError(
            f"{where}: {each.signature!r} is no Numba signature ({str(error) or type(error).__name__}); "
            'write it like "float32(float32, Particle)", where Particle is a global of its module: a Numba '
            "type, a NumPy dtype, a typing.NamedTuple or an IntEnum; or pass a tuple of types."
        ) from error
    names = parameters(each.function)
    if len(names) != len(args):
        raise AbiError(
            f"{where} has {len(names)} parameters and its signature {each.signature} has {len(args)}; "
            f"{_missing(names[len(args) :]) or f'leave out {len(args) - len(names)} of its types'}."
        )
    for name, ty in zip(names, args, strict=True):
        _check_open(ty, f"{where}: parameter {name!r}", front_end)
    if result is not None:
        _check_open(result, f"{where}: the return value", front_end)
    return tuple(args), result


def _missing(names: Sequence[str]) -> str:
    spelled = ", ".join(repr(name) for name in names)
    return f"give a type to {spelled} too, since C has no default values" if names else ""


def _check_open(ty: Any, what: str, front_end: FrontEnd) -> None:
    """Refuse a type that stands for one value, in place of which the caller's would be ignored."""
    types = front_end.types
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


def record_names(
    function: Callable[..., Any], front_end: FrontEnd, modules: _Modules | None = None
) -> dict[Any, str]:
    """
    Return the names of record types in the module of *function* and in its enclosing scopes.

    Args:
        function: The function.
        front_end: Whose types these are.
        modules: The names in modules that were searched before, by the identity of their globals; the module
            of *function* is added. So that many functions of one module take no longer for each.
    """
    scope = function.__globals__
    known = {} if modules is None else modules
    if id(scope) not in known:
        known[id(scope)] = _named_records(scope, front_end)
    names = _named_records(inspect.getclosurevars(function).nonlocals, front_end)
    for ty, name in known[id(scope)].items():
        names.setdefault(ty, name)
    return names


def _named_records(scope: Mapping[str, Any], front_end: FrontEnd) -> dict[Any, str]:
    import numpy as np

    names: dict[Any, str] = {}
    for name, value in scope.items():
        ty = value
        if isinstance(value, np.dtype) and value.fields:
            try:
                ty = front_end.from_dtype(value)
            except Exception:  # noqa: BLE001, S112 - a dtype without a Numba type occurs in no signature
                continue
        if isinstance(ty, front_end.types.Record):
            names.setdefault(ty, name)
    return names
