"""Write an export: header, manifest and artifacts, all or none; delete files of the previous export."""

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
from numba_ptxlink._formats.kinds import HOST, PTX
from numba_ptxlink._link import manifests
from numba_ptxlink._tools import find, includes, toolchain
from numba_ptxlink.errors import ExportError

from . import link_files, progress
from .artifacts import compile_code, file_name, pack
from .host_versions import host_versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numba_ptxlink import abi
    from numba_ptxlink._arch import ArchLike
    from numba_ptxlink._artifacts.target_release import LeftOut
    from numba_ptxlink._formats.ptx import Prototype
    from numba_ptxlink._front_end.lowered import LoweredFunction
    from numba_ptxlink._tools.options import Options

    from .artifacts import Artifacts, Request
    from .compile import Code, Group
    from .host_versions import HostVersions

log = logging.getLogger(__name__)

# Most file systems allow 255 bytes for a name, and endings such as ".sm_100a.ltoir" have up to 19.
_MAX_STEM_BYTES = 200
# Such as "my_udfs-1.2", without a blank or dot at the end. "a.launch" is refused: its header would replace
# a.launch.h of the export "a".
_STEM = re.compile(r"(?!.*\.(?:launch|kernels)$)\w(?:[\w .+=@-]*[\w+=@-])?")


@dataclass(frozen=True)
class Export:
    """
    The files and signatures of an export. In memory, paths are the names that the files would have.

    Args:
        header: The C and C++ header.
        manifest: The JSON file that lists functions, artifacts and tool versions.
        artifacts: The path of each artifact by (kind, arch), with arch "" for files for all architectures.
        signatures: The C signature of each function.
        contents: The content of each file, by name.
        host_compiler: Name and release of the compiler of an object's host code; "" if there is no object.
        left_out: With reasons, the default kinds that could not be made, the kinds of code that fat binaries
            and objects lack, and the functions without a host version.
        sources: The files that the export was compiled from.
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
        Return the content of an artifact, to pass it to another linker or load it.

        Args:
            kind: The kind, such as "ltoir", "ptx" or "kernels".
            arch: The GPU that the artifact is for; None if there is only one artifact of *kind*.

        Raises:
            ExportError: No artifact matches, or several do.
        """
        sm = None if arch is None else Arch.of(arch).sm
        paths = [
            path
            for (artifact_kind, artifact_arch), path in self.artifacts.items()
            if artifact_kind == kind and sm in (None, artifact_arch)
        ]
        if len(paths) != 1:
            choices = ", ".join(" for ".join(filter(None, key)) for key in self.artifacts)
            raise ExportError(
                f"The export has {len(paths)} artifacts of {kind} for {sm or 'any GPU'}; name one of "
                f"{choices}."
            )
        return self.contents[paths[0].name]


