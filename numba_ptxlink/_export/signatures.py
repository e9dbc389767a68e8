"""Resolve the signatures of marked functions: find the Numba types, and choose unique symbols."""

from __future__ import annotations

import enum
import inspect
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, ForwardRef, TypeVar

from numba_ptxlink import abi
from numba_ptxlink._cabi import names as cnames
from numba_ptxlink.errors import AbiError, PtxlinkError, raise_all, with_location

from .choice import variables_in_scope
from .marks import Udf, parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numba_ptxlink._cabi.options import ExistingStruct
    from numba_ptxlink._front_end.base import FrontEnd

_MAX_TYPE_CHARS = 80
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class ResolvedFunction:
    """
    A marked function with its types and names, resolved once for all architectures.

    Args:
        udf: The function.
        front_end: The front end that compiles it.
        params: The parameters, with the Numba types of the signature.
        result: The Numba type of the result; None if Numba infers it.
        names: The C structs of Numba types. For a record that the generated header defines: the name that it
            has in the function's module. For a struct that C++ code defines already: its `ExistingStruct`.
        symbol: The C name.
        overload: The C++ name and parameter types of a function in a namespace; "" for other functions.
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
        """The Numba types of the parameters."""
        return tuple(param.ty for param in self.params)

    def c_signature(self, args: Sequence[Any], result: Any) -> abi.Signature:
        """
        Return the C signature.

        Args:
            args: The types of the parameters, as the compiler resolved them.
            result: The type of the result, as the compiler inferred it.

        Raises:
            AbiError: One of the types has no counterpart in C.
        """
        params = [param._replace(ty=ty) for param, ty in zip(self.params, args, strict=True)]
        return abi.c_signature(self.symbol, result, params, kernel=self.udf.is_kernel, names=self.names)


def resolve(marked: Sequence[Udf], front_end: FrontEnd) -> tuple[ResolvedFunction, ...]:
    """
    Resolve every signature of *marked* to types of *front_end* and a unique C name.

    Raises:
        AbiError: Two functions have the same name in C, or in a namespace of C++, or a signature is not a
            Numba signature. For two equal names in C, the message proposes another one.
    """
    owners_by_name: dict[str, ResolvedFunction] = {}

    def resolve_uniquely(udf: Udf) -> ResolvedFunction:
        resolved = _resolve(udf, front_end)
        for language, name in (("C", resolved.symbol), ("C++", resolved.overload)):
            if not name:
                continue
            owner = owners_by_name.setdefault(name, resolved).udf
            if owner is udf:
                continue
            owner_title = (
                f"{owner.function.__module__}.{owner.function.__qualname__} {owner.signature} "
                f"({owner.source})"
            )
            # A function in a namespace, without name=, is overloadable: its C name has the parameter types.
            if language == "C++" or udf.is_overloadable:
                cure = "C++ tells overloads apart by their parameters: rename one of them in Python"
            else:
                module = udf.function.__module__.rpartition(".")[2]
                legal_name = cnames.closest_legal_name(f"{module}_{udf.name}", owners_by_name)
                cure = f"use name={legal_name!r}, for example"
            raise AbiError(
                f"{name!r}, the {language} name of function {udf.function.__qualname__}, is taken by "
                f"another function of this export, {owner_title}; {cure}."
            )
        return resolved

    # A function may have several decorators, one for each signature. Each decorator makes a `Udf`, whose
    # `earlier_marks` are the `Udf`s of the decorators below.
    all_marked = dict.fromkeys(mark for udf in marked for mark in (*udf.earlier_marks, udf))
    return tuple(map_collecting_errors(resolve_uniquely, all_marked))


def map_collecting_errors(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """
    Call *function* for each of *items*; if some calls fail, raise their errors as one.

    An error for an exported function begins with the location of the function, as errors of compilers do.
    """
    results, errors = [], []
    for item in items:
        try:
            results.append(function(item))
        except PtxlinkError as error:
            # A `Udf` and a `LoweredFunction` have a location, a `ResolvedFunction` that of its `udf`.
            location = getattr(getattr(item, "udf", item), "location", "")
            error.args = (with_location(location, error),)
            errors.append(error)
    raise_all(errors)
    return results


def _resolve(udf: Udf, front_end: FrontEnd) -> ResolvedFunction:
    """Resolve the signature of one marked function, without a check that its names are unique."""
    title = f"function {udf.function.__qualname__}"
    if not udf.is_overloadable:
        cnames.check_name(udf.name, title)
    if udf.cxx.namespace and not udf.is_kernel:
        cnames.check_name(udf.function.__name__, title, in_namespace=True)
    args, result = signature_types(udf, front_end)
    params = tuple(
        abi.Parameter(name, ty, const=name in udf.cxx.const, restrict=name in udf.cxx.restrict)
        for name, ty in zip(parameters(udf.function), args, strict=True)
    )
    names: abi.Names = {
        **record_names(udf.function, front_end),
        **existing_structs(udf, front_end),
    }
    symbol, overload = udf.name, ""
    if udf.cxx.namespace and not udf.is_kernel:
        # C++ ignores `restrict` and the result, which may be unknown yet, when it compares overloads.
        unrestricted_params = [param._replace(restrict=False) for param in params]
        c_params = abi.c_signature(udf.name, front_end.types.void, unrestricted_params, names=names).params
        type_names = ", ".join(c_type.name for _, c_type in c_params)
        overload = f"{udf.cxx.namespace}::{udf.function.__name__}({type_names})"
        if udf.is_overloadable:
            # The C name contains abbreviations of the types, which differ if the types differ in C++.
            codes = [c_type.code for _, c_type in c_params]
            symbol = cnames.closest_legal_name("_".join([*udf.cxx.namespace.split("::"), udf.name, *codes]))
    return ResolvedFunction(udf, front_end, params, result, names, symbol, overload)


def existing_structs(udf: Udf, front_end: FrontEnd) -> dict[Any, ExistingStruct]:
    """
    Return the structs that C++ defines for types of *front_end*.

    Raises:
        AbiError: A type is neither a record nor a tuple.
    """
    types = front_end.types
    structs = {}
    for value, existing in udf.cxx.structs:
        ty = type_of(value, front_end)
        if not isinstance(ty, (types.Record, types.BaseTuple)):
            raise AbiError(
                f"Function {udf.name}: {value!r}, the key of {existing.name} in structs=, is no struct; use "
                "a structured dtype, a named tuple or a tuple of types."
            )
        structs[ty] = existing
    return structs


def signature_types(udf: Udf, front_end: FrontEnd) -> tuple[tuple[Any, ...], Any]:
    """
    Return the Numba types of the parameters and of the result; None for a result that Numba infers.

    Raises:
        AbiError: The signature is not a Numba signature, or its parameter count differs from the function's.
    """
    title = f"Function {udf.name}"
    try:
        args, result = front_end.normalize(_typed_signature(udf, front_end))
    except Exception as error:
        raise AbiError(
            f"{title}: {udf.signature!r} is not a Numba signature "
            f"({str(error) or type(error).__name__}); write the names of Numba's types instead of those of "
            'Python or C, such as "float32(int32, CPointer(float32), Particle)", where Particle is a global '
            "of the function's module: a Numba type, a NumPy dtype, a typing.NamedTuple or an IntEnum; or "
            "pass a tuple of types."
        ) from error
    names = parameters(udf.function)
    if len(names) != len(args):
        raise AbiError(
            f"{title} has {len(names)} parameters and its signature {udf.signature} has {len(args)}; C "
            "has no default values: give a type to each parameter."
        )
    return tuple(args), result


def _typed_signature(udf: Udf, front_end: FrontEnd) -> Any:
    """
    Return the signature of a function with Numba types instead of names, dtypes, named tuples and enums.

    Names in a string are looked up in the function's scope: Numba types, NumPy dtypes and scalars, named
    tuples with annotated fields, and integer enums, also as attributes of modules, such as `cuda.float32x4`.
    Names that are not in scope are those of Numba's types and CUDA's vector types.
    """
    signature = udf.signature
    if isinstance(signature, tuple):
        # Entries that stand for no type are left to `normalize` of the front end, which refuses them.
        return tuple(type_of(entry, front_end) or entry for entry in signature)
    if not isinstance(signature, str):
        return signature
    return _evaluate(signature, {**variables_in_scope(udf.function), **udf.signature_scope}, front_end)


def spell_signature(function: ResolvedFunction) -> str:
    """Return the function's Python name and signature."""
    name = function.udf.function.__qualname__
    if isinstance(function.udf.signature, str):
        return f"{name}: {function.udf.signature}"
    types = ", ".join(_spell(ty, function.names) for ty in function.args)
    returns = "" if function.result is None else f" -> {_spell(function.result, function.names)}"
    return f"{name}: ({types}){returns}"


