"""
`CoreLinker`, a class with the interface of cuda.core's linker, which links for numba-cuda-mlir.

The import of this module imports nothing of numba-cuda-mlir, which may be in the middle of its own import.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink._config import config
from numba_ptxlink._formats.kinds import LTOIR, PTX
from numba_ptxlink._front_end.patch import PatchTable
from numba_ptxlink._link import kernels
from numba_ptxlink._locks import Lock
from numba_ptxlink.errors import AbiError, LinkError, PtxlinkError, convert_error

from .context import current_context

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._link.declarations import DeclaredFunction
    from numba_ptxlink._link.kernels import LinkedPtx
    from numba_ptxlink._link.read import Input
    from numba_ptxlink._link.run import Linked
    from numba_ptxlink._tools.options import Options

_DRIVER = "numba_cuda_mlir.numba_cuda.cudadrv.driver"
# A bound of the memory for `_facts_by_content`, which has the contents as keys.
_MAX_REMEMBERED_FILES = 256


class _FileFacts(NamedTuple):
    """
    Facts about a link file that its content lacks. numba-cuda-mlir passes only the content to the linker.

    Args:
        name: The name of the file; "" if it is unknown.
        folder: The folder of the file; None if it is unknown.
        exported: The functions in the file, if this package has exported it.
    """

    name: str = ""
    folder: Path | None = None
    exported: tuple[DeclaredFunction, ...] = ()


_facts_by_content: dict[bytes, _FileFacts] = {}
_facts_lock = Lock()


def _remember_facts(code: bytes, **changes: Any) -> None:
    """Set fields of the facts about the file that has the content *code*, or was compiled to it."""
    with _facts_lock.held:
        # Move the entry to the end, so that the first entry is the oldest.
        _facts_by_content[code] = _facts_by_content.pop(code, _FileFacts())._replace(**changes)
        if len(_facts_by_content) > _MAX_REMEMBERED_FILES:
            del _facts_by_content[next(iter(_facts_by_content))]


def _facts_of(code: bytes) -> _FileFacts:
    """Return the facts about the file with the content *code*; of an unknown file, no field is set."""
    with _facts_lock.held:
        return _facts_by_content.get(code, _FileFacts())


def _is_real_name(name: str) -> bool:
    """Return whether *name* names a file: it is not "", and no placeholder such as "<cudapy-ptx>"."""
    return bool(name) and not name.startswith("<cudapy-")


class CoreLinker:
    """
    A link, with the interface of `cuda.core.Linker`. Needs no driver; not thread-safe.

    Args:
        object_codes: The inputs, each a `cuda.core.ObjectCode`.
        options: A `cuda.core.LinkerOptions`.
    """

    def __init__(self, *object_codes: Any, options: Any) -> None:
        self._codes = object_codes
        self._option_values = {
            field.name: getattr(options, field.name) for field in dataclasses.fields(options)
        }
        self._log = ""

    def link(self, target_type: str) -> Any:
        """
        Link the inputs to a "cubin" or, after link-time optimisation, to "ptx".

        Returns:
            A `cuda.core.ObjectCode`. For "cubin", it has PTX if the CPU is the CUDA device. If the current
            compilation needs no cubin, the result is an object whose `code` is None.

        Raises:
            MlirLinkError: The link failed. The error has the inputs, the flags and the log.
        """
        from cuda.core import ObjectCode

        if target_type == "cubin" and not current_context().needs_cubin:
            return SimpleNamespace(code=None)
        if target_type == "cubin":
            linked = self._link()
            if isinstance(linked, kernels.LinkedPtx):
                return ObjectCode.from_ptx(_with_argument_names(linked.ptx), name="<cudapy-ptx>")
            return ObjectCode.from_cubin(linked.cubin, name="<cudapy-cubin>")
        return ObjectCode.from_ptx(self._link_to_ptx(), name="<cudapy-ptx>")

    def get_info_log(self) -> str:
        """Return the messages of the tools."""
        return self._log

    def get_error_log(self) -> str:
        """Return "": `link` raises errors with their logs."""
        return ""

    def close(self) -> None:
        """Do nothing: no native handle outlives the call that created it."""

    def _link(self) -> Linked | LinkedPtx:
        """Check the kernel's declarations of exported functions, and link: to PTX for the CPU device."""
        inputs, arch, options = self._prepare()
        with kernels.errors_as(_mlir_error):
            exported = [function for source in inputs for function in _facts_of(source.code).exported]
            if exported and config().checks != "none":
                from numba_ptxlink._link import declarations

                declarations.check_declared_types(current_context().origin, _declared_types(), exported)
            linked = kernels.link_for_device(inputs, arch, options)
        self._log = linked.log
        return linked

    def _link_to_ptx(self) -> bytes:
        from numba_ptxlink._link import run

        inputs, arch, options = self._prepare()
        with kernels.errors_as(_mlir_error):
            entry = run.link_to_ptx(inputs, arch, options)
        self._log = entry.log
        return entry.code

    def _prepare(self) -> tuple[list[Input], Arch, Options]:
        """Return the arguments of a link: the inputs, the GPU to link for, and the options."""
        from numba_ptxlink._arch import Arch

        inputs = _read_inputs(self._codes)
        if not inputs:
            raise _mlir_error(LinkError("There is nothing to link; add an input first."))
        with kernels.errors_as(_mlir_error):
            options = link_options(self._option_values)
        return inputs, Arch.of(self._option_values["arch"]), options


