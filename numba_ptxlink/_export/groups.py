"""
Lower marked functions, each to LLVM IR that depends on no other, and compile groups of them to PTX.

Each export lowers its functions. What compiles the LLVM IR finds PTX in the cache by its text, so that an
edit costs no more than a group.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numba_ptxlink import abi
from numba_ptxlink._formats.ptx import parse
from numba_ptxlink._link.declarations import contradicted, declaration
from numba_ptxlink._link.fusion.combine import NotCombinedError, combine
from numba_ptxlink._tools import find, nvrtc, nvvm
from numba_ptxlink.errors import AbiError, ExportError, LinkError

from . import link_files
from .signatures import each_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._front_end.protocol import CompileOptions, FrontEnd, LinkFile

    from .signatures import Typed

log = logging.getLogger(__name__)

# NVVM and the assembler take as long for a program of one function as for the next six.
_USUAL, _MOST = 8, 16
_SHARED = re.compile(r"^@.* addrspace\(3\) global ", re.MULTILINE)


@dataclass(frozen=True)
class Lowering:
    """
    A function of an export for one arch, with its C function, in LLVM IR.

    Args:
        signature: Its C signature.
        source: Where the Python function is, as "file.py:line".
        raises: The source lines where it or its callees raise, as "file.py:line".
        modules: The NVVM IR of the function and of all that it calls, callers first. A module has the same
            text wherever it occurs.
        links: The files that it links: paths as they are given, which each export reads in its own working
            directory, and code in memory.
        declarations: The functions that `cuda.declare_device` declares and it may call: symbol, and C
            signature where C has the types.
    """

    signature: abi.Signature
    source: str
    raises: tuple[str, ...]
    modules: tuple[str, ...]
    links: tuple[str | LinkFile, ...] = ()
    declarations: tuple[tuple[str, abi.Signature | None], ...] = ()

    @property
    def title(self) -> str:
        """How messages name it: "name (file.py:line)"."""
        return f"{self.signature.name} ({self.source})"


def lower_each(functions: Sequence[Typed], arch: Arch, options: CompileOptions) -> tuple[Lowering, ...]:
    """
    Lower *functions*, and add their C functions.

    Raises:
        PtxlinkError: As `lower`, of all functions that fail.
    """
    return tuple(each_of(lambda function: lower(function, arch, options), functions))


def lower(function: Typed, arch: Arch, options: CompileOptions) -> Lowering:
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
        lowered = front_end.lower(
            udf.function, function.args, result, arch=arch, options=options, abi=udf.options
        )
    except Exception as error:
        reason = find.explained(error) or error
        told = f"{front_end.name} could not compile {udf.name} for {arch.sm}: {reason}"
        raise ExportError(f"{udf.place}: error: {told}") from error
    signature = _c_signature(function, lowered.result, lowered.args)
    front_end.wrap(lowered, signature, udf.options, inline=options.opt, launch_bounds=udf.launch_bounds)
    try:
        return portable(front_end, lowered, signature, arch, udf.source)
    except ExportError as error:
        raise ExportError(f"Function {udf.name} ({udf.source}): {error}", inputs=error.inputs) from error
    except UnicodeEncodeError as error:
        raise ExportError(
            f"{udf.name} ({udf.source}) has no LLVM IR: {error}; rename its file in ASCII."
        ) from error


def portable(
    front_end: FrontEnd, lowered: Any, signature: abi.Signature, arch: Arch, source: str
) -> Lowering:
    """
    Return *lowered* as a value of its own.

    Args:
        front_end: What compiled it.
        lowered: What the front end made, with the C function.
        signature: The signature of the C function.
        arch: The GPU.
        source: Where the Python function is, as "file.py:line".
    """
    modules = tuple(front_end.modules([lowered], [signature.name], arch))
    declarations = dict.fromkeys(
        (name, _candidate(name, args, result))
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
    links = tuple(map(link_files.given, front_end.link_files([lowered])))
    return Lowering(signature, source, lowered.raises, modules, links, tuple(called))


def _c_signature(each: Typed, result: Any, args: Sequence[Any]) -> abi.Signature:
    try:
        return abi.c_signature(
            each.symbol,
            result,
            zip(each.labels, args, strict=True),
            kernel=each.udf.is_kernel,
            names={**each.records, **each.structs},
            const=each.const,
            restrict=each.restrict,
        )
    except AbiError as error:
        raise AbiError(f"{error} ({each.udf.source})") from error


def _candidate(name: str, args: Sequence[Any], result: Any) -> abi.Signature | None:
    """
    Return the C signature of a `cuda.declare_device` function as C++ declares it.

    None if its C types are unknown.

    Args:
        name: The symbol.
        args: The Numba types of its parameters.
        result: The Numba type of its result.
    """
    params = [(f"arg{number}", ty) for number, ty in enumerate(args)]
    try:
        return abi.c_signature(name, result, params)
    except AbiError:
        return None


@dataclass(frozen=True)
class Done:
    """
    What a group of functions became.

    Args:
        lowered: What each function was lowered to.
        ptx: The PTX of all.
    """

    lowered: tuple[Lowering, ...]
    ptx: bytes


def split(names: Sequence[str], options: CompileOptions) -> list[range]:
    """
    Return the groups of the functions *names*, by their positions.

    A name says whether a group ends with it, so that a function that is added or removed changes one group.
    """
    if len(names) <= _MOST or options.lineinfo:
        # Line numbers refer to a table of files that a program has one of.
        return [range(len(names))]
    groups, start = [], 0
    for place, name in enumerate(names, start=1):
        if zlib.crc32(name.encode()) % _USUAL == 0 or place - start == _MOST or place == len(names):
            groups.append(range(start, place))
            start = place
    return groups


def title(arch: Arch, names: Sequence[str]) -> str:
    """Return what a group is, in a few words."""
    return f"{arch.sm}: {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}"


def program(lowered: Iterable[Lowering]) -> list[str]:
    """Return the LLVM IR of functions and of all that they call, each once, callers before callees."""
    modules = [module for each in lowered for module in each.modules]
    return list(dict.fromkeys(reversed(modules)))[::-1]


def compile_group(functions: Sequence[Typed], arch: Arch, options: CompileOptions) -> Done:
    """
    Lower *functions*, which are of one front end, and compile them to PTX.

    Raises:
        PtxlinkError: A compiler refused one.
    """
    lowered = lower_each(functions, arch, options)
    return Done(lowered, compile_ptx(functions[0].front_end, lowered, arch, options))


def compile_ptx(
    front_end: FrontEnd, lowered: Sequence[Lowering], arch: Arch, options: CompileOptions
) -> bytes:
    """Return the PTX of *lowered* in one module; raises ExportError as `compile_program`."""
    ptx = compile_program(front_end, lowered, program(lowered), arch, options, lto=False)
    return ptx.rstrip(b"\0").strip() + b"\n"


def join_ptx(groups: Sequence[Done]) -> bytes | None:
    """Return the PTX of all groups as one; None where it is to be made of all functions at once."""
    if len(groups) == 1:
        return groups[0].ptx
    texts = Counter(text for group in groups for text in program(group.lowered))
    if any(count > 1 and _SHARED.search(text) for text, count in texts.items()):
        # Functions that call it share its memory.
        log.debug("a function with shared memory is called in several groups")
        return None
    try:
        return combine([parse(group.ptx.decode()) for group in groups]).text.encode()
    except NotCombinedError as error:
        log.debug("the PTX of groups is not combined: %s", error)
        return None


def compile_program(
    front_end: FrontEnd,
    lowered: Sequence[Lowering],
    modules: Sequence[str],
    arch: Arch,
    options: CompileOptions,
    *,
    lto: bool,
) -> bytes:
    """
    Compile the LLVM IR *modules*, which define the functions *lowered*, to PTX or LTO-IR.

    Raises:
        ExportError: NVVM refused it, or is missing.
    """
    try:
        code = front_end.compile_ir(modules, arch, options, lto=lto)
    except Exception as error:
        listed = ", ".join(each.signature.name for each in lowered)
        try:
            nvrtc.version()  # a front end may load it to find libdevice
            known = nvvm.emitted_isa(arch)
        except LinkError as missing:
            raise ExportError(f"{listed} cannot be compiled for {arch.sm}: {missing}") from error
        cure = "it does not know the architecture; `--arch all` stands for those that it compiles for."
        if known and len(lowered) > 1:
            cure = "export the functions one by one to see which one it refuses."
        elif known:
            cure = (
                f"{front_end.name} makes code that NVVM does not take; write what it is made of with "
                "Python's own functions, or those of `math`."
            )
        raise ExportError(f"NVVM could not compile {listed} for {arch.sm}: {error}; {cure}") from error
    return code if lto else code.rstrip(b"\0")