def _spell(ty: Any, names: abi.Names) -> str:
    """
    Return a record's name in *names*, or else Numba's name of the type.

    If Numba's name is too long, the result is the name of the type's class, such as "Record".
    """
    name = names.get(ty)
    if isinstance(name, str):
        return name
    return ty.name if len(ty.name) <= _MAX_TYPE_CHARS else type(ty).__name__


def record_names(function: Callable[..., Any], front_end: FrontEnd) -> dict[Any, str]:
    """Return the names that record types have in the enclosing scopes of *function* and in its module."""
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
    """Evaluate a type or a signature that is text."""
    return eval(text, {}, _Names(scope, front_end))  # noqa: S307 - as Numba does


class _Names(dict[str, Any]):
    """Types by their names; a name is looked up in *scope*, then among Numba's types and CUDA's vectors."""

    def __init__(self, scope: Mapping[str, Any], front_end: FrontEnd) -> None:
        super().__init__()
        self._numba_types = {**vars(front_end.types), **front_end.vector_types()}
        self._scope = scope
        self._front_end = front_end

    def __missing__(self, name: str) -> Any:
        if name not in self._scope:
            return self._numba_types[name]
        value, numba_type = self._scope[name], self._numba_types.get(name)
        # A module in scope does not hide Numba's type of the same name; nor do values that are no types, for
        # which `_to_numba_type` returns its default.
        if isinstance(value, ModuleType) and isinstance(numba_type, self._front_end.types.Type):
            return numba_type
        return _to_numba_type(value, name, self._front_end, numba_type)


