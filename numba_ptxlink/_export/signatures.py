"""Resolve the signatures of marked functions: types, by the names that they have, and distinct symbols."""

from __future__ import annotations

import enum
import inspect
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, ForwardRef, TypeVar

from numba_ptxlink import abi
from numba_ptxlink._cabi import names as cnames
from numba_ptxlink.errors import AbiError, PtxlinkError, located, raise_all

from . import choice
from .marks import Udf, parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numba_ptxlink._cabi.options import Existing
    from numba_ptxlink._front_end.protocol import FrontEnd

_LONGEST_TYPE = 80
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class ResolvedFunction:
    """
    A marked function with what its signature and module determine, resolved once for all architectures.

    Args:
        udf: The function.
        front_end: What compiles it.
        params: Its parameters, with the Numba types of its signature.
        result: The Numba type of its result, None if Numba infers it.
        names: The names of record types in its module, and what C++ has for types.
        symbol: Its C name.
        overload: Its name in a namespace of C++ with the types of its parameters, "" outside of one.
    """

    udf: Udf
    front_end: FrontEnd
    params: tuple[abi.Parameter, ...]
    result: Any
    names: abi.Names
    symbol: str
    overload: str = ""

    @property
    def args(self) -> tuple[Any, ...]:
        """The Numba types of its parameters."""
        return tuple(param.ty for param in self.params)

    def c_signature(self, args: Sequence[Any], result: Any) -> abi.Signature:
        """
        Return its C signature.

        Args:
            args: The types of the parameters, as the compiler takes them.
            result: The type of the result, as it is inferred.

        Raises:
            AbiError: C has not one of the types.
        """
        params = [param._replace(ty=ty) for param, ty in zip(self.params, args, strict=True)]
        return abi.c_signature(self.symbol, result, params, kernel=self.udf.is_kernel, names=self.names)


def units(marked: Sequence[Udf], front_end: FrontEnd) -> tuple[ResolvedFunction, ...]:
    """
    Return every signature of *marked* with the types of *front_end*, each under a unique C name.

    Raises:
        AbiError: Two functions have the same name in C, or in a namespace of C++, or a signature is none of
            Numba's. The message proposes another name.
    """
    taken: dict[str, ResolvedFunction] = {}

    def add(function: Udf) -> ResolvedFunction:
        new = _unit(function, front_end)
        for language, name in (("C", new.symbol), ("C++", new.overload)):
            old = taken.setdefault(name, new).udf if name else function
            if old is function:
                continue
            other = f"{old.function.__module__}.{old.function.__qualname__} {old.signature} ({old.source})"
            module = function.function.__module__.rpartition(".")[2]
            cure = f"use name={cnames.propose(f'{module}_{function.name}', taken)!r}, for example"
            if language == "C++" or function.overloads:
                cure = "C++ tells overloads apart by their parameters: rename one of them in Python"
            raise AbiError(
                f"{name!r}, the {language} name of function {function.function.__qualname__}, is taken by "
                f"another function of this export, {other}; {cure}."
            )
        return new

    return tuple(
        map_collecting_errors(
            add, dict.fromkeys(each for of in marked for each in (*of.other_signatures, of))
        )
    )


