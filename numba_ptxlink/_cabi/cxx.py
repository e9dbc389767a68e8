"""What the author of a function says about its interface in C++, read and checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from numba_ptxlink.errors import AbiError

from . import names as cnames

_STRUCT = re.compile(
    r"(?:alignas\((\d+)\)\s+)?(struct\s+)?((?:::)?[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)", re.ASCII
)
_FOREIGN = ("std", "cuda", "cooperative_groups", "cub", "nv", "nvcuda", "thrust", "numba_ptxlink")


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
        parameters: Iterable[str],
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
            AbiError: A name is none of C++, of a header or of a parameter.
        """
        known = list(parameters)
        includes = tuple(_include(each) for each in _listed(include, "include", what))
        if structs is not None and not isinstance(structs, Mapping):
            raise AbiError(
                f'{what}: structs is {structs!r}; pass a dict such as {{particle: "ns::Particle"}}.'
            )
        return cls(
            _namespace(namespace, what),
            tuple((ty, _existing(name, includes, what)) for ty, name in (structs or {}).items()),
            _chosen(const, "const", known, what),
            _chosen(restrict, "restrict", known, what),
        )


def _listed(value: Any, option: str, what: str) -> tuple[str, ...]:
    listed = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (None,)
    if not all(isinstance(each, str) for each in listed):
        raise AbiError(f'{what}: {option} is {value!r}; pass a name or several, such as ("a", "b").')
    return listed


def _include(name: str) -> str:
    bare = name.strip().strip('"')
    return bare if bare.startswith("<") else f'"{bare}"'


def _existing(name: Any, includes: tuple[str, ...], what: str) -> Existing:
    match = _STRUCT.fullmatch(name.strip()) if isinstance(name, str) else None
    if match is None:
        raise AbiError(
            f'{what}: {name!r} names no struct; write "ns::Particle", "struct particle" or '
            '"alignas(16) Particle". Give a template of C++ a name by `using`.'
        )
    align = int(match[1]) if match[1] else None
    return Existing(f"{'struct ' if match[2] else ''}{match[3]}", includes, align or None)


def _namespace(namespace: Any, what: str) -> str:
    if namespace is None:
        return ""
    parts = namespace.split("::") if isinstance(namespace, str) else [""]
    for number, part in enumerate(parts):
        reason, proposed = cnames.problem_anywhere(part), cnames.propose(part)
        if not number:
            reason = reason or cnames.problem(part)
            if part in _FOREIGN:
                reason, proposed = "belongs to others", f"my_{part}"
        if reason:
            raise AbiError(
                f"{what}: namespace={namespace!r}: {part!r} {reason}; use a name such as "
                f"{proposed!r}, or several joined by '::'."
            )
    return "::".join(parts)


def _chosen(value: Any, option: str, known: list[str], what: str) -> frozenset[str]:
    names = _listed(value, option, what)
    for name in names:
        if name not in known:
            raise AbiError(
                f"{what} has no parameter {name!r}, which {option} names; "
                f"it has {', '.join(known) or 'none'}."
            )
    return frozenset(names)
