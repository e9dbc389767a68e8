"""
What exported functions need, and `cuda.compile` with their C ABI, where `abi_info` asks for it.

They are compiled for their architecture, with an end where they raise, and unlinked.
"""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._front_end.patch import PatchTable
from numba_ptxlink._numba_cuda_mlir.context import current, requested_cc
from numba_ptxlink.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._numba_cuda_mlir.context import ExportedFunction

C_ABI = PatchTable("C ABI")
"""The rows that an export applies, too."""
PATCHES = PatchTable("C ABI")

CALLED = "numba_ptxlink_called"
"""The key in a function's metadata of the functions that it declares and calls, as the context has them."""

# The bits of the registers that nvcc passes narrow integers in.
_REGISTER = 32
_LOWERING = "numba_cuda_mlir.mlir_lowering"


def _in_exports(function: Callable[..., Any]) -> Callable[..., Any]:
    """Call *function* with the export and the original in an export; elsewhere call the original alone."""

    @functools.wraps(function)
    def called(original: Any, *args: Any, **kwargs: Any) -> Any:
        export = current().export
        if export is None:
            return original(*args, **kwargs)
        return function(export, original, *args, **kwargs)

    return called


@C_ABI.around("numba_cuda_mlir.numba_cuda.core.inline_closurecall", "_get_callee_args")
@_in_exports
def _get_callee_args(
    _: ExportedFunction, original: Any, call: Any, callee: Any, loc: Any, func_ir: Any
) -> Any:
    """Refuse a closure that an exported function calls by a keyword: its default would be taken."""
    from numba_ptxlink._front_end.closures import check_closure

    args = original(call, callee, loc, func_ir)
    check_closure(call, callee, loc, args)
    return args


@C_ABI.around("numba_cuda_mlir.descriptor", "MLIRDispatcher._compile_as_device_callee")
@_in_exports
def _compile_as_device_callee(
    export: ExportedFunction, original: Any, self: Any, *args: Any, **kwargs: Any
) -> Any:
    """Compile callees of an exported function with it; numba-cuda-mlir reuses the first result."""
    from numba_cuda_mlir.numba_cuda import types

    export.borrow(self)
    compiled = original(self, *args, **kwargs)
    if isinstance(compiled.signature.return_type, types.Array):
        # numba-cuda-mlir finds no end of the results of its call.
        raise ExportError(
            f"{self.py_func.__qualname__} returns an array, and numba-cuda-mlir compiles no call of such "
            "a function; pass it an array to write to"
        )
    return compiled


@C_ABI.around(_LOWERING, "MLIRLower.lower_to_mlir")
@_in_exports
def _lower_to_mlir(_: ExportedFunction, original: Any, self: Any) -> None:
    """Name the line and the cause in the error of an export, instead of a file that contains them."""
    _check_records(self)
    try:
        original(self)
        # numba-cuda-mlir prints what it finds invalid.
        self.mlir_module.operation.verify()
    except ExportError:
        raise
    except Exception as error:
        from numba_ptxlink._export import reasons

        kind = "" if isinstance(error, NotImplementedError) else f"{type(error).__name__}: "
        raise ExportError(
            f"{reasons.location(error)}numba-cuda-mlir has no code for it: {kind}{error}"
        ) from error


