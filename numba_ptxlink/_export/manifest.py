"""The manifest of an export: what its functions are, and its files, options and tools."""

from __future__ import annotations

from dataclasses import asdict
from importlib import metadata
from typing import TYPE_CHECKING, Any

from numba_ptxlink import assembler
from numba_ptxlink._cabi import layouts
from numba_ptxlink._link import manifests
from numba_ptxlink._tools import find, toolchain

from .artifacts import file_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numba_ptxlink._cabi.header import Declaration
    from numba_ptxlink._cabi.signatures import Signature
    from numba_ptxlink._formats.ptx import Prototype
    from numba_ptxlink._front_end.protocol import FrontEnd

    from .artifacts import Artifacts, Request
    from .signatures import Typed


def describe(
    request: Request,
    front_end: FrontEnd,
    declarations: Sequence[tuple[Declaration, Typed, tuple[str, ...]]],
    artifacts: Artifacts,
) -> dict[str, Any]:
    """
    Return the manifest, as JSON has it.

    Args:
        request: What the export writes.
        front_end: What compiled the functions.
        declarations: The functions, and the lines where each of them raises.
        artifacts: The artifacts.
    """
    signatures = [declaration.signature for declaration, _, _ in declarations]
    code = artifacts.code
    packed = any(not arch for _, arch in artifacts.files)
    used = ["nvvm", "nvrtc", *["nvjitlink"] * code.merged, *["nvfatbin"] * packed]
    return {
        "format": manifests.FORMAT,
        "name": request.stem,
        "header": _file(f"{request.stem}.h", artifacts.header.encode()),
        "archs": [arch.sm for arch in request.archs],
        "functions": [_function(*parts, artifacts.cooperative) for parts in declarations],
        "types": layouts.describe(signatures),
        "externs": [_extern(*code.externs[name]) for name in sorted(code.externs)],
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
    declaration: Declaration, function: Typed, raises: tuple[str, ...], cooperative: Collection[str]
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
        "parameters": layouts.parameters(signature),
        "on_error": options.on_error,
        "checked": options.checked,
        "raises": list(raises),
        **({"cooperative": signature.name in cooperative} if signature.kernel else {}),
    }


def _extern(prototype: Prototype, signature: Signature | None) -> dict[str, Any]:
    return {
        "name": prototype.name,
        "prototype": str(prototype),
        "declaration": f"{signature};" if signature else None,
    }


def _file(name: str, content: bytes) -> dict[str, Any]:
    return {"file": name, "bytes": len(content), "sha256": manifests.digest(content)}


def _compilers(artifacts: Artifacts) -> Mapping[str, str]:
    cubin_by = artifacts.code.cubin_by
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
