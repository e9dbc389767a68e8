"""Compile marked functions to PTX, LTO-IR and relocatable cubins for one arch."""

from __future__ import annotations

import inspect
import logging
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numba_ptxlink import abi
from numba_ptxlink._arch import Arch
from numba_ptxlink._formats import llvm_ir
from numba_ptxlink._formats.kinds import CUBIN, LTOIR, PTX
from numba_ptxlink._formats.ptx import Prototype, parse
from numba_ptxlink._link import single_ptx
from numba_ptxlink._tools import nvjitlink, nvrtc, nvvm
from numba_ptxlink._tools.ptxas_options import AssembleOptions
from numba_ptxlink.errors import AbiError, ExportError, LinkError

from . import constants, reached
from .codegen import externs, link_files
from .compile import compile_function, compile_ir
from .modules import ordered_modules
from .raises import raise_sites

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from numba_ptxlink._udf import Udf

    from .compile import CompileOptions
    from .signatures import Typed


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Compiled:
    """
    All functions of an export for one arch, lowered to LLVM IR.

    Args:
        arch: The GPU.
        functions: The Python functions.
        signatures: The C signature of each function.
        raises: The source lines where each function or its callees raise, as "file.py:line".
        libraries: The code library of each function.
        context: Numba's target context.
        files: The files that the functions link by their paths, with the headers that these include.
    """

    arch: Arch
    functions: tuple[Any, ...]
    signatures: tuple[abi.Signature, ...]
    raises: tuple[tuple[str, ...], ...]
    libraries: tuple[Any, ...]
    context: Any
    files: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Built:
    """
    All functions of an export for one arch.

    Args:
        artifacts: Code by kind: "ptx", "ltoir", "cubin".
        externs: The undefined symbols of the code by name: PTX prototype, and C signature if it is known.
        undeclared: Those that `cuda.declare_device` declares and C++ cannot, by name.
        cubin_by: Name and release of the tool that compiled the cubin, "" without a cubin.
    """

    artifacts: dict[str, bytes]
    externs: dict[str, tuple[Prototype, abi.Signature | None]]
    undeclared: tuple[str, ...] = ()
    cubin_by: str = ""


def declared(functions: Sequence[Typed]) -> list[abi.Signature]:
    """
    Return the C signatures of *functions* as far as they are known before these are compiled.

    An inferred result counts as void, and functions with flat aggregates, which use no structs, are left out.

    Raises:
        AbiError: A type has no counterpart in C, or two types would be structs of one name.
    """
    from numba.cuda import types

    return [
        _c_signature(
            function,
            types.void if function.result is None else function.result,
            function.labels,
            function.args,
        )
        for function in functions
        if function.udf.options.aggregates == "value"
    ]


def lower(functions: Sequence[Typed], arch: Arch, options: CompileOptions) -> Compiled:
    """
    Compile *functions* with Numba.

    Raises:
        AbiError: A function's name or types have no counterpart in C.
        ExportError: Numba refused a function.
    """
    from numba.cuda import types

    signatures: list[abi.Signature] = []
    raises: list[tuple[str, ...]] = []
    libraries: list[Any] = []
    context = None
    for function in functions:
        udf, result = function.udf, function.result
        if udf.is_kernel and result is None:
            result = types.void
        declared([function])
        try:
            compiled = compile_function(
                _entry(udf), function.args, result, arch, options, checked=udf.options.checked
            )
        except Exception as error:
            reason = str(error)
            if "set_try_status" in reason:
                reason = "numba-cuda has no `try`; test the condition before it arises"
            raise ExportError(
                f"Numba could not compile {udf.name} ({udf.source}) for {arch.sm}: {reason}"
            ) from error
        context = compiled.target_context
        raises.append(raise_sites(compiled))
        signatures.append(wrap(compiled, function, inline=options.opt))
        libraries.append(compiled.library)
    return Compiled(
        arch,
        tuple(function.udf.function for function in functions),
        tuple(signatures),
        tuple(raises),
        tuple(libraries),
        context,
        tuple(link_files.paths(libraries)),
    )