def map_collecting_errors(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """
    Return what *function* returns for each of *items*; raise the errors of all that fail as one.

    The error of a function begins with its place, as those of compilers do.
    """
    results, errors = [], []
    for item in items:
        try:
            results.append(function(item))
        except PtxlinkError as error:
            location = getattr(getattr(item, "udf", item), "location", "")
            error.args = (located(location, error),)
            errors.append(error)
    raise_all(errors)
    return results


def _unit(function: Udf, front_end: FrontEnd) -> ResolvedFunction:
    what = f"function {function.function.__qualname__}"
    if not function.overloads:
        cnames.check(function.name, what)
    if function.cxx.namespace and not function.is_kernel:
        cnames.check(function.function.__name__, what, in_namespace=True)
    args, result = arguments(function, front_end)
    params = tuple(
        abi.Parameter(name, ty, const=name in function.cxx.const, restrict=name in function.cxx.restrict)
        for name, ty in zip(parameters(function.function), args, strict=True)
    )
    names: abi.Names = {
        **record_names(function.function, front_end),
        **existing_structs(function, front_end),
    }
    symbol, overload = function.name, ""
    if function.cxx.namespace and not function.is_kernel:
        plain = [param._replace(restrict=False) for param in params]
        typed = abi.c_signature(function.name, front_end.types.void, plain, names=names).params
        declared = ", ".join(ctype.name for _, ctype in typed)
        overload = f"{function.cxx.namespace}::{function.function.__name__}({declared})"
        if function.overloads:
            # Its types are in the C name, by abbreviations that differ where the types do in C++.
            codes = [ctype.code for _, ctype in typed]
            symbol = cnames.propose("_".join([*function.cxx.namespace.split("::"), function.name, *codes]))
    return ResolvedFunction(function, front_end, params, result, names, symbol, overload)


def existing_structs(each: Udf, front_end: FrontEnd) -> dict[Any, Existing]:
    """
    Return what C++ has for types of *front_end*.

    Raises:
        AbiError: What it is given for is no record and no tuple.
    """
    types = front_end.types
    found = {}
    for given, existing in each.cxx.structs:
        ty = type_of(given, front_end)
        if not isinstance(ty, (types.Record, types.BaseTuple)):
            raise AbiError(
                f"Function {each.name}: structs gives {existing.name} for {given!r}; give it "
                "for a structured dtype, a named tuple or a tuple of types."
            )
        found[ty] = existing
    return found


def arguments(each: Udf, front_end: FrontEnd) -> tuple[tuple[Any, ...], Any]:
    """
    Return the Numba types of the parameters and of the result; None for a result that Numba infers.

    Raises:
        AbiError: The signature is not a Numba signature, or its parameter count differs from the function's.
    """
    where = f"Function {each.name}"
    try:
        args, result = front_end.normalize(_resolved(each, front_end))
    except Exception as error:
        raise AbiError(
            f"{where}: {each.signature!r} is not a Numba signature ({str(error) or type(error).__name__}); "
            "write the names of Numba's types, not those of Python or C, like "
            '"float32(int32, CPointer(float32), Particle)", where Particle is a global of its module: a '
            "Numba type, a NumPy dtype, a typing.NamedTuple or an IntEnum; or pass a tuple of types."
        ) from error
    names = parameters(each.function)
    if len(names) != len(args):
        raise AbiError(
            f"{where} has {len(names)} parameters and its signature {each.signature} has {len(args)}; C has "
            "no default values: give a type to each parameter."
        )
    return tuple(args), result


def _resolved(each: Udf, front_end: FrontEnd) -> Any:
    """
    Return the signature of a function with Numba types for all that stands for one.

    In a string, names are those of what the function sees: Numba types, NumPy dtypes and scalars, named
    tuples with annotated fields, and integer enums, also as attributes of modules, such as `cuda.float32x4`.
    Where it sees no type of a name, that is Numba's, or that of one of CUDA's vector types.
    """
    signature = each.signature
    if isinstance(signature, tuple):
        return tuple(type_of(entry, front_end) or entry for entry in signature)
    if not isinstance(signature, str):
        return signature
    return _evaluate(signature, {**choice.scope(each.function), **each.named}, front_end)


def describe(each: ResolvedFunction) -> str:
    """Return the function's Python name and signature."""
    name = each.udf.function.__qualname__
    if isinstance(each.udf.signature, str):
        return f"{name}: {each.udf.signature}"
    spelled = ", ".join(_spell(ty, each.names) for ty in each.args)
    returns = "" if each.result is None else f" -> {_spell(each.result, each.names)}"
    return f"{name}: ({spelled}){returns}"


def _spell(ty: Any, names: abi.Names) -> str:
    name = names.get(ty)
    if isinstance(name, str):
        return name
    return ty.name if len(ty.name) <= _LONGEST_TYPE else type(ty).__name__


def record_names(function: Callable[..., Any], front_end: FrontEnd) -> dict[Any, str]:
    """Return the names of record types in the enclosing scopes of *function*, and in its module."""
    import numpy as np

    names: dict[Any, str] = {}
    record = front_end.types.Record
    for name, value in (*inspect.getclosurevars(function).nonlocals.items(), *function.__globals__.items()):
        ty = value
        if isinstance(value, np.dtype) and value.fields:
            try:
                ty = front_end.from_dtype(value)
            except Exception:  # noqa: BLE001, S112 - a dtype without a Numba type occurs in no signature
                continue
        if isinstance(ty, record):
            names.setdefault(ty, name)
    return names


def _evaluate(text: str, scope: Mapping[str, Any], front_end: FrontEnd) -> Any:
    return eval(text, {}, _Names(scope, front_end))  # noqa: S307 - as Numba does


class _Names(dict[str, Any]):
    """The types by their names: those of a scope, then Numba's own, each when it is read."""

    def __init__(self, scope: Mapping[str, Any], front_end: FrontEnd) -> None:
        super().__init__()
        self._own = {**vars(front_end.types), **front_end.vectors()}
        self._scope = scope
        self._front_end = front_end

    def __missing__(self, name: str) -> Any:
        if name not in self._scope:
            return self._own[name]
        value, own = self._scope[name], self._own.get(name)
        # Modules, and functions, are often called like a type.
        if isinstance(value, ModuleType) and isinstance(own, self._front_end.types.Type):
            return own
        return _meaning(value, name, self._front_end, own)


class _Module:
    """A module whose attributes are types."""

    def __init__(self, module: ModuleType, name: str, front_end: FrontEnd) -> None:
        self._module = module
        self._name = name
        self._front_end = front_end

    def __getattr__(self, attribute: str) -> Any:
        return _meaning(getattr(self._module, attribute), f"{self._name}.{attribute}", self._front_end)


def _meaning(value: Any, name: str, front_end: FrontEnd, otherwise: Any = None) -> Any:
    if isinstance(value, ModuleType):
        return _Module(value, name, front_end)
    ty = type_of(value, front_end)
    if ty is not None:
        return ty
    # Such as Optional.
    if isinstance(value, type) and issubclass(value, front_end.types.Type):
        return value
    if otherwise is not None:
        return otherwise
    raise AbiError(
        f"{name!r} stands for {value!r}, which is not a type; use a Numba type, a NumPy dtype, a "
        "typing.NamedTuple or an IntEnum."
    )


def type_of(value: Any, front_end: FrontEnd) -> Any:
    """
    Return the Numba type that *value* is or stands for, None for none.

    Raises:
        Exception: It is a dtype or a named tuple, with a field that Numba has no type for.
    """
    import numpy as np

    if isinstance(value, type) and issubclass(value, np.generic):
        # Such as np.void, which `from numpy import *` brings, is not one type.
        value = np.dtype(value) if np.dtype(value).itemsize else None
    if isinstance(value, np.dtype):
        return front_end.from_dtype(value)
    types = front_end.types
    if not isinstance(value, type):
        return value if isinstance(value, types.Type) else None
    if issubclass(value, enum.IntEnum):
        return types.IntEnumMember(value, types.int64)
    if issubclass(value, tuple) and hasattr(value, "_fields"):
        return _named_tuple(value, front_end)
    return front_end.vector_of(value)


def _named_tuple(cls: Any, front_end: FrontEnd) -> Any:
    types = front_end.types
    plain = {float: types.float64, int: types.int64, bool: types.boolean, complex: types.complex128}
    annotations = inspect.get_annotations(cls)
    # The names of Python's own numbers stand for these, but where the module has something else of the name.
    module = getattr(sys.modules.get(cls.__module__), "__dict__", {})
    scope = {**{each.__name__: ty for each, ty in plain.items()}, **module}
    fields = []
    for field in cls._fields:
        value = annotations.get(field)
        if isinstance(value, ForwardRef):
            value = value.__forward_arg__
        # A string is one more within the other where annotations are not evaluated.
        while isinstance(value, str):
            value = _evaluate(value, scope, front_end)
        ty = plain.get(value) if isinstance(value, type) else None
        ty = ty or type_of(value, front_end)
        if ty is None:
            raise AbiError(
                f"The field {field!r} of the named tuple {cls.__name__} has no type; annotate it with a "
                "Numba type, in a class of typing.NamedTuple, or pass types.NamedTuple([...], "
                f"{cls.__name__}) in a signature of types."
            )
        fields.append(ty)
    return types.BaseTuple.from_types(fields, cls)
