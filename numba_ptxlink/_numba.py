"""
The seam to numba-cuda: every one of its internals that this package relies on or replaces is named here.

The replacements let device code be compiled without a driver and for the architecture that was asked for.
They are tables of wrappers, applied for good by the plugin and for the length of one call by the export.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from . import _names, _numba_cache, _nvvm
from ._numba_fixes import FIXES

if TYPE_CHECKING:
    from ._target import Arch

SUPPORTED = ((0, 30, 4), (0, 31))
"""The numba-cuda releases this module was written against: from the first, to before the second."""

DRIVER = "numba.cuda.cudadrv.driver"

Wrap = Callable[[Any], Any]


@dataclass(frozen=True)
class Substitution:
    """
    One attribute of numba-cuda and what takes its place.

    Args:
        module: Where it lives.
        path: Its dotted path inside the module.
        wrap: Makes the replacement out of the original.
        bound: Whether other modules of numba-cuda may hold it by the same name, and get the replacement too.
    """

    module: str
    path: str
    wrap: Wrap
    bound: bool = False

    def owner(self) -> Any:
        """Return the module or class that holds the attribute."""
        *parents, _ = self.path.split(".")
        return functools.reduce(getattr, parents, importlib.import_module(self.module))

    @property
    def attribute(self) -> str:
        """The attribute's own name."""
        return self.path.rpartition(".")[2]


def unsupported_reason() -> str | None:
    """Return why the numba-cuda that is installed cannot be served, None where it can. Imports no numba."""
    try:
        from numba_cuda import __version__ as version
    except ImportError:
        return "numba-cuda is not installed"
    low, high = SUPPORTED
    try:
        release = tuple(int(part) for part in version.split(".")[:3])
    except ValueError:
        release = (0, 0)
    if not low <= release < high:
        wanted = ",".join(f"{sign}{'.'.join(map(str, bound))}" for sign, bound in ((">=", low), ("<", high)))
        return f"numba-cuda {version} is not supported; install numba-cuda{wanted}"
    driver = sys.modules.get(DRIVER)
    if driver is not None and getattr(driver, "__name__", DRIVER) != DRIVER:
        return "the CUDA simulator is in use (NUMBA_ENABLE_CUDASIM)"
    return None


def current_cc() -> tuple[Any, ...]:
    """Return the compute capability of the device, or numba-cuda's default where there is no device."""
    from numba.cuda import api, compiler
    from numba.cuda.cudadrv.error import CudaDriverError, CudaSupportError

    try:
        cc = tuple(api.get_current_device().compute_capability)
    except (CudaSupportError, CudaDriverError):
        return tuple(compiler._default_cc(None))
    return (cc[0], cc[1], "a" if cc >= (9, 0) else "")


def compile_function(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    result: Any,
    arch: Arch,
    *,
    debug: bool = False,
    lineinfo: bool = False,
    fastmath: bool = False,
    opt: bool = True,
) -> Any:
    """Compile *function* with Numba's ABI, as far as LLVM IR, and return the CUDACompileResult. No driver."""
    from numba.cuda.compiler import compile_cuda
    from numba.cuda.core.compiler_lock import global_compiler_lock

    with global_compiler_lock, applied(DRIVERLESS):
        return compile_cuda(
            function,
            result,
            args,
            debug=debug,
            lineinfo=lineinfo,
            fastmath=fastmath,
            nvvm_options={"fastmath": fastmath, "opt": 3 if opt else 0},
            cc=arch.cc,
        )


def compile_ir(modules: Sequence[str], **options: Any) -> bytes:
    """Compile LLVM IR with NVVM, as numba-cuda does, or take the result out of the cache."""
    from numba.cuda.cudadrv import nvvm

    with applied(NVVM):
        code: bytes = nvvm.compile_ir(list(modules), **options)
        return code


def ordered_modules(libraries: Sequence[Any]) -> list[str]:
    """
    Return the LLVM IR of *libraries* and all they call, each once, callers first.

    Names and order are those of `_names`: the same in every process.
    """
    for library in _all_libraries(libraries):
        for name, variable in _module(library).globals.items() if _module(library) else ():
            # Device code has no use for the environment that CPU code finds by this symbol.
            if name.startswith("_ZN08NumbaEnv"):
                variable.linkage = "internal"
    return list(_renamed(libraries).texts)


def _renamed(libraries: Sequence[Any], *, keep_visible: bool = False) -> _names.Renamed:
    """Return the program that *libraries* are the roots of, under names that depend on it alone."""
    given = dict.fromkeys((*libraries, *_all_libraries(libraries)))
    modules = {each: _names.Module(str(_module(each))) for each in given if _module(each) is not None}
    roots = [modules[each] for each in libraries if each in modules]
    kept = [name for root in roots for name in root.visible] if keep_visible else ()
    return _names.rename(_names.in_order(list(modules.values()), len(roots)), kept)