def build_in_memory(groups: Sequence[Group], request: Request, files: Iterable[Path]) -> Export:
    """
    Return the export of *groups*, in memory.

    Args:
        groups: The functions for each architecture.
        request: The arguments of the export.
        files: The files that the functions depend on, for `Export.sources`; link files and headers are added.

    Raises:
        PtxlinkError: As `export` of the package.
    """
    stem, include_dirs = request.stem, request.include_dirs
    declarations = [function.declaration for function in groups[0].functions]
    codes, left_out = compile_code(groups, request)
    host = None
    if HOST in request.requested_kinds:
        # The PTX of any architecture will do.
        host = host_versions(stem, declarations, codes[0].artifacts[PTX].decode())
        declarations, left_out = host.declarations, [*left_out, *host.left_out]
    # The PTX prototype and the C signature of each undefined function.
    externs_by_name = {name: extern for code in codes for name, extern in code.externs.items()}
    externs = [externs_by_name[name] for name in sorted(externs_by_name)]
    extern_signatures = [signature for _, signature in externs if signature]
    header_text = header.render(stem, declarations, extern_signatures)
    progress.step("check the header with a C++ compiler")
    proof.prove(
        header_text,
        declarations,
        extern_signatures,
        request.archs,
        include_dirs,
        may_call_nvcc=request.writes_files,
    )
    progress.step("pack the artifacts")
    host_file = host.file if host else b""
    artifacts = pack(codes, left_out, request, header_text, declarations, host_file=host_file)
    manifest = _manifest(
        groups[0], codes, request, artifacts, header_text=header_text, externs=externs, host=host
    )
    file_names = {key: file_name(stem, key) for key in artifacts.files}
    structs = signatures.structs_of(groups[0].signatures).values()
    # The headers of structs that C++ defines are sources, too. To find them, and the headers that they
    # include, scan lines that include them, as a text that is in no folder of its own.
    include_lines = "".join(f"#include {name}\n" for name in existing.includes(structs))
    return Export(
        header=Path(f"{stem}.h"),
        manifest=Path(f"{stem}.json"),
        artifacts={key: Path(name) for key, name in file_names.items()},
        signatures=groups[0].signatures,
        contents={
            f"{stem}.h": header_text.encode(),
            **_package_headers(header_text),
            **{file_names[key]: content for key, content in artifacts.files.items()},
            f"{stem}.json": json.dumps(manifest, indent=2).encode() + b"\n",
        },
        host_compiler=artifacts.compilers.get("object", ""),
        left_out=artifacts.left_out,
        sources=tuple(
            sorted(
                {
                    *files,
                    *(path for function in groups for path in link_files.source_paths(function.links)),
                    *map(Path, includes.find_includes(include_lines.encode(), Path("/"), include_dirs).files),
                }
            )
        ),
    )


def _package_headers(header_text: str) -> dict[str, bytes]:
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
    header_text: str,
    externs: Iterable[tuple[Prototype, abi.Signature | None]],
    host: HostVersions | None,
) -> dict[str, Any]:
    """Return the content of the manifest."""
    libraries = ["nvvm", "nvrtc"]
    if any(code.merged for code in codes):
        libraries.append("nvjitlink")
    # The key of an artifact for all architectures has "" for the architecture. All of these artifacts but the
    # host file contain a fat binary; for the host file alone, nvfatbin is listed though it is not used.
    if any(not arch for _, arch in artifacts.files):
        libraries.append("nvfatbin")
    tools = map(find.package_name, ("nvidia-nvvm", "nvidia-nvfatbin"))
    packages = ("numba-ptxlink", *group.front_end.distributions, *tools)
    return {
        "format": manifests.FORMAT,
        "name": request.stem,
        "header": _file_entry(f"{request.stem}.h", header_text.encode()),
        "archs": [arch.sm for arch in request.archs],
        "functions": [_function_entry(function, artifacts, host) for function in group.functions],
        "types": signatures.describe(ctype for signature in group.signatures for ctype in signature.types),
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
                **_file_entry(file_name(request.stem, (kind, arch)), content),
                "oldest": artifacts.minimums[kind, arch].entry(),
            }
            for (kind, arch), content in artifacts.files.items()
        ],
        "options": _option_entries(request.options),
        "front_end": group.front_end.name,
        "tools": {
            "nvptxcompiler": dotted(assembler.compiler_version()),
            **find.installed_versions(packages),
            **{artifact: tool for artifact, tool in artifacts.compilers.items() if tool},
            **toolchain.releases(libraries),
        },
    }


def _option_entries(options: Options) -> dict[str, bool]:
    """Return the options by the names of `export`; arithmetic options only if they were passed."""
    arithmetic = options.arithmetic
    fastmath = arithmetic.pop("fast_math", False)
    return {"opt": options.opt_level > 0, "fastmath": fastmath, "lineinfo": options.lineinfo, **arithmetic}