def _with_argument_names(ptx: bytes) -> bytes:
    """Return *ptx* with a comment that names the Python argument of each parameter, if it has one kernel."""
    from numba_ptxlink._cpu.device import images

    kernel_names, parameter_names = images.kernel_names(ptx), current_context().parameter_names
    if len(kernel_names) == 1 and parameter_names:
        ptx += images.argument_comment(kernel_names[0], parameter_names)
    return ptx


def _declared_types() -> dict[str, tuple[str, ...]]:
    """Return, by name, the types of each declared function that the kernel calls: result, then parameters."""
    from numba_ptxlink import abi
    from numba_ptxlink._link.declarations import CLASS, from_signature

    declared = {}
    for name, (sig, has_c_abi) in current_context().declared_calls:
        parameters = [(f"arg{index}", ty) for index, ty in enumerate(sig.args)]
        try:
            declared_type = from_signature(abi.c_signature(name, sig.return_type, parameters), "")
        except AbiError:
            # Functions with other types than C's are not compared.
            continue
        result, *param_types = declared_type.types
        # numba-cuda-mlir passes each member of a struct as a parameter, and a C function takes the struct:
        # the link is to be refused. Two parameters of the unknown type "" stand for the members, however many
        # there are, so that the numbers of parameters differ. Kinds above CLASS are structs of the size
        # `kind - CLASS`; one of 2 bytes, a half, has one member.
        passed_types = itertools.chain.from_iterable(
            [param_type] if kind <= CLASS + 2 else ["", ""]
            for param_type, kind in zip(param_types, declared_type.kinds[1:], strict=True)
        )
        # Numba's calling convention returns a status, and stores the result through a pointer.
        declared[name] = (result, *passed_types) if has_c_abi else ("int32_t", "void *", *passed_types)
    return declared


def compile_source(
    src: Any, name: Any, cc: Any, ltoir: Any = False, *, lineinfo: Any = False, debug: Any = False
) -> Any:
    """
    Compile CUDA C++ with NVRTC, to LTO-IR if *ltoir* is true, else to PTX. Needs no driver.

    Returns:
        The code, as a `cuda.core.ObjectCode`, and NVRTC's log.

    Raises:
        MlirSourceError: NVRTC refused the source. The error has the log.
    """
    from cuda.core import ObjectCode
    from numba_cuda_mlir.numba_cuda.cudadrv.nvrtc import _verify_cc_tuple

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._tools.options import NVRTC, Options

    make_object = ObjectCode.from_ltoir if ltoir else ObjectCode.from_ptx
    flags = Options(debug=bool(debug), lineinfo=bool(lineinfo)).to_flags(NVRTC)
    content = src.encode() if isinstance(src, str) else bytes(src)
    with kernels.errors_as(functools.partial(_mlir_error, is_source_error=True)):
        compiled = kernels.compile_source(
            content,
            str(name),
            Arch.of(tuple(_verify_cc_tuple(tuple(cc)))),
            LTOIR if ltoir else PTX,
            source_options(flags, _facts_of(content).folder),
        )
    _remember_facts(compiled.code, name=str(name))
    return make_object(compiled.code, name=str(name)), compiled.log


def content_of(path: Any) -> bytes:
    """
    Return the content of a link file; remember its facts: name, folder, and the functions of its manifest.

    Raises:
        FileNotFoundError: The file does not exist.
        MlirLinkError: The file does not match the manifest beside it.
    """
    path = Path(path)
    content: bytes = path.read_bytes()
    with kernels.errors_as(_mlir_error):
        exported = tuple(kernels.exported_functions(path, content))
    _remember_facts(content, name=path.name, folder=path.parent, exported=exported)
    return content


def _read_inputs(codes: Iterable[Any]) -> list[Input]:
    """Return *codes*, each a `cuda.core.ObjectCode`, as inputs of a link, with names for messages."""
    from numba_ptxlink._link.read import Input

    inputs: list[Input] = []
    origin = current_context().origin
    for code in codes:
        content = code.code.encode() if isinstance(code.code, str) else bytes(code.code)
        name = code.name if _is_real_name(code.name) else _facts_of(content).name
        kind = kernels.CORE_KINDS[code.code_type]
        # A file "x.ptx" is the user's own PTX. Other PTX was compiled: that of "x.cu", and the kernel's own.
        inputs.append(Input(kind, name or origin or code.name, content, compiled=not name.endswith(".ptx")))
    return inputs


