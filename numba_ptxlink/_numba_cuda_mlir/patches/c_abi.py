"""
Patch `cuda.compile` to give functions this package's C ABI, and the compilation of exported functions.

Exported functions are compiled for their architecture, return or trap at a `raise`, and are not linked.
`cuda.compile` gives functions the C ABI if `abi_info=` is passed.
"""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._front_end.patch import PatchTable
from numba_ptxlink._numba_cuda_mlir.context import current_context, requested_cc
from numba_ptxlink.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._numba_cuda_mlir.context import ExportedFunction

C_ABI = PatchTable("C ABI")
"""The patches that the plugin applies, and that an export applies without the plugin, too."""
PATCHES = PatchTable("C ABI")
"""The patches that only the plugin applies."""

CALLED_KEY = "numba_ptxlink_called"
"""The metadata key for the declared functions that a function calls; see `Compilation.declared_calls`."""

# nvcc extends narrower integers to this size, that of a register, to pass them.
_REGISTER_BITS = 32
_LOWERING = "numba_cuda_mlir.mlir_lowering"


def _in_exports(function: Callable[..., Any]) -> Callable[..., Any]:
    """
    Return a function for `PatchTable.around`: in an export, it calls *function*, otherwise the original.

    *function* gets the export as an additional first argument.
    """

    @functools.wraps(function)
    def wrapper(original: Any, *args: Any, **kwargs: Any) -> Any:
        export = current_context().export
        if export is None:
            return original(*args, **kwargs)
        return function(export, original, *args, **kwargs)

    return wrapper


@C_ABI.around("numba_cuda_mlir.numba_cuda.core.inline_closurecall", "_get_callee_args")
@_in_exports
def _get_callee_args(
    _: ExportedFunction, original: Any, call: Any, callee: Any, loc: Any, func_ir: Any
) -> Any:
    """Refuse a closure that an exported function calls with keyword arguments, which would be ignored."""
    from numba_ptxlink._front_end.closures import check_closure

    args = original(call, callee, loc, func_ir)
    check_closure(call, callee, loc, args)
    return args


@C_ABI.around("numba_cuda_mlir.descriptor", "MLIRDispatcher._compile_as_device_callee")
@_in_exports
def _compile_as_device_callee(
    export: ExportedFunction, original: Any, self: Any, *args: Any, **kwargs: Any
) -> Any:
    """Compile an exported function's callees anew, where numba-cuda-mlir would reuse their compiled code."""
    from numba_cuda_mlir.numba_cuda import types

    export.hide_compiled_code(self)
    compiled = original(self, *args, **kwargs)
    if isinstance(compiled.signature.return_type, types.Array):
        # numba-cuda-mlir cannot lower the results of such a call.
        raise ExportError(
            f"{self.py_func.__qualname__} returns an array, and numba-cuda-mlir cannot compile calls of such "
            "a function; pass it an array to write to"
        )
    return compiled


@C_ABI.around(_LOWERING, "MLIRLower.lower_to_mlir")
@_in_exports
def _lower_to_mlir(_: ExportedFunction, original: Any, self: Any) -> None:
    """Raise errors of exports with line and cause, which numba-cuda-mlir writes to a report file instead."""
    _check_records(self)
    try:
        original(self)
        # Verify here, since numba-cuda-mlir prints errors of invalid MLIR instead of raising them.
        self.mlir_module.operation.verify()
    except ExportError:
        raise
    except Exception as error:
        from numba_ptxlink._export import reasons

        prefix = "" if isinstance(error, NotImplementedError) else f"{type(error).__name__}: "
        raise ExportError(
            f"{reasons.location(error)}numba-cuda-mlir cannot compile this; rewrite it, or choose "
            f'front_end="numba-cuda": {prefix}{error}'
        ) from error


def _check_records(lower: Any) -> None:
    """
    Refuse accesses to records that numba-cuda-mlir compiles wrongly.

    numba-cuda-mlir computes the address of a record in an array from the first record, the index and the
    size, and ignores the strides. A copy into another record writes the address instead of the content.

    Raises:
        ExportError: The function has such an access. The message names its line.
    """
    for block in lower.func_ir.blocks.values():
        for inst in block.body:
            location = f"{Path(inst.loc.filename).name}:{inst.loc.line}"
            if _copies_record(inst, lower):
                raise ExportError(
                    f"{location}: numba-cuda-mlir copies the address of a record instead of its content into "
                    "another record; assign the fields one by one"
                )
            access = _indexed_access(inst)
            if access is not None and _is_misread(lower, *access):
                raise ExportError(
                    f"{location}: numba-cuda-mlir indexes arrays of records only in one contiguous dimension "
                    "and from 0 on; write a.x[i, j] for a[i, j].x, and a.x[1::2] for a[1::2].x, or use "
                    'front_end="numba-cuda"'
                )


