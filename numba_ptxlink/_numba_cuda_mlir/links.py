"""
The links of numba-cuda-mlir's linkers on this package's engine. Needs no driver.

Importing this module imports nothing of numba-cuda-mlir: it may run during its own import.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._config import config
from numba_ptxlink._formats.kinds import ARCHIVE, CU, CUBIN, EXTENSIONS, FATBIN, LTOIR, OBJECT, PTX
from numba_ptxlink._front_end import served
from numba_ptxlink._locks import Lock
from numba_ptxlink.errors import AssembleError, LinkError, PtxlinkError

from .requests import current

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._link import engine
    from numba_ptxlink._link.inputs import Input

# What `cuda.core` calls the kinds of code.
_KINDS = {
    "ptx": PTX,
    "cubin": CUBIN,
    "ltoir": LTOIR,
    "fatbin": FATBIN,
    "object": OBJECT,
    "library": ARCHIVE,
}
_REMEMBERED = 256

_names: OrderedDict[bytes, str] = OrderedDict()
_names_lock = Lock()


class PlacedName(str):
    """
    The name of a source that was read from a file.

    Args:
        folder: The folder of that file.
    """

    __slots__ = ("folder",)

    folder: Path


def remember(code: Any, name: str) -> None:
    """Note the *name* of a link file, which its linker forgets where it is created again."""
    if isinstance(code, bytes) and _is_named(name):
        with _names_lock.held:
            _names[code] = name
            _names.move_to_end(code)
            while len(_names) > _REMEMBERED:
                _names.popitem(last=False)


def _is_named(name: str) -> bool:
    """Return whether *name* is more than what stands for one that was not given."""
    return bool(name) and not name.startswith("<cudapy-")


def complete(linker: Any) -> Any:
    """
    Link what *linker* collected.

    Returns:
        The cubin, as the `cuda.core.ObjectCode` that numba-cuda-mlir loads.

    Raises:
        MlirLinkError: The link failed. Carries inputs, flags and log.
    """
    from cuda.core import ObjectCode

    from numba_ptxlink._link import engine

    inputs, arch, options, lto = _link(linker, ptx=False)
    try:
        linked = engine.link_inputs(inputs, arch, options, lto=lto)
    except (LinkError, AssembleError) as error:
        raise _of_mlir(error) from error
    served.count(linked.backend, linked.reason)
    _close(linker, linked, linked.log)
    return ObjectCode.from_cubin(linked.cubin, name="<cudapy-cubin>")


def linked_ptx(linker: Any) -> bytes:
    """
    Return the PTX of what *linker* collected after link-time optimisation.

    Raises:
        MlirLinkError: The link failed. Carries inputs, flags and log.
    """
    from numba_ptxlink._link import engine

    inputs, arch, options, lto = _link(linker, ptx=True)
    try:
        entry, _ = engine.link_to_ptx(inputs, arch, options, lto=lto)
    except LinkError as error:
        raise _of_mlir(error) from error
    _close(linker, entry, entry.log)
    return entry.code


def compile_sources(linker: Any) -> None:
    """
    Compile the CUDA C++ that *linker* collected: to LTO-IR with link-time optimisation, else to PTX.

    Raises:
        MlirSourceError: NVRTC refused it. Carries its log.
    """
    from cuda.core import ObjectCode
    from numba_cuda_mlir.numba_cuda import config as settings

    pending, linker._pending_cu = linker._pending_cu, []
    for kind, payload, name, lto in pending:
        code = _compiled(linker, payload.data if kind == "linkable" else payload, name, lto=bool(lto))
        if not lto and settings.DUMP_ASSEMBLY:
            print(f"ASSEMBLY {name}".center(80, "-"))  # noqa: T201 - what was asked for
            print(code.decode())  # noqa: T201
        remember(code, str(name))
        make = ObjectCode.from_ltoir if lto else ObjectCode.from_ptx
        linker._object_codes.append(make(code, name=str(name)))
        linker._has_ltoir |= bool(lto)


def content_of(path: Any) -> bytes:
    """
    Return the content of a link file.

    Raises:
        MlirLinkError: It does not exist, or is not the artifact that the manifest beside it lists.
    """
    path = Path(path)
    try:
        content: bytes = path.read_bytes()
    except FileNotFoundError as error:
        raise _of_mlir(LinkError(f"{path} not found; correct the path.")) from error
    if config().checks == "none":
        return content
    from numba_ptxlink._link import manifests
    from numba_ptxlink._link.inputs import Input

    try:
        manifests.of(Input(EXTENSIONS.get(path.suffix, ""), path.name, content, path=path))
    except LinkError as error:
        raise _of_mlir(error) from error
    return content


def _compiled(linker: Any, source: Any, name: str, *, lto: bool) -> bytes:
    from numba_cuda_mlir.numba_cuda.cudadrv.nvrtc import _verify_cc_tuple

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._link import engine
    from numba_ptxlink._link.inputs import Input
    from numba_ptxlink._link.sources import compile_once

    from .include_dirs import source_options

    options = engine.LinkOptions(debug=bool(linker._debug), lineinfo=bool(linker.lineinfo))
    arch = Arch.of(tuple(_verify_cc_tuple(tuple(linker.cc))))
    content = source.encode() if isinstance(source, str) else bytes(source)
    try:
        compiled = compile_once(
            Input(CU, str(name), content),
            arch,
            LTOIR if lto else PTX,
            source_options(engine.source_flags(options), getattr(name, "folder", None)),
        )
    except LinkError as error:
        raise _of_mlir(error, source=True) from error
    if compiled.log:
        warnings.warn(f"NVRTC log messages: {compiled.log}", stacklevel=2)
    return compiled.code


def _link(linker: Any, *, ptx: bool) -> tuple[list[Input], Arch, engine.LinkOptions, bool]:
    from numba_ptxlink._arch import Arch

    linker._materialize_pending_cu()
    inputs = _inputs(linker._object_codes)
    if not inputs:
        raise _of_mlir(LinkError("There is nothing to link; add an input first."))
    flags = [flag.decode() for flag in linker._get_linker_options(ptx=ptx).as_bytes("nvjitlink")]
    arch = Arch.of(linker.arch)
    lto = "-lto" in flags
    return inputs, arch, link_options(flags, inputs, arch, lto=lto), lto


def _inputs(codes: Iterable[Any]) -> list[Input]:
    from numba_ptxlink._link.inputs import Input

    inputs: list[Input] = []
    origin = current().origin
    for code in codes:
        content = code.code.encode() if isinstance(code.code, str) else bytes(code.code)
        with _names_lock.held:
            name = code.name if _is_named(code.name) else _names.get(content, "")
        inputs.append(Input(_KINDS[code.code_type], name or origin or code.name, content))
    return inputs


def link_options(flags: Iterable[str], inputs: list[Input], arch: Arch, *, lto: bool) -> engine.LinkOptions:
    """
    Return the options of a link that `cuda.core` would make with *flags*, which are nvJitLink's.

    nvPTXCompiler gets those of the others that it has a word for; the rest has an effect with link-time
    optimisation only.
    """
    from numba_ptxlink._link import engine

    options: dict[str, Any] = {"lto": lto}
    others = []
    for flag in flags:
        name, _, value = flag.partition("=")
        if name == "-maxrregcount":
            options["max_registers"] = int(value)
        elif name in _OPTIONS:
            options[_OPTIONS[name]] = True
        elif name in _LEVELS:
            options["opt_level"] = int(name[2:])
        elif name not in ("-arch", "-lto", "-ptx"):
            others.append(flag)
    backend, _ = engine.choose_backend(inputs, arch, lto=lto)
    if backend == "nvptxcompiler":
        others = [
            flag.removeprefix("-Xptxas=") for flag in others if flag.startswith(("-Xptxas=", "-verbose"))
        ]
        others = ["--verbose" if flag == "-verbose" else flag for flag in others]
    return engine.LinkOptions(**options, extra_flags=tuple(others))


_OPTIONS = {"-g": "debug", "-lineinfo": "lineinfo"}
_LEVELS = ("-O0", "-O1", "-O2", "-O3")


def _close(linker: Any, linked: Any, log: str) -> None:
    linker.linker = linked
    linker._info_log, linker._error_log = log, ""
    linker._complete = True


def _of_mlir(error: PtxlinkError, *, source: bool = False) -> PtxlinkError:
    # Deferred: it imports numba-cuda-mlir, whose own import may be importing this module.
    from .link_errors import of_mlir

    return of_mlir(error, source=source)
