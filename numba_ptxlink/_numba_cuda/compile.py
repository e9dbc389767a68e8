"""Compile Python functions to LLVM IR with numba-cuda, and add wrappers with the C ABI. Needs no driver."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._export import externs, link_files
from numba_ptxlink._formats.llvm_ir import NvvmDialect
from numba_ptxlink._front_end.codegen.wrapper import wrap
from numba_ptxlink._front_end.lowered import LoweredFunction
from numba_ptxlink._front_end.patch import applied
from numba_ptxlink.errors import ExportError

from .context import notes, override
from .convention import StatusConvention
from .modules import all_libraries, ordered_modules
from .patches.c_abi import C_ABI
from .patches.driverless import DRIVERLESS

__all__ = ["lower"]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cabi.options import AbiOptions
    from numba_ptxlink._front_end.lowered import Declare
    from numba_ptxlink._tools.options import Options


_NO_TRY = "numba-cuda has neither `try` nor `with`; test for the error before it occurs"
# The keys occur in numba-cuda's exceptions; the values say which feature it lacks, with the cure.
_MISSING_FEATURES = {
    **dict.fromkeys(("set_try_status", "terminator_types", "exception_match", "'exc_class'"), _NO_TRY),
    "Exception object cannot be": _NO_TRY,
    "return_dynamic_user_exc": (
        "numba-cuda has no exception whose arguments are computed; write it with constant ones"
    ),
    **dict.fromkeys(
        ("Context.call_conv is deprecated", "insert_unresolved_ref"),
        "numba-cuda compiles a function that calls itself with the same argument types, and no other "
        "recursion; write a loop, or give the arguments their types: int32(n - 1)",
    ),
}
# Applied to numba-cuda during each compilation here, whether or not the plugin is active.
PATCHES = (*DRIVERLESS, *C_ABI)


def lower(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    result: Any,
    *,
    arch: Arch,
    options: Options,
    abi: AbiOptions,
    declare: Declare,
    inline: bool = True,
    launch_bounds: Any = None,
) -> LoweredFunction:
    """
    Compile *function* to LLVM IR with Numba's ABI, and add a wrapper with the C ABI; see `FrontEnd.lower`.

    Raises:
        ExportError: The function uses a feature that numba-cuda lacks.
    """
    from numba.cuda import dispatcher
    from numba.cuda.compiler import compile_cuda
    from numba.cuda.core.compiler_lock import global_compiler_lock
    from numba.cuda.cudadrv.nvvm import llvm_replace
    from numba.cuda.memory_management.nrt import NRT_LIBRARY

    fastmath = bool(options.fast_math)
    try:
        with global_compiler_lock, applied(PATCHES), override(checked=abi.checked):
            compiled = compile_cuda(
                function,
                result,
                args,
                lineinfo=options.lineinfo,
                fastmath=fastmath,
                nvvm_options={"fastmath": fastmath, "opt": options.opt_level},
                cc=arch.cc,
            )
    except Exception as error:
        for symptom, reason in _MISSING_FEATURES.items():
            if symptom in str(error):
                raise ExportError(reason) from error
        raise
    library, signature = compiled.library, compiled.signature
    raises = _raise_sites(library)
    declaration = declare(tuple(signature.args), signature.return_type, raises=bool(raises))
    symbol, wrapper_name = compiled.fndesc.llvm_func_name, declaration.signature.name
    # Only the wrapper calls the function: make it internal, and let NVVM inline it and drop the original.
    llvm_function = library.get_function(symbol)
    llvm_function.linkage = "internal"
    llvm_function.attributes.discard("noinline")
    root_text = wrap(
        str(llvm_function.module),
        symbol,
        declaration.signature,
        signature,
        convention=StatusConvention,
        dialect=NvvmDialect.TYPED_POINTERS,
        abi=abi,
        inline=inline,
        launch_bounds=launch_bounds,
    )
    # Symbols contain a digest of this text: with another spelling, all names in exported code would change.
    salt = repr((arch, {options}))
    modules = ordered_modules(library, [wrapper_name], salt, root_text)
    # An export does not contain Numba's memory manager: `link_files` refuses calls of its functions.
    linked = library._linking_files - {NRT_LIBRARY}
    # numba-cuda itself adds the file with the functions of numpy.reshape only to kernels of `cuda.jit`.
    if any(name in text for text in modules for name in dispatcher.reshape_funcs):
        linked.add(Path(dispatcher.__file__).with_name("reshape_funcs.cu"))
    return LoweredFunction(
        declaration,
        abi,
        tuple(map(llvm_replace, NvvmDialect.of(arch).adapt_byval(modules))),
        tuple(map(link_files.read, linked)),
        externs.find_calls(_declared_functions(compiled), modules, wrapper_name),
        raises,
    )


def _raise_sites(library: Any) -> tuple[str, ...]:
    """Return the lines, as "file.py:line", where *library* may raise, then those where its callees may."""
    # `all_libraries` begins with *library*, which has the code of the function itself.
    own_sites, *callees_sites = (notes(member).sites for member in all_libraries(library))
    ordered_sites = [*sorted(own_sites), *sorted(site for sites in callees_sites for site in sites)]
    return tuple(dict.fromkeys(f"{Path(file).name}:{line}" for file, line in ordered_sites))


def _declared_functions(compiled: Any) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    """Yield symbol, parameter types and result type of each `cuda.declare_device`, the newest first."""
    # `_defns` has the functions that this process can call. Keys without a name or a signature are functions
    # that numba-cuda implements itself.
    for key in reversed([*compiled.target_context._defns]):
        if hasattr(key, "name") and hasattr(key, "sig"):
            yield key.name, tuple(key.sig.args), key.sig.return_type
