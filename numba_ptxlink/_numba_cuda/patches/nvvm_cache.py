"""NVVM's output out of the cache, found by LLVM IR whose names depend on the program alone."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

from numba_ptxlink._config import config
from numba_ptxlink._front_end.compiler import isolating, libdevice
from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda.context import DEBUG_VERSION, current, entered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numba_ptxlink import cache


_DEBUG = "!DICompileUnit"


def _wrap_compilation_unit(original: Any) -> Any:
    class CompilationUnit(isolating(original, _fail)):  # type: ignore[misc]
        """numba-cuda's, whose log is read."""

        def get_log(self) -> str:
            log: str = super().get_log()
            remarks = current().remarks
            if remarks is not None:
                remarks.append(log)
            return log

    return CompilationUnit


def _fail(unit: Any, _step: str, status: int) -> None:
    from numba.cuda.cudadrv.nvvm import nvvmError

    error = nvvmError(status)
    error.args = (f"{error}: {unit.get_log().strip()}",)
    raise error


def _wrap_check_options(original: Any) -> Any:
    @functools.wraps(original)
    def check_options(self: Any, options: Sequence[Any]) -> bool:
        from numba_ptxlink._tools import nvvm

        texts = tuple(each.decode() if isinstance(each, bytes) else each for each in options)
        if nvvm.spoils(texts):
            return nvvm.accepts(texts)
        accepted: bool = original(self, options)
        return accepted

    return check_options


def _wrap_llvm_strs(original: Any) -> Any:
    @functools.wraps(original.fget)
    def llvm_strs(self: Any) -> Any:
        if self._llvm_strs is None and config().cache:
            from numba_ptxlink._numba_cuda.modules import renamed

            # The driver finds a kernel by this name; callers of a device function use the function's own.
            # A kernel created outside the wrappers of this package has read its name already: keep it.
            program = renamed([self], keep_visible=self._entry_name is None or not current().sought)
            self._llvm_strs = list(program.texts)
            self._entry_name = program.names.get(self._entry_name, self._entry_name)
        if self._llvm_strs is None:
            # LTO refuses to link modules that differ in it.
            self._llvm_strs = [text.replace(*DEBUG_VERSION) for text in original.fget(self)]
        return self._llvm_strs

    return property(llvm_strs)


def _wrap_compile_ir(original: Callable[..., bytes]) -> Callable[..., bytes]:
    """Wrap numba-cuda's `compile_ir` to look its output up in the cache first."""

    @functools.wraps(original)
    def compile_ir(llvmir: str | Sequence[str], **options: Any) -> bytes:
        if not config().cache:
            return original(llvmir, **options)
        from numba_ptxlink import cache
        from numba_ptxlink._numba_cuda import stable_names

        texts = [llvmir] if isinstance(llvmir, str) else list(llvmir)
        # Names can be restored in PTX text, not in LTO-IR and debug information, which encode them as bytes.
        stable = current().stable
        fixed = {"gen_lto", "gen-lto", "g"} & options.keys() or any(_DEBUG in text for text in texts)
        modules = [] if stable else [stable_names.Module(text) for text in texts]
        renamed = stable_names.rename(modules, None if fixed else ())
        key = _key(texts if stable else [module.meaning(renamed.names) for module in modules], options)
        missed = False

        def make() -> cache.Entry:
            nonlocal missed
            missed = True
            remarks: list[str] = []
            with entered(remarks=remarks):
                code = original(texts if stable else list(renamed.texts), **options)
            return cache.Entry({"log": remarks[-1] if remarks else ""}, code)

        entry = cache.cached(key, make)
        if entry.log and not missed:
            from numba.cuda.cudadrv.error import NvvmWarning

            warnings.warn(entry.log, category=NvvmWarning, stacklevel=2)
        return (
            stable_names.restore(entry.code.decode(), renamed.names).encode() if renamed.names else entry.code
        )

    return compile_ir


def _key(modules: Sequence[str], options: Mapping[str, Any]) -> cache.Key:
    from numba_cuda import __version__ as numba_cuda

    from numba_ptxlink import cache
    from numba_ptxlink._tools import find

    return cache.Key.of(
        "nvvm",
        {
            "package": cache.package_version(),
            # numba-cuda rewrites the text before NVVM reads it.
            "numba-cuda": numba_cuda,
            "tool": ("NVVM", find.build_of("nvvm")),
            "libdevice": libdevice("numba.cuda"),
            # "fastmath" and a missing "-opt" change what numba-cuda passes to NVVM, too.
            "flags": [f"{name}={options[name]!r}" for name in sorted(options)],
            **{f"module {i}": module for i, module in enumerate(modules, start=1)},
        },
    )


NVVM = (
    # Patched by way of the module that uses it: NVVM's own is imported before the plugin.
    Substitution(
        "numba.cuda.codegen",
        "nvvm.compile_ir",
        _wrap_compile_ir,
        "NVVM's output is read from the cache where it was kept.",
        purpose="cache",
    ),
    Substitution(
        "numba.cuda.codegen",
        "nvvm.CompilationUnit",
        _wrap_compilation_unit,
        "NVVM's warnings are kept beside its output, and shown again; the error of code that it refuses has "
        "its log; a child process makes unoptimised code, after which NVVM compiles other code.",
        purpose="cache",
    ),
    Substitution(
        "numba.cuda.codegen",
        "nvvm.NVVM.check_options",
        _wrap_check_options,
        "A child process asks NVVM for options of unoptimised code.",
        purpose="cache",
    ),
)
"""The substitutions that cache NVVM's output; an export applies them, too."""

SUBSTITUTIONS = (
    Substitution(
        "numba.cuda.codegen",
        "CUDACodeLibrary.llvm_strs",
        _wrap_llvm_strs,
        "Names and order of a program's functions depend on the program alone, so that another process finds "
        "the code in the cache.",
        purpose="cache",
    ),
)
