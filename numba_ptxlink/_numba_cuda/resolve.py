"""Merge what a function with the C ABI calls into the code that `numba.cuda.compile` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_ptxlink._arch import Arch
from numba_ptxlink._export import build, externs, link_files, linkable
from numba_ptxlink._formats import llvm_ir
from numba_ptxlink._formats.ptx import parse

from .link_files import declarations, memory_manager, of_libraries
from .modules import ordered_modules

if TYPE_CHECKING:
    from collections.abc import Sequence


def resolve(library: Any, code: Any, cc: tuple[Any, ...], symbols: Sequence[str]) -> Any:
    """
    Return *code* with its callees from the link files merged in, where they can be linked.

    Args:
        library: Numba's code library.
        code: The code that Numba compiled it to: PTX as str or LTO-IR as bytes.
        cc: The compute capability of *code*.
        symbols: The device functions to keep; none for a kernel, which is kept itself.

    Raises:
        ExportError: A compiler refused the code, or a link file that cannot be read or has another prototype.
    """
    from numba.cuda.descriptor import cuda_target

    arch = Arch.of(cc)
    tag = build.tag([*symbols, library.name])
    modules = ordered_modules([library], symbols or [library._entry_name])
    options = {**library._nvvm_options, "arch": arch.compute}
    options.pop("gen-lto", None)
    modules = llvm_ir.in_dialect(modules, arch)
    ptx = nvvm_compile(modules, options).decode()
    missing = externs.undefined(parse(ptx))
    declared = externs.declared(
        (
            (name, externs.candidate(name, args, result))
            for name, args, result in declarations(cuda_target.target_context)
            if name in missing
        ),
        missing,
    )
    linked = link_files.compile_files(
        map(linkable.read, of_libraries([library])),
        missing,
        arch,
        tag,
        memory_manager(),
        declared=declared,
        callers=dict.fromkeys(missing, ", ".join(symbols) or library.name),
    )
    if not linked.code:
        return code
    # Up to sm_90 nvJitLink cannot read the LTO-IR that NVVM writes with this option.
    options.pop("g", None)
    ltoir = nvvm_compile(linked.renamed(modules), {**options, "gen-lto": None})
    if not isinstance(code, str):
        return externs.merge_ltoir(ltoir, linked.code, arch)
    lines = any(map(llvm_ir.has_line_numbers, modules)) and not any(map(llvm_ir.is_for_debugging, modules))
    merged = externs.merge_ptx(
        ltoir,
        linked.code,
        arch,
        symbols,
        kernels=() if symbols else [library._entry_name],
        lineinfo=lines,
        opt=options.get("opt") != 0,
    )
    externs.check_supplied(parse(merged), linked)
    return merged


def nvvm_compile(modules: Sequence[str], options: dict[str, Any]) -> bytes:
    """Compile *modules* with NVVM and Numba's *options*; return PTX or LTO-IR."""
    from numba.cuda.cudadrv import nvvm

    code: bytes = nvvm.compile_ir(list(modules), **options)
    return code
