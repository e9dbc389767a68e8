"""
Lower the functions of an export: numba-cuda-mlir's own lowering, with another way of errors and links.

It is imported once numba-cuda-mlir is.
"""

from __future__ import annotations

import copy
import functools
import operator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_cuda_mlir import cuda
from numba_cuda_mlir._mlir import ir
from numba_cuda_mlir._mlir.dialects import cf, llvm
from numba_cuda_mlir._mlir.extras import types as mlir_types
from numba_cuda_mlir.errors import InternalCompilerError
from numba_cuda_mlir.linker import resolve_link_plan
from numba_cuda_mlir.numba_cuda import types
from numba_cuda_mlir.numba_cuda.core import ir as numba_ir

from numba_ptxlink.errors import ExportError

from . import checks, numbers, operations, packed, pointers, slices
from .codegen.errors import SITE
from .context import Program, compiled_now

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPERATORS = frozenset(value for value in vars(operator).values() if callable(value)) - {operator.setitem}
_UNTOLD = (AssertionError, AttributeError, IndexError, KeyError, TypeError)
# What is inherited is known once `for_export` has joined the two.
_Stock: Any = object
_ARRAYS = (cuda.local.array, cuda.shared.array)


class _NoLinker:
    """What stands for the linker of a function that is not linked."""

    def __init__(self) -> None:
        self._ltoirs: dict[int, bytes] = {}


