"""
Load the files of an export by `load`, and launch the kernels.

The manifest, a JSON file, describes the kernels and lists the other files. On a GPU, the driver loads the fat
binary of the kernels; on the CPU, the PTX is translated to machine code.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from numba_ptxlink import _cpu
from numba_ptxlink._arch import Arch, ArchLike
from numba_ptxlink._formats.kinds import KERNELS, PTX
from numba_ptxlink._link import manifests
from numba_ptxlink._locks import Lock
from numba_ptxlink._tools import driver
from numba_ptxlink._tools.launching import Configuration, Launchable
from numba_ptxlink.errors import LaunchError, short_repr

from .arrays import DeviceArrayReader, Types
from .values import Parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from numba_ptxlink._cpu.checks import CpuChecks
    from numba_ptxlink._link.manifests import Function

    from .on_cpu import CompiledCode

    class Export(Protocol):
        """The attributes of the result of `export` that `load` reads; its class is in a higher layer."""

        @property
        def manifest(self) -> Path:
            """The manifest's path."""

        @property
        def contents(self) -> Mapping[str, bytes]:
            """The content of each file, by name."""


__all__ = ["Library", "LoadedKernel", "load"]

# A `LoadedKernel`; on the CPU also a `CpuFunction`.
Item = TypeVar("Item")


@overload
def load(
    source: str | os.PathLike[str] | Export,
    *,
    device: None = None,
    checks: CpuChecks = True,
    steps: int | None = None,
) -> Library[LoadedKernel]: ...


@overload
def load(
    source: str | os.PathLike[str] | Export,
    *,
    device: Literal["cpu"],
    checks: CpuChecks = True,
    steps: int | None = None,
) -> Library[Any]: ...


def load(
    source: str | os.PathLike[str] | Export,
    *,
    device: Literal["cpu"] | None = None,
    checks: CpuChecks = True,
    steps: int | None = None,
) -> Library[Any]:
    """
    Return the kernels of an export, to be launched. Imports neither Numba nor another front end.

    The driver is used from the first launch on, which loads the code for all devices and contexts of the
    process.

    On the CPU, which needs llvmlite and NumPy, kernels are launched on NumPy arrays, and functions are
    called: `library.damp(2.0, 0.5)`. Arguments are checked as for a device. An argument may be an array of
    numbers instead of a number, or an array of records instead of a struct: then the function is called for
    each element, by NumPy's rules of broadcasting, and returns an array.

    Args:
        source: The path of the manifest, such as "build/udfs.json", or an `Export`, also one in memory.
        device: "cpu" to run on the CPU; None to run on the GPU.
        checks: The checks on the CPU: True for memcheck, which compares each access to memory with the passed
            arrays and the memory that the code declares; False for none; or a tuple of "memcheck",
            "initcheck", "racecheck" and "synccheck". Reports of the checks are logged as warnings.
        steps: The maximum number of iterations of all loops in a thread on the CPU; None for no limit.

    Raises:
        LaunchError: There is no manifest, it does not describe the kernels, *device* or a check is unknown,
            or *steps* is below 1. On the CPU also: llvmlite is missing, or the export has no PTX.
    """
    if device not in (None, "cpu"):
        raise LaunchError(f'device is {short_repr(device)}; pass "cpu", or None for the GPU.')
    if not isinstance(checks, bool):
        # Deferred, since few programs choose checks by name.
        from numba_ptxlink._cpu.checks import parse

        checks = parse(checks)
    if steps is not None and not (type(steps) is int and 0 < steps < 1 << 63):
        raise LaunchError(
            f"steps is {short_repr(steps)}; pass a whole number from 1 on, or None for no limit."
        )
    try:
        return _open_library(source, device, checks=checks, steps=steps)
    except LaunchError:
        raise
    except Exception as error:
        raise LaunchError(
            f"The export could not be loaded: {type(error).__name__}: {error}; give the path of an export's "
            ".json file, or an Export, and export again if a file is damaged or of another release."
        ) from error


