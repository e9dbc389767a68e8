"""Read and check the options of an exported function: `abi_info`, launch bounds, its interface in C++."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, get_args

from numba_ptxlink.errors import AbiError

from . import names as cnames

log = logging.getLogger(__name__)

# Identifiers of PTX ("Identifiers" in the PTX ISA) that NVVM accepts: without %, which it reserves, and
# without the names _ and $.
_SYMBOL = re.compile(r"(?:[A-Za-z]|[_$][\w$])[\w$]*", re.ASCII)
OnError = Literal["zero", "trap"]
_CHOICES = {"aggregates": ("value", "flat"), "on_error": get_args(OnError), "checked": (True, False)}
# The name of a struct in C++: "ns::Particle", "struct particle", "alignas(16) Particle".
_STRUCT = re.compile(
    r"(?:alignas\((\d+)\)\s+)?(struct\s+)?((?:::)?[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)", re.ASCII
)
_LIBRARY_NAMESPACES = ("std", "cuda", "cooperative_groups", "cub", "nv", "nvcuda", "thrust", "numba_ptxlink")
# The maxima of threads per block, blocks per multiprocessor and blocks per cluster: "Launch Bounds" and
# "Technical Specifications" in the CUDA Programming Guide. The maximum size of a cluster depends on the GPU:
# the limit here is that of a positive i32 in NVVM's annotation.
_MAX_BOUNDS = (1024, 32, (1 << 31) - 1)


@dataclass(frozen=True)
class AbiOptions:
    """
    The options that change a function's code: the keys of `abi_info` of `cuda.compile`.

    The decorators `@udf` and `@kernel` have some of them as arguments.

    Args:
        abi_name: The symbol; None for the Python function's `__name__`.
        aggregates: "value" passes structs as C does, "flat" passes each member as a parameter.
        on_error: The effect of an error: "zero" returns a zero-initialised value, "trap" stops the kernel.
        checked: Whether a division by zero and an index out of range are errors, in the function and in its
            callees. Without it, only `raise`, `assert` and the checks that Numba always makes are errors.
    """

    abi_name: str | None = None
    aggregates: str = "value"
    on_error: str = "zero"
    checked: bool = False

    @classmethod
    def of(cls, abi_info: object) -> AbiOptions:
        """
        Read and check an `abi_info` mapping, as of `numba.cuda.compile`. An unknown key is a warning.

        Raises:
            AbiError: *abi_info* is not a mapping, its name is not an identifier of PTX, or a value is
                unknown.
        """
        if not isinstance(abi_info, Mapping):
            raise AbiError(
                f'abi_info must be a dict such as {{"abi_name": "f"}}, not {type(abi_info).__name__}: '
                f"{abi_info!r}."
            )
        keys = [field.name for field in dataclasses.fields(cls)]
        ignored = ", ".join(repr(key) for key in abi_info if key not in keys)
        if ignored:
            log.warning("abi_info has unknown keys, which are ignored: %s", ignored)
        for key, allowed in _CHOICES.items():
            if key in abi_info and abi_info[key] not in allowed:
                choices = ", ".join(map(str, allowed))
                raise AbiError(f"{key} is {abi_info[key]!r}; the choices are {choices}.")
        options = cls(**{key: value for key, value in abi_info.items() if key in keys})
        name: object = options.abi_name
        if name is not None and not (isinstance(name, str) and _SYMBOL.fullmatch(name)):
            raise AbiError(
                f"{name!r}, the name of the function, is not an identifier of PTX: letters, digits, _ and $, "
                "no digit first, and neither _ nor $ alone."
            )
        return options

    @property
    def decorator_options(self) -> dict[str, Any]:
        """The values of the options in `DECORATOR_OPTIONS`, by their names, for manifests."""
        return {name: getattr(self, name) for name in DECORATOR_OPTIONS}


DECORATOR_OPTIONS = tuple(
    field.name for field in dataclasses.fields(AbiOptions) if field.name not in ("abi_name", "aggregates")
)
"""The names of those of `AbiOptions` that `@udf` and `@kernel` have as arguments: on_error and checked."""


def checked_launch_bounds(requested: object, owner: str) -> tuple[int, ...] | None:
    """
    Return the launch bounds of a kernel as a tuple after a check; None if *requested* is None.

    Args:
        requested: The maximum number of threads in a block; or a tuple or list of it and, as far as given,
            the minimum number of blocks per multiprocessor and the maximum number of blocks in a cluster.
        owner: The kernel, for messages: "kernel saxpy".

    Raises:
        AbiError: A bound is invalid. The error explains each bound and its range.
    """
    if requested is None:
        return None
    bounds = tuple(requested) if isinstance(requested, (tuple, list)) else (requested,)
    are_integers = all(isinstance(bound, Integral) and not isinstance(bound, bool) for bound in bounds)
    is_valid = (
        are_integers
        and 1 <= len(bounds) <= len(_MAX_BOUNDS)
        and all(1 <= bound <= maximum for bound, maximum in zip(bounds, _MAX_BOUNDS, strict=False))
    )
    if not is_valid:
        raise AbiError(
            f"launch_bounds={requested!r} of {owner}: give the maximum number of threads in a block (an int, "
            f"1 to {_MAX_BOUNDS[0]}), or a tuple of that, the minimum number of blocks per multiprocessor (1 "
            f"to {_MAX_BOUNDS[1]}) and the maximum number of blocks in a cluster (1 or more), or leave it "
            "out."
        )
    return tuple(map(int, bounds))


@dataclass(frozen=True)
class ExistingStruct:
    """
    A struct that a header of C++ defines.

    Args:
        name: The name, such as "ns::Particle", or "struct particle" if C has only a tag.
        includes: The names of the headers that define it, each in quotes or angle brackets.
        align: The alignment in bytes that `alignas` sets; None if the members set it.
    """

    name: str
    includes: tuple[str, ...] = ()
    align: int | None = None


@dataclass(frozen=True)
class CxxOptions:
    """
    The interface of a function in C++.

    Args:
        namespace: The namespace in which C++ finds the function by its Python name, such as "physics"; ""
            for none.
        structs: Pairs of a type of Python and the struct that C++ defines for it.
        const: The names of the parameters through which the function only reads.
        restrict: The names of the parameters with `__restrict__`: nothing else in a call refers to their
            memory.
    """

    namespace: str = ""
    structs: tuple[tuple[Any, ExistingStruct], ...] = ()
    const: frozenset[str] = frozenset()
    restrict: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        owner: str,
        parameters: list[str],
        *,
        namespace: str | None = None,
        structs: Mapping[Any, str] | None = None,
        include: str | Iterable[str] = (),
        const: str | Iterable[str] = (),
        restrict: str | Iterable[str] = (),
    ) -> CxxOptions:
        """
        Read and check the options of a decorator.

        Args:
            owner: The function, for messages: "saxpy".
            parameters: The names of its parameters.
            namespace: The namespace, such as "lab::physics"; None for none.
            structs: For types of Python, the names of structs in C++, such as "alignas(16) ns::Particle".
            include: The name of the header, or the headers, that define *structs*.
            const: Names of parameters, as in the class.
            restrict: Names of parameters, as in the class.

        Raises:
            AbiError: A name is not one of C++, of a header or of a parameter, or an option is not text.
        """
        includes = tuple(map(_quote_include, _checked_names(include, "include", owner)))
        structs = {} if structs is None else structs
        if not isinstance(structs, Mapping):
            raise AbiError(
                f'{owner}: structs={structs!r} is not a dict; write structs={{dtype: "ns::Particle"}}.'
            )
        return cls(
            _checked_namespace(namespace, owner),
            tuple((ty, _parse_struct(name, includes, owner)) for ty, name in structs.items()),
            _checked_parameter_names(const, "const", parameters, owner),
            _checked_parameter_names(restrict, "restrict", parameters, owner),
        )


def _checked_names(value: Any, option: str, owner: str) -> tuple[str, ...]:
    """Return the names in the value of *option*: one name, or several in a list."""
    is_list = isinstance(value, Iterable) and not isinstance(value, str)
    names: tuple[Any, ...] = tuple(value) if is_list else (value,)
    if not all(isinstance(name, str) for name in names):
        raise AbiError(f"{owner}: {option}={value!r} is not a name; pass a name, or several in a list.")
    return names


def _quote_include(name: str) -> str:
    """Return the *name* of a header in its angle brackets, or in quotes, which a user may leave out."""
    unquoted = name.strip().strip('"')
    return unquoted if unquoted.startswith("<") else f'"{unquoted}"'


def _parse_struct(name: object, includes: tuple[str, ...], owner: str) -> ExistingStruct:
    """Return the struct that *name* describes, such as "alignas(16) Particle"."""
    match = _STRUCT.fullmatch(name.strip()) if isinstance(name, str) else None
    if match is None:
        raise AbiError(
            f'{owner}: {name!r} names no struct; write "ns::Particle", "struct particle" or '
            '"alignas(16) Particle". Give a template of C++ a name by `using`.'
        )
    # In C++, alignas(0) has no effect.
    align = int(match[1]) if match[1] else None
    return ExistingStruct(f"{'struct ' if match[2] else ''}{match[3]}", includes, align or None)


def _checked_namespace(namespace: object, owner: str) -> str:
    """Return *namespace* after a check of each of its names; "" for None."""
    if namespace is None:
        return ""
    if not isinstance(namespace, str):
        raise AbiError(
            f'{owner}: namespace={namespace!r} is not a name; pass one such as "physics" or "lab::physics".'
        )
    parts = namespace.split("::")
    for part in parts:
        reason = (
            "is the namespace of another library"
            if parts[0] in _LIBRARY_NAMESPACES
            else cnames.invalid_name_reason(part)
        )
        if reason:
            raise AbiError(
                f"{owner}: namespace={namespace!r}: {part!r} {reason}; use a name such as "
                f"{cnames.closest_legal_name(f'my_{part}')!r}, or several joined by '::'."
            )
    return "::".join(parts)


def _checked_parameter_names(
    value: str | Iterable[str], option: str, parameters: list[str], owner: str
) -> frozenset[str]:
    """Return the names in the value of *option*, each of which has to be one of *parameters*."""
    names = _checked_names(value, option, owner)
    for name in names:
        if name not in parameters:
            raise AbiError(
                f"{owner} has no parameter {name!r}, which {option} names; "
                f"it has {', '.join(parameters) or 'none'}."
            )
    return frozenset(names)
