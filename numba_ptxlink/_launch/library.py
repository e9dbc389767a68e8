"""Load what an export wrote, and launch its kernels: `load`."""

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
from numba_ptxlink.errors import LaunchError, shown

from .arrays import DeviceArguments, Types
from .values import Parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from .on_cpu import CompiledCode

    class Export(Protocol):
        """What is asked of the result of `export`, which lies above this module."""

        @property
        def manifest(self) -> Path:
            """The manifest's path."""

        @property
        def contents(self) -> Mapping[str, bytes]:
            """What each file holds, by name."""


__all__ = ["Library", "LoadedKernel", "load"]

Item = TypeVar("Item")


@overload
def load(
    source: str | os.PathLike[str] | Export,
    *,
    device: None = None,
    checks: bool = True,
    steps: int | None = None,
) -> Library[LoadedKernel]: ...


@overload
def load(
    source: str | os.PathLike[str] | Export,
    *,
    device: Literal["cpu"],
    checks: bool = True,
    steps: int | None = None,
) -> Library[Any]: ...


def load(
    source: str | os.PathLike[str] | Export,
    *,
    device: Literal["cpu"] | None = None,
    checks: bool = True,
    steps: int | None = None,
) -> Library[Any]:
    """
    Return the kernels of an export, to be launched. Imports neither Numba nor another front end.

    The driver is not asked before the first launch. The code is then loaded once for all devices and contexts
    of the process.

    On the CPU, which needs llvmlite and NumPy, kernels are launched on NumPy arrays, and functions called:
    `library.damp(2.0, 0.5)`. Arguments are compared as for a device. A number may be an array of them, and a
    struct one of records: then the function is called for each element, by NumPy's rules of broadcasting, and
    returns an array. The export's PTX is compiled to machine code before this returns.

    Args:
        source: The path of the manifest, such as "build/udfs.json", or an `Export`, also one in memory.
        device: "cpu" to run on the CPU, None on the GPU.
        checks: Whether each access to memory on the CPU is compared with the arrays that were passed and the
            memory that the code declares.
        steps: How often a loop may go on in each thread on the CPU, before it counts as endless; None for no
            limit.

    Raises:
        LaunchError: There is no manifest, it does not describe the kernels, *device* is no device, or *steps*
            is below 1. On the CPU also: there is no llvmlite, or the export has no PTX.
    """
    if device not in (None, "cpu"):
        raise LaunchError(f'device is {shown(device)}; pass "cpu", or None for the GPU.')
    if not isinstance(checks, bool):
        raise LaunchError(f"checks is {shown(checks)}; pass True or False.")
    if steps is not None and not (type(steps) is int and 0 < steps < 1 << 63):
        raise LaunchError(f"steps is {shown(steps)}; pass a whole number from 1 on, or None for no limit.")
    try:
        return _library(source, device, checks=checks, steps=steps)
    except LaunchError:
        raise
    except Exception as error:
        raise LaunchError(
            f"The export could not be loaded: {type(error).__name__}: {error}; give the path of an export's "
            ".json file, or an Export, and export again where a file is damaged or of another release."
        ) from error


def _library(
    source: str | os.PathLike[str] | Export, device: str | None, *, checks: bool, steps: int | None
) -> Library[Any]:
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
    _cpu.require()
    return Library(manifest, content_of, checks=checks, steps=steps)


