"""Write an export: header, manifest and artifacts, all or none; delete those of the former one."""

from __future__ import annotations

import json
import logging
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink import assembler
from numba_ptxlink._arch import Arch, dotted
from numba_ptxlink._artifacts import outputs
from numba_ptxlink._cabi import existing, header, proof, signatures
from numba_ptxlink._link import manifests
from numba_ptxlink._tools import find, includes, toolchain
from numba_ptxlink.errors import ExportError

from . import link_files
from .artifacts import compile_each, file_name, pack

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numba_ptxlink import abi
    from numba_ptxlink._arch import ArchLike
    from numba_ptxlink._artifacts.target_release import LeftOut
    from numba_ptxlink._formats.ptx import Prototype
    from numba_ptxlink._front_end.protocol import LoweredFunction
    from numba_ptxlink._tools.options import Options

    from .artifacts import Artifacts, Request
    from .compile import Code, Group

log = logging.getLogger(__name__)

# What may follow in a file name is 19 bytes, such as ".sm_100a.ltoir", and most file systems allow 255.
_LONGEST_STEM = 200
# Files of the export "a" are called a.launch.h and a.kernels.fatbin.
_STEM = re.compile(r"(?!.*\.(?:launch|kernels)$)\w(?:[\w .+=@-]*[\w+=@-])?")


@dataclass(frozen=True)
class Export:
    """
    The files and signatures of an export. In memory, paths are the names that the files would have.

    Args:
        header: The C and C++ header.
        manifest: The JSON file that lists functions, artifacts and tool versions.
        artifacts: Every artifact by (kind, arch), with arch "" for what holds several.
        signatures: The C signature of each function.
        contents: What each file holds, by name.
        host_compiler: Name and release of what compiled the host code of an object, "" without one.
        left_out: What could not be made, and why: kinds of code, also in what holds several, and "kernels".
        sources: The files that it is made of.
    """

    header: Path
    manifest: Path
    artifacts: dict[tuple[str, str], Path]
    signatures: tuple[abi.Signature, ...]
    contents: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    host_compiler: str = ""
    left_out: tuple[LeftOut, ...] = ()
    sources: tuple[Path, ...] = ()

    def read(self, kind: str, arch: ArchLike | None = None) -> bytes:
        """
        Return an artifact, for another linker or to load it.

        Args:
            kind: Such as "ltoir", "ptx" or "kernels".
            arch: The GPU it is for; may be left out where there is one of *kind*.

        Raises:
            ExportError: There is none, or several.
        """
        sm = None if arch is None else Arch.of(arch).sm
        paths = [path for (of, has), path in self.artifacts.items() if of == kind and sm in (None, has)]
        if len(paths) != 1:
            have = ", ".join(" for ".join(filter(None, key)) for key in self.artifacts)
            raise ExportError(
                f"The export has {len(paths)} artifacts of {kind} for {sm or 'any GPU'}; name one of {have}."
            )
        return self.contents[paths[0].name]


def in_memory(groups: Sequence[Group], request: Request, files: Iterable[Path]) -> Export:
    """
    Return the export of *groups*, in memory.

    Args:
        groups: The functions for each architecture.
        request: What is exported.
        files: The Python files that they are made of.

    Raises:
        PtxlinkError: As `export` of the package.
    """
    stem, searched = request.stem, request.include_dirs
    declarations = [each.declaration for each in groups[0].functions]
    codes, left_out = compile_each(groups, request)
    found = {name: extern for code in codes for name, extern in code.externs.items()}
    externs = [found[name] for name in sorted(found)]
    declared = [signature for _, signature in externs if signature]
    text = header.render(stem, declarations, declared)
    proof.prove(text, declarations, declared, request.archs, searched)
    artifacts = pack(codes, left_out, request, text, declarations)
    manifest = _manifest(groups[0], codes, request, artifacts, text=text.encode(), externs=externs)
    names = {key: file_name(stem, key) for key in artifacts.files}
    structs = signatures.structs_of(groups[0].signatures).values()
    included = "".join(f"#include {name}\n" for name in existing.includes(structs))
    return Export(
        header=Path(f"{stem}.h"),
        manifest=Path(f"{stem}.json"),
        artifacts={key: Path(name) for key, name in names.items()},
        signatures=groups[0].signatures,
        contents={
            f"{stem}.h": text.encode(),
            **_included(text),
            **{names[key]: content for key, content in artifacts.files.items()},
            f"{stem}.json": json.dumps(manifest, indent=2).encode() + b"\n",
        },
        host_compiler=artifacts.compilers.get("object", ""),
        left_out=artifacts.left_out,
        sources=tuple(
            sorted(
                {
                    *files,
                    *(path for each in groups for path in link_files.paths(each.links)),
                    *map(Path, includes.of(included.encode(), Path("/"), searched).files),
                }
            )
        ),
    )


def _included(header_text: str) -> dict[str, bytes]:
    """Return this package's own headers that *header_text* includes, by their paths in an include folder."""
    name = "numba_ptxlink/array_view.h"
    path = Path(__file__).parents[1] / "include" / name
    return {name: path.read_bytes()} if f'#include "{name}"' in header_text else {}


