"""Load what an export wrote, and launch its kernels: `load`."""

from __future__ import annotations

import difflib
import functools
import operator
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._arch import Arch, ArchLike
from numba_ptxlink._formats.kinds import KERNELS
from numba_ptxlink._link import manifests
from numba_ptxlink._locks import Lock
from numba_ptxlink._tools import driver
from numba_ptxlink.errors import LaunchError

from . import streams, values
from .arrays import Launch
from .elements import RefusedError, Types, shown

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

Dim3 = tuple[int, int, int]
# Of any grid; "Technical Specifications per Compute Capability" in the CUDA C++ Programming Guide.
_LARGEST = (1 << 31) - 1
_SIZES = range(1 << 63)


def load(source: str | os.PathLike[str] | Export) -> Library:
    """
    Return the kernels of an export, to be launched. Imports neither Numba nor another front end.

    The driver is not asked before the first launch. The code is then loaded once for all devices and contexts
    of the process.

    Args:
        source: The path of the manifest, such as "build/udfs.json", or an `Export`, also one in memory.

    Raises:
        LaunchError: There is no manifest, or it tells too little of the kernels.
    """
    if isinstance(source, (str, os.PathLike)):
        path = Path(os.fsdecode(source))
        try:
            content = path.read_bytes()
        except (OSError, ValueError) as error:
            # A path with a NUL in it is a ValueError.
            reason = getattr(error, "strerror", error)
            shown = str(path).replace("\0", "\\0")
            raise LaunchError(
                f"{shown} could not be read: {reason}; give the .json file of an export."
            ) from error
        files: Mapping[str, bytes] | Path = path.parent
    elif not hasattr(source, "manifest") or not hasattr(source, "contents"):
        raise LaunchError(f"load() takes the path of an export's .json file, or an Export, not {source!r}.")
    else:
        path, files = source.manifest, source.contents
        content = files[path.name]
    manifest = manifests.parse(content, path)
    if manifest is None:
        raise LaunchError(f"{path} is no manifest of this release; export again.")
    try:
        return Library(manifest, files)
    except LaunchError:
        raise
    except Exception as error:
        raise LaunchError(f"{path} is damaged: {type(error).__name__}: {error}; export again.") from error


class Library(Mapping[str, "LoadedKernel"]):
    """
    The kernels of an export by name, which are attributes too: `library.scale` is `library["scale"]`.

    Thread-safe.

    Args:
        manifest: What the export says of itself.
        files: Its files: their contents by name, or their folder.
    """

    def __init__(self, manifest: manifests.Manifest, files: Mapping[str, bytes] | Path) -> None:
        self._manifest = manifest
        self._files = files
        for entry in manifest.artifacts:
            _check_texts(entry["kind"], entry["file"], entry["sha256"], entry["arch"] or "")
        self._lock = Lock()
        self._handle = 0
        self._kernels = {
            function["symbol"]: LoadedKernel(self._load, function, manifest.types)
            for function in manifest.functions
            if function["kind"] == "kernel"
        }

    def __getitem__(self, name: str) -> LoadedKernel:
        kernel: LoadedKernel | None = vars(self).get("_kernels", {}).get(name)
        if kernel is None:
            raise _NoKernelError(self._missing(name))
        return kernel

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def __getattr__(self, name: str) -> LoadedKernel:
        return self[name]

    def _missing(self, name: object) -> str:
        """Return the message that there is no kernel *name*."""
        # A copy that is being made has nothing yet.
        known, manifest = list(vars(self).get("_kernels", ())), vars(self).get("_manifest")
        if manifest and any(name == function["symbol"] for function in manifest.functions):
            what = f"{name} is a function, which C++ and kernels call, and no kernel"
        else:
            near = difflib.get_close_matches(name, known, n=1) if isinstance(name, str) else []
            meant = f", did you mean {near[0]!r}?" if near else ""
            what = f"the export has no kernel {shown(name)}{meant}"
        return f"{what}; its kernels: {', '.join(known) or 'none'}"

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._kernels})

    def __repr__(self) -> str:
        return f"<kernels of {self._manifest.path}: {', '.join(self) or 'none'}>"

    def read(self, kind: str, arch: ArchLike | None = None) -> bytes:
        """
        Return an artifact of the export, such as its LTO-IR for another linker.

        Args:
            kind: Such as "ltoir" or "ptx".
            arch: The GPU it is for, such as "sm_90" or (9, 0); may be left out where there is one of *kind*.

        Raises:
            LaunchError: There is none or several, it could not be read, or it is not of this export.
        """
        manifest = self._manifest
        sm = Arch.of(arch).sm if arch else None
        entries = [
            entry for entry in manifest.artifacts if entry["kind"] == kind and (not sm or entry["arch"] == sm)
        ]
        if len(entries) != 1:
            what = f"{kind} for {sm}" if sm else kind
            have = ", ".join(
                " for ".join(filter(None, (entry["kind"], entry["arch"]))) for entry in manifest.artifacts
            )
            count = f"{len(entries)} artifacts" if entries else "no artifact"
            raise LaunchError(
                f"{manifest.path} lists {count} of {what}; it has {have or 'none'}: name one, or export it."
            )
        name = entries[0]["file"]
        try:
            files = self._files
            content = (files / name).read_bytes() if isinstance(files, Path) else files[name]
        except KeyError as error:
            raise LaunchError(
                f"The export holds no {name}, which {manifest.path} lists; export again."
            ) from error
        except OSError as error:
            raise LaunchError(
                f"{error.filename} could not be read: {error.strerror}; keep it beside {manifest.path.name}."
            ) from error
        if manifests.digest(content) != entries[0]["sha256"]:
            raise LaunchError(f"{name} is not what {manifest.path} lists; export again.")
        return content

    def _load(self) -> int:
        """Return the driver's handle of the code."""
        with self._lock.held:
            if not self._handle:
                if not any(entry["kind"] == KERNELS for entry in self._manifest.artifacts):
                    raise LaunchError(
                        f"{self._manifest.path} lists no code that a driver loads; export the kernels with "
                        f'emit=["{KERNELS}"], or --emit {KERNELS}.'
                    )
                self._handle = driver.load(self.read(KERNELS), str(self._manifest.path))
            return self._handle


