"""Make the files of an export out of its functions: lower, wrap, compile, and describe the result."""

from __future__ import annotations

import inspect
import json
import logging
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink import abi, assembler
from numba_ptxlink._cabi import existing, header, layouts, proof
from numba_ptxlink._formats.kinds import LTOIR
from numba_ptxlink._link import manifests
from numba_ptxlink._tools import find, includes, toolchain

from . import build, choice, files
from .artifacts import compile_each, file_name, join
from .signatures import describe, typed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._formats.ptx import Prototype
    from numba_ptxlink._front_end.protocol import FrontEnd

    from .artifacts import Artifacts, Key, Request
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
    compiler = choice.common(loaded.marked, request.front_end)
    functions = typed(loaded.marked, compiler)
    searched = tuple(dict.fromkeys((*request.include_dirs, *loaded.folders)))
    stem = request.stem or files.check_stem(loaded.stem)
    request = replace(request, stem=stem, include_dirs=searched)
    compiled = build.compile_archs(functions, request.archs, request.options, done, progress)
    first = compiled[0]
    pairs = zip(functions, first.lowered, strict=True)
    declarations = [_declare(typed, lowered.signature, lowered.raises) for typed, lowered in pairs]
    structs = header.named_structs(first.signatures)
    check_passing(first.signatures, request.asked)
    artifacts = compile_each(compiled, request)
    declared = [sig for _, (_, sig) in sorted(artifacts.externs.items()) if sig]
    text = header.render(request.stem, declarations, declared)
    proof.prove(text, declarations, declared, request.archs, request.include_dirs)
    join(artifacts, request, text, declarations)
    raises = [each.raises for each in first.lowered]
    described = list(zip(declarations, functions, raises, strict=True))
    manifest = _manifest(request, compiler, described, artifacts, text.encode())
    names = {key: file_name(request.stem, key) for key in artifacts.files}
    for each in artifacts.undeclared:
        log.warning(
            "%s.h does not declare %s, whose types cuda.declare_device passes in another way than C++: "
            'define it with the prototype %s; or declare it with numbers and pointers alone and abi="c".',
            request.stem,
            each,
            artifacts.externs[each][0],
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


def _manifest(
    request: Request,
    front_end: FrontEnd,
    declarations: Sequence[tuple[header.Declaration, Typed, tuple[str, ...]]],
    artifacts: Artifacts,
    text: bytes,
) -> dict[str, Any]:
    """
    Return the manifest, as JSON has it.

    Args:
        request: What the export writes.
        front_end: What compiled the functions.
        declarations: The functions, and the lines where each of them raises.
        artifacts: The artifacts.
        text: The header.
    """
    signatures = [declaration.signature for declaration, _, _ in declarations]
    packed = any(not arch for _, arch in artifacts.files)
    used = ["nvvm", "nvrtc", *["nvjitlink"] * artifacts.merged, *["nvfatbin"] * packed]
    return {
        "format": manifests.FORMAT,
        "name": request.stem,
        "header": _file(f"{request.stem}.h", text),
        "archs": [arch.sm for arch in request.archs],
        "functions": [_function(*parts, artifacts.cooperative) for parts in declarations],
        "types": layouts.describe(ctype for each in signatures for ctype in each.types),
        "externs": [_extern(*artifacts.externs[name]) for name in sorted(artifacts.externs)],
        "artifacts": [
            {
                "kind": kind,
                "arch": arch or None,
                **_file(file_name(request.stem, (kind, arch)), content),
                "oldest": artifacts.needs[kind, arch].described(),
            }
            for (kind, arch), content in artifacts.files.items()
        ],
        "options": asdict(request.options),
        "front_end": front_end.name,
        "tools": {
            **_packages(front_end.distributions),
            **_compilers(artifacts),
            **toolchain.releases(used),
        },
    }


def _function(
    declaration: header.Declaration, function: Typed, raises: tuple[str, ...], cooperative: Collection[str]
) -> dict[str, Any]:
    signature, options = declaration.signature, function.udf.options
    return {
        "symbol": signature.name,
        "kind": "kernel" if function.udf.is_kernel else "function",
        "python": declaration.python,
        "source": declaration.source,
        "declaration": f"{signature};",
        "prototype": str(signature.prototype),
        "result": signature.result.name,
        "parameters": layouts.parameters(signature.params, kernel=signature.kernel),
        "on_error": options.on_error,
        "checked": options.checked,
        "raises": list(raises),
        **({"cooperative": signature.name in cooperative} if signature.kernel else {}),
    }


def _extern(prototype: Prototype, signature: abi.Signature | None) -> dict[str, Any]:
    return {
        "name": prototype.name,
        "prototype": str(prototype),
        "declaration": f"{signature};" if signature else None,
    }


def _file(name: str, content: bytes) -> dict[str, Any]:
    return {"file": name, "bytes": len(content), "sha256": manifests.digest(content)}


def _compilers(artifacts: Artifacts) -> Mapping[str, str]:
    cubin_by = artifacts.cubin_by
    made_by = {
        "cubin": "" if cubin_by.startswith("nvPTXCompiler") else cubin_by,
        "object": artifacts.host_compiler,
        "kernels": ", ".join(artifacts.kernels_by),
    }
    return {what: tool for what, tool in made_by.items() if tool}


def _packages(distributions: Sequence[str]) -> dict[str, str]:
    versions = {"nvptxcompiler": "{}.{}".format(*assembler.compiler_version())}
    tools = (find.package("nvidia-nvvm"), find.package("nvidia-nvfatbin"))
    for package in ("numba-ptxlink", *distributions, *tools):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