def _all_libraries(libraries: Sequence[Any]) -> list[Any]:
    reached: dict[int, Any] = {}
    pending = list(libraries)
    while pending:
        library = pending.pop()
        if id(library) not in reached:
            reached[id(library)] = library
            pending.extend(_linked(library))
    return list(reached.values())


def _linked(library: Any) -> Sequence[Any]:
    # Code that is linked as a file calls nothing that Numba knows of.
    return tuple(getattr(library, "_linking_libraries", ()))


def _module(library: Any) -> Any:
    return next(iter(library.modules), None)


_originals: dict[tuple[str, str], Any] = {}


def apply(substitution: Substitution) -> bool:
    """Put the replacement in place; return whether it was not there yet."""
    key = (substitution.module, substitution.path)
    if key in _originals:
        return False
    owner = substitution.owner()
    original = owner.__dict__[substitution.attribute]
    replacement = substitution.wrap(original)
    setattr(owner, substitution.attribute, replacement)
    if substitution.bound:
        bind_everywhere(original, replacement, substitution.attribute)
    _originals[key] = original
    return True


def undo(substitution: Substitution) -> None:
    """Put back what stood there."""
    original = _originals.pop((substitution.module, substitution.path), None)
    if original is not None:
        owner = substitution.owner()
        replacement = owner.__dict__[substitution.attribute]
        setattr(owner, substitution.attribute, original)
        if substitution.bound:
            bind_everywhere(replacement, original, substitution.attribute)


@contextlib.contextmanager
def applied(substitutions: tuple[Substitution, ...]) -> Iterator[None]:
    """Keep *substitutions* in place for the length of a `with` block."""
    fresh = [each for each in substitutions if apply(each)]
    try:
        yield
    finally:
        for each in fresh:
            undo(each)


class _Requested(threading.local):
    cc: tuple[Any, ...] | None = None


_requested = _Requested()


def _wrap_get_current_device(original: Any) -> Any:
    @functools.wraps(original)
    def get_current_device() -> Any:
        if _requested.cc is None:
            return original()
        return SimpleNamespace(compute_capability=_requested.cc)

    return get_current_device


def _wrap_compile_device(original: Any) -> Any:
    from numba.cuda.core.targetconfig import ConfigStack

    @functools.wraps(original)
    def compile_device(self: Any, args: Any, return_type: Any = None) -> Any:
        flags = ConfigStack.top_or_none()
        cc = getattr(flags, "compute_capability", None) or current_cc()[:2]
        # numba-cuda keeps one result for all architectures, and code for one is wrong for another.
        by_cc = self.__dict__.setdefault("_ptxlink_by_cc", {})
        compiled = by_cc.get((args, tuple(cc)))
        if compiled is not None:
            self.overloads[args] = compiled
            return compiled
        ours = any(known_args == args for known_args, _ in by_cc)
        if ours:
            self.overloads.pop(args, None)
        outer, _requested.cc = _requested.cc, tuple(cc)
        try:
            compiled = original(self, args, return_type)
        finally:
            _requested.cc = outer
        by_cc[(args, tuple(cc))] = compiled
        return compiled

    return compile_device


def _wrap_ensure_cc(original: Any) -> Any:
    @functools.wraps(original)
    def _ensure_cc(self: Any, cc: Any) -> Any:
        return original(self, cc if cc is not None else getattr(self, "_ptxlink_cc", None))

    return _ensure_cc


def _wrap_compile_cuda(original: Any) -> Any:
    @functools.wraps(original)
    def compile_cuda(*args: Any, **kwargs: Any) -> Any:
        compiled = original(*args, **kwargs)
        # Device functions that it calls have been compiled before it.
        _last.compiled = compiled
        return compiled

    return compile_cuda


class _Last(threading.local):
    compiled: Any = None


_last = _Last()


def take_compiled() -> Any:
    """Return the CUDACompileResult of what this thread compiled last, and forget it."""
    compiled, _last.compiled = _last.compiled, None
    return compiled


class _Looking(threading.local):
    names: Sequence[str] = ()


_looking = _Looking()


def _wrap_kernel_init(original: Any) -> Any:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it stands for one
        from numba.cuda.dispatcher import reshape_funcs

        _looking.names = (*reshape_funcs, *self.NRT_functions)
        try:
            original(self, *args, **kwargs)
        finally:
            _looking.names = ()
        # It took the name out of the module, before the program was renamed.
        self.entry_name = self._codelibrary._entry_name

    return __init__


