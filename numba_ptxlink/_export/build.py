"""Compile marked functions to PTX, LTO-IR and relocatable cubins for one arch."""

from __future__ import annotations

import inspect
import logging
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink import abi
from numba_ptxlink._formats import llvm_ir
from numba_ptxlink._formats.kinds import CUBIN, LTOIR, PTX
from numba_ptxlink._formats.ptx import Prototype, parse
from numba_ptxlink._link import single_ptx
from numba_ptxlink._tools import nvjitlink, nvrtc, nvvm, packages
from numba_ptxlink._tools.ptxas_options import AssembleOptions
from numba_ptxlink.errors import AbiError, ExportError, LinkError

from . import constants, externs, link_files, reached, written

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._front_end.protocol import CompileOptions, FrontEnd, Lowered
    from numba_ptxlink._link.consumer import Consumer

    from .marks import Udf
    from .signatures import Typed


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Compiled:
    """
    All functions of an export for one arch, lowered and with their C functions.

    Args:
        front_end: What compiled them.
        arch: The GPU.
        functions: The Python functions.
        signatures: The C signature of each function.
        lowered: What the front end made of each function.
        files: The files that the functions link by their paths, with the headers that these include.
    """

    front_end: FrontEnd
    arch: Arch
    functions: tuple[Any, ...]
    signatures: tuple[abi.Signature, ...]
    lowered: tuple[Lowered, ...]
    files: tuple[Path, ...] = ()

    @property
    def raises(self) -> tuple[tuple[str, ...], ...]:
        """The source lines where each function or its callees raise, as "file.py:line"."""
        return tuple(lowered.raises for lowered in self.lowered)


@dataclass(frozen=True)
class Built:
    """
    All functions of an export for one arch.

    Args:
        artifacts: Code by kind: "ptx", "ltoir", "cubin".
        externs: The undefined symbols of the code by name: PTX prototype, and C signature if it is known.
        undeclared: Those that `cuda.declare_device` declares and C++ cannot, by name.
        cubin_by: Name and release of the tool that compiled the cubin, "" without a cubin.
        merged: Whether nvJitLink merged link files into the code.
    """

    artifacts: dict[str, bytes]
    externs: dict[str, tuple[Prototype, abi.Signature | None]]
    undeclared: tuple[str, ...] = ()
    cubin_by: str = ""
    merged: bool = False


def declared(functions: Sequence[Typed]) -> list[abi.Signature]:
    """
    Return the C signatures of *functions* as far as they are known before these are compiled.

    An inferred result counts as void, and functions with flat aggregates, which use no structs, are left out.

    Raises:
        AbiError: A type has no counterpart in C, or two types would be structs of one name.
    """
    return [
        _c_signature(
            function,
            function.front_end.types.void if function.result is None else function.result,
            function.labels,
            function.args,
        )
        for function in functions
        if function.udf.options.aggregates == "value"
    ]


