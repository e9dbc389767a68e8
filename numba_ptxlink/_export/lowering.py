"""
Lower marked functions one by one: each becomes LLVM IR that does not depend on the others.

Each export lowers its functions. What compiles the LLVM IR finds machine code in the cache by its text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from numba_ptxlink import abi
from numba_ptxlink._link.declarations import contradicted, declaration
from numba_ptxlink._tools import find
from numba_ptxlink.errors import AbiError, ExportError, PtxlinkError

from . import linkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._front_end.protocol import CompileOptions, FrontEnd, LinkFile

    from .signatures import Typed

T = TypeVar("T")
R = TypeVar("R")


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


def each_of(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return what *function* returns for each of *items*; raise the errors of all that fail as one."""
    results, errors = [], []
    for item in items:
        try:
            results.append(function(item))
        except PtxlinkError as error:
            errors.append(error)
    raise_all(errors)
    return results


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
    links = tuple(map(linkable.given, front_end.link_files([lowered])))
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