class _Module:
    """A module within a signature: its attributes are Numba types, as in "cuda.float32x4"."""

    def __init__(self, module: ModuleType, name: str, front_end: FrontEnd) -> None:
        self._module = module
        self._name = name
        self._front_end = front_end

    def __getattr__(self, attribute: str) -> Any:
        return _to_numba_type(getattr(self._module, attribute), f"{self._name}.{attribute}", self._front_end)


def _to_numba_type(value: Any, name: str, front_end: FrontEnd, default: Any = None) -> Any:
    """
    Return the Numba type for *value*, which has the name *name* in the signature; else *default*.

    For a module, returns a `_Module`, whose attributes are Numba types.

    Raises:
        AbiError: *value* is not a type, and there is no default.
    """
    if isinstance(value, ModuleType):
        return _Module(value, name, front_end)
    ty = type_of(value, front_end)
    if ty is not None:
        return ty
    # A class of Numba types, which the signature calls, such as Optional in "Optional(int32)".
    if isinstance(value, type) and issubclass(value, front_end.types.Type):
        return value
    if default is not None:
        return default
    raise AbiError(
        f"{name!r} is {value!r}, which is not a type; use a Numba type, a NumPy dtype, a "
        "typing.NamedTuple or an IntEnum."
    )


def type_of(value: Any, front_end: FrontEnd) -> Any:
    """
    Return the Numba type that *value* stands for; None if it stands for none.

    Args:
        value: Any object. A Numba type, a NumPy dtype, or a class of NumPy scalars, named tuples, integer
            enums or vectors stands for a type.
        front_end: The front end that has the types.

    Raises:
        Exception: Numba has no type for a dtype, or for a field of a named tuple. Which exception depends on
            Numba.
    """
    import numpy as np

    if isinstance(value, type) and issubclass(value, np.generic):
        # Classes without a size, such as np.void, stand for no single type. The result is None rather than an
        # error, since after `from numpy import *`, `void` in a signature is still Numba's type.
        value = np.dtype(value) if np.dtype(value).itemsize else None
    if isinstance(value, np.dtype):
        return _from_dtype(value, front_end)
    types = front_end.types
    if not isinstance(value, type):
        return value if isinstance(value, types.Type) else None
    if issubclass(value, enum.IntEnum):
        return types.IntEnumMember(value, types.int64)
    if issubclass(value, tuple) and hasattr(value, "_fields"):
        return _named_tuple_type(value, front_end)
    return front_end.vector_type_of(value)


def _from_dtype(dtype: Any, front_end: FrontEnd) -> Any:
    """Return the Numba type of a NumPy dtype."""
    try:
        return front_end.from_dtype(dtype)
    except AttributeError as error:
        # Numba computes the size of an array in a record from the bits of its elements, which booleans lack.
        if "bitwidth" in str(error):
            raise AbiError("records of Numba have no arrays of booleans; declare the array as u1") from error
        raise


def _named_tuple_type(cls: Any, front_end: FrontEnd) -> Any:
    """Return the Numba type of a class of named tuples, whose annotations are the types of the fields."""
    types = front_end.types
    numeric_types = {float: types.float64, int: types.int64, bool: types.boolean, complex: types.complex128}
    annotations = inspect.get_annotations(cls)
    # Python's numeric types are in scope, unless the module has redefined their names.
    module = getattr(sys.modules.get(cls.__module__), "__dict__", {})
    scope = {**{number_class.__name__: ty for number_class, ty in numeric_types.items()}, **module}
    fields = []
    for field in cls._fields:
        annotation = annotations.get(field)
        if isinstance(annotation, ForwardRef):
            annotation = annotation.__forward_arg__
        # Under `from __future__ import annotations`, a quoted annotation is a string within a string.
        while isinstance(annotation, str):
            annotation = _evaluate(annotation, scope, front_end)
        ty = numeric_types.get(annotation) if isinstance(annotation, type) else None
        ty = ty or type_of(annotation, front_end)
        if ty is None:
            raise AbiError(
                f"The field {field!r} of the named tuple {cls.__name__} has no type; annotate it with a "
                "Numba type, in a subclass of typing.NamedTuple, or pass types.NamedTuple([...], "
                f"{cls.__name__}) in a signature that is a tuple of types."
            )
        fields.append(ty)
    return types.BaseTuple.from_types(fields, cls)