class _Export(_Stock):  # type: ignore[misc]
    """Lower one function of the current program."""

    _place = ("", 0)

    @property
    def _program(self) -> Program:
        return compiled_now()

    @property
    def place(self) -> str:
        """The file and line of the current statement."""
        file, line = self._place if all(self._place) else (self.func_ir.loc.filename, self.func_ir.loc.line)
        return f"{Path(file).name}:{line}"

    def lower_inst(self, inst: Any) -> None:
        self._place = (inst.loc.filename, inst.loc.line)
        if isinstance(inst, (numba_ir.DynamicRaise, numba_ir.TryRaise, numba_ir.StaticTryRaise)):
            # Its arguments are computed, and no caller on a GPU sees them.
            self.lower_static_raise(inst)
            return
        if self._program.checked:
            checks.check(self, inst)
        try:
            super().lower_inst(inst)
        except _UNTOLD as error:
            # Faults of its code for something that it does not expect there, which name no statement.
            raise ExportError(
                f"{self.place}: numba-cuda-mlir has no code for this statement: "
                f"{type(error).__name__}: {error}"
            ) from error

    def load_var(self, var: Any) -> Any:
        value = super().load_var(var)
        if packed.is_packed(self.get_numba_type(var.name), self._program.packed):
            self._program.unaligned.add(value)
        return value

    def lower_global_assign(self, target: Any, glob: Any) -> None:
        ty = self.get_numba_type(target.name)
        if isinstance(ty, types.Integer) and int(glob.value) >= 1 << (ty.bitwidth - 1):
            # An attribute of MLIR holds the same bits as a negative number only.
            glob = copy.copy(glob)
            glob.value = int(glob.value) - (1 << ty.bitwidth)
        super().lower_global_assign(target, glob)

    def as_return(self, ty: Any, value: Any) -> Any:
        if any(map(_is_on_stack, _leaves((value,)))):
            raise ExportError(
                "a function cannot return an array of cuda.local.array, which ends with it; write to an "
                "array or pointer that the caller passes, or return a tuple"
            )
        returned = super().as_return(ty, value)
        # A function has one result for each member, but before 0.6 tuples in tuples are returned as they are.
        nested = isinstance(returned, tuple) and not hasattr(self, "_flatten_abi_operands")
        return tuple(_leaves(returned)) if nested else returned

    def lower_setattr(self, inst: Any) -> None:
        with numbers.of_member(self, inst) as converted:
            super().lower_setattr(converted)

    def lower_static_raise(self, inst: Any) -> None:
        del inst
        self.error()
        # Nothing follows an error. LLVM's word for it has no counterpart in NVVM's older dialect.
        never = self.mlir_funcOp.body.blocks.append()
        cf.br([], never)
        with ir.InsertionPoint(never):
            cf.br([], never)

    def error(self) -> None:
        """Emit an error of the current line."""
        self.set_error_code(1)

    def _ensure_error_global(self) -> None:
        """Define no variable for the kernel's caller, who does not look for one."""

    def _get_or_create_error_global(self) -> Any:
        name = f"{SITE}{self._program.site(*self._place)}"
        block = self.mlir_gpu_module.bodyRegion.blocks[0]
        if not any(isinstance(op, llvm.GlobalOp) and op.sym_name.value == name for op in block):
            with ir.InsertionPoint.at_block_begin(block):
                llvm.GlobalOp(
                    mlir_types.i32(),
                    name,
                    ir.Attribute.parse("#llvm.linkage<external>"),
                    addr_space=0,
                )
        return llvm.mlir_addressof(llvm.PointerType.get(), name)

    def build_recursive_call(self, target: Any, fn_type: Any, args: Any, kws: Any = None) -> Any:
        callee = fn_type.dispatcher_type.dispatcher
        if callee.py_func is not self.func_ir.func_id.func:
            raise ExportError(
                f"{callee.py_func.__qualname__} and {self.func_ir.func_id.func.__qualname__} call each "
                "other in a circle, which numba-cuda-mlir cannot compile; make one function of them"
            )
        given = [self.get_numba_type(arg.name) for arg in (*args, *(value for _, value in kws or ()))]
        if given != list(self.fndesc.argtypes):
            # numba-cuda-mlir would call this function, whose parameters have other types.
            return self.build_user_defined_function_call(target, callee, args, kws)
        return super().build_recursive_call(target, fn_type, args, kws)

    def get_registered_builder(self, fn: Any, signature: Any) -> Any:
        called = self._extract_callable_from_var(fn) if isinstance(fn, numba_ir.Var) else fn
        args = getattr(signature, "args", signature)
        own = args and (operations.builder(called, args) or numbers.builder(called, args))
        found = own or self.builder_of(fn, signature)
        if found is None and called in _OPERATORS and any(isinstance(arg, types.Optional) for arg in args):
            raise ExportError(
                "numba-cuda-mlir does not compute with an Optional, which can be returned, and compared with "
                "None; pass a number and a boolean in its place"
            )
        return found

    def builder_of(self, fn: Any, signature: Any) -> Any:
        """Return what lowers *fn* of operands that have the types that it needs."""
        args = getattr(signature, "args", signature)
        own = pointers.builder(fn, args) or slices.builder(self, fn, signature)
        return own or self.stock_builder(fn, signature)

    def stock_builder(self, fn: Any, signature: Any) -> Any:
        """Return what numba-cuda-mlir has for *fn* of *signature*."""
        return super().get_registered_builder(fn, signature)

    def _lower_record_array_field_view(self, target: Any, value: Any, attr: str) -> None:
        record = self.get_numba_type(value.name).dtype
        unit = record.typeof(attr).bitwidth // 8
        if packed.is_packed(record, self._program.packed) or record.size % unit:
            # It would count the distance in members, and take them for aligned ones.
            raise ExportError(
                f"numba-cuda-mlir has no view of the members {attr} of an array of packed records, nor of "
                f"records whose size is no multiple of the member's; write a[i].{attr}"
            )
        super()._lower_record_array_field_view(target, value, attr)

    def lower_call_expr_assign(self, target: Any, fn: Any, args: Any, kws: Any, expr: Any = None) -> None:
        class_type = self.get_numba_type(fn.name)
        if isinstance(class_type, types.Function) and class_type.typing_key is slice:
            slices.make(self, target, args)
            return
        made = self.get_numba_type(target.name)
        own = isinstance(class_type, types.Function) and class_type.typing_key in _ARRAYS
        if own and isinstance(made.dtype, types.Record):
            raise ExportError(
                "numba-cuda-mlir has no local or shared arrays of records; take an array for each member, or "
                'choose front_end="numba-cuda"'
            )
        if not isinstance(class_type, types.NamedTupleClass):
            super().lower_call_expr_assign(target, fn, args, kws, expr)
            return
        # numba-cuda-mlir types such a call and has no code for it.
        by_name = dict(zip(made.fields, args, strict=False)) | dict(kws)
        values = []
        for field, wanted in zip(made.fields, made.types, strict=True):
            given = by_name[field]
            value, ty = self.load_var(given), self.get_numba_type(given.name)
            self.incref(ty, value)
            values.append(value if ty == wanted else self.lower_cast(ty, wanted, value))
        self.store_var(target, tuple(values))

    def _link_external_function(self, extern: Any) -> None:
        self._program.declared[extern] = None
        super()._link_external_function(extern)

    def link_external_item(self, item: Any) -> None:
        self._program.links[item] = None
        super().link_external_item(item)

    def _create_resolved_linker(self) -> Any:
        plan = resolve_link_plan(self.targetoptions, self._linked_external_link_items, ())
        self.metadata["link_plan"] = plan
        self.metadata["linked_external_link_items"] = tuple(self._linked_external_link_items)
        return _NoLinker()

    def verify_mlir_module(self) -> None:
        packed.copy_accesses(self.mlir_funcOp, self._program.unaligned)
        try:
            self.mlir_module.operation.verify()
        except Exception as error:
            raise InternalCompilerError(f"Invalid MLIR module: {error}") from error


def _is_on_stack(value: Any) -> bool:
    """Return whether *value* is an array in memory of the function itself, or a view of one."""
    while isinstance(getattr(value, "type", None), ir.MemRefType):
        made = getattr(value.owner, "operation", None)  # a block where the array is an argument
        if made is None or not made.operands:
            return made is not None and made.name == "memref.alloca"
        value = made.operands[0]
    return False


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the values in *value*, a tuple of values and tuples."""
    for each in value:
        if isinstance(each, tuple):
            yield from _leaves(each)
        else:
            yield each


@functools.cache
def for_export(stock: Any) -> type:
    """Return the class that lowers functions of an export, derived from the class *stock*."""
    return type("ExportLower", (_Export, stock), {})