def _manifest(
    group: Group,
    codes: Sequence[Code],
    request: Request,
    artifacts: Artifacts,
    *,
    text: bytes,
    externs: Iterable[tuple[Prototype, abi.Signature | None]],
) -> dict[str, Any]:
    """Return the manifest, as JSON has it; *text* is the header."""
    packed = any(not arch for _, arch in artifacts.files)
    merged = any(code.merged for code in codes)
    used = ["nvvm", "nvrtc", *["nvjitlink"] * merged, *["nvfatbin"] * packed]
    tools = map(find.package, ("nvidia-nvvm", "nvidia-nvfatbin"))
    packages = ("numba-ptxlink", *group.front_end.distributions, *tools)
    return {
        "format": manifests.FORMAT,
        "name": request.stem,
        "header": _file(f"{request.stem}.h", text),
        "archs": [arch.sm for arch in request.archs],
        "functions": [_function(each, artifacts) for each in group.functions],
        "types": signatures.describe(ctype for each in group.signatures for ctype in each.types),
        "externs": [
            {
                "name": prototype.name,
                "prototype": str(prototype),
                "declaration": f"{signature};" if signature else None,
            }
            for prototype, signature in externs
        ],
        "artifacts": [
            {
                "kind": kind,
                "arch": arch or None,
                **_file(file_name(request.stem, (kind, arch)), content),
                "oldest": artifacts.needs[kind, arch].described(),
            }
            for (kind, arch), content in artifacts.files.items()
        ],
        "options": _described(request.options),
        "front_end": group.front_end.name,
        "tools": {
            "nvptxcompiler": dotted(assembler.compiler_version()),
            **find.installed(packages),
            **{what: tool for what, tool in artifacts.compilers.items() if tool},
            **toolchain.releases(used),
        },
    }


def _described(options: Options) -> dict[str, bool]:
    """Return the options of an export by its parameters: those of arithmetic where they were given."""
    arithmetic = options.arithmetic
    fastmath = arithmetic.pop("fast_math", False)
    return {"opt": options.opt_level > 0, "fastmath": fastmath, "lineinfo": options.lineinfo, **arithmetic}


def _function(function: LoweredFunction, artifacts: Artifacts) -> dict[str, Any]:
    signature, declaration = function.signature, function.declaration
    return {
        "symbol": signature.name,
        "kind": "kernel" if signature.kernel else "function",
        "python": declaration.python,
        "source": declaration.source,
        "declaration": f"{signature};",
        "prototype": str(signature.prototype),
        "result": signature.result.name,
        "parameters": signatures.parameters(signature.params, kernel=signature.kernel),
        **function.abi.marked,
        "raises": list(function.raises),
        **({"cooperative": signature.name in artifacts.cooperative} if signature.kernel else {}),
    }


def _file(name: str, content: bytes) -> dict[str, Any]:
    return {"file": name, "bytes": len(content), "sha256": manifests.digest(content)}


def write(made: Export, out_dir: str | Path | None, depfile: str | Path | None) -> Export:
    """
    Write *made*, and delete what only the former export of its name wrote; return it with its paths.

    One that was killed while it wrote, and two of one name at once, leave files that the manifest disagrees
    with, which are not linked. An export in memory, with *out_dir* None, writes nothing.

    Raises:
        ExportError: The files cannot be written, or one would replace another one, or what the export is made
            of.
    """
    if out_dir is None:
        return made
    out = Path(out_dir)
    manifest = out / made.manifest
    *contents, last = made.contents.items()
    files = dict(contents)
    if depfile is not None:
        files[str(Path(depfile).absolute())] = outputs.depfile(manifest, sorted(made.sources))
    # The manifest is the last one: until it is there, the former one disagrees with what was replaced.
    files |= [last]
    _check_places(out, files, made.sources)
    try:
        for name in files:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
        there = {out / name: content for name, content in files.items()}
        stay = outputs.write(there, _former(out, files, manifest))
    except OSError as error:
        raise ExportError(
            f"{error.filename} could not be written: {error.strerror}; choose another folder, or mend it."
        ) from error
    for path in stay:
        log.warning(
            "%s is left over from the former export and cannot be deleted; delete it, or rename it.", path
        )
    return replace(
        made,
        header=out / made.header,
        manifest=manifest,
        artifacts={key: out / path for key, path in made.artifacts.items()},
        contents=files,
    )


def _former(out: Path, files: Mapping[str, bytes], manifest: Path) -> list[Path]:
    """Return what the former export of *manifest* wrote, unless it was changed since or is in *files*."""
    former = manifests.read(manifest)
    found = {out / name: digest for name, digest in former.digests.items()} if former else {}
    return [
        path
        for path, digest in found.items()
        if path.name not in files and path.is_file() and manifests.digest(path.read_bytes()) == digest
    ]


def _check_places(out: Path, files: Mapping[str, bytes], made_of: Iterable[Path]) -> None:
    """Refuse to write a file over a source."""
    sources = {os.path.realpath(path) for path in made_of}
    for name, content in files.items():
        path = out / name
        if os.path.realpath(path) in sources and not outputs.has(path, content):
            raise ExportError(
                f"{path} would replace what the export is made of; no file was changed. Choose another name "
                "or folder for the export, or for its depfile."
            )


def check_stem(stem: str) -> str:
    """Return *stem*, which becomes a part of file names and of a comment in C."""
    if not _STEM.fullmatch(stem) or len(stem.encode()) > _LONGEST_STEM:
        raise ExportError(
            f"{stem!a} cannot begin file names; pass letters, digits and any of _ . + - = @, with spaces "
            f"between them, in at most {_LONGEST_STEM} bytes, and neither .launch nor .kernels at the end."
        )
    return stem
