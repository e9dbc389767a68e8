"""
What the linkers of front ends share: links of kernels by this package, counted, and the CUDA C++ in them.

Importing this module imports no tool and no compiler: it may run during a compiler's own import.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink._config import config
from numba_ptxlink._formats.kinds import EXTENSIONS
from numba_ptxlink._locks import Lock
from numba_ptxlink.errors import AssembleError, LinkError, PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numba_ptxlink import cache
    from numba_ptxlink._arch import Arch
    from numba_ptxlink._tools.nvrtc import SourceOptions
    from numba_ptxlink._tools.options import Options

    from .declarations import Declared
    from .read import Input
    from .run import Linked


class Links(NamedTuple):
    """
    The links completed in this process.

    Args:
        assembled: How many of them nvPTXCompiler did.
        linked: How many of them nvJitLink did.
        last: Tool and reason of the last one, "" before any.
    """

    assembled: int = 0
    linked: int = 0
    last: str = ""


_links = Links()
_lock = Lock()


def completed() -> Links:
    """Return the links of kernels completed in this process."""
    return _links


def link(inputs: Sequence[Input], arch: Arch, options: Options) -> Linked:
    """Link the code of a kernel to a cubin, and count that; raises as `run.link` does."""
    global _links  # noqa: PLW0603 - what a process counts
    from . import run
    from .backends import Target

    linked = run.link(inputs, Target(arch), options)
    with _lock.held:
        assembled = linked.backend == "nvptxcompiler"
        last = f"{linked.backend}: {linked.reason}"
        _links = Links(_links.assembled + assembled, _links.linked + (not assembled), last)
    return linked


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
    """Link the code of a kernel to what the device of this process runs; raises as `run.link` does."""
    from numba_ptxlink._cpu import device

    if not device.is_active():
        return link(inputs, arch, options)
    from .one_ptx import one_ptx

    return LinkedPtx(one_ptx(inputs, arch, options))


@contextlib.contextmanager
def errors_as(convert: Callable[[PtxlinkError], PtxlinkError]) -> Iterator[None]:
    """Raise the errors of a link in a `with` block as what *convert* makes of them."""
    try:
        yield
    except (LinkError, AssembleError) as error:
        raise convert(error) from error


def exported_beside(path: Path, code: bytes) -> list[Declared]:
    """
    Return what the manifest beside the link file *path* exports; nothing without one.

    Raises:
        LinkError: *code* is not the artifact that the manifest lists.
    """
    if config().checks == "none":
        return []
    from . import manifests
    from .declarations import declarations_of
    from .read import Input

    manifest = manifests.of(Input(EXTENSIONS.get(path.suffix, ""), path.name, code, path=path))
    return [] if manifest is None else declarations_of(manifest)


def compile_source(source: bytes, name: str, arch: Arch, output: str, options: SourceOptions) -> cache.Entry:
    """Compile CUDA C++ to *output*, and warn of what NVRTC says; raises as `nvrtc.compile_source` does."""
    from numba_ptxlink._tools import nvrtc

    compiled = nvrtc.compile_source(source, name, arch, options, output=output)
    if compiled.log:
        warnings.warn(f"NVRTC log messages: {compiled.log}", stacklevel=3)
    return compiled


def source_options(
    home: str, own: str, flags: Sequence[str] = (), folder: Path | None = None
) -> SourceOptions:
    """
    Return the options for CUDA C++ that kernels link: *flags* and the search path of Numba's compilers.

    They search the working directory for `#include "..."`, then the toolkit; so that the same headers are
    included, *folder*, which the source was read from, comes last.

    Args:
        home: The compiler's package that has the modules `cudadrv`, `core` and `cuda_paths`.
        own: Its package whose folder has its own headers.
        flags: Further NVRTC options.
        folder: Where the source was read from, None for code in memory.
    """
    from numba_ptxlink._tools import nvrtc

    def module(name: str) -> Any:
        return importlib.import_module(name)

    major, _ = nvrtc.version()
    toolkit = module(f"{home}.cuda_paths").get_cuda_paths()["include_dir"].info
    others = [str(path) for path in nvrtc.toolkit_include_dirs() if str(path) != str(toolkit)]
    # It has CUDA's headers by the major version.
    headers = Path(module(f"{home}.cudadrv").__file__).parent.parent / "include" / str(major)
    extra = getattr(module(f"{home}.core.config"), "CUDA_NVRTC_EXTRA_SEARCH_PATHS", "")
    return nvrtc.SourceOptions(
        flags=tuple(flags),
        include_dirs=(
            str(headers),
            *((str(toolkit),) if toolkit else ()),
            *others,
            str(Path(module(own).__file__).parent),
            *filter(None, extra.split(":")),
            *((str(folder),) if folder else ()),
        ),
    )