def link_options(attributes: Mapping[str, Any]) -> Options:
    """
    Return the options of a link for the *attributes* of a `cuda.core.LinkerOptions`, by name.

    Without link-time optimisation, arithmetic options other than fma=False are ignored, as by cuda.core's
    linker. numba-cuda-mlir passes all of them for `fastmath`; the kernel's PTX is already compiled with them.

    Raises:
        LinkError: An attribute is unknown, and its value is not None.
    """
    from numba_ptxlink._tools.options import LTO, Options, register_limit, tool_of_flag

    options: dict[str, Any] = {"lto": bool(attributes.get("link_time_optimization"))}
    flags: list[str] = []
    for name, value in attributes.items():
        if value is None or name in _HANDLED_ELSEWHERE:
            continue
        if name == "max_register_count":
            options["max_registers"] = register_limit(value)
        elif name == "optimization_level":
            options["opt_level"] = int(value)
        elif name in ("debug", "lineinfo"):
            options[name] = bool(value)
        elif name in _ARITHMETIC:
            # Only fma=False also has an effect on PTX, whose multiplications and additions ptxas may fuse.
            if options["lto"] or (name == "fma" and not value):
                options[name] = bool(value)
        elif name in _FLAGS:
            values = [value] if isinstance(value, (str, bool)) else value
            flags += (_FLAGS[name].format(item) for item in values if item)
        else:
            raise LinkError(f"The link option {name!r} of numba-cuda-mlir is unknown here; leave it out.")
    # Flags of link-time optimisation are dropped from links without it, in which nvJitLink ignores them.
    applicable = (flag for flag in flags if options["lto"] or tool_of_flag(flag) != LTO)
    return Options(**options, extra_flags=tuple(applicable))


_ARITHMETIC = ("ftz", "prec_div", "prec_sqrt", "fma")
# The flags of nvJitLink for other attributes; the attribute's value, or each of its values, replaces "{}".
_FLAGS = {
    "verbose": "-verbose",
    "variables_used": "-variables-used={}",
    "optimize_unused_variables": "-optimize-unused-variables",
    "ptxas_options": "-Xptxas={}",
}
# `CoreLinker` reads "arch", and "ptx" follows from the argument of `link`; "name" is only for cuda.core.
_HANDLED_ELSEWHERE = ("name", "arch", "link_time_optimization", "ptx")


source_options = functools.partial(
    kernels.source_options, "numba_cuda_mlir.numba_cuda", "numba_cuda_mlir.memory_management"
)
"""Returns the options for CUDA C++, with numba-cuda-mlir's search path."""


def _mlir_error(error: PtxlinkError, *, is_source_error: bool = False) -> PtxlinkError:
    """Return *error* as an `MlirLinkError`; if *is_source_error*, about CUDA C++, as an `MlirSourceError`."""
    from numba_ptxlink._link.explain import for_kernel

    # Deferred: the module imports numba-cuda-mlir, and an import of numba-cuda-mlir may import this module.
    from .errors import MlirLinkError, MlirSourceError

    error_class = MlirSourceError if is_source_error else MlirLinkError
    return convert_error(error, error_class, for_kernel(str(error), "ptxas_options"))


PATCHES = PatchTable("linker")


@PATCHES.replace(_DRIVER, "Linker")
def _linker(_original: Any) -> Any:
    """Assemble and link kernels in process, with checks and a cache; errors name the cure."""
    return CoreLinker


@PATCHES.replace(_DRIVER, "LinkerOptions")
def _linker_options(original: Any) -> Any:
    """Create the options of a link without loading nvJitLink, which a single PTX does not need."""
    # The original `__post_init__` loads nvJitLink, to spell flags that `CoreLinker` does not use.
    return type(original.__name__, (original,), {"__post_init__": lambda _: None})


@PATCHES.replace("numba_cuda_mlir.numba_cuda.cudadrv.nvrtc", "compile")
def _compile(_original: Any) -> Any:
    """Compile CUDA C++ once in a process, without a driver; errors quote its lines."""
    return compile_source


@PATCHES.around(_DRIVER, "cached_file_read")
def _cached_file_read(original: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
    """
    Read a link file at each link, and compare it with the manifest of an export beside it.

    numba-cuda-mlir itself reads a path once in a process, so that later changes of the file have no effect.
    """
    is_binary = "rb" in (*args, *kwargs.values())
    return content_of(filepath) if is_binary else original(filepath, *args, **kwargs)