def _check_records(lower: Any) -> None:
    """
    Refuse accesses to arrays of records that numba-cuda-mlir makes to other records, and copies into records.

    It finds a record by the address of the first one, the index, and the size, whatever the strides are. Into
    another record it writes the address instead.

    Raises:
        ExportError: There is one. Names its line.
    """
    from numba_cuda_mlir.numba_cuda import types
    from numba_cuda_mlir.numba_cuda.core import ir

    def is_misread(array: Any, index: Any) -> bool:
        ty = lower.get_numba_type(array)
        # The address of what is in a nested array is right; pointers to records are refused by their type.
        if type(ty) is not types.Array or not isinstance(ty.dtype, types.Record):
            return False
        if not (ty.layout == "C" or (ty.layout == "F" and ty.ndim == 1)):
            return True
        kind = lower.get_numba_type(index) if isinstance(index, ir.Var) else index
        if isinstance(kind, str):
            # The name of a field, without brackets.
            return isinstance(getattr(ty.dtype.fields.get(kind), "type", None), types.NestedArray)
        if isinstance(kind, (slice, types.SliceType)):
            return kind.step is not None if isinstance(kind, slice) else kind.has_step
        before = isinstance(kind, int) and kind < 0
        return before or ty.ndim > 1 or not isinstance(kind, (int, types.Integer))

    for block in lower.func_ir.blocks.values():
        for inst in block.body:
            place = f"{Path(inst.loc.filename).name}:{inst.loc.line}"
            if _is_address(inst, lower):
                raise ExportError(
                    f"{place}: numba-cuda-mlir writes the address of a record to a part of another; assign "
                    "its fields"
                )
            accessed = _accessed(inst, ir)
            if accessed is not None and is_misread(*accessed):
                raise ExportError(
                    f"{place}: numba-cuda-mlir finds records by an index from 0 on into a contiguous array "
                    "of one dimension alone; write the field first, as in a.x[i, j] and a.x[1::2], but "
                    'a[i].x.y and a[i].x[0] where it has parts itself, or choose front_end="numba-cuda"'
                )


def _is_address(inst: Any, lower: Any) -> bool:
    """Return whether *inst* writes a record into another one, where numba-cuda-mlir writes the address."""
    from numba_cuda_mlir.numba_cuda.core import ir
    from numba_cuda_mlir.numba_cuda.types import Array, Record

    if not isinstance(inst, (ir.SetAttr, ir.SetItem, ir.StaticSetItem)):
        return False
    target, value = map(lower.get_numba_type, (inst.target, inst.value))
    return isinstance(value, Record) and type(target) is not Array


def _accessed(inst: Any, ir: Any) -> tuple[Any, Any] | None:
    """Return the variable that *inst* reads or writes a part of, and the index; None if it does neither."""
    if isinstance(inst, (ir.SetItem, ir.StaticSetItem)):
        return inst.target, inst.index
    expr = getattr(inst, "value", None)
    if not isinstance(expr, ir.Expr):
        return None
    if expr.op in ("getitem", "static_getitem"):
        return expr.value, expr.index
    if expr.op == "getattr":
        return expr.value, expr.attr
    return (expr.value, None) if expr.op == "getiter" else None


@C_ABI.around(_LOWERING, "MLIRLower._lower_record_array_field_view")
@_in_exports
def _lower_field_view(
    _: ExportedFunction, original: Any, self: Any, target: Any, value: Any, attr: str
) -> None:
    """Give a field of an array of records, in an exported function, the strides of a contiguous array."""
    from numba_cuda_mlir._mlir import ir
    from numba_cuda_mlir._mlir.dialects import arith, memref
    from numba_cuda_mlir._mlir.extras import types as mlir_types
    from numba_cuda_mlir.numba_cuda.core import ir as numba_ir

    # It multiplies strides by the size of a record in fields. Those of parameters are bytes, by which
    # their slices are right.
    ty = self.get_numba_type(value.name)
    width = getattr(ty.dtype.typeof(attr), "bitwidth", 0) // 8
    if not width or ty.dtype.size % width:
        raise ExportError(
            f"numba-cuda-mlir has no view of the field {attr!r}, of type {ty.dtype.typeof(attr)}, of "
            f"records of {ty.dtype.size} bytes; write a[i].{attr} for a.{attr}[i]"
        )
    array = self.load_var(value)
    _, offset, *extents = memref.extract_strided_metadata(array)
    sizes = extents[: ty.ndim]
    strides = [arith.constant(result=mlir_types.index(), value=1)]
    for size in sizes[:0:-1]:
        strides.insert(0, arith.muli(strides[0], size))
    dynamic, size = ir.ShapedType.get_dynamic_stride_or_offset(), ir.ShapedType.get_dynamic_size()
    whole = numba_ir.Var(value.scope, f"{target.name}.whole", value.loc)
    self.fndesc.typemap[whole.name] = ty
    self.varmap[whole.name] = memref.reinterpret_cast(
        ir.MemRefType.get(
            [size] * ty.ndim,
            array.type.element_type,
            ir.StridedLayoutAttr.get(dynamic, [dynamic] * ty.ndim),
            array.type.memory_space,
        ),
        array,
        offsets=[offset],
        sizes=sizes,
        strides=strides,
        static_offsets=[dynamic],
        static_sizes=[size] * ty.ndim,
        static_strides=[dynamic] * ty.ndim,
    )
    original(self, target, whole, attr)


