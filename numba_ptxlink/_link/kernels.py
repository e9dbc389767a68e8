"""
Link kernels when a front end asks for it, count the links, and compile the CUDA C++ that kernels link.

The import of this module imports neither a tool nor a front end, since a front end may import this module
while the front end itself is being imported.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink._config import config
from numba_ptxlink._formats.kinds import ARCHIVE, CUBIN, EXTENSIONS, FATBIN, LTOIR, OBJECT, PTX
from numba_ptxlink._locks import Lock
from numba_ptxlink.errors import AssembleError, LinkError, PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numba_ptxlink import cache
    from numba_ptxlink._arch import Arch
    from numba_ptxlink._tools.options import Options
    from numba_ptxlink._tools.source_options import SourceOptions

    from .declarations import DeclaredFunction
    from .read import Input
    from .run import Linked

CORE_KINDS = {
    "ptx": PTX,
    "cubin": CUBIN,
    "ltoir": LTOIR,
    "fatbin": FATBIN,
    "object": OBJECT,
    "library": ARCHIVE,
}
"""The kinds of code, by their names in cuda.core."""


class Links(NamedTuple):
    """
    The links completed in this process.

    Args:
        assembled: The number of links by nvPTXCompiler.
        linked: The number of links by other tools.
        last_link: The tool and the reason of the last link, such as "nvptxcompiler: one PTX and nothing to
            link it with"; "" before the first link.
    """

    assembled: int = 0
    linked: int = 0
    last_link: str = ""


_links = Links()
_lock = Lock()


def completed_links() -> Links:
    """Return the links of kernels completed in this process."""
    return _links


def link(inputs: Sequence[Input], arch: Arch, options: Options) -> Linked:
    """Link the code of a kernel to a cubin, and count the link. Raises the errors of `run.link`."""
    from . import run
    from .backends import Target

    linked = run.link(inputs, Target(arch), options)
    _count(linked.backend, linked.reason)
    return linked


def _count(backend: str, reason: str) -> None:
    global _links  # noqa: PLW0603 - the links of this process
    last_link = f"{backend}: {reason}"
    with _lock.held:
        if backend == "nvptxcompiler":
            _links = Links(_links.assembled + 1, _links.linked, last_link)
        else:
            _links = Links(_links.assembled, _links.linked + 1, last_link)


class LinkedPtx(NamedTuple):
    """
    The code of a kernel for the CPU device.

    Args:
        ptx: One PTX module.
        log: The messages of the tools.
    """

    ptx: bytes
    log: str = ""


def link_for_device(inputs: Sequence[Input], arch: Arch, options: Options) -> Linked | LinkedPtx:
    """Link the code of a kernel to a cubin, or on the CPU device to PTX. Raises the errors of `run.link`."""
    from numba_ptxlink._cpu import device

    if not device.is_active():
        return link(inputs, arch, options)
    from .one_ptx import one_ptx

    linked = LinkedPtx(one_ptx(inputs, arch, options))
    _count("CPU device", "one PTX module")
    return linked


@contextlib.contextmanager
def errors_as(convert: Callable[[PtxlinkError], PtxlinkError]) -> Iterator[None]:
    """Raise each link error of a `with` block as the error that *convert* makes of it."""
    try:
        yield
    except (LinkError, AssembleError) as error:
        raise convert(error) from error


def exported_functions(path: Path, code: bytes) -> list[DeclaredFunction]:
    """
    Return the functions of the export that wrote the file *path*; none if no manifest beside it lists it.

    Raises:
        LinkError: *code*, the content of the file, is not the artifact that the manifest lists.
    """
    if config().checks == "none":
        return []
    from . import manifests
    from .declarations import declarations_of
    from .read import Input

    manifest = manifests.find(Input(EXTENSIONS.get(path.suffix, ""), path.name, code, path=path))
    return [] if manifest is None else declarations_of(manifest)


def compile_source(source: bytes, name: str, arch: Arch, output: str, options: SourceOptions) -> cache.Entry:
    """Compile CUDA C++, and warn of NVRTC's log as the front ends do. Raises the errors of `nvrtc`."""
    from numba_ptxlink._tools import nvrtc

    compiled = nvrtc.compile_source(source, name, arch, options, output=output)
    if compiled.log:
        warnings.warn(f"NVRTC log messages: {compiled.log}", stacklevel=3)
    return compiled


def source_options(
    compiler_package: str, header_package: str, flags: Sequence[str] = (), folder: Path | None = None
) -> SourceOptions:
    """
    Return the options for CUDA C++ that kernels link: *flags*, and the include path of the front end.

    For `#include "..."`, the front ends search the working directory, then the toolkit, and not the folder of
    the source. That folder comes last here, so that the headers that a front end finds are found first.

    Args:
        compiler_package: The front end's package with the modules `cudadrv`, `core` and `cuda_paths`.
        header_package: The front end's package whose folder contains its headers.
        flags: Further NVRTC options.
        folder: The folder of the source; None for code in memory.
    """
    from numba_ptxlink._tools import nvrtc
    from numba_ptxlink._tools.source_options import SourceOptions

    # The result type Any allows attributes that type checkers do not know.
    def import_module(name: str) -> Any:
        return importlib.import_module(name)

    major, _ = nvrtc.version()
    toolkit = import_module(f"{compiler_package}.cuda_paths").get_cuda_paths()["include_dir"].info
    nvrtc_dirs = [str(path) for path in nvrtc.toolkit_include_dirs() if str(path) != str(toolkit)]
    # The front end contains a copy of CUDA's headers for each major version.
    package_dir = Path(import_module(f"{compiler_package}.cudadrv").__file__).parent.parent
    front_end_config = import_module(f"{compiler_package}.core.config")
    extra_dirs = getattr(front_end_config, "CUDA_NVRTC_EXTRA_SEARCH_PATHS", "")
    return SourceOptions(
        flags=tuple(flags),
        include_dirs=(
            str(package_dir / "include" / str(major)),
            *((str(toolkit),) if toolkit else ()),
            *nvrtc_dirs,
            str(Path(import_module(header_package).__file__).parent),
            *filter(None, extra_dirs.split(":")),
            *((str(folder),) if folder else ()),
        ),
    )