class Library(Mapping[str, Item]):
    """
    The kernels of an export by name, which are attributes too: `library.scale` is `library["scale"]`.

    On the CPU it has the functions of the export as well. A kernel or function that is named like a method,
    such as `read`, hides it as an attribute; call `Library.read(library, "ptx")` then. Thread-safe.

    Args:
        manifest: What the export says of itself.
        content_of: Returns the content of one of its files, by name.
        cpu: How code runs on the CPU, as `load` takes it; for devices nothing.
    """

    def __init__(self, manifest: manifests.Manifest, content_of: Callable[[str], bytes], **cpu: Any) -> None:
        # An export may have any name that C allows: these begin with an underscore and a capital.
        self.__manifest = manifest
        self.__content_of = content_of
        self.__artifacts = {
            (str(entry["kind"]), str(entry["arch"] or "")): str(entry["file"]) for entry in manifest.artifacts
        }
        makers: dict[str, Callable[..., Any]] = {"kernel": LoadedKernel}
        if cpu:
            # Deferred: a launch on a device needs no NumPy.
            from . import on_cpu

            # The first that was asked for: they differ where a link file asks for `__CUDA_ARCH__`.
            arch = next((arch for kind, arch in self.__artifacts if kind == PTX), None)
            code: _Device | CompiledCode = on_cpu.CompiledCode(self.read(PTX, arch), **cpu)
            makers["function"] = on_cpu.CpuFunction
        else:
            code = _Device(functools.partial(self.read, KERNELS), str(manifest.path))
        self.__items: dict[str, Item] = {
            function["symbol"]: makers[function["kind"]](code, function, manifest.types)
            for function in manifest.functions
            if function["kind"] in makers
        }
        vars(self).update(self.__items)

    def __getitem__(self, name: str) -> Item:
        if name not in self.__items:
            known = ", ".join(self.__items) or "nothing"
            is_function = any(name == each["symbol"] for each in self.__manifest.functions)
            called = "; load the export with device='cpu' to call a function" if is_function else ""
            raise _NoKernelError(f"{shown(name)} is not loaded: the export has {known}{called}.")
        return self.__items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.__items)

    def __len__(self) -> int:
        return len(self.__items)

    def __getattr__(self, name: str) -> Item:
        # A copy that is being made has nothing yet.
        if "_Library__items" not in vars(self):
            raise AttributeError(name)
        return self[name]

    def read(self, kind: str, arch: ArchLike | None = None) -> bytes:
        """
        Return an artifact of the export, such as its LTO-IR for another linker.

        Args:
            kind: Such as "ltoir" or "ptx".
            arch: The GPU it is for, such as "sm_90" or (9, 0); may be left out where there is one of *kind*.

        Raises:
            LaunchError: There is none or several, it could not be read, or it is not of this export.
        """
        path, sm = self.__manifest.path, Arch.of(arch).sm if arch else ""
        chosen = [key for key in self.__artifacts if key[0] == kind and sm in {"", key[1]}]
        if len(chosen) != 1:
            have = ", ".join(" for ".join(filter(None, key)) for key in self.__artifacts) or "none"
            what = f"{len(chosen) or 'no'} artifacts of {' for '.join(filter(None, (kind, sm)))}"
            raise LaunchError(f"{path} lists {what}; it has {have}: name one, or export it.")
        name = self.__artifacts[chosen[0]]
        try:
            content = self.__content_of(name)
        except (KeyError, OSError) as error:
            reason = getattr(error, "strerror", "it is not there")
            raise LaunchError(f"{name} could not be read: {reason}; keep it beside {path.name}.") from error
        if manifests.digest(content) != self.__manifest.digests[name]:
            raise LaunchError(f"{name} is not what {path} lists; export again.")
        return content


class _NoKernelError(LaunchError, AttributeError, KeyError):
    """A `Library` has no kernel of a name, which Python asks for as an attribute or as an item."""

    # That of a KeyError is in quotes.
    __str__ = Exception.__str__


class _Device:
    """
    The code of an export for every context of the process, which a driver loads when it is first needed.

    Args:
        read: Returns the fat binary.
        name: Its name in messages.
    """

    memory = DeviceArguments

    def __init__(self, read: Callable[[], bytes], name: str) -> None:
        self._read, self._name = read, name
        self._lock = Lock()
        self._library = 0

    def handle(self, name: str) -> int:
        """Return the driver's `CUkernel` of a name."""
        with self._lock.held:
            if not self._library:
                self._library = driver.load(self._read(), self._name)
        return driver.kernel(self._library, name)

    def launch(
        self,
        kernel: LoadedKernel,
        launch_config: Configuration,
        arguments: Sequence[bytes],
        memory: DeviceArguments,
    ) -> None:
        """Launch a kernel in a current context, once the streams of its arrays have got so far."""
        driver.enter(launch_config.stream)
        for name, address in memory.addresses:
            device = driver.inaccessible_device(address)
            if device is not None:
                raise LaunchError(
                    f"Kernel {kernel.name}: parameter {name!r} is in the memory of device {device}, which "
                    f"the device of this launch cannot access; make device {device} current, copy the "
                    "array, or enable access between peers."
                )
        for producer in memory.producers:
            driver.wait(launch_config.stream, producer)
        offsets = [formal.offset for formal in kernel.parameters.formals]
        buffer = bytearray()
        for offset, argument in zip(offsets, arguments, strict=True):
            buffer += bytes(offset - len(buffer)) + argument
        driver.launch(kernel.handle, launch_config, buffer, offsets, kernel.name)


class LoadedKernel(Launchable):
    """
    A kernel of an export: `kernel[grid, block](...)`, `kernel[grid, block, stream, shared](...)`.

    Thread-safe. A `Library` makes them.

    Args:
        code: What launches it.
        function: The kernel, as the manifest describes it.
        types: The C types of its parameters by name.
    """

    def __init__(self, code: _Device | CompiledCode, function: Mapping[str, Any], types: Types) -> None:
        super().__init__(str(function["symbol"]))
        self.declaration = str(function["declaration"])
        self.parameters = Parameters(f"Kernel {self.name}", function["parameters"], types)
        self._code = code
        self._cooperative = function.get("cooperative") is True
        self._handle = 0

    def __repr__(self) -> str:
        return f"<{self.declaration.removesuffix(';')}>"

    def _run(self, args: tuple[Any, ...], launch_config: Configuration) -> None:
        memory: Any = self._code.memory(launch_config.stream)
        self._code.launch(self, launch_config, self.parameters.read(args, memory), memory)

    @property
    def handle(self) -> int:
        """The driver's `CUkernel`, which is loaded when it is first asked for."""
        # Not a cached_property: before Python 3.12 its lock could be held for ever in a forked child.
        if not self._handle:
            self._handle = self._code.handle(self.name)
        return self._handle
