"""Derive C signatures for `aggregates="flat"`, numba-cuda's own convention: one parameter per member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba.cuda import types

from numba_ptxlink._cabi import names as cnames
from numba_ptxlink._cabi import types as c
from numba_ptxlink._cabi.signatures import Signature
from numba_ptxlink.abi import c_type
from numba_ptxlink.errors import AbiError

if TYPE_CHECKING:
    from collections.abc import Sequence


def signature(context: Any, name: str, result: Any, params: Sequence[tuple[str, Any]]) -> Signature:
    """
    Return the C signature that corresponds to numba-cuda's prototype.

    Args:
        context: Numba's target context.
        name: The symbol.
        result: The Numba type of the return value.
        params: Name and Numba type of each parameter.

    Raises:
        AbiError: A type cannot be passed so.
    """
    check_result(name, result)
    spread: list[tuple[str, c.CType]] = []
    labels = {label for label, _ in params}
    for label, ty in params:
        leaves = list(context.get_arg_packer([ty]).argument_types)
        if len(leaves) == 1:
            spread.append((label, _plain(ty) or _leaf(leaves[0], name)))
        else:
            for number, leaf in enumerate(leaves):
                spread.append((cnames.legal(f"{label}_{number}", labels), _leaf(leaf, name)))
                labels.add(spread[-1][0])
    result = types.unliteral(result)
    returned: c.CType = c.Void()
    if not isinstance(result, types.NoneType):
        returned = _plain(result) or _leaf(
            context.data_model_manager[result].get_return_type(), f"{name}_result"
        )
    return Signature(name, returned, tuple(spread))


def check_result(name: str, result: Any) -> None:
    """
    Refuse a result whose value alone numba-cuda's prototype has a place for.

    Raises:
        AbiError: *result* is an Optional.
    """
    if isinstance(result, types.Optional):
        raise AbiError(
            f"Function {name} may return None, by its result {result}, and its prototype has no place for "
            'that; use aggregates="value" (of cuda.compile, in abi_info), which returns a struct of value '
            "and flag, or return a number in each case."
        )


def _plain(ty: Any) -> c.Scalar | None:
    """Return the C type of *ty* if it is a scalar, which both conventions pass alike, else None."""
    if isinstance(ty, (types.Integer, types.Boolean, types.Float)) and ty != types.float16:
        ctype = c_type(ty)
        return ctype if isinstance(ctype, c.Scalar) else None
    return None


def _leaf(kind: ir.Type, name: str) -> c.CType:
    if isinstance(kind, ir.IntType) and kind.width <= 64:
        return c.number(f"uint{max(8, kind.width)}_t")
    if isinstance(kind, ir.FloatType):
        return c.number("float")
    if isinstance(kind, ir.DoubleType):
        return c.number("double")
    if isinstance(kind, ir.PointerType):
        return c.pointer(c.Void())
    if isinstance(kind, ir.ArrayType):
        array = c.array(_leaf(kind.element, f"{name}_0"), kind.count)
        return c.struct(name, [("elements", array)], about=f"What {name} stands for in Numba")
    if isinstance(kind, ir.LiteralStructType):
        members = [
            (f"f{number}", _leaf(element, f"{name}_{number}")) for number, element in enumerate(kind.elements)
        ]
        return c.struct(name, members, about=f"What {name} stands for in Numba")
    raise AbiError(
        f'Function {name}: {kind} has no C type; use aggregates="value" (of cuda.compile, in abi_info).'
    )
