"""Make the files of an export out of its functions: lower, wrap, compile, and describe the result."""

from __future__ import annotations

import inspect
import json
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from numba_ptxlink import abi
from numba_ptxlink._cabi import existing, header, proof
from numba_ptxlink._formats.kinds import LTOIR
from numba_ptxlink._tools import includes

from . import build, choice, files, load
from .artifacts import compile_each, file_name, join
from .manifest import describe as describe_export
from .signatures import describe, typed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numba_ptxlink._arch import Arch

    from .artifacts import Key, Request
    from .groups import Done
    from .load import Loaded
    from .marks import Udf
    from .signatures import Typed

log = logging.getLogger(__name__)

__all__ = ["Made", "check_passing", "make"]


@dataclass(frozen=True)
class Made:
    """
    The files of an export, in memory.

    Args:
        stem: What their names begin with.
        contents: What each file holds, by name, the manifest last.
        artifacts: The name of each artifact.
        signatures: The C signature of each function.
        host_compiler: Name and release of what compiled the host code of an object, "" without one.
        left_out: What could not be made, and why.
        files: The files that they are made of.
    """

    stem: str
    contents: Mapping[str, bytes] = field(repr=False)
    artifacts: Mapping[Key, str]
    signatures: tuple[abi.Signature, ...]
    host_compiler: str
    left_out: Mapping[str, str]
    files: frozenset[Path]


def make(
    loaded: Loaded,
    request: Request,
    done: Mapping[tuple[Arch, tuple[str, ...]], Done],
    progress: Callable[[int, int, str], object],
) -> Made:
    """
    Return the files of an export of the functions *loaded*.

    Args:
        loaded: The functions.
        request: What is exported.
        done: What groups of them have become, by architecture and C names.
        progress: Called after each group.

    Raises:
        PtxlinkError: As `export` of the package.
    """
    marked = loaded.marked
    searched = tuple(dict.fromkeys((*request.include_dirs, *load.folders(marked))))
    stem = request.stem or files.check_stem(loaded.stem)
    request = replace(request, stem=stem, include_dirs=searched)
    compiler = choice.common(marked, request.front_end)
    functions = typed(marked, compiler)
    passed = build.declared(functions)
    header.named_structs(passed)
    check_passing(passed, request.asked)
    compiled = build.compile_archs(functions, request.archs, request.options, done, progress)
    first = compiled[0]
    pairs = zip(functions, first.lowered, strict=True)
    declarations = [_declare(typed, lowered.signature, lowered.raises) for typed, lowered in pairs]
    structs = header.named_structs(first.signatures)
    check_passing(first.signatures, request.asked)
    code = compile_each(compiled, request)
    declared = [sig for _, (_, sig) in sorted(code.externs.items()) if sig]
    text = header.render(request.stem, declarations, declared)
    proof.prove(text, declarations, declared, request.archs, request.include_dirs)
    artifacts = join(code, request, text, declarations)
    raises = [each.raises for each in first.lowered]
    described = list(zip(declarations, functions, raises, strict=True))
    manifest = describe_export(request, compiler, described, artifacts)
    names = {key: file_name(request.stem, key) for key in artifacts.files}
    for each in code.undeclared:
        log.warning(
            "%s.h does not declare %s, whose types cuda.declare_device passes in another way than C++: "
            'define it with the prototype %s; or declare it with numbers and pointers alone and abi="c".',
            request.stem,
            each,
            code.externs[each][0],
        )
    return Made(
        stem=request.stem,
        contents={
            f"{request.stem}.h": text.encode(),
            **_included(text),
            **{names[key]: content for key, content in artifacts.files.items()},
            f"{request.stem}.json": json.dumps(manifest, indent=2).encode() + b"\n",
        },
        artifacts=names,
        signatures=first.signatures,
        host_compiler=artifacts.host_compiler,
        left_out=artifacts.left_out,
        files=loaded.files.union(
            *(each.files for each in compiled), _headers(existing.includes(structs), request.include_dirs)
        ),
    )


def _headers(names: Iterable[str], searched: Sequence[Path]) -> list[Path]:
    """Return the files in the folders *searched* that includes of *names* lead to."""
    text = "".join(f"#include {name}\n" for name in names)
    return sorted(map(Path, includes.of(text.encode(), Path("/"), searched).files))


def _declare(each: Typed, signature: abi.Signature, raises: tuple[str, ...]) -> header.Declaration:
    return header.Declaration(
        signature=signature,
        python=describe(each),
        doc=inspect.getdoc(each.udf.function) or "",
        source=_decoded(each.udf.source),
        errors=_errors(each.udf, tuple(map(_decoded, raises))),
        namespace=each.udf.cxx.namespace,
        name=each.udf.function.__name__,
    )


def _errors(function: Udf, raises: tuple[str, ...]) -> str:
    if not raises:
        return ""
    options = function.options
    does = "stops the kernel" if options.on_error == "trap" else "returns zero"
    if function.is_kernel and options.on_error == "zero":
        does = "returns"
    checks = "are checked" if options.checked else "are not checked"
    return f"Where it raises, it {does}. Division by zero and indices {checks}."


def _included(header_text: str) -> dict[str, bytes]:
    """Return this package's own headers that *header_text* includes, by their paths in an include folder."""
    name = "numba_ptxlink/array_view.h"
    path = Path(__file__).parents[1] / "include" / name
    return {name: path.read_bytes()} if f'#include "{name}"' in header_text else {}


def check_passing(signatures: Sequence[abi.Signature], kinds: Sequence[str]) -> None:
    """Refuse what cannot be passed where one of *kinds* is, or holds, PTX or machine code made of it."""
    if any(kind != LTOIR for kind in kinds):
        for signature in signatures:
            abi.check_ptx(signature)


def _decoded(place: str) -> str:
    """Return *place*, a file and a line, without bytes that the locale does not decode: headers are UTF-8."""
    return place.encode(errors="surrogateescape").decode(errors="replace")
