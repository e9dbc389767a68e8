"""
`PtxLinker`, a class with the interface of numba-cuda's linker class, which links by this package.

The import of this module imports nothing of numba-cuda, which may be in the middle of its own import.
"""

from __future__ import annotations

import functools
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._formats.kinds import ARCHIVE, CU, CUBIN, EXTENSIONS, FATBIN, LTOIR, OBJECT, PTX
from numba_ptxlink._front_end.patch import PatchTable
from numba_ptxlink._link import kernels
from numba_ptxlink.errors import LinkError, PtxlinkError, convert_error

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from numba_ptxlink._link.declarations import DeclaredFunction
    from numba_ptxlink._link.read import Input
    from numba_ptxlink._tools.options import Options

# numba-cuda passes the code of each kernel under one of these names; messages need the name of the kernel.
_PLACEHOLDER_NAMES = ("<cudapy-ptx>", "<cudapy-ltoir>")


def _make_add_method(kind: str, placeholder: str) -> Any:
    """
    Return a method that adds code of *kind*, as text or bytes. CUDA C++ is compiled with NVRTC at once.

    Args:
        kind: The kind of code, a key of `_formats.kinds.KINDS`.
        placeholder: The name of code that the caller does not name, such as "<cudapy-ptx>".
    """

    def add(self: PtxLinker, code: Any, name: str = placeholder) -> None:
        self._add(kind, code, name)

    return add


