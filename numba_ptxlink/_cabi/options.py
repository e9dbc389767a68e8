"""What a function's author says of it, read and checked: `abi_info`, launch bounds, its interface in C++."""

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

# What NVVM accepts of the identifiers of PTX, "Identifiers" in the PTX ISA: it reserves % for itself, and
# _ and $ are none alone.
_SYMBOL = re.compile(r"(?:[A-Za-z]|[_$][\w$])[\w$]*", re.ASCII)
OnError = Literal["zero", "trap"]
_CHOICES = {"aggregates": ("value", "flat"), "on_error": get_args(OnError), "checked": (True, False)}
_STRUCT = re.compile(
    r"(?:alignas\((\d+)\)\s+)?(struct\s+)?((?:::)?[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)", re.ASCII
)
_FOREIGN = ("std", "cuda", "cooperative_groups", "cub", "nv", "nvcuda", "thrust", "numba_ptxlink")
# The most that launch bounds may be, "Launch Bounds" and "Technical Specifications" in the CUDA Programming
# Guide. The size of a cluster depends on the GPU; PTX has 32 bits for it.
_MOST = (1024, 32, (1 << 31) - 1)


@dataclass(frozen=True)
class AbiOptions:
    """
    The options that change a function's code: those in `abi_info` of `cuda.compile`, and of marks.

    Args:
        abi_name: The symbol, None for the Python function's `__name__`.
        aggregates: "value" passes structs as C does, "flat" passes each member as a parameter.
        on_error: What an error does: "zero" returns a zero-initialised value, "trap" stops the kernel.
        checked: Whether a division by zero and an index out of range are errors, in the function and in all
            that it calls. Without it, errors are `raise`, `assert` and what Numba always checks.
    """

    abi_name: str | None = None
    aggregates: str = "value"
    on_error: str = "zero"
    checked: bool = False

    @classmethod
    def of(cls, abi_info: object) -> AbiOptions:
        """
        Read and check an `abi_info` mapping, as of `numba.cuda.compile`: unknown keys are ignored.

        Raises:
            AbiError: It is not a mapping, its name is not an identifier of PTX, or a value is unknown.
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
    def marked(self) -> dict[str, Any]:
        """The values of `MARKED` by name, as manifests have them."""
        return {name: getattr(self, name) for name in MARKED}


MARKED = tuple(
    field.name for field in dataclasses.fields(AbiOptions) if field.name not in ("abi_name", "aggregates")
)
"""The options that marks have, too, and that no compiler has a word for."""


def launch_bounds(given: object, what: str) -> tuple[int, ...] | None:
    """
    Read and check the launch bounds *given* for *what*: a number, or one to three in a tuple or list.

    Raises:
        AbiError: They are none. Says what each bound is and may be.
    """
    if given is None:
        return None
    bounds = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    whole = all(isinstance(bound, Integral) and not isinstance(bound, bool) for bound in bounds)
    known = whole and 0 < len(bounds) <= len(_MOST)
    if not known or any(not 0 < bound <= most for bound, most in zip(bounds, _MOST, strict=False)):
        raise AbiError(
            f"launch_bounds={given!r} of {what}: give the maximum number of threads in a block (an int, 1 to "
            f"{_MOST[0]}), or a tuple of that, the minimum number of blocks per multiprocessor (1 to "
            f"{_MOST[1]}) and the maximum number of blocks in a cluster (1 or more), or leave it out."
        )
    return tuple(map(int, bounds))


@dataclass(frozen=True)
class Existing:
    """
    A struct that a header of C++ defines.

    Args:
        name: Its name, such as "ns::Particle", or "struct particle" where C has it as a tag alone.
        includes: The headers to include for it, each in quotes or angle brackets.
        align: Its alignment in bytes, None for that of its members.
    """

    name: str
    includes: tuple[str, ...] = ()
    align: int | None = None


@dataclass(frozen=True)
class CxxOptions:
    """
    The interface of a function in C++.

    Args:
        namespace: Where C++ has a function of its Python name, such as "physics"; "" for C linkage alone.
        structs: What C++ has for types of Python: each type with the struct.
        const: The parameters through which it only reads.
        restrict: The parameters that no other address of its call leads to.
    """

    namespace: str = ""
    structs: tuple[tuple[Any, Existing], ...] = ()
    const: frozenset[str] = frozenset()
    restrict: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        what: str,
        parameters: list[str],
        *,
        namespace: str | None = None,
        structs: Mapping[Any, str] | None = None,
        include: str | Iterable[str] = (),
        const: str | Iterable[str] = (),
        restrict: str | Iterable[str] = (),
    ) -> CxxOptions:
        """
        Read and check what a mark was given.

        Args:
            what: The function, for messages.
            parameters: Its parameters.
            namespace: As of the mark, like all that follow.
            structs: C++'s names for types.
            include: Headers.
            const: Names of parameters.
            restrict: Names of parameters.

        Raises:
            AbiError: A name is none of C++, of a header or of a parameter, or an option is no name at all.
        """
        includes = tuple(map(_include, _listed(include, "include", what)))
        structs = {} if structs is None else structs
        if not isinstance(structs, Mapping):
            raise AbiError(
                f'{what}: structs={structs!r} is no dict; write structs={{dtype: "ns::Particle"}}.'
            )
        return cls(
            _namespace(namespace, what),
            tuple((ty, _existing(name, includes, what)) for ty, name in structs.items()),
            _chosen(const, "const", parameters, what),
            _chosen(restrict, "restrict", parameters, what),
        )


def _listed(value: Any, option: str, what: str) -> tuple[str, ...]:
    several = isinstance(value, Iterable) and not isinstance(value, str)
    names: tuple[Any, ...] = tuple(value) if several else (value,)
    if not all(isinstance(name, str) for name in names):
        raise AbiError(f"{what}: {option}={value!r}; give it a name, or several in a list.")
    return names


def _include(name: str) -> str:
    bare = name.strip().strip('"')
    return bare if bare.startswith("<") else f'"{bare}"'


def _existing(name: object, includes: tuple[str, ...], what: str) -> Existing:
    match = _STRUCT.fullmatch(name.strip()) if isinstance(name, str) else None
    if match is None:
        raise AbiError(
            f'{what}: {name!r} names no struct; write "ns::Particle", "struct particle" or '
            '"alignas(16) Particle". Give a template of C++ a name by `using`.'
        )
    align = int(match[1]) if match[1] else None
    return Existing(f"{'struct ' if match[2] else ''}{match[3]}", includes, align or None)


def _namespace(namespace: object, what: str) -> str:
    if namespace is None:
        return ""
    if not isinstance(namespace, str):
        raise AbiError(
            f'{what}: namespace={namespace!r}; give it a name such as "physics" or "lab::physics".'
        )
    parts = namespace.split("::")
    for part in parts:
        reason = "belongs to others" if parts[0] in _FOREIGN else cnames.invalid_name_reason(part)
        if reason:
            raise AbiError(
                f"{what}: namespace={namespace!r}: {part!r} {reason}; use a name such as "
                f"{cnames.propose(f'my_{part}')!r}, or several joined by '::'."
            )
    return "::".join(parts)


def _chosen(value: str | Iterable[str], option: str, known: list[str], what: str) -> frozenset[str]:
    names = _listed(value, option, what)
    for name in names:
        if name not in known:
            raise AbiError(
                f"{what} has no parameter {name!r}, which {option} names; "
                f"it has {', '.join(known) or 'none'}."
            )
    return frozenset(names)