def _function_entry(
    function: LoweredFunction, artifacts: Artifacts, host: HostVersions | None
) -> dict[str, Any]:
    """Return the manifest's entry of a function or kernel; *host* is None without host versions."""
    signature, declaration = function.signature, function.declaration
    host_entries: dict[str, Any] = {}
    if host and not signature.kernel:
        reason = host.reasons.get(signature.name)
        host_entries = {"host": not reason, **({"host_reason": reason} if reason else {})}
    return {
        "symbol": signature.name,
        "kind": "kernel" if signature.kernel else "function",
        "python": declaration.python_signature,
        "source": declaration.source,
        "declaration": f"{signature};",
        "prototype": str(signature.prototype),
        "result": signature.result.name,
        "parameters": signatures.parameters(signature.params, kernel=signature.kernel),
        **function.abi.decorator_options,
        "raises": list(function.raises),
        **({"cooperative": signature.name in artifacts.cooperative} if signature.kernel else {}),
        **host_entries,
    }


def _file_entry(name: str, content: bytes) -> dict[str, Any]:
    return {"file": name, "bytes": len(content), "sha256": manifests.digest(content)}


def write(export: Export, out_dir: str | Path | None, depfile: str | Path | None) -> Export:
    """
    Write the files of *export*, and delete obsolete files of its previous version.

    If an export is killed while it writes, or two exports of one name run at once, their files do not match
    the manifest, and `link` refuses them.

    Args:
        export: The export, in memory.
        out_dir: The folder of the files; None to write nothing.
        depfile: The path of the file that lists the sources, as Make and Ninja read it; None for none.

    Returns:
        The export with the paths of its files; *export* itself if nothing is written.

    Raises:
        ExportError: The files cannot be written, or one of them would replace a source of the export.
    """
    if out_dir is None:
        return export
    out = Path(out_dir)
    manifest = out / export.manifest
    *other_files, manifest_file = export.contents.items()
    files = dict(other_files)
    if depfile is not None:
        # Other keys are relative to *out*.
        files[str(Path(depfile).absolute())] = outputs.depfile(manifest, sorted(export.sources))
    # The manifest is written last: until then, the previous manifest does not match the new files.
    files.update([manifest_file])
    _check_sources_kept(out, files, export.sources)
    try:
        for name in files:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
        contents_by_path = {out / name: content for name, content in files.items()}
        undeleted_files = outputs.write(contents_by_path, _obsolete_files(out, files, manifest))
    except OSError as error:
        raise ExportError(
            f"{error.filename} could not be written: {error.strerror}; choose another folder, or fix this "
            "one."
        ) from error
    for path in undeleted_files:
        log.warning(
            "%s is left over from the previous export and cannot be deleted; delete it, or rename it.", path
        )
    return replace(
        export,
        header=out / export.header,
        manifest=manifest,
        artifacts={key: out / path for key, path in export.artifacts.items()},
        contents=files,
    )


def _obsolete_files(out: Path, files: Mapping[str, bytes], manifest: Path) -> list[Path]:
    """Return files of the previous export, which *manifest* lists, that are unchanged and not in *files*."""
    # A manifest lists only files beside it, so that `path.name` is the key in *files*. Headers of this
    # package are not listed, since other exports in the folder may need them.
    previous = manifests.read(manifest)
    previous_digests = {out / name: digest for name, digest in previous.digests.items()} if previous else {}
    return [
        path
        for path, digest in previous_digests.items()
        if path.name not in files and path.is_file() and manifests.digest(path.read_bytes()) == digest
    ]


def _check_sources_kept(out: Path, files: Mapping[str, bytes], sources: Iterable[Path]) -> None:
    """Refuse to write a file over a source of the export."""
    real_sources = {os.path.realpath(path) for path in sources}
    for name, content in files.items():
        path = out / name
        if os.path.realpath(path) in real_sources and not outputs.has_content(path, content):
            raise ExportError(
                f"{path} would replace a source of the export; choose another name or folder for the export, "
                "or for its depfile. No file was changed."
            )


def check_stem(stem: str) -> str:
    """Return *stem* if file names and comments in C can contain it; otherwise raise ExportError."""
    if not isinstance(stem, str) or not _STEM.fullmatch(stem) or len(stem.encode()) > _MAX_STEM_BYTES:
        raise ExportError(
            f"{stem!a} cannot begin file names; pass letters, digits and any of _ . + - = @, with spaces "
            f"between them, in at most {_MAX_STEM_BYTES} bytes, and neither .launch nor .kernels at the end."
        )
    return stem
