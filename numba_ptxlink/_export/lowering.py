"""
Lower marked functions one by one: each becomes LLVM IR that does not depend on the others.

Each export lowers its functions. What compiles the LLVM IR finds machine code in the cache by its text.
"""

from __future__ import annotations

import logging
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numba_ptxlink import abi
from numba_ptxlink._front_end import registry
from numba_ptxlink._link.declarations import contradicted, declaration
from numba_ptxlink._tools import find
from numba_ptxlink.errors import AbiError, ExportError, PtxlinkError

from . import externs, linkable, signatures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._front_end.protocol import CompileOptions, FrontEnd, LinkFile

    from .signatures import Typed

log = logging.getLogger(__name__)

_RECURSIVE = "re-entrant to the same function signature"
_NANOBIND = "incompatible function arguments"


@dataclass(frozen=True)
class Lowering:
    """
    A function of an export for one arch, with its C function, in LLVM IR.

    Args:
        signature: Its C signature.
        raises: The source lines where it or its callees raise, as "file.py:line".
        modules: The NVVM IR of the function and of all that it calls, callers first. A module has the same
            text wherever it occurs.
        links: The files that it links: paths as they are given, which each export reads in its own working
            directory, and code in memory.
        declarations: The functions that `cuda.declare_device` declares and it may call: symbol, and C
            signature where C has the types.
    """

    signature: abi.Signature
    raises: tuple[str, ...]
    modules: tuple[str, ...]
    links: tuple[str | LinkFile, ...] = ()
    declarations: tuple[tuple[str, abi.Signature | None], ...] = ()


def lower_each(functions: Sequence[Typed], arch: Arch, options: CompileOptions) -> tuple[Lowering, ...]:
    """
    Lower *functions*, and add their C functions.

    Raises:
        PtxlinkError: As `lower`, of all functions that fail.
    """
    lowered, errors = [], []
    for function in functions:
        try:
            lowered.append(lower(function, arch, options))
        except PtxlinkError as error:
            errors.append(error)
    raise_all(errors)
    return tuple(lowered)


def raise_all(errors: Sequence[PtxlinkError]) -> None:
    """Raise *errors* as one, if there are any."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        kinds = {type(error) for error in errors}
        kind = kinds.pop() if len(kinds) == 1 else ExportError
        raise kind("\n".join(dict.fromkeys(map(str, errors)))) from errors[0]


def lower(function: Typed, arch: Arch, options: CompileOptions) -> Lowering:
    """
    Lower *function*, and add its C function.

    Raises:
        AbiError: Its name or types have no counterpart in C.
        ExportError: The front end refused it.
    """
    front_end, udf, result = function.front_end, function.udf, function.result
    if udf.is_kernel and result is None:
        result = front_end.types.void
    declared([function])
    try:
        lowered = front_end.lower(
            udf.function, function.args, result, arch=arch, options=options, abi=udf.options
        )
    except Exception as error:
        reason = _undecoded(udf, error) or find.explained(error) or error
        if _RECURSIVE in str(error):
            cure = "let it call a @cuda.jit(device=True) function that does"
            reason = f"{error}\nA marked function cannot call itself; {cure}."
        other = _other(function, arch, options, reason)
        told = f"{front_end.name} could not compile {udf.name} for {arch.sm}{other}: {reason}"
        raise ExportError(f"{udf.place}: error: {told}") from error
    signature = _wrap(lowered, function, inline=options.opt)
    try:
        return portable(front_end, lowered, signature, arch)
    except ExportError as error:
        raise ExportError(f"Function {udf.name} ({udf.source}): {error}", inputs=error.inputs) from error
    except UnicodeEncodeError as error:
        reason = _undecoded(udf, error) or error
        raise ExportError(f"{udf.name} ({udf.source}) has no LLVM IR: {reason}") from error


def _other(function: Typed, arch: Arch, options: CompileOptions, reason: object) -> str:
    """Return which other front end compiles *function*, which its own does not for *reason*; "" for none."""
    udf = function.udf
    for each in registry.front_ends():
        # Some reasons name it themselves.
        told = re.search(rf"(?<![\w-]){each.name}(?![\w-])", str(reason))
        if each is function.front_end or told or not registry.installed(each):
            continue
        try:
            other = signatures.resolved(udf, each, function.symbol)
            result = each.types.void if udf.is_kernel and other.result is None else other.result
            each.lower(udf.function, other.args, result, arch=arch, options=options, abi=udf.options)
        except Exception as error:  # noqa: BLE001 - it may fail for any reason, as the first one has
            log.debug("%s does not compile %s either: %s", each.name, function.symbol, error)
        else:
            return f'; {each.name} compiles it, by front_end="{each.name}"'
    return ""


def _undecoded(udf: Any, error: BaseException) -> str:
    """Return that *error* is for the path of *udf*, which LLVM IR cannot name, "" if it is not."""
    path = udf.function.__code__.co_filename
    # nanobind refuses text that is not UTF-8 as an argument of a wrong type.
    refused = isinstance(error, UnicodeEncodeError) or _NANOBIND in str(error)
    if not refused or path.encode(errors="ignore") == path.encode(errors="surrogatepass"):
        return ""
    return (
        f"its path {path!a} is not in the encoding of this locale, {sys.getfilesystemencoding()}, and code "
        "that names it, as line numbers do, is UTF-8; set PYTHONUTF8=1, or rename it in ASCII."
    )


def portable(front_end: FrontEnd, lowered: Any, signature: abi.Signature, arch: Arch) -> Lowering:
    """
    Return *lowered* as a value of its own.

    Args:
        front_end: What compiled it.
        lowered: What the front end made, with the C function.
        signature: The signature of the C function.
        arch: The GPU.
    """
    modules = tuple(front_end.modules([lowered], [signature.name], arch))
    declarations = dict.fromkeys(
        (name, externs.candidate(name, args, result))
        for name, args, result in front_end.declarations([lowered])
        # A front end may know of all functions that the process has declared, several of one name among them.
        if name != signature.name and any(f'@"{name}"' in text for text in modules)
    )
    others = contradicted(
        "\n".join(modules), [declaration(plain, "") for _, plain in declarations if plain is not None]
    )
    called = [
        (name, plain) for name, plain in declarations if plain is None or declaration(plain, "") not in others
    ]
    links = tuple(map(linkable.given, front_end.link_files([lowered])))
    return Lowering(signature, lowered.raises, modules, links, tuple(called))


def declared(functions: Sequence[Typed]) -> list[abi.Signature]:
    """
    Return the C signatures of *functions* as far as they are known before these are compiled.

    An inferred result counts as void.

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
    ]


def _wrap(lowered: Any, each: Typed, *, inline: bool) -> abi.Signature:
    """Add the C function of *each* to *lowered*; return its signature."""
    udf, front_end = each.udf, each.front_end
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
