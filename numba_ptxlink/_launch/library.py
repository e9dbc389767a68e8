"""Load what an export wrote, and launch its kernels: `load`."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from numba_ptxlink import _cpu
from numba_ptxlink._arch import Arch, ArchLike
from numba_ptxlink._formats.kinds import KERNELS
from numba_ptxlink._link import manifests
from numba_ptxlink._locks import Lock
from numba_ptxlink._tools import driver
from numba_ptxlink._tools.launching import Configuration, Launchable
from numba_ptxlink.errors import LaunchError, shown

from . import values
from .arrays import Launch, RefusedError, Types

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Export(Protocol):
        """What is asked of the result of `export`, which lies above this module."""

        @property
        def manifest(self) -> Path:
            """The manifest's path."""

        @property
        def contents(self) -> Mapping[str, bytes]:
            """What each file holds, by name."""


__all__ = ["Library", "LoadedKernel", "load"]


def load(
    source: str | os.PathLike[str] | Export,
    *,
    device: Literal["cpu"] | None = None,
    checks: bool = True,
    steps: int | None = None,
) -> Library:
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
        LaunchError: There is no manifest, it does not describe the kernels, or *device* is no device. On the
            CPU also: there is no llvmlite, or the export has no PTX.
    """
    if device not in (None, "cpu"):
        raise LaunchError(f'device is {shown(device)}; pass "cpu", or None for the GPU.')
    try:
        return _library(source, device, checks=checks, steps=steps)
    except LaunchError:
        raise
    except Exception as error:
        raise LaunchError(
            f"The export could not be loaded: {type(error).__name__}: {error}; give the path of an export's "
            ".json file, or an Export, and export again where a file is damaged or of another release."
        ) from error


def _library(source: str | os.PathLike[str] | Export, device: str | None, **on_cpu: Any) -> Library:
    if isinstance(source, (str, os.PathLike)):
        path = Path(os.fsdecode(source))
        files: Mapping[str, bytes] | Path = path.parent
        content = path.read_bytes()
    else:
        path, files = source.manifest, source.contents
        content = files[path.name]
    manifest = manifests.parse(content, path)
    if manifest is None:
        raise ValueError(f"{path} is not a manifest of this release")
    if device is None:
        return Library(manifest, files)
    _cpu.require()
    # Deferred: a launch on a device needs no NumPy.
    from .on_cpu import CpuLibrary

    return CpuLibrary(manifest, files, **on_cpu)


class Library(Mapping[str, "LoadedKernel"]):
    """
    The kernels of an export by name, which are attributes too: `library.scale` is `library["scale"]`.

    Thread-safe.

    Args:
        manifest: What the export says of itself.
        files: Its files: their contents by name, or their folder.
    """

    _holds = "a kernel"

    def __init__(self, manifest: manifests.Manifest, files: Mapping[str, bytes] | Path) -> None:
        self._manifest = manifest
        self._files = files
        self._artifacts = {
            (str(entry["kind"]), str(entry["arch"] or "")): (str(entry["file"]), str(entry["sha256"]))
            for entry in manifest.artifacts
        }
        self._lock = Lock()
        self._handle = 0
        self._kernels = {
            function["symbol"]: LoadedKernel(self._load, function, manifest.types)
            for function in manifest.functions
            if function["kind"] == "kernel"
        }

    def __getitem__(self, name: str) -> LoadedKernel:
        # A copy that is being made has nothing yet.
        kernels: dict[str, LoadedKernel] = vars(self).get("_kernels", {})
        manifest: manifests.Manifest | None = vars(self).get("_manifest")
        if name not in kernels:
            known = ", ".join(map(str, kernels)) or "none"
            is_function = manifest and any(name == each["symbol"] for each in manifest.functions)
            called = "; load the export with device='cpu' to call a function" if is_function else ""
            raise _NoKernelError(
                f"{shown(name)} is not {self._holds} of the export, which has: {known}{called}"
            )
        return kernels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def __getattr__(self, name: str) -> LoadedKernel:
        return self[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._kernels})

    def read(self, kind: str, arch: ArchLike | None = None) -> bytes:
        """
        Return an artifact of the export, such as its LTO-IR for another linker.

        Args:
            kind: Such as "ltoir" or "ptx".
            arch: The GPU it is for, such as "sm_90" or (9, 0); may be left out where there is one of *kind*.

        Raises:
            LaunchError: There is none or several, it could not be read, or it is not of this export.
        """
        path, sm = self._manifest.path, Arch.of(arch).sm if arch else ""
        chosen = [key for key in self._artifacts if key[0] == kind and sm in {"", key[1]}]
        if len(chosen) != 1:
            have = ", ".join(" for ".join(filter(None, key)) for key in self._artifacts) or "none"
            what = f"{len(chosen) or 'no'} artifacts of {' for '.join(filter(None, (kind, sm)))}"
            raise LaunchError(f"{path} lists {what}; it has {have}: name one, or export it.")
        (name, digest), files = self._artifacts[chosen[0]], self._files
        try:
            content = (files / name).read_bytes() if isinstance(files, Path) else files[name]
        except (KeyError, OSError) as error:
            reason = getattr(error, "strerror", "it is not there")
            raise LaunchError(f"{name} could not be read: {reason}; keep it beside {path.name}.") from error
        if manifests.digest(content) != digest:
            raise LaunchError(f"{name} is not what {path} lists; export again.")
        return content

    def _load(self) -> int:
        """Return the driver's handle of the code."""
        with self._lock.held:
            if not self._handle:
                self._handle = driver.load(self.read(KERNELS), str(self._manifest.path))
            return self._handle