class _NoKernelError(LaunchError, AttributeError, KeyError):
    """A `Library` has no kernel of a name, which Python asks for as an attribute or as an item."""

    # That of a KeyError is in quotes.
    __str__ = Exception.__str__


class LoadedKernel:
    """
    A kernel of an export: `kernel[grid, block](...)`, `kernel[grid, block, stream, shared](...)`.

    Thread-safe. A `Library` makes them.

    Args:
        load: Returns the driver's handle of the code.
        function: The kernel, as the manifest describes it.
        types: The C types of its parameters by name.
    """

    def __init__(self, load: Callable[[], int], function: Mapping[str, Any], types: Types) -> None:
        self.name: str = function["symbol"]
        self.declaration: str = function["declaration"]
        _check_texts(self.name, self.declaration)
        self._load = load
        self._cooperative = function.get("cooperative") is True
        self._handle = 0
        self._parameters: list[tuple[str, str, int, int, values.Pack]] = []
        self._size = 0
        try:
            for parameter in function["parameters"]:
                layout = values.layout(types, parameter["type"])
                place = operator.index(parameter["offset"])
                _check_texts(parameter["name"])
                if place < self._size or layout.size < 0:
                    raise ValueError(f"{parameter['name']} of {self.name} is at {place}")
                self._parameters.append((parameter["name"], parameter["type"], place, *layout))
                self._size = place + layout.size
        except KeyError as error:
            raise LaunchError(
                f"The manifest does not describe {error} of kernel {self.name}: it was written by a release "
                "that could not load kernels, or by a later one; export again."
            ) from error
        self._offsets = [parameter[2] for parameter in self._parameters]

    def __repr__(self) -> str:
        return f"<{self.declaration.removesuffix(';')}>"

    def __getitem__(self, config: tuple[Any, ...]) -> Callable[..., None]:
        """
        Return what launches the kernel: `kernel[grid, block]`, `[grid, block, stream]`, `[..., shared]`.

        Raises:
            LaunchError: The configuration is none of these.
        """
        if not isinstance(config, tuple) or not 2 <= len(config) <= 4:
            raise LaunchError(
                f"Kernel {self.name} is launched by {self.name}[grid, block, stream, shared](...), where the "
                "last two may be left out."
            )
        defaults: tuple[Any, ...] = (None, 0)
        checked = _checked(*config, *defaults[len(config) - 2 :])
        return functools.partial(self._launch, *checked, config)

    def launch(self, *args: Any, grid: Any, block: Any, stream: Any = None, shared: int = 0) -> None:
        """
        Launch the kernel; returns when it is queued.

        Arrays are anything on the device with `__cuda_array_interface__` or DLPack; the launch waits for the
        streams that they name. Structs are NumPy records, tuples or bytes. Nothing is copied between host and
        device. Where the thread has no current context, it gets that of *stream*, or of the first device.

        Args:
            args: The arguments.
            grid: The number of blocks: one to three numbers.
            block: The number of threads of a block: one to three numbers.
            stream: One of cuda.core, CuPy, PyTorch or Numba, or a handle; by default the default stream.
            shared: The dynamic shared memory of a block, in bytes.

        Raises:
            LaunchError: An argument is not what its parameter takes, the kernel cannot be loaded, or the
                driver refuses the launch.
        """
        self._launch(*_checked(grid, block, stream, shared), stream, *args)

    # Its own names are by place alone: an argument may have been given by any.
    def _launch(
        self,
        grid: Dim3,
        block: Dim3,
        stream: int,
        shared: int,
        _owner: object,
        /,
        *args: Any,
        **named: Any,
    ) -> None:
        """Launch with a checked configuration, whose stream lives as long as its *_owner*."""
        if named:
            raise LaunchError(
                f"Kernel {self.name} takes ({self._names}) in this order and not by name, and was given "
                f"{', '.join(named)} by name; stream and shared memory belong into the brackets."
            )
        launch = Launch(stream)
        buffer = self._pack(args, launch)
        driver.enter(stream)
        for producer in launch.producers:
            driver.wait(stream, producer)
        driver.launch(
            self.handle,
            grid,
            block,
            shared,
            stream,
            buffer,
            self._offsets,
            self.name,
            cooperative=self._cooperative,
        )

    @property
    def handle(self) -> int:
        """The driver's `CUkernel`, which is loaded when it is first asked for."""
        if not self._handle:
            self._handle = driver.kernel(self._load(), self.name)
        return self._handle

    def to_core(self) -> Any:
        """
        Return the kernel as a `cuda.core.Kernel`, for `cuda.core.launch` and the kernel's attributes.

        Raises:
            LaunchError: cuda.core is not installed, or the kernel cannot be loaded.
        """
        try:
            from cuda.core import Kernel
        except ImportError as error:
            raise LaunchError(
                f"to_core() needs cuda.core: {error}; install it by `pip install cuda-core`, or launch the "
                "kernel without it."
            ) from error
        return Kernel.from_handle(self.handle)

    @property
    def _names(self) -> str:
        return ", ".join(parameter[0] for parameter in self._parameters)

    def _pack(self, args: tuple[Any, ...], launch: Launch) -> bytearray:
        if len(args) != len(self._parameters):
            raise LaunchError(
                f"Kernel {self.name} takes ({self._names}), and was given {len(args)} arguments."
            )
        buffer = bytearray(self._size)
        for (name, ctype, offset, size, pack), value in zip(self._parameters, args, strict=True):
            try:
                buffer[offset : offset + size] = pack(value, launch)
            except RefusedError as error:
                raise LaunchError(f"Kernel {self.name}: parameter {name!r} is {ctype}: {error}.") from error
            except Exception as error:
                # Values run the code of their packages.
                raise LaunchError(
                    f"Kernel {self.name}: parameter {name!r} is {ctype}: a {type(value).__name__} cannot be "
                    f"read: {type(error).__name__}: {error}; pass another value."
                ) from error
        return buffer


def _check_texts(*texts: Any) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{text!r} stands for a text")


def _checked(grid: Any, block: Any, stream: Any, shared: Any) -> tuple[Dim3, Dim3, int, int]:
    """Return a configuration as the driver takes it."""
    try:
        size = operator.index(shared)
    except TypeError:
        size = -1
    if size not in _SIZES:
        raise LaunchError(f"The shared memory is {shown(shared)}; pass a number of bytes.")
    return _dim3("grid", grid), _dim3("block", block), streams.handle(stream), size


def _dim3(what: str, extents: Any) -> Dim3:
    given = extents if isinstance(extents, (tuple, list)) else (extents,)
    try:
        numbers = [operator.index(extent) for extent in given]
    except TypeError:
        numbers = []
    if not 1 <= len(numbers) <= 3 or min(numbers) < 1:
        raise LaunchError(f"The {what} is {shown(extents)}; pass one to three positive numbers.")
    if max(numbers) > _LARGEST:
        raise LaunchError(f"The {what} is {shown(extents)}; pass numbers up to {_LARGEST}, CUDA's largest.")
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z