def _entry(udf: Udf) -> Any:
    """Return the function to compile for *udf*: one that calls it, if it calls itself."""
    function = udf.function
    callee = None if udf.is_kernel else reached.recursion(function)
    if callee is None:
        return function
    # Numba refuses to compile a function within its own compilation, except one of its own dispatchers.
    name, file = function.__name__, function.__code__.co_filename
    params = ", ".join(f"p{number}" for number, _ in enumerate(inspect.signature(function).parameters))
    source = f"def {name}({params}): return callee({params})"
    scope: dict[str, Any] = {"callee": callee, "__name__": function.__module__}
    exec(compile(source, file, "exec"), scope)  # noqa: S102 - only names are inserted
    entry = scope[name]
    entry.__code__ = entry.__code__.replace(co_firstlineno=function.__code__.co_firstlineno)
    return entry


def wrap(compiled: Any, each: Typed, *, inline: bool) -> abi.Signature:
    """Add the C function of *each* to *compiled*, Numba's compile result; return its signature."""
    from .codegen import flat, wrapper

    udf = each.udf
    if udf.options.aggregates == "flat":
        context, returns = compiled.target_context, compiled.signature.return_type
        # Numba has parts for any type, also for a string or a range, which mean nothing to C.
        _c_signature(each, returns, (), ())
        params = list(zip(each.labels, compiled.signature.args, strict=True))
        signature = flat.signature(context, udf.name, returns, params)
        wrapper.emit_flat(compiled, udf.name, udf.options, inline=inline)
        return signature
    signature = _c_signature(each, compiled.signature.return_type, each.labels, compiled.signature.args)
    wrapper.emit(compiled, signature, udf.options, inline=inline, launch_bounds=udf.launch_bounds)
    return signature


def _c_signature(each: Typed, result: Any, labels: Sequence[str], args: Sequence[Any]) -> abi.Signature:
    try:
        return abi.c_signature(
            each.udf.name,
            result,
            zip(labels, args, strict=True),
            kernel=each.udf.is_kernel,
            names=each.records,
        )
    except AbiError as error:
        raise AbiError(f"{error} ({each.udf.source})") from error


def build(
    compiled: Compiled, kinds: Collection[str], options: CompileOptions, *, dispensable: Collection[str] = ()
) -> Built:
    """
    Return the artifacts of *kinds*, with the link files merged in where they can be linked.

    Args:
        compiled: The functions.
        kinds: The kinds of artifact: "ptx", "ltoir", "cubin".
        options: The options of the export.
        dispensable: Those of *kinds* that are left out, with a warning, where the toolkit cannot make them.

    Raises:
        ExportError: A compiler refused the code, or a prototype differs from the one C++ declares.
        AssembleError: The PTX could not be assembled.
    """
    names = [signature.name for signature in compiled.signatures]
    tag = _tag(names)
    modules = ordered_modules(compiled.libraries, names)
    ptx = _nvvm(compiled, modules, options, lto=False).rstrip(b"\0").strip() + b"\n"
    missing = externs.undefined(ptx.decode())
    linked = link_files.compile_files(compiled.libraries, missing, compiled.arch, tag)
    ltoir = b""
    if linked.code or LTOIR in kinds:
        ltoir = _nvvm(compiled, linked.renamed(modules), options, lto=True)
    if linked.code:
        ptx = externs.merge_ptx(
            ltoir,
            linked.code,
            compiled.arch,
            [signature.name for signature in compiled.signatures if not signature.kernel],
            kernels=[signature.name for signature in compiled.signatures if signature.kernel],
            lineinfo=options.lineinfo,
            opt=options.opt,
        ).encode()
        externs.check_supplied(ptx.decode(), linked)
        missing = externs.undefined(ptx.decode())
        if LTOIR in kinds:
            try:
                ltoir = externs.merge_ltoir(ltoir, linked.code, compiled.arch)
            except ExportError as error:
                if LTOIR not in dispensable or nvjitlink.merges_ltoir():
                    raise
                log.warning("no LTO-IR for %s: %s", compiled.arch.sm, error)
                kinds = {*kinds} - {LTOIR}
    _verify(ptx.decode(), compiled.signatures, compiled.arch)
    constants.check(ptx.decode(), compiled.functions)
    artifacts, made_by = {PTX: ptx, LTOIR: ltoir}, ""
    if CUBIN in kinds:
        asked = AssembleOptions(relocatable=True, opt_level=options.level, lineinfo=options.lineinfo)
        artifacts[CUBIN], made_by = single_ptx.compile_ptx(ptx, compiled.arch, asked)
    known = {
        name: (prototype, externs.declared(compiled.context, prototype))
        for name, prototype in missing.items()
    }
    undeclared = tuple(
        name
        for name, (_, signature) in known.items()
        if signature is None and externs.is_declared(compiled.context, name)
    )
    kept = {kind: code for kind, code in artifacts.items() if kind in kinds}
    return Built(kept, known, undeclared, made_by)