def _open_library(
    source: str | os.PathLike[str] | Export, device: str | None, *, checks: CpuChecks, steps: int | None
) -> Library[Any]:
    """
    Return the kernels of an export for the arguments of `load`, which has checked all but *source*.

    A damaged manifest may raise any exception.
    """
    if isinstance(source, (str, os.PathLike)):
        path = Path(os.fsdecode(source))

        def content_of(name: str, /) -> bytes:
            return path.with_name(name).read_bytes()

    else:
        path, content_of = source.manifest, source.contents.__getitem__
    manifest = manifests.parse(content_of(path.name), path)
    if manifest is None:
        raise ValueError(f"{path} is not a manifest of this release")
    if device is None:
        return Library(manifest, content_of)
    _cpu.require_packages()  # Raises a LaunchError if llvmlite is missing.
    return Library(manifest, content_of, checks=checks, steps=steps)


class Library(Mapping[str, Item]):
    """
    The kernels of an export by name, which are attributes, too: `library.scale` is `library["scale"]`.

    On the CPU, it also contains the functions of the export. A kernel or function named like a method, such
    as `read`, hides the method: then call `Library.read(library, "ptx")`. Thread-safe.

    Args:
        manifest: The manifest of the export.
        content_of: Returns the content of a file of the export, by name.
        cpu_options: `checks` and `steps` of `load` for the CPU; empty for the GPU.
    """

    def __init__(
        self, manifest: manifests.Manifest, content_of: Callable[[str], bytes], **cpu_options: Any
    ) -> None:
        # Two underscores, so that no kernel hides a private attribute: Python stores `_Library__manifest`.
        # Kernels cannot have such names, since C reserves an underscore before a capital.
        self.__manifest = manifest
        self.__content_of = content_of
        # The file of each artifact, by kind and architecture, such as ("ptx", "sm_90") or ("kernels", "").
        self.__artifacts = {(artifact.kind, artifact.arch): artifact.file for artifact in manifest.artifacts}
        item_types: dict[str, Callable[..., Any]] = {"kernel": LoadedKernel}
        if cpu_options:
            # Deferred, since a launch on a device needs no NumPy.
            from . import on_cpu

            # `read` needs an architecture if there are several, since their PTX may differ: CUDA C++ in the
            # export may test `__CUDA_ARCH__`. The CPU can run each: take the first one in the manifest.
            arch = next((arch for kind, arch in self.__artifacts if kind == PTX), None)
            # Without PTX in the export, `read` raises a LaunchError.
            code: _DriverCode | CompiledCode = on_cpu.CompiledCode(self.read(PTX, arch), **cpu_options)
            item_types["function"] = on_cpu.CpuFunction
        else:
            code = _DriverCode(functools.partial(self.read, KERNELS), str(manifest.path))
        self.__items: dict[str, Item] = {
            function.symbol: item_types[function.kind](code, function, manifest.types)
            for function in manifest.functions
            if function.kind in item_types
        }
        vars(self).update(self.__items)

    def __getitem__(self, name: str) -> Item:
        if name not in self.__items:
            known = ", ".join(self.__items) or "nothing"
            is_function = any(name == function.symbol for function in self.__manifest.functions)
            hint = "; load the export with device='cpu' to call a function" if is_function else ""
            raise _NoKernelError(f"{short_repr(name)} is not loaded: the export has {known}{hint}.")
        return self.__items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.__items)

    def __len__(self) -> int:
        return len(self.__items)

    def __getattr__(self, name: str) -> Item:
        # `copy` and `pickle` look up methods before a new object has attributes: `self[name]` would not end.
        if "_Library__items" not in vars(self):
            raise AttributeError(name)
        return self[name]

    def read(self, kind: str, arch: ArchLike | None = None) -> bytes:
        """
        Return an artifact of the export, such as its LTO-IR for another linker.

        Args:
            kind: The kind, such as "ltoir" or "ptx".
            arch: The GPU that it is for, such as "sm_90" or (9, 0); None if there is only one artifact of
                *kind*.

        Raises:
            LaunchError: No artifact matches, or several do; it could not be read, or is of another export.
        """
        path = self.__manifest.path
        sm = Arch.of(arch).sm if arch else ""  # "" matches each architecture.
        matching = [
            (listed_kind, listed_sm)
            for listed_kind, listed_sm in self.__artifacts
            if listed_kind == kind and sm in {"", listed_sm}
        ]
        if len(matching) != 1:
            listed_artifacts = (
                ", ".join(" for ".join(filter(None, key)) for key in self.__artifacts) or "none"
            )
            description = f"{len(matching) or 'no'} artifacts of {' for '.join(filter(None, (kind, sm)))}"
            raise LaunchError(
                f"{path} lists {description}; pass the kind and arch of a listed one ({listed_artifacts}), "
                "or export the missing one."
            )
        name = self.__artifacts[matching[0]]
        try:
            content = self.__content_of(name)
        except (KeyError, OSError) as error:
            reason = getattr(error, "strerror", "the export does not contain it")
            raise LaunchError(f"{name} could not be read: {reason}; keep it beside {path.name}.") from error
        if manifests.digest(content) != self.__manifest.digests[name]:
            raise LaunchError(f"{name} does not match the digest in {path}; export again.")
        return content