class _NoKernelError(LaunchError, AttributeError, KeyError):
    """A `Library` has no kernel of a name, which Python asks for as an attribute or as an item."""

    # That of a KeyError is in quotes.
    __str__ = Exception.__str__


class LoadedKernel(Launchable):
    """
    A kernel of an export: `kernel[grid, block](...)`, `kernel[grid, block, stream, shared](...)`.

    Thread-safe. A `Library` makes them.

    Args:
        load: Returns the driver's handle of the code.
        function: The kernel, as the manifest describes it.
        types: The C types of its parameters by name.
    """

    def __init__(self, load: Callable[[], int], function: Mapping[str, Any], types: Types) -> None:
        super().__init__(str(function["symbol"]))
        self.declaration = str(function["declaration"])
        self._load = load
        self._cooperative = function.get("cooperative") is True
        self._handle = 0
        self._parameters: list[tuple[str, str, int, int, values.Pack]] = []
        self._size = 0
        for parameter in function["parameters"]:
            layout = values.layout(types, parameter["type"])
            place = operator.index(parameter["offset"])
            if place < self._size or layout.size < 0:
                raise ValueError(f"{parameter['name']} of {self.name} is at {place}")
            self._parameters.append((parameter["name"], parameter["type"], place, *layout))
            self._size = place + layout.size
        self._offsets = [parameter[2] for parameter in self._parameters]

    def __repr__(self) -> str:
        return f"<{self.declaration.removesuffix(';')}>"

    def _run(self, args: tuple[Any, ...], how: Configuration) -> None:
        launch = Launch(how.stream)
        buffer = self._pack(args, launch)
        driver.enter(how.stream)
        for name, address in launch.addresses:
            device = driver.elsewhere(address)
            if device is not None:
                raise LaunchError(
                    f"Kernel {self.name}: parameter {name!r} is in the memory of device {device}, which the "
                    f"device of this launch cannot access; make device {device} current, copy the array, or "
                    "enable access between peers."
                )
        for producer in launch.producers:
            driver.wait(how.stream, producer)
        driver.launch(self.handle, how, buffer, self._offsets, self.name)

    @property
    def handle(self) -> int:
        """The driver's `CUkernel`, which is loaded when it is first asked for."""
        if not self._handle:
            self._handle = driver.kernel(self._load(), self.name)
        return self._handle

    def _pack(self, args: tuple[Any, ...], launch: Launch) -> bytearray:
        if len(args) != len(self._parameters):
            names = ", ".join(parameter[0] for parameter in self._parameters)
            raise LaunchError(f"Kernel {self.name} takes ({names}), and was given {len(args)} arguments.")
        buffer = bytearray(self._size)
        for (name, ctype, offset, size, pack), value in zip(self._parameters, args, strict=True):
            launch.parameter = name
            with naming(f"Kernel {self.name}: parameter {name!r} is {ctype}", value):
                buffer[offset : offset + size] = pack(value, launch)
        return buffer


@contextmanager
def naming(place: str, value: Any) -> Iterator[None]:
    """
    Let errors of a `with` block, which reads an argument, name its *place*.

    Raises:
        LaunchError: The block refused *value*, or the code of its package failed.
    """
    try:
        yield
    except RefusedError as error:
        raise LaunchError(f"{place}: {error}.") from error
    except Exception as error:
        raise LaunchError(
            f"{place}: a {type(value).__name__} cannot be read: {type(error).__name__}: {error}; pass "
            "another value."
        ) from error
