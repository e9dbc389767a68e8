"""
Merge what Numba itself brings for a function with the C ABI into the code that `numba.cuda.compile` returns.

That is the arithmetic of halves and of other bindings, whose files no user can name. Those of
`cuda.declare_device` are left to the linker, as by numba-cuda: the variables of a file are there once in a
program, however many functions call it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_ptxlink._arch import Arch
from numba_ptxlink._export import build, externs, link_files
from numba_ptxlink._formats import llvm_ir
from numba_ptxlink._formats.ptx import parse

from .link_files import brought_by_bindings
from .modules import ordered_modules

if TYPE_CHECKING:
    from collections.abc import Sequence


def resolve(library: Any, code: Any, cc: tuple[Any, ...], symbols: Sequence[str]) -> Any:
    """
    Return *code* with what Numba brings for it merged in.

    Args:
        library: Numba's code library.
        code: The code that Numba compiled it to: PTX as str or LTO-IR as bytes.
        cc: The compute capability of *code*.
        symbols: The device functions to keep; none for a kernel, which is kept itself.

    Raises:
        ExportError: A compiler refused the code, or cannot merge it.
    """
    brought = brought_by_bindings(library)
    if not brought:
        return code
    arch = Arch.of(cc)
    tag = build.tag([*symbols, library.name])
    modules = ordered_modules([library], symbols or [library._entry_name])
    options = {**library._nvvm_options, "arch": arch.compute}
    options.pop("gen-lto", None)
    modules = llvm_ir.in_dialect(modules, arch)
    ptx = nvvm_compile(modules, options).decode()
    missing = externs.undefined(parse(ptx))
    linked = link_files.compile_files(
        brought, missing, arch, tag, dict.fromkeys(missing, ", ".join(symbols) or library.name)
    )
    if not linked.code:
        return code
    # Up to sm_90 nvJitLink cannot read the LTO-IR that NVVM writes with this option.
    options.pop("g", None)
    ltoir = nvvm_compile(linked.renamed(modules), {**options, "gen-lto": None})
    if not isinstance(code, str):
        return externs.merge_ltoir(ltoir, linked.code, arch)
    lines = any(map(llvm_ir.has_line_numbers, modules)) and not any(map(llvm_ir.is_for_debugging, modules))
    return externs.merge_ptx(
        ltoir,
        linked.code,
        arch,
        symbols,
        kernels=() if symbols else [library._entry_name],
        lineinfo=lines,
        opt=options.get("opt") != 0,
    )


def nvvm_compile(modules: Sequence[str], options: dict[str, Any]) -> bytes:
    """Compile *modules* with NVVM and Numba's *options*; return PTX or LTO-IR."""
    from numba.cuda.cudadrv import nvvm

    code: bytes = nvvm.compile_ir(list(modules), **options)
    return code