class _NoKernelError(LaunchError, AttributeError, KeyError):
    """
    A `Library` has no kernel of the name by which an attribute or an item was accessed.

    As an AttributeError it lets `hasattr(library, name)` return False, as a KeyError `name in library`.
    """

    # KeyError.__str__ would quote the message.
    __str__ = Exception.__str__


class _DriverCode:
    """
    The code of an export for all contexts of the process, which the driver loads on first use.

    Args:
        read: Returns the fat binary.
        name: The name for messages.
    """

    reader_class = DeviceArrayReader
    """The class that reads the arrays among the arguments of a launch."""

    def __init__(self, read: Callable[[], bytes], name: str) -> None:
        self._read, self._name = read, name
        self._lock = Lock()
        self._library = 0  # The driver's handle, a `CUlibrary`; 0 before the code is loaded.

    def handle(self, name: str) -> int:
        """Return the driver's handle, a `CUkernel`, of the kernel *name*."""
        with self._lock.held:
            if not self._library:
                self._library = driver.load(self._read(), self._name)
        return driver.kernel(self._library, name)

    def launch(
        self,
        kernel: LoadedKernel,
        launch_config: Configuration,
        arguments: Sequence[bytes],
        reader: DeviceArrayReader,
    ) -> None:
        """Launch a kernel in the current context, after the pending work in the streams of its arrays."""
        driver.ensure_context(launch_config.stream)
        for name, address in reader.addresses:
            device = driver.inaccessible_device(address)
            if device is not None:
                raise LaunchError(
                    f"Kernel {kernel.name}: parameter {name!r} is in the memory of device {device}, which "
                    f"the device of this launch cannot access; make device {device} current, copy the "
                    "array, or enable peer access between the devices."
                )
        for producer in reader.producers:
            driver.wait(launch_config.stream, producer)
        offsets = [formal.offset for formal in kernel.parameters.formals]
        buffer = bytearray()
        for offset, argument in zip(offsets, arguments, strict=True):
            # Padding fills the gap before the argument.
            buffer += bytes(offset - len(buffer)) + argument
        driver.launch(kernel.handle, launch_config, buffer, offsets, kernel.name)


class LoadedKernel(Launchable):
    """
    A kernel of an export: `kernel[grid, block](...)`, `kernel[grid, block, stream, shared](...)`.

    Thread-safe. Created by a `Library`.

    Args:
        code: The loaded code of the export.
        function: The kernel, as the manifest describes it.
        types: The C types of its parameters by name.
    """

    def __init__(self, code: _DriverCode | CompiledCode, function: Function, types: Types) -> None:
        super().__init__(function.symbol)
        self.declaration = function.declaration
        self.parameters = Parameters(f"Kernel {self.name}", function.parameters, types)
        self._code = code
        self._cooperative = function.cooperative
        self._handle = 0  # 0 before the kernel is loaded.

    def __repr__(self) -> str:
        return f"<{self.declaration.removesuffix(';')}>"

    def _run(self, args: tuple[Any, ...], launch_config: Configuration) -> None:
        reader: Any = self._code.reader_class(launch_config.stream)
        arguments = self.parameters.read(args, reader)
        self._code.launch(self, launch_config, arguments, reader)

    @property
    def handle(self) -> int:
        """The driver's handle of the kernel, a `CUkernel`, which is loaded on first use."""
        # Not a cached_property, whose lock, before Python 3.12, could stay locked in a forked child.
        if not self._handle:
            self._handle = self._code.handle(self.name)
        return self._handle