class PtxLinker:
    """
    Collect the inputs of one link, then link them to a cubin. Needs no driver; not thread-safe.

    Args:
        max_registers: The maximum number of registers per thread; None and 0 for no limit.
        lineinfo: Whether to keep line numbers.
        cc: The compute capability, as (major, minor) or (major, minor, variant), such as (9, 0, "a").
            numba-cuda allows None, to ask the driver; here, that is an error.
        lto: Whether to optimise at link time: CUDA C++ is compiled to LTO-IR then, else to PTX. None is
            False.
        additional_flags: Accepted, since numba-cuda's linker has the argument, and ignored, as there.
    """

    def __init__(
        self,
        max_registers: int | None = None,
        lineinfo: bool = False,
        cc: tuple[Any, ...] | None = None,
        lto: bool | None = None,
        additional_flags: Any = None,
    ) -> None:
        from numba_ptxlink._arch import Arch

        if not isinstance(cc, (tuple, list)):
            detail = "" if cc is None else f", not {cc!r}"
            raise _link_error(f"A linker needs cc, such as (9, 0){detail}.")
        self._arch = Arch.of(tuple(cc))
        self.max_registers = max_registers or None
        self.lineinfo = lineinfo
        self.cc = cc
        self.arch = self._arch.sm
        self.lto = lto
        self.additional_flags = additional_flags
        # The completed link with its log; None before. The attribute is named as in numba-cuda's linker.
        self.linker: Any = None
        self._inputs: list[Input] = []
        # The code of each CUDA C++ source, by the contents of the source and its headers.
        self._compiled_sources: dict[object, bytes] = {}
        # The arguments of `describe`; both are empty before.
        self._origin = ""
        self._modules: tuple[str, ...] = ()
        # The LLVM IR of inputs that are LTO-IR, which shows whether they have debug information.
        self._ltoir_modules: list[str] = []
        # The functions in added files that this package exported; manifests beside the files list them.
        self._exported: list[DeclaredFunction] = []
        # The error of the last link if it failed.
        self._failure: PtxlinkError | None = None

    def describe(self, origin: str, modules: Iterable[str]) -> None:
        """
        Set the origin and the LLVM IR of the kernel whose code numba-cuda adds next.

        Args:
            origin: The Python function that the kernel was compiled from, with file and line, for messages.
            modules: The LLVM IR, which shows the called shims (see `_front_end.shims`), the declared
                functions, and whether there is debug information.
        """
        self._origin = origin
        self._modules = tuple(modules)

    def order_files(self, count: int) -> None:
        """
        Sort the inputs after the first *count* by kind and content.

        numba-cuda keeps link files in sets, whose order differs between processes.
        """
        self._inputs[count:] = sorted(self._inputs[count:], key=lambda item: (item.kind, item.code))

    @property
    def info_log(self) -> str:
        """The log of a completed link; "" after a failed one. Raises ValueError before a link."""
        return self._logs()[0]

    @property
    def error_log(self) -> str:
        """The log of a failed link; "" after a completed one. Raises ValueError before a link."""
        return self._logs()[1]

    def _logs(self) -> tuple[str, str]:
        """Return `info_log` and `error_log`."""
        if self._failure is not None:
            return "", self._failure.log or str(self._failure)
        if self.linker is not None:
            return self.linker.log, ""
        raise ValueError("Not Initialized")  # As numba-cuda's linker does before a link.

    def _numba_errors(self, *, is_source_error: bool = False) -> AbstractContextManager[None]:
        """
        Raise link errors of a `with` block as errors of numba-cuda, and keep the last for `error_log`.

        Args:
            is_source_error: Whether the errors are about CUDA C++.
        """

        def convert(error: PtxlinkError) -> PtxlinkError:
            self._failure = _numba_error(error, is_source_error=is_source_error)
            return self._failure

        return kernels.errors_as(convert)

    add_ptx = _make_add_method(PTX, "<cudapy-ptx>")
    add_cubin = _make_add_method(CUBIN, "<cudapy-cubin>")
    add_ltoir = _make_add_method(LTOIR, "<cudapy-ltoir>")
    add_fatbin = _make_add_method(FATBIN, "<cudapy-fatbin>")
    add_object = _make_add_method(OBJECT, "<cudapy-object>")
    add_library = _make_add_method(ARCHIVE, "<cudapy-lib>")
    add_cu = _make_add_method(CU, "<cudapy-cu>")

    def add_cu_file(self, path: Any) -> None:
        """Compile a CUDA C++ file with NVRTC, and add the code."""
        self.add_file(path, CU)

    def add_file(self, path: Any, kind: Any) -> None:
        """Add a file; *kind* is a constant of numba-cuda's driver module, or "cu"."""
        path = Path(path)
        self._add(_kind_of(kind), self._read(path), path.name, path.parent)

    def add_data(self, data: Any, kind: Any, name: str) -> None:
        """Add content; *kind* is a constant of numba-cuda's driver module, or "cu"."""
        self._add(_kind_of(kind), data, name)

    def add_file_guess_ext(self, path_or_code: Any, ignore_nonlto: bool = False) -> None:
        """
        Add a file, whose extension determines its kind, or an object of numba-cuda's class `LinkableCode`.

        Args:
            path_or_code: The path of the file, or the object.
            ignore_nonlto: Whether to skip, with a warning, an input that cannot be optimised at link time.
        """
        from numba.cuda.cudadrv.linkable_code import LinkableCode

        folder = None
        if isinstance(path_or_code, (str, os.PathLike)):
            input_name = os.fspath(path_or_code)
            path = Path(path_or_code)
            kind, content, name, folder = _kind_of_file(path), self._read(path), path.name, path.parent
        elif isinstance(path_or_code, LinkableCode):
            input_name = name = path_or_code.name
            kind, content = _kind_of(path_or_code.kind), path_or_code.data
        else:
            raise TypeError("Expected path to file or a LinkableCode object")
        if (
            ignore_nonlto
            and kind not in (CU, LTOIR)
            and (reason := self._no_ltoir_reason(kind, content, name))
        ):
            warnings.warn(f"Not adding {input_name} as {reason}.", stacklevel=2)
            return
        self._add(kind, content, name, folder)

    def _no_ltoir_reason(self, kind: str, content: Any, name: str) -> str:
        """
        Return why an input cannot be optimised at link time; "" if it contains LTO-IR.

        Fat binaries and objects may contain it. The other kinds that the caller passes, neither CUDA C++ nor
        LTO-IR itself, do not.
        """
        from numba_ptxlink._link.read import as_bytes
        from numba_ptxlink._tools import programs

        with self._numba_errors():
            pieces = programs.pieces(as_bytes(content), name) if kind in (FATBIN, OBJECT) else []
        if pieces is None:  # No cuobjdump is installed, which lists the pieces.
            return f"its kinds of code are unknown. {programs.NO_CUOBJDUMP.removesuffix('.')}"
        if any(piece.kind == LTOIR for piece in pieces):
            return ""
        return "it is not optimizable at link time, and `ignore_nonlto == True`"

    def get_linked_ptx(self) -> bytes:
        """Return the PTX of the inputs after link-time optimisation."""
        from numba_ptxlink._link import run

        with self._numba_errors():
            linked = run.link_to_ptx(self._inputs, self._arch, self._options())
        self.linker, self._failure = linked, None
        return linked.code

    def close(self) -> None:
        """Do nothing: no native handle outlives the call that created it."""

    def complete(self) -> Any:
        """
        Link the inputs.

        Returns:
            The `cuda.core.ObjectCode` that numba-cuda loads: a cubin, or PTX if the CPU is the CUDA device.

        Raises:
            NumbaLinkError: The link failed. The error has the inputs, the flags and the log.
        """
        if not self._inputs:
            raise _link_error("There is nothing to link; add an input first.")
        with self._numba_errors():
            if self._exported:
                # The kernel may declare functions of the added files by `cuda.declare_device`.
                from numba_ptxlink._formats import llvm_ir
                from numba_ptxlink._link import declarations

                declared = llvm_ir.declared_types("\n".join(self._modules))
                declarations.check_declared_types(self._origin, declared, self._exported)
            linked = kernels.link_for_device(self._inputs, self._arch, self._options())
        self.linker, self._failure = linked, None
        from cuda.core import ObjectCode

        if isinstance(linked, kernels.LinkedPtx):
            return ObjectCode.from_ptx(self._with_argument_names(linked.ptx), name="<cudapy-ptx>")
        return ObjectCode.from_cubin(linked.cubin, name="<cudapy-cubin>")

    def _with_argument_names(self, ptx: bytes) -> bytes:
        """Return *ptx* with comments that name the Python argument of each parameter of its kernels."""
        from numba_ptxlink._cpu.device import images
        from numba_ptxlink._formats import llvm_ir

        text = "\n".join(self._modules)
        for kernel in images.kernel_names(ptx):
            names = llvm_ir.parameter_names(text, kernel)
            # An array is several parameters: "x.data" and "x.shape.0" belong to the argument x.
            ptx += images.argument_comment(kernel, [name.partition(".")[0] for name in names])
        return ptx

    def _add(self, kind: str, code: Any, name: Any, folder: Path | None = None) -> None:
        """
        Add an input of the link: compile CUDA C++, and name the code of a kernel after its function.

        Args:
            kind: The kind of code, a key of `_formats.kinds.KINDS`.
            code: The content, as text or bytes.
            name: The name of the file, or a placeholder such as "<cudapy-ptx>".
            folder: The folder of the file; None for code in memory.
        """
        from numba_ptxlink._link.read import Input, as_bytes

        input_name = str(name)
        is_kernel_code = input_name in _PLACEHOLDER_NAMES and self._origin != ""
        is_source = kind == CU
        if is_source:
            kind = LTOIR if self.lto else PTX
            code = self._compile_source(code, input_name, folder, kind)
        if is_kernel_code:
            # With debug information, numba-cuda adds a PTX module for each function of a kernel: number them.
            earlier_count = sum(item.name.startswith(self._origin) for item in self._inputs)
            input_name = f"{self._origin} #{earlier_count + 1}" if earlier_count else self._origin
            if kind == LTOIR:
                self._ltoir_modules.append("\n".join(self._modules))
        self._inputs.append(Input(kind, input_name, as_bytes(code), compiled=is_source or is_kernel_code))

    def _compile_source(self, cu: Any, name: str, folder: Path | None, kind: str) -> bytes:
        """Compile CUDA C++ to code of *kind*; *folder* is that of the file, None for code in memory."""
        from numba.cuda.core import config
        from numba.cuda.cudadrv.nvrtc import _verify_cc_tuple

        from numba_ptxlink._arch import Arch
        from numba_ptxlink._front_end import shims
        from numba_ptxlink._link.read import as_bytes
        from numba_ptxlink._tools.options import NVRTC

        source = as_bytes(cu)
        # numba-cuda passes the shims of all functions that it has compiled: keep those that the kernel calls.
        if self._modules:
            text = source.decode(errors="surrogateescape")
            source = shims.keep_called(text, self._modules).encode(errors="surrogateescape")
        with self._numba_errors(is_source_error=True):
            options = source_options(self._options().to_flags(NVRTC), folder)
            # A source that is added twice gets the same code. The link then drops the second, since nvJitLink
            # rejects duplicate functions. The content is None if equal sources may give different code.
            # NVRTC looks for headers first in the folder of the name: for a file, whose name has none here,
            # in the working directory. The file's own folder is in `options`.
            content = options.content_of(source, Path(name).parent)
            if content is not None and content in self._compiled_sources:
                return self._compiled_sources[content]
            # As in numba-cuda: the newest architecture of NVRTC that is not newer than the device.
            arch = Arch.of(tuple(_verify_cc_tuple(tuple(self.cc))))
            compiled = kernels.compile_source(source, name, arch, kind, options)
        self._compiled_sources[content] = compiled.code
        if not self.lto and config.DUMP_ASSEMBLY:
            print(f"ASSEMBLY {name}".center(80, "-"))  # noqa: T201 - as NUMBA_DUMP_ASSEMBLY requests
            print(compiled.code.decode())  # noqa: T201 - as NUMBA_DUMP_ASSEMBLY requests
        return compiled.code

    def _read(self, path: Path) -> bytes:
        """Return the content of a file; remember the functions that it exports, by the manifest beside it."""
        with self._numba_errors():
            try:
                code: bytes = path.read_bytes()
            except FileNotFoundError as error:
                raise LinkError(f"{path} not found", inputs=(path.name,)) from error
            self._exported += kernels.exported_functions(path, code)
        return code

    def _options(self) -> Options:
        from numba_ptxlink._tools.options import Options, register_limit

        # numba-cuda does not pass its options "debug" and "lineinfo" to the linker: look for them in the
        # code.
        ptx_inputs = [item for item in self._inputs if item.kind == PTX]
        # `.target sm_90, debug` marks PTX for a debugger. Search the text before parsing, which takes long.
        debug = any("debug" in item.text and "debug" in item.header.target for item in ptx_inputs)
        lineinfo = any(map(_has_line_numbers, ptx_inputs))
        if self._ltoir_modules:
            from numba_ptxlink._formats import llvm_ir

            debug |= any(map(llvm_ir.is_for_debugging, self._ltoir_modules))
            lineinfo |= any(map(llvm_ir.has_line_numbers, self._ltoir_modules))
        return Options(
            lto=any(item.kind == LTOIR for item in self._inputs),
            max_registers=register_limit(self.max_registers),
            debug=debug,
            # Debug information includes line numbers.
            lineinfo=not debug and (self.lineinfo or lineinfo),
        )


