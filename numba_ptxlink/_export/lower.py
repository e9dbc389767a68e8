"""Lower marked functions, each to LLVM IR that depends on no other, with its C function around it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numba_ptxlink import abi
from numba_ptxlink._cabi.header import Declaration
from numba_ptxlink._formats import llvm_ir
from numba_ptxlink._link.declarations import contradicted, declaration
from numba_ptxlink._tools import find
from numba_ptxlink.errors import AbiError, ExportError

from . import link_files
from .signatures import describe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._front_end.protocol import CompileOptions, FrontEnd, LinkFile

    from .signatures import Typed


@dataclass(frozen=True)
class Lowered:
    """
    A function of an export for one arch, with its C function, in LLVM IR.

    Args:
        declaration: What a header says of it.
        options: What an error does in it.
        raises: The source lines where it or its callees raise, as "file.py:line".
        modules: The NVVM IR of the function and of all that it calls, callers first. A module has the same
            text wherever it occurs.
        links: The files that it links.
        declared: The functions that `cuda.declare_device` declares and it may call: symbol, and C signature
            where C has the types.
    """

    declaration: Declaration
    options: abi.AbiOptions
    raises: tuple[str, ...]
    modules: tuple[str, ...]
    links: tuple[LinkFile, ...] = ()
    declared: tuple[tuple[str, abi.Signature | None], ...] = ()

    @property
    def signature(self) -> abi.Signature:
        """Its C signature."""
        return self.declaration.signature

    @property
    def title(self) -> str:
        """How messages name it: "name (file.py:line)"."""
        return f"{self.signature.name} ({self.declaration.source})"

    @property
    def place(self) -> str:
        """Where it is defined, as "/home/me/file.py:line"."""
        return self.declaration.place


def lower(function: Typed, arch: Arch, options: CompileOptions) -> Lowered:
    """
    Lower *function*, and add its C function.

    Raises:
        AbiError: Its name or types have no counterpart in C.
        ExportError: The front end refused it.
    """
    front_end, udf, result = function.front_end, function.udf, function.result
    void = front_end.types.void
    if udf.is_kernel and result is None:
        result = void
    # Refused before the compiler runs, as far as the result is known.
    _c_signature(function, void if result is None else result, function.args)
    try:
        lowered = front_end.code.lower(
            udf.function, function.args, result, arch=arch, options=options, abi=udf.options
        )
    except Exception as error:
        # What a KeyError says is the name of a field alone.
        reason = find.explained(error) or f"{type(error).__name__}: {error}"
        raise ExportError(f"{front_end.name} could not compile {udf.name} for {arch.sm}: {reason}") from error
    signature = _c_signature(function, lowered.result, lowered.args)
    front_end.code.wrap(lowered, signature, udf.options, inline=options.opt, launch_bounds=udf.launch_bounds)
    declared = Declaration(
        signature=signature,
        python=describe(function),
        doc=inspect.getdoc(udf.function) or "",
        place=udf.place,
        errors=_errors(function) if lowered.raises else "",
        namespace=udf.cxx.namespace,
        name=udf.function.__name__,
    )
    return portable(front_end, lowered, declared, udf.options, arch)


def _errors(function: Typed) -> str:
    options = function.udf.options
    does = "returns" if function.udf.is_kernel else "returns zero"
    does = "stops the kernel" if options.on_error == "trap" else does
    checks = "are checked" if options.checked else "are not checked"
    return f"Where it raises, it {does}. Division by zero and indices {checks}."


def portable(
    front_end: FrontEnd, lowered: Any, declared: Declaration, options: abi.AbiOptions, arch: Arch
) -> Lowered:
    """
    Return *lowered* as a value of its own.

    Args:
        front_end: What compiled it.
        lowered: What the front end made, with the C function.
        declared: What a header says of the C function.
        options: What an error does.
        arch: The GPU.
    """
    own = declared.signature.name
    modules = tuple(front_end.code.modules([lowered], [own], arch))
    called = {
        (name, _c_type_of(name, args, result)): None
        for name, args, result in front_end.code.declarations([lowered])
        # A front end may know of all functions that the process has declared, several of one name among them.
        if name != own and any(f'@"{name}"' in text for text in modules)
    }
    known = {plain: declaration(plain, "") for _, plain in called if plain is not None}
    others = contradicted(llvm_ir.declared("\n".join(modules)) if known else {}, known.values())
    return Lowered(
        declared,
        options,
        lowered.raises,
        modules,
        tuple(map(link_files.read, front_end.code.link_files([lowered]))),
        tuple(each for each in called if each[1] is None or known[each[1]] not in others),
    )


def _c_signature(each: Typed, result: Any, args: Sequence[Any]) -> abi.Signature:
    return abi.c_signature(
        each.symbol,
        result,
        zip(each.labels, args, strict=True),
        kernel=each.udf.is_kernel,
        names=each.names,
        const=each.const,
        restrict=each.restrict,
    )


def _c_type_of(name: str, args: Sequence[Any], result: Any) -> abi.Signature | None:
    """Return the signature of a `cuda.declare_device` function in C++; None where C has not its types."""
    try:
        return abi.c_signature(name, result, [(f"arg{number}", ty) for number, ty in enumerate(args)])
    except AbiError:
        return None
