"""What is an error in a function with the C ABI, in it and in its callees alike, and where it is raised."""

from __future__ import annotations

import functools
import operator
from typing import Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda.context import LibraryNotes, current, notes

_DIVISIONS = (operator.truediv, operator.itruediv)
# Numba keeps one compiled subroutine for all modes; here each mode has its own.
_subroutines: dict[bool, dict[Any, Any]] = {False: {}, True: {}}


def _wrap_make_subtarget(original: Any) -> Any:
    @functools.wraps(original)
    def _make_subtarget(targetctx: Any, flags: Any) -> Any:
        from numba.cuda.core.callconv import PythonErrorModel

        checked = current().checked
        if checked is None:
            return original(targetctx, flags)
        if checked:
            flags.error_model = "python"
        elif not flags.is_set("error_model"):
            # The flags of a subroutine are new ones, with Python's error model in them.
            inherited = isinstance(targetctx.error_model, PythonErrorModel)
            flags.error_model = "python" if inherited else "numpy"
        context = original(targetctx, flags)
        context.cached_internal_func = _subroutines[checked]
        if checked:
            # The approximate division has no check.
            context.fastmath = False
        return context

    return _make_subtarget


def _wrap_enable_boundscheck(_original: Any) -> Any:
    return property(lambda _self: bool(current().checked))


def _wrap_return_dynamic_exception(_original: Any) -> Any:
    def return_dynamic_exception(
        self: Any, exc_class: Any, _exc_args: Any, _nb_types: Any, loc: Any = None
    ) -> None:
        self.return_exception(exc_class, loc=loc)

    return return_dynamic_exception


def _wrap_lower_inst(original: Any) -> Any:
    @functools.wraps(original)
    def lower_inst(self: Any, inst: Any) -> None:
        # numba-cuda's own convention for C has no exceptions.
        exceptions = getattr(self.call_helper, "exceptions", {})
        before = len(exceptions)
        original(self, inst)
        # An exception's number is the status that the function returns.
        new = list(exceptions)[before:]
        if new:
            sites = notes(self.library, LibraryNotes).sites.setdefault(self.builder.function.name, {})
            sites.update(dict.fromkeys(new, (inst.loc.filename, inst.loc.line)))

    return lower_inst


def _wrap_lower_binop(original: Any) -> Any:
    @functools.wraps(original)
    def lower_binop(self: Any, resty: Any, expr: Any, op: Any) -> Any:
        from numba.cuda import cgutils, types

        signature = self.fndesc.calltypes[expr]
        halves = (types.float16, types.bfloat16)
        if current().checked and op in _DIVISIONS and signature.args[1] in halves:
            builder, context = self.builder, self.context
            divisor = context.cast(
                builder, self.loadvar(expr.rhs.name), self.typeof(expr.rhs.name), signature.args[1]
            )
            # Without its sign, since zero has two.
            magnitude = builder.and_(divisor, divisor.type(0x7FFF))
            with cgutils.if_zero(builder, magnitude):
                context.error_model.fp_zero_division(builder, ("division by zero",))
        return original(self, resty, expr, op)

    return lower_binop


ERROR_MODEL = (
    Substitution(
        "numba.cuda.core.compiler",
        "_make_subtarget",
        _wrap_make_subtarget,
        "A function with the C ABI and all that it calls have one error model, which its caller chooses.",
    ),
    Substitution(
        "numba.cuda.target",
        "CUDATargetContext.enable_boundscheck",
        _wrap_enable_boundscheck,
        "Indices are checked where a function with the C ABI asks for it.",
    ),
    Substitution(
        "numba.cuda.lowering",
        "BaseLower.return_dynamic_exception",
        _wrap_return_dynamic_exception,
        "An exception whose arguments are computed compiles; no caller on a GPU sees them.",
    ),
    Substitution(
        "numba.cuda.lowering",
        "Lower.lower_binop",
        _wrap_lower_binop,
        "Where divisions are checked, those of float16 and bfloat16 are too, which numba-cuda leaves out.",
    ),
    Substitution(
        "numba.cuda.lowering",
        "Lower.lower_inst",
        _wrap_lower_inst,
        "The lines that raise are noted, for headers and manifests.",
    ),
)
"""What decides which errors there are; an export needs them, too."""