def _has_line_numbers(source: Input) -> bool:
    # Search the text for `.loc` before parsing, which takes long. `.local` is a state space, and no line
    # number.
    if ".loc" not in source.text.replace(".local", ""):
        return False
    from numba_ptxlink._formats import ptx

    return ptx.has_line_numbers(source.text)


source_options = functools.partial(kernels.source_options, "numba.cuda", "numba.cuda.memory_management")
"""Returns the options for CUDA C++, with numba-cuda's search path."""


def _numba_error(error: PtxlinkError, *, is_source_error: bool = False) -> PtxlinkError:
    """Return *error* as an error of numba-cuda; *is_source_error* is true for an error about CUDA C++."""
    from numba_ptxlink._link.explain import for_kernel

    # Deferred: the module imports numba-cuda, and an import of numba-cuda may import this module.
    from .errors import NumbaFileError, NumbaLinkError, NumbaSourceError

    error_class = NumbaSourceError if is_source_error else NumbaLinkError
    if isinstance(error.__cause__, FileNotFoundError):
        error_class = NumbaFileError
    return convert_error(error, error_class, for_kernel(str(error)))


def _link_error(message: str) -> PtxlinkError:
    return _numba_error(LinkError(message))


def _kind_of(constant: Any) -> str:
    """Return the kind of code for a constant of numba-cuda's driver module, or for "cu"."""
    from numba.cuda.cudadrv.mappings import FILE_EXTENSION_MAP

    # The map has a constant for each extension, such as "ptx". CUDA C++ has no constant, and is passed as
    # "cu".
    for extension, known_constant in {**FILE_EXTENSION_MAP, CU: CU}.items():
        if constant == known_constant:
            return EXTENSIONS[f".{extension}"]
    raise _link_error(f"Don't know how to link {constant}")


def _kind_of_file(path: Path) -> str:
    """Return the kind of code for the extension of *path*."""
    if path.suffix not in EXTENSIONS:
        description = f"extension {path.suffix}" if path.suffix else "no extension"
        raise _link_error(f"Don't know how to link file with {description}")
    return EXTENSIONS[path.suffix]


PATCHES = PatchTable("linker")


@PATCHES.replace("numba.cuda.cudadrv.driver", "_Linker", importers="numba.cuda")
def _linker(_original: Any) -> Any:
    """Assemble and link kernels in process, with checks and a cache; errors name the cure."""
    return PtxLinker