def _wrap_get_asm_str(original: Any) -> Any:
    from numba.cuda.core import config

    @functools.wraps(original)
    def get_asm_str(self: Any, cc: Any = None) -> Any:
        # A new kernel is asked for its PTX, which with LTO nobody needs, to look for a few names in it. It
        # has none that its LLVM IR has not.
        names = _looking.names
        if (
            names
            and not config.DUMP_ASSEMBLY
            and not any(n in text for text in self.llvm_strs for n in names)
        ):
            return ""
        return original(self, cc)

    return get_asm_str


def _wrap_link_all(original: Any) -> Any:
    @functools.wraps(original)
    def _link_all(self: Any, linker: Any, cc: Any, ignore_nonlto: bool = False) -> Any:
        choose = getattr(linker, "choose_lto", None)
        if choose is not None:
            options = self._nvvm_options
            choose(
                has_link_files=bool(self._linking_files or self.needs_cudadevrt),
                debug="g" in options,
                # The linker does not flush denormals where it converts between float types, and optimises
                # what NVVM was told not to.
                by_linker=bool(options.get("fastmath")) or not options.get("opt", 3),
            )
            linker.describe(getattr(self, "_ptxlink_origin", self.name), self.llvm_strs)
        original(self, linker, cc, ignore_nonlto)
        order = getattr(linker, "order_files", None)
        if order is not None:
            order(1 if linker.lto else len(self.get_asm_strs(cc=cc)))

    return _link_all


def _wrap_llvm_strs(original: Any) -> Any:
    @functools.wraps(original.fget)
    def llvm_strs(self: Any) -> Any:
        if self._llvm_strs is None:
            # A kernel is looked up by the name kept here; a device function's caller knows it by its own.
            made = _renamed([self], keep_visible=self._entry_name is None)
            self._llvm_strs = list(made.texts)
            self._entry_name = made.names.get(self._entry_name, self._entry_name)
        return self._llvm_strs

    return property(llvm_strs)


NVVM = (
    # The module that names it, since NVVM's own is imported before the plugin is.
    Substitution("numba.cuda.codegen", "nvvm.compile_ir", _nvvm.wrap_compile_ir),
    Substitution("numba.cuda.codegen", "nvvm.CompilationUnit.get_log", _nvvm.wrap_get_log),
)
"""What makes NVVM's output come out of the cache."""

DRIVERLESS = (
    Substitution("numba.cuda.dispatcher", "get_current_device", _wrap_get_current_device),
    Substitution("numba.cuda.dispatcher", "CUDADispatcher.compile_device", _wrap_compile_device),
)
"""What lets device functions call device functions without a driver."""

SUBSTITUTIONS = (
    *DRIVERLESS,
    *(Substitution(*each) for each in FIXES),
    *NVVM,
    Substitution("numba.cuda.codegen", "CUDACodeLibrary._ensure_cc", _wrap_ensure_cc),
    Substitution("numba.cuda.codegen", "CUDACodeLibrary.get_asm_str", _wrap_get_asm_str),
    Substitution("numba.cuda.codegen", "CUDACodeLibrary._link_all", _wrap_link_all),
    Substitution("numba.cuda.codegen", "CUDACodeLibrary.llvm_strs", _wrap_llvm_strs),
    Substitution("numba.cuda.codegen", "CUDACodeLibrary._rebuild", _numba_cache.wrap_rebuild_library),
    Substitution("numba.cuda.codegen", "CUDACodeLibrary._reduce_states", _numba_cache.wrap_reduce_states),
    Substitution("numba.cuda.dispatcher", "_Kernel.__init__", _wrap_kernel_init),
    Substitution("numba.cuda.dispatcher", "CUDACache._index_key", _numba_cache.wrap_index_key),
    Substitution("numba.cuda.dispatcher", "Cache._load_overload", _numba_cache.wrap_load_overload),
    Substitution("numba.cuda.dispatcher", "Cache._save_overload", _numba_cache.wrap_save_overload),
    Substitution("numba.cuda.dispatcher", "CUDACacheImpl.rebuild", _numba_cache.wrap_rebuild_kernel),
    Substitution("numba.cuda.dispatcher", "CUDADispatcher.enable_caching", _numba_cache.wrap_enable_caching),
    Substitution("numba.cuda.compiler", "compile_cuda", _wrap_compile_cuda),
)
"""What the plugin replaces besides the linker class."""

HOOKED = frozenset({DRIVER, *(each.module for each in SUBSTITUTIONS)})
"""The modules whose import the plugin waits for."""


def bind_everywhere(old: Any, new: Any, attribute: str = "_Linker") -> None:
    """Replace *old* by *new* wherever a module of numba-cuda has bound it by the name *attribute*."""
    for name, module in list(sys.modules.items()):
        if (
            name.startswith("numba.cuda")
            and isinstance(module, ModuleType)
            and module.__dict__.get(attribute) is old
        ):
            setattr(module, attribute, new)
