"""
Lower marked functions one by one: each becomes LLVM IR that does not depend on the others.

What a function became is kept in the cache, under all that `function_keys` finds it to depend on, and travels
between processes. So an unchanged function is lowered once, wherever that was.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink import abi, cache
from numba_ptxlink._cabi import codec
from numba_ptxlink._front_end import registry
from numba_ptxlink._front_end.protocol import LinkFile
from numba_ptxlink._link.declarations import contradicted, declaration
from numba_ptxlink._tools import packages
from numba_ptxlink.errors import AbiError, ExportError

from . import externs, function_keys, linkable, recursive, signatures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._front_end.protocol import CompileOptions, FrontEnd

    from .signatures import Typed

log = logging.getLogger(__name__)

_BETWEEN = "\0"
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


def lower(function: Typed, arch: Arch, options: CompileOptions, key: function_keys.FunctionKey) -> Lowering:
    """
    Lower *function*, or read what it was lowered to from the cache.

    Args:
        function: The function.
        arch: The GPU.
        options: The options of the export.
        key: What the function depends on.

    Raises:
        AbiError: Its name or types have no counterpart in C.
        ExportError: The front end refused it.
    """
    if key.code is None:
        log.debug("cache: %s is not kept: %s", function.symbol, key.reason)
    known = _known(arch, options, key)
    if known is None:
        known = _lower(function, arch, options)
        keep(known, arch, options, key)
    return known


def is_known(arch: Arch, options: CompileOptions, key: function_keys.FunctionKey) -> bool:
    """Return whether the cache has what a function was lowered to."""
    return _known(arch, options, key) is not None


def keep(lowered: Lowering, arch: Arch, options: CompileOptions, key: function_keys.FunctionKey) -> None:
    """Store *lowered* in the cache, if it can be and is not there."""
    if not _is_kept(key) or _known(arch, options, key):
        return
    entry = _entry(lowered)
    if entry is not None:
        plain, exact = _addresses(arch, options, key)
        # Without lines in it, what the function became survives an edit above the function.
        cache.default().put(exact if lowered.raises or options.lineinfo else plain, entry)


def _known(arch: Arch, options: CompileOptions, key: function_keys.FunctionKey) -> Lowering | None:
    if not _is_kept(key):
        return None
    plain, exact = _addresses(arch, options, key)
    for address in (exact,) if options.lineinfo else (plain, exact):
        entry = cache.default().get(address)
        known = _read(entry) if entry else None
        if known is not None:
            return known
    return None


def _is_kept(key: function_keys.FunctionKey) -> bool:
    return key.code is not None and not key.once and cache.default().settings.cache


def _addresses(
    arch: Arch, options: CompileOptions, key: function_keys.FunctionKey
) -> tuple[cache.Key, cache.Key]:
    """Return the keys of what has no line numbers in it, and of what has."""
    parts = {"tool": key.compiler, "function": str(key.code), "for": (arch.sm, repr(options))}
    # Paths become absolute where they are kept.
    folder = str(Path.cwd()) if options.lineinfo else ""
    return cache.Key.of("lower", parts), cache.Key.of(
        "lower", {**parts, "lines": key.lines, "folder": folder}
    )


def _lower(function: Typed, arch: Arch, options: CompileOptions) -> Lowering:
    front_end, udf, result = function.front_end, function.udf, function.result
    if udf.is_kernel and result is None:
        result = front_end.types.void
    declared([function])
    try:
        lowered = front_end.lower(
            recursive.entry(udf), function.args, result, arch=arch, options=options, abi=udf.options
        )
    except Exception as error:
        reason = _undecoded(udf, error) or packages.explained(error) or error
        other = _other(function, arch, options, reason)
        raise ExportError(
            f"{front_end.name} could not compile {udf.name} ({udf.source}) for {arch.sm}{other}: {reason}"
        ) from error
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
            each.lower(recursive.entry(udf), other.args, result, arch=arch, options=options, abi=udf.options)
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


def _wrap(lowered: Any, each: Typed, *, inline: bool) -> abi.Signature:
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


def _entry(lowered: Lowering) -> cache.Entry | None:
    """Return *lowered* as an entry of the cache, None where it cannot be one."""
    if any(_BETWEEN in text for text in lowered.modules):
        return None
    links = [
        link
        if isinstance(link, str)
        else {**asdict(link), "content": base64.b64encode(link.content).decode(), "path": None}
        for link in lowered.links
    ]
    described = codec.encode((lowered.signature, lowered.raises, lowered.declarations))
    return cache.Entry({"lowered": json.dumps([*described, links])}, _BETWEEN.join(lowered.modules).encode())


def _read(entry: cache.Entry) -> Lowering | None:
    try:
        signature, raises, declarations, links = json.loads(str(entry.meta["lowered"]))
        return Lowering(
            codec.decode(signature),
            codec.decode(raises),
            tuple(entry.code.decode().split(_BETWEEN)),
            tuple(link if isinstance(link, str) else _in_memory(**link) for link in links),
            codec.decode(declarations),
        )
    except (KeyError, TypeError, ValueError) as error:
        log.info("cache: a lowered function is not used: %s: %s", type(error).__name__, error)
        return None


def symbol(entry: cache.Entry) -> str:
    """Return the C symbol of the function that *entry* has lowered, "" where it is no such entry."""
    known = _read(entry)
    return known.signature.name if known else ""


def _in_memory(content: str, **described: Any) -> LinkFile:
    return LinkFile(content=base64.b64decode(content), **described)
