"""
Link for the CPU device: cuLink links to PTX, and cuda.core makes PTX in place of machine code.

The package's libcuda.so.1, which takes the place of NVIDIA's, runs `attach` when a program calls cuInit: in
the program's Python interpreter, or else in one that the library starts. By then, Python programs and Numba's
CUDA targets usually have imported cuda.core, so `attach` patches the imported modules.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from numba_ptxlink._arch import Arch
from numba_ptxlink._cpu import device
from numba_ptxlink._cpu.device import fault_reports
from numba_ptxlink._formats import fatbin
from numba_ptxlink._formats.kinds import FATBIN, describe, recognise
from numba_ptxlink.errors import LinkError

from .kernels import CORE_KINDS
from .one_ptx import one_ptx
from .read import Input

if TYPE_CHECKING:
    from collections.abc import Sequence

# A part of the names of static functions in the device runtime, made of the name of its source file.
_DEVICE_RUNTIME_NAME_PART = b"_cuda_device_runtime_cu_"
# The functions of the CUDA runtime that cuda.core calls, and the functions of the driver that replace them:
# NVIDIA's runtime, which cuda.bindings contains, needs undocumented tables of the driver.
_RUNTIME_FUNCTIONS = {
    "cudaDeviceSynchronize": "cuCtxSynchronize",
    "cudaStreamSynchronize": "cuStreamSynchronize",
    "cudaStreamWaitEvent": "cuStreamWaitEvent",
}


def attach() -> None:
    """Patch cuda.core, and make the device able to compile PTX, link it by `_link`, and run kernels."""
    patch_cuda_core()
    # The device patches again whenever a program loads PTX: cuda.core may be imported after cuInit.
    device.attach(link=_link, prepare=patch_cuda_core)


def _link(names: Sequence[str], contents: Sequence[bytes]) -> bytes:
    """Link the inputs of cuLinkComplete, which have *names* (maybe "") and *contents*, to PTX."""
    inputs, arch, lto = [], device.settings().arch, False
    for name, content in zip(names, contents, strict=True):
        kind = recognise(content)
        if kind is None:
            raise LinkError(f"{name or 'An input'} is {describe(content)}; pass PTX or a fat binary.")
        if kind == FATBIN:
            members = fatbin.ptx_members(content)
            # nvcc links the device runtime into each program. The CPU backend implements its functions.
            if any(_DEVICE_RUNTIME_NAME_PART in member.ptx for member in members):
                continue
            # A fat binary without PTX for this GPU may have LTO-IR: `nvcc -dc -gencode
            # arch=compute_90,code=lto_90` makes such files.
            lto |= not any(member.arch <= arch.number for member in members)
        inputs.append(Input(kind, name or f"<{kind}>", content))
    return one_ptx(inputs, arch, _options(lto=lto))


def _options(**options: Any) -> Any:
    # Deferred: most programs link nothing on the CPU device.
    from numba_ptxlink._tools.options import Options

    return Options(**options)


def patch_cuda_core() -> None:
    """Patch cuda.core: `launch` raises faults of kernels; `Program` and `Linker` make PTX, not cubins."""
    core = sys.modules.get("cuda.core")
    # The attribute shows that cuda.core is patched already.
    if core is None or not hasattr(core, "Linker") or hasattr(core.Linker, "numba_ptxlink_original"):
        return
    fault_reports.replace_everywhere(core.launch, fault_reports.with_fault_reports(core.launch))
    _patch_runtime()
    for original, make_type in ((core.Program, _program_type), (core.Linker, _linker_type)):
        fault_reports.replace_everywhere(original, make_type(original))


def _patch_runtime() -> None:
    """Replace the functions of NVIDIA's runtime that cuda.core calls."""
    driver, runtime = (sys.modules.get(f"cuda.bindings.{name}") for name in ("driver", "runtime"))
    if driver is None or runtime is None:
        return
    for name, replacement in _RUNTIME_FUNCTIONS.items():
        setattr(runtime, name, _forward(getattr(driver, replacement), runtime.cudaError_t))


def _forward(function: Any, error_type: Any) -> Any:
    """Return *function* of the driver, with errors of the runtime's *error_type*."""

    @functools.wraps(function)
    def forward(*args: Any) -> Any:
        result, *values = function(*args)
        # The driver and the runtime have the same numbers for the same errors.
        return (error_type(int(result)), *values)

    return forward


def _option(options: Any, name: str) -> Any:
    """Return one of the options of cuda.core, an object or a dictionary; None if it is not set."""
    return options.get(name) if isinstance(options, dict) else getattr(options, name, None)


def _program_type(original: Any) -> type:
    class Program(original):  # type: ignore[misc]
        """A program of `cuda.core` that compiles to PTX for "cubin", since the CPU device runs PTX."""

        def __init__(self, code: Any, code_type: str, options: Any = None) -> None:
            super().__init__(code, code_type, options)
            self.numba_ptxlink_ptx = code if code_type.lower() == "ptx" else None
            self.numba_ptxlink_name = _option(options, "name") or ""

        def compile(self, target_type: str, *args: Any, **kwargs: Any) -> Any:
            if target_type != "cubin":
                return original.compile(self, target_type, *args, **kwargs)
            if self.numba_ptxlink_ptx is None:
                return original.compile(self, "ptx", *args, **kwargs)
            # The original would call nvJitLink, which can make PTX of LTO-IR, but not of PTX.
            from cuda.core import Linker, ObjectCode

            code = ObjectCode.from_ptx(self.numba_ptxlink_ptx, name=self.numba_ptxlink_name)
            return Linker(code, options={"name": self.numba_ptxlink_name}).link("cubin")

    return Program


def _linker_type(original: Any) -> type:
    class Linker(original):  # type: ignore[misc]
        """A linker of `cuda.core` that links to PTX for "cubin", since the CPU device runs PTX."""

        numba_ptxlink_original = original

        # The original would start a linker here, which only other types than "cubin" need. Without it, there
        # is nothing to close, and the logs are empty: errors of `one_ptx` have their log.
        def __init__(self, *object_codes: Any, options: Any = None) -> None:
            self.numba_ptxlink_inputs, self.numba_ptxlink_options = object_codes, options

        def link(self, target_type: str) -> Any:
            if target_type != "cubin":
                return original(*self.numba_ptxlink_inputs, options=self.numba_ptxlink_options).link(
                    target_type
                )
            from cuda.core import ObjectCode

            inputs = []
            for code in self.numba_ptxlink_inputs:
                content = code.code.encode() if isinstance(code.code, str) else bytes(code.code)
                inputs.append(Input(CORE_KINDS[code.code_type], code.name or f"<{code.code_type}>", content))
            arch = _option(self.numba_ptxlink_options, "arch") or device.settings().arch
            lto = bool(_option(self.numba_ptxlink_options, "link_time_optimization"))
            ptx = one_ptx(inputs, Arch.of(arch), _options(lto=lto))
            return ObjectCode.from_ptx(ptx, name=_option(self.numba_ptxlink_options, "name") or "")

        def get_error_log(self) -> str:
            return ""

        def get_info_log(self) -> str:
            return ""

        def close(self) -> None:
            pass

    return Linker