def _verify(ptx: str, signatures: Sequence[abi.Signature], arch: Arch) -> None:
    visible = {
        f.prototype.name: f.prototype for f in parse(ptx).functions if f.defined and f.linkage == "visible"
    }
    for signature in signatures:
        expected = signature.prototype_for(modern=llvm_ir.is_modern(arch))
        if visible.get(signature.name) != expected:
            raise ExportError(
                f"NVVM gave {signature.name} the prototype {visible.get(signature.name)} where C++ has "
                f"{expected}; please report this with the function's signature."
            )


def _nvvm(compiled: Compiled, modules: Sequence[str], options: CompileOptions, *, lto: bool) -> bytes:
    try:
        code = compile_ir(llvm_ir.in_dialect(modules, compiled.arch), **options.nvvm(compiled.arch, lto=lto))
    except Exception as error:
        names = ", ".join(signature.name for signature in compiled.signatures)
        try:
            nvrtc.version()  # numba-cuda loads it to find libdevice
            known = nvvm.emitted_isa(compiled.arch)
        except LinkError as missing:
            raise ExportError(f"{names} cannot be compiled for {compiled.arch.sm}: {missing}") from error
        cure = (
            "export the functions one by one to see which one it refuses."
            if known
            else "it does not know the architecture; `numba-ptxlink doctor` lists those that it compiles for."
        )
        raise ExportError(
            f"NVVM could not compile {names} for {compiled.arch.sm}: {error}; {cure}"
        ) from error
    return code


def resolve(library: Any, code: Any, cc: tuple[Any, ...], symbols: Sequence[str]) -> Any:
    """
    Return *code* with its callees from the link files merged in, where they can be linked.

    Args:
        library: Numba's code library.
        code: The code that Numba compiled it to: PTX as str or LTO-IR as bytes.
        cc: The compute capability of *code*.
        symbols: The device functions to keep; none for a kernel, which is kept itself.

    Raises:
        ExportError: A compiler refused the code.
    """
    arch = Arch.of(cc)
    tag = _tag([*symbols, library.name])
    modules = ordered_modules([library], symbols or [library._entry_name])
    options = {**library._nvvm_options, "arch": arch.compute}
    options.pop("gen-lto", None)
    modules = llvm_ir.in_dialect(modules, arch)
    ptx = nvvm_compile(modules, options).decode()
    linked = link_files.compile_files([library], externs.undefined(ptx), arch, tag)
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
    externs.check_supplied(merged, linked)
    return merged


def nvvm_compile(modules: Sequence[str], options: dict[str, Any]) -> bytes:
    """Compile *modules* with NVVM and Numba's *options*; return PTX or LTO-IR."""
    from numba.cuda.cudadrv import nvvm

    code: bytes = nvvm.compile_ir(list(modules), **options)
    return code


def _tag(names: Sequence[str]) -> str:
    return f"{zlib.crc32(' '.join(names).encode()):08x}"