def lower(functions: Sequence[Typed], arch: Arch, options: CompileOptions) -> Compiled:
    """
    Compile *functions*, which are of one front end, with it, and add their C functions.

    Raises:
        AbiError: A function's name or types have no counterpart in C.
        ExportError: The front end refused a function.
    """
    front_end = functions[0].front_end
    signatures: list[abi.Signature] = []
    compiled: list[Lowered] = []
    for function in functions:
        udf, result = function.udf, function.result
        if udf.is_kernel and result is None:
            result = front_end.types.void
        declared([function])
        try:
            lowered = front_end.lower(
                _entry(udf), function.args, result, arch=arch, options=options, abi=udf.options
            )
        except Exception as error:
            reason = packages.explained(error) or error
            raise ExportError(
                f"Numba could not compile {udf.name} ({udf.source}) for {arch.sm}: {reason}"
            ) from error
        signatures.append(_wrap(lowered, function, inline=options.opt))
        compiled.append(lowered)
    return Compiled(
        front_end,
        arch,
        tuple(function.udf.function for function in functions),
        tuple(signatures),
        tuple(compiled),
        tuple(link_files.paths(front_end.link_files(compiled))),
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


def _wrap(lowered: Lowered, each: Typed, *, inline: bool) -> abi.Signature:
    """Add the C function of *each* to *lowered*; return its signature."""
    udf, front_end = each.udf, each.front_end
    if udf.options.aggregates == "flat":
        # Numba has parts for any type, also for a string or a range, which mean nothing to C.
        _c_signature(each, lowered.result, (), ())
        return front_end.wrap_flat(lowered, each.symbol, each.labels, udf.options, inline=inline)
    signature = _c_signature(each, lowered.result, each.labels, lowered.args)
    front_end.wrap(lowered, signature, udf.options, inline=inline, launch_bounds=udf.launch_bounds)
    return signature


def _c_signature(each: Typed, result: Any, labels: Sequence[str], args: Sequence[Any]) -> abi.Signature:
    try:
        return abi.c_signature(
            each.symbol,
            result,
            zip(labels, args, strict=True),
            kernel=each.udf.is_kernel,
            names={**each.records, **each.structs},
            const=each.const,
            restrict=each.restrict,
        )
    except AbiError as error:
        raise AbiError(f"{error} ({each.udf.source})") from error


def build(
    compiled: Compiled,
    kinds: Collection[str],
    options: CompileOptions,
    *,
    dispensable: Collection[str] = (),
    consumer: Consumer | None = None,
) -> Built:
    """
    Return the artifacts of *kinds*, with the link files merged in where they can be linked.

    Args:
        compiled: The functions.
        kinds: The kinds of artifact: "ptx", "ltoir", "cubin".
        options: The options of the export.
        dispensable: Those of *kinds* that are left out, with a warning, where the toolkit cannot make them.
        consumer: The toolkit and driver that the code is for; None for those of this environment.

    Raises:
        ExportError: A compiler refused the code, or a prototype differs from the one C++ declares.
        AssembleError: The PTX could not be assembled.
    """
    names = [signature.name for signature in compiled.signatures]
    front_end = compiled.front_end
    modules = front_end.modules(compiled.lowered, names, compiled.arch)
    ptx = _nvvm(compiled, modules, options, lto=False).rstrip(b"\0").strip() + b"\n"
    missing = externs.undefined(ptx.decode())
    linked = link_files.compile_files(
        front_end.link_files(compiled.lowered),
        missing,
        compiled.arch,
        tag(names),
        front_end.memory_manager(),
    )
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
    ptx = consumer.lowered(ptx, compiled.arch) if consumer else ptx
    _verify(ptx.decode(), compiled.signatures, compiled.arch)
    if any(map(written.addresses, compiled.signatures)):
        # Code that is not optimised keeps addresses in memory, where they are not followed.
        text = ptx if options.opt else _nvvm(compiled, modules, replace(options, opt=True), lto=False)
        _check_const(text.decode(), compiled)
    constants.check(ptx.decode(), compiled.functions)
    artifacts, made_by = {PTX: ptx, LTOIR: ltoir}, ""
    if CUBIN in kinds:
        asked = AssembleOptions(relocatable=True, opt_level=options.level, lineinfo=options.lineinfo)
        artifacts[CUBIN], made_by = single_ptx.compile_ptx(
            ptx, compiled.arch, asked, consumer.release if consumer else None
        )
    declarations: dict[str, list[abi.Signature | None]] = {}
    for name, args, result in front_end.declarations(compiled.lowered):
        if name in missing:
            declarations.setdefault(name, []).append(externs.declared(args, result, missing[name]))
    known = {
        name: (prototype, next(filter(None, declarations.get(name, ())), None))
        for name, prototype in missing.items()
    }
    undeclared = tuple(
        name for name, (_, signature) in known.items() if signature is None and name in declarations
    )
    kept = {kind: code for kind, code in artifacts.items() if kind in kinds}
    return Built(kept, known, undeclared, made_by, merged=bool(linked.code))


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


def _check_const(text: str, compiled: Compiled) -> None:
    """Refuse functions that may write through a parameter that is const."""
    module = parse(text)
    for signature, function in zip(compiled.signatures, compiled.functions, strict=True):
        for number, param in written.addresses(signature).items():
            found = written.through(module, signature.name, number)
            if found:
                where = f"{Path(function.__code__.co_filename).name}:{function.__code__.co_firstlineno}"
                raise AbiError(
                    f"Function {signature.name} ({where}): parameter {param!r} is const, and its code may "
                    f"write through it: it {found}. Take it out of const, or copy what is changed."
                )


def _nvvm(compiled: Compiled, modules: Sequence[str], options: CompileOptions, *, lto: bool) -> bytes:
    try:
        code = compiled.front_end.compile_ir(modules, compiled.arch, options, lto=lto)
    except Exception as error:
        names = ", ".join(signature.name for signature in compiled.signatures)
        try:
            nvrtc.version()  # a front end may load it to find libdevice
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


def tag(names: Sequence[str]) -> str:
    """Return the suffix of private names in the code of the symbols *names*."""
    return f"{zlib.crc32(' '.join(names).encode()):08x}"