def _is_misread(lower: Any, array: Any, index: Any) -> bool:
    """
    Return whether numba-cuda-mlir computes a wrong address for an access to an array of records.

    Args:
        lower: The lowering of the function.
        array: The variable that is indexed, of any type.
        index: A variable, a constant, or the name of a field; None for an iteration.
    """
    from numba_cuda_mlir.numba_cuda import types
    from numba_cuda_mlir.numba_cuda.core import ir

    ty = lower.get_numba_type(array)
    # Subclasses of Array are arrays within records, whose elements are addressed correctly. Pointers to
    # records are refused elsewhere, by their type.
    if type(ty) is not types.Array or not isinstance(ty.dtype, types.Record):
        return False
    # Strides matter unless the array is contiguous.
    if not (ty.layout == "C" or (ty.layout == "F" and ty.ndim == 1)):
        return True
    type_or_constant = lower.get_numba_type(index) if isinstance(index, ir.Var) else index
    # A view of a field, `array.x`, is wrong only for a field that is an array itself.
    if isinstance(type_or_constant, str):
        field = ty.dtype.fields.get(type_or_constant)
        return isinstance(getattr(field, "type", None), types.NestedArray)
    # Slices are right unless they have a step.
    if isinstance(type_or_constant, slice):
        return type_or_constant.step is not None
    if isinstance(type_or_constant, types.SliceType):
        return bool(type_or_constant.has_step)
    # All else but an integer in one dimension is wrong: iterations, tuples, arrays as indices. A negative
    # integer is wrong, too, but only the value of a constant is known here.
    counts_from_end = isinstance(type_or_constant, int) and type_or_constant < 0
    return counts_from_end or ty.ndim > 1 or not isinstance(type_or_constant, (int, types.Integer))


def _copies_record(inst: Any, lower: Any) -> bool:
    """Return whether *inst* copies a record into another record, which numba-cuda-mlir compiles wrongly."""
    from numba_cuda_mlir.numba_cuda.core import ir
    from numba_cuda_mlir.numba_cuda.types import Array, Record

    if not isinstance(inst, (ir.SetAttr, ir.SetItem, ir.StaticSetItem)):
        return False
    target, value = map(lower.get_numba_type, (inst.target, inst.value))
    # A copy into an element of an array is right.
    return isinstance(value, Record) and type(target) is not Array


def _indexed_access(inst: Any) -> tuple[Any, Any] | None:
    """
    Return the variable that *inst* indexes, and the index; None if *inst* indexes nothing.

    The index of an access to a field is the field's name; that of an iteration is None.
    """
    from numba_cuda_mlir.numba_cuda.core import ir

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
    """In an export, compute the strides of `array.field`, for an array of records, from the shape."""
    from numba_cuda_mlir._mlir import ir
    from numba_cuda_mlir._mlir.dialects import arith, memref
    from numba_cuda_mlir._mlir.extras import types as mlir_types
    from numba_cuda_mlir.numba_cuda.core import ir as numba_ir

    # The original multiplies the array's strides by a record's size divided by the field's, as if strides
    # counted records. But those of an array of records count bytes, as slices need. So pass a temporary
    # variable to the original: the same array with strides that count records, computed from the shape
    # since `_is_misread` accepts only contiguous arrays.
    ty = self.get_numba_type(value.name)
    # The size of a number in bytes; 0 for other types.
    field_size = getattr(ty.dtype.typeof(attr), "bitwidth", 0) // 8
    if not field_size or ty.dtype.size % field_size:
        raise ExportError(
            f"numba-cuda-mlir has no view of the field {attr!r}, of type {ty.dtype.typeof(attr)}, of "
            f"records of {ty.dtype.size} bytes; write a[i].{attr} for a.{attr}[i]"
        )
    array = self.load_var(value)
    _, offset, *shape_and_strides = memref.extract_strided_metadata(array)
    shape = shape_and_strides[: ty.ndim]
    strides = [arith.constant(result=mlir_types.index(), value=1)]
    # In C order, the stride of a dimension is the product of the sizes of all later dimensions.
    for dimension in reversed(shape[1:]):
        strides.insert(0, arith.muli(strides[0], dimension))
    # Marks of a stride or offset, and of a size, that is known only when the program runs.
    dynamic_stride = ir.ShapedType.get_dynamic_stride_or_offset()
    dynamic_size = ir.ShapedType.get_dynamic_size()
    record_array = numba_ir.Var(value.scope, f"{target.name}.whole", value.loc)
    self.fndesc.typemap[record_array.name] = ty
    self.varmap[record_array.name] = memref.reinterpret_cast(
        ir.MemRefType.get(
            [dynamic_size] * ty.ndim,
            array.type.element_type,
            ir.StridedLayoutAttr.get(dynamic_stride, [dynamic_stride] * ty.ndim),
            array.type.memory_space,
        ),
        array,
        offsets=[offset],
        sizes=shape,
        strides=strides,
        static_offsets=[dynamic_stride],
        static_sizes=[dynamic_size] * ty.ndim,
        static_strides=[dynamic_stride] * ty.ndim,
    )
    original(self, target, record_array, attr)


