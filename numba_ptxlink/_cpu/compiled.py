"""
Compile a PTX module to machine code, each kernel or function at its first use.

A kernel is compiled with the functions that it calls. The variables of the module are compiled first, and all
kernels share them. All code is stored in the cache of this package.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink import cache
from numba_ptxlink._locks import Lock
from numba_ptxlink.errors import LaunchError

from . import machine_code, runtime
from .functions import translate
from .symbols import Symbols

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._formats import ptx


class CompiledEntry(NamedTuple):
    """
    The machine code of a kernel or function.

    Args:
        name: The kernel or function.
        address: The address of the code that executes a block of the kernel, or that calls the function for
            each element of arrays.
        frame_size: Bytes of the coroutine frame of a thread, if threads may suspend, so that the kernel is an
            LLVM coroutine; else None.
        local_size: Bytes of local memory for each thread.
        shared_size: Bytes of static shared memory for each block.
        access_count: The number of accesses in the code that memcheck checks.
        fault_sites: Function and statement index of each statement that can fault. A FaultRecord refers to a
            statement by its index in this list.
    """

    name: str
    address: int
    frame_size: int | None
    local_size: int
    shared_size: int
    access_count: int
    fault_sites: Sequence[Sequence[Any]]


class CompiledModule:
    """
    The machine code of a PTX module. Several threads may use it at the same time.

    Args:
        module: The PTX module.
        checks: The names of the requested checks, such as "memcheck".

    Attributes:
        symbols: The functions and variables of the module.
    """

    def __init__(self, module: ptx.Module, *, checks: frozenset[str]) -> None:
        self._module, self._checks = module, checks
        self.symbols = Symbols(module)
        variables = self.symbols.definitions()
        objects = [_compile_common("cpu variables", variables)] if variables else []
        self._code = machine_code.LoadedCode(_runtime_object(), *objects)
        self._entries: dict[str, CompiledEntry] = {}
        self._lock = Lock()

    def address(self, name: str) -> int:
        """Return the address of a function of the runtime, by its name, or of the variable x, as "v.x"."""
        return self._code.address(name)

    def entry(self, name: str) -> CompiledEntry:
        """Return a kernel or function; at its first use, compile it or load it from the cache."""
        entry = self._entries.get(name)
        if entry is None:
            with self._lock.held:
                # Another thread may have loaded it meanwhile.
                entry = self._entries.get(name)
                if entry is None:
                    entry = self._entries[name] = self._load(name)
        return entry

    def _load(self, name: str) -> CompiledEntry:
        """
        Compile a kernel or function, or take its code from the cache, and load the code.

        Raises:
            LaunchError: The function is no kernel, but may make a thread wait for other threads.
        """
        key_parts = {
            "package": cache.package_version(),
            "tool": machine_code.target(),
            "checks": ",".join(sorted(self._checks)),
            "entry": name,
            "ptx": self._module.text,
        }
        cache_entry = cache.cached(cache.Key.of("cpu entry", key_parts), lambda: self._compile(name))
        self._code.add(cache_entry.code)
        # Leave out `suspends`, which is no field of CompiledEntry, and the metadata that the cache adds.
        metadata = {
            field: cache_entry.meta[field] for field in CompiledEntry._fields if field in cache_entry.meta
        }
        if not cache_entry.meta["suspends"]:
            # Python calls the function "block.NAME" (of plain_block.ll) for a block of a kernel, and
            # "elementwise.NAME" for a function.
            prefix = "block" if self.symbols.functions[name].kind == "entry" else "elementwise"
            return CompiledEntry(name, self._code.address(f"{prefix}.{name}"), None, **metadata)
        if self.symbols.functions[name].kind != "entry":
            raise LaunchError(
                f"Function {name} has a barrier or a warp operation, and a direct call runs one thread; "
                "launch a kernel that calls it."
            )
        # The ramp of an LLVM coroutine is the function that starts it. `functions` makes the ramp return the
        # size of the frame if it gets no memory for one.
        frame_size = machine_code.frame_size(self._code.address(f"ramp.{name}"))
        return CompiledEntry(name, self._code.address(f"block.{name}"), frame_size, **metadata)

    def _compile(self, name: str) -> cache.Entry:
        translation = translate(self.symbols, name, checks=self._checks)
        metadata = translation._asdict()
        text = metadata.pop("text")
        return cache.Entry(metadata, machine_code.compile_ir(text))


@functools.cache
def _runtime_object() -> bytes:
    return _compile_common("cpu runtime", runtime.read_ir("runtime.ll"))


def _compile_common(kind: str, text: str) -> bytes:
    """
    Return the machine code of LLVM IR that all kernels of a module use, compiled or from the cache.

    Args:
        kind: The first part of the key in the cache: "cpu runtime" or "cpu variables".
        text: The LLVM module.
    """
    key = cache.Key.of(kind, {"tool": machine_code.target(), "ir": text})
    return cache.cached(key, lambda: cache.Entry({}, machine_code.compile_ir(text))).code
