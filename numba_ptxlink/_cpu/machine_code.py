"""Compile LLVM IR to machine code, and load it, with llvmlite. No other module of `_cpu` imports llvmlite."""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any

from numba_ptxlink._locks import Lock
from numba_ptxlink.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Let only one thread at a time use LLVM.
_lock = Lock()
# The end of the process waits at most this long for a compilation of another thread.
_MAX_WAIT_SECONDS = 60
# The LLVM of llvmlite 0.45, the oldest release that pyproject.toml allows.
_MIN_LLVM_VERSION = (20, 0, 0)
# A multiple of 16, the alignment that a coroutine declares for its frame.
_FRAME_ALIGNMENT_BYTES = 64


def stop_compiling() -> None:
    """
    Wait until no thread compiles, and let no thread compile later.

    Called at the end of the process, which destroys LLVM: a thread that still compiled would crash.
    """
    # The lock is never released, so that other threads wait for it until the process has ended.
    _lock.held.acquire(timeout=_MAX_WAIT_SECONDS)


@functools.cache
def _load_llvm() -> Any:
    import llvmlite.binding as llvm

    if llvm.llvm_version_info < _MIN_LLVM_VERSION:
        raise LaunchError(
            f"llvmlite with LLVM {llvm.llvm_version_info[0]} is too old to run kernels on the CPU; run: "
            "python -m pip install 'llvmlite>=0.45'"
        )
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@functools.cache
def target() -> Sequence[str]:
    """
    Return everything besides the IR that machine code depends on.

    Returns:
        The versions of llvmlite and of LLVM, the target triple, the name of the CPU, and its features.

    Raises:
        LaunchError: llvmlite is too old.
    """
    import llvmlite

    llvm = _load_llvm()
    release = ".".join(map(str, llvm.llvm_version_info))
    features = llvm.get_host_cpu_features().flatten()
    return llvmlite.__version__, release, llvm.get_default_triple(), llvm.get_host_cpu_name(), features


def add_symbol(name: str, address: int) -> None:
    """Define *name* as the function at an address of this process, for object code that is loaded later."""
    _load_llvm().add_symbol(name, address)


def _create_target_machine(optimization_level: int) -> Any:
    llvm = _load_llvm()
    *_, cpu, features = target()
    host = llvm.Target.from_default_triple()
    return host.create_target_machine(cpu=cpu, features=features, opt=optimization_level, jit=True)


def _parse(text: str, machine: Any) -> Any:
    llvm = _load_llvm()
    # {END} is the result type of `llvm.coro.end`, which is void since LLVM 22.
    text = text.replace("{END}", "void" if llvm.llvm_version_info >= (22, 0, 0) else "i1")
    # LLVM's passes for coroutines lay out frames, for which they need the alignments of the target.
    module = llvm.parse_assembly(f'target datalayout = "{machine.target_data}"\n{text}')
    module.verify()
    return module


def compile_ir(text: str) -> bytes:
    """Return the object code of a module of LLVM IR."""
    with _lock.held:
        llvm, machine = _load_llvm(), _create_target_machine(2)
        module = _parse(text, machine)
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
        builder.getModulePassManager().run(module, builder)
        return bytes(machine.emit_object(module))


def frame_size(ramp: int) -> int:
    """
    Return the bytes of a coroutine's frame, rounded up to a multiple of 64 for the alignment of the next one.

    Args:
        ramp: The address of the ramp, the function that starts the coroutine. If its last parameter, the
            address of the frame, is null, the ramp only returns the size.
    """
    # The parameters are COMMON_PARAMETERS (translator.py) and the frame: four pointers, the three integers
    # of threadIdx, and three pointers.
    pointer, integer = ctypes.c_void_p, ctypes.c_int32
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *[pointer] * 4, *[integer] * 3, *[pointer] * 3)(ramp)
    size = int(function(*[None] * 4, 0, 0, 0, *[None] * 3))
    return -(-size // _FRAME_ALIGNMENT_BYTES) * _FRAME_ALIGNMENT_BYTES


class LoadedCode:
    """
    Object code in memory, ready to run.

    The code may refer to symbols of object code that was added before it, and to those of `add_symbol`.

    Args:
        objects: Object code, as `compile_ir` returns it.
    """

    def __init__(self, *objects: bytes) -> None:
        with _lock.held:
            llvm = _load_llvm()
            # The engine needs a module: pass an empty one, with the optimisation level 0, since the objects
            # are compiled already.
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _create_target_machine(0))
            self.add(*objects)  # Takes the lock again, which is reentrant.
        self._addresses: dict[str, int] = {}

    def add(self, *objects: bytes) -> None:
        """Load more object code. Meanwhile other threads may run the code that is loaded already."""
        with _lock.held:
            for code in objects:
                self._engine.add_object_file(_load_llvm().object_file.ObjectFileRef.from_data(code))
            self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Return the address of a function or a variable."""
        if name not in self._addresses:
            # Hold the lock: a look-up also finalises code, which another thread may be loading.
            with _lock.held:
                self._addresses[name] = self._engine.get_global_value_address(name)
        return self._addresses[name]