@C_ABI.around(_LOWERING, "MLIRLower.lower_static_raise")
@_in_exports
def _lower_static_raise(export: ExportedFunction, _original: Any, self: Any, inst: Any) -> None:
    """End an exported function at a `raise`, after which numba-cuda-mlir continues."""
    from numba_cuda_mlir._mlir import ir
    from numba_cuda_mlir._mlir.dialects import cf

    export.raises[inst.loc.filename, inst.loc.line] = None
    self.set_error_code(1)
    # The original would continue at the function's last return, whose value may be undefined here. LLVM's
    # `unreachable` has no counterpart in NVVM's older dialect, so branch to an endless loop. No thread
    # reaches it: `codegen.errors` replaces the error code's store, and all after it, by a return or a trap.
    endless_loop = self.mlir_funcOp.body.blocks.append()
    cf.br([], endless_loop)
    with ir.InsertionPoint(endless_loop):
        cf.br([], endless_loop)


@C_ABI.around(_LOWERING, "MLIRLower.link_external_item")
@_in_exports
def _link_external_item(export: ExportedFunction, _original: Any, _self: Any, link_item: Any) -> None:
    """Collect the link files of an exported function and its callees, instead of linking them."""
    export.links[link_item] = None


@C_ABI.around(_LOWERING, "MLIRLower.lower_call_external_function")
def _call_external_function(original: Any, self: Any, target: Any, fn_value: Any, *args: Any) -> None:
    """
    Record the declared functions that an export or a kernel calls; refuse narrow arguments in an export.

    The link compares the declared types with those of the linked functions.
    """
    from numba_cuda_mlir.numba_cuda import types

    export, has_c_abi = current_context().export, fn_value.abi == "c"
    if export is not None:
        export.declared[fn_value] = None
        # A Boolean has no attribute `bitwidth`.
        if has_c_abi and any(
            isinstance(ty, (types.Boolean, types.Integer)) and getattr(ty, "bitwidth", 1) < _REGISTER_BITS
            for ty in fn_value.sig.args
        ):
            raise ExportError(
                f"numba-cuda-mlir does not extend the narrow arguments of {fn_value.name} as C++ does; "
                "declare the parameters as int32"
            )
    else:
        self.metadata.setdefault(CALLED_KEY, {})[fn_value.name] = fn_value.sig, has_c_abi
    original(self, target, fn_value, *args)


@PATCHES.around("numba_cuda_mlir.compiler", "compile", importers="numba_cuda_mlir")
def _compile(original: Any, *args: Any, **kwargs: Any) -> Any:
    """With `abi_info`, give functions and kernels the prototype that C++ declares."""
    from numba_ptxlink._export import choice, cuda_compile

    bound = inspect.signature(original).bind(*args, **kwargs)
    bound.apply_defaults()
    arguments = bound.arguments
    arguments["pyfunc"] = choice.unwrap_marked(arguments["pyfunc"])
    if arguments["abi_info"] is not None:
        # The result is None if numba-cuda-mlir compiles this function itself.
        code = cuda_compile.compile_c_abi(
            "numba-cuda-mlir", arguments, functools.partial(_arch, arguments), always=True
        )
        if code is not None:
            return code
    return original(*bound.args, **bound.kwargs)


def _arch(arguments: Mapping[str, Any], options: Mapping[str, Any]) -> Arch:
    """
    Return the GPU to compile for: the requested one, else the device.

    Args:
        arguments: The arguments of `cuda.compile`.
        options: The options of the function's dispatcher; empty if it has none.
    """
    from numba_cuda_mlir import tools

    from numba_ptxlink._arch import Arch

    requested = arguments["cc"] or options.get("chip") or options.get("cc")
    return Arch.of(requested or requested_cc({}) or tools.get_gpu_compute_capability(tuple))