@C_ABI.around(_LOWERING, "MLIRLower.lower_static_raise")
@_in_exports
def _lower_static_raise(export: ExportedFunction, _original: Any, self: Any, inst: Any) -> None:
    """End an exported function by a `raise`, where numba-cuda-mlir goes on."""
    from numba_cuda_mlir._mlir import ir
    from numba_cuda_mlir._mlir.dialects import cf

    export.raises[inst.loc.filename, inst.loc.line] = None
    self.set_error_code(1)
    # numba-cuda-mlir goes on at the last return, whose value need not be known here. LLVM's word for no
    # end has no counterpart in NVVM's older dialect.
    never = self.mlir_funcOp.body.blocks.append()
    cf.br([], never)
    with ir.InsertionPoint(never):
        cf.br([], never)


@C_ABI.around(_LOWERING, "MLIRLower.link_external_item")
@_in_exports
def _link_external_item(export: ExportedFunction, _original: Any, _self: Any, link_item: Any) -> None:
    """Leave the files of an export's functions to the export."""
    export.links[link_item] = None


@C_ABI.around(_LOWERING, "MLIRLower.lower_call_external_function")
def _call_external_function(original: Any, self: Any, target: Any, fn_value: Any, *args: Any) -> None:
    """
    Note what an export and a kernel declare, and refuse narrow arguments.

    The link compares the types with those of the exports in it.
    """
    from numba_cuda_mlir.numba_cuda import types

    export, by_c = current().export, fn_value.abi == "c"
    if export is not None:
        export.declared[fn_value] = None
        if by_c and any(
            isinstance(ty, (types.Boolean, types.Integer)) and getattr(ty, "bitwidth", 1) < _REGISTER
            for ty in fn_value.sig.args
        ):
            raise ExportError(
                f"numba-cuda-mlir does not extend the narrow arguments of {fn_value.name} as C++ does; "
                "declare it with int32 in their place"
            )
    else:
        self.metadata.setdefault(CALLED, {})[fn_value.name] = fn_value.sig, by_c
    original(self, target, fn_value, *args)


@PATCHES.around("numba_cuda_mlir.compiler", "compile", bound="numba_cuda_mlir")
def _compile(original: Any, *args: Any, **kwargs: Any) -> Any:
    """With `abi_info`, give functions the prototype that C++ declares, and make kernels, too."""
    from numba_ptxlink._export import choice, cuda_compile

    bound = inspect.signature(original).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    given["pyfunc"] = choice.unmarked(given["pyfunc"])
    if given["abi_info"] is not None:
        code = cuda_compile.compile_c_abi(
            "numba-cuda-mlir", given, functools.partial(_arch, given), always=True
        )
        if code is not None:
            return code
    return original(*bound.args, **bound.kwargs)


def _arch(given: Mapping[str, Any], options: Mapping[str, Any]) -> Arch:
    from numba_cuda_mlir import tools

    from numba_ptxlink._arch import Arch

    requested = given["cc"] or options.get("chip") or options.get("cc")
    return Arch.of(requested or requested_cc({}) or tools.get_gpu_compute_capability(tuple))
