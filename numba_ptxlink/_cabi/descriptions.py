"""
Read the descriptions of C types in manifests, which `signatures.describe` writes.

Programs that load kernels import this module, so it imports nothing of the package, such as the parser of PTX
that `signatures` needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class MemberDescription(NamedTuple):
    """
    A member of a struct.

    Args:
        name: The name in Python.
        type: The name of its C type.
        offset: The offset in the struct, in bytes.
    """

    name: str
    type: str
    offset: int


@dataclass(frozen=True)
class TypeDescription:
    """
    A C type, which refers to other C types by their names. Fields that its kind lacks are "", 0 or empty.

    Args:
        kind: One of "void", "bool", "int", "uint", "char", "float", "float16", "bfloat16", "complex",
            "vector", "array", "struct", "pointer" or "view".
        size: The size in bytes.
        align: The alignment in bytes.
        target: The type that a pointer refers to.
        element: The type of the elements of an array, a view, a vector or a complex number.
        count: The number of elements of an array or a vector.
        ndim: The number of dimensions of a view.
        layout: The order of a view's elements: "c" (row-major), "f" (column-major) or "any" (by strides).
        readonly: Whether the function only reads through a pointer or a view.
        members: The members of a struct.
        python_kind: The Python type of a struct: "record", "namedtuple", "tuple" or "optional".
    """

    kind: str
    size: int
    align: int
    target: str = ""
    element: str = ""
    count: int = 0
    ndim: int = 0
    layout: str = ""
    readonly: bool = False
    members: tuple[MemberDescription, ...] = ()
    python_kind: str = ""

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> TypeDescription:
        """Return the description that an *entry* of a manifest has."""
        # A member has a "field", its name in Python, if that is not its name in C.
        members = tuple(
            MemberDescription(
                str(member.get("field", member["name"])), str(member["type"]), int(member["offset"])
            )
            for member in entry.get("members", ())
        )
        known = {name: entry[name] for name in cls.__dataclass_fields__ if name in entry}
        return cls(**{**known, "members": members})
