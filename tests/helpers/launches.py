"""Launch without a device: stand-ins for the driver, and arrays without memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from numba.cuda import types

import numba_ptxlink as pl
from numba_ptxlink._launch.arrays import DeviceArrayReader
from numba_ptxlink._tools import driver

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def install_stand_in(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """Replace the driver by a stand-in, and return the list of launches."""
    launches: list[SimpleNamespace] = []
    waits: list[tuple[int, int]] = []

    def launch(handle, config, buffer, offsets, name):
        record = SimpleNamespace(name=name, handle=handle, **config._asdict())
        record.buffer, record.offsets, record.waits = bytes(buffer), list(offsets), list(waits)
        waits.clear()
        launches.append(record)

    monkeypatch.setattr(driver, "load", lambda _code, _name: 1)
    monkeypatch.setattr(driver, "kernel", lambda library, name: library + len(name))
    monkeypatch.setattr(driver, "ensure_context", lambda _stream: None)
    monkeypatch.setattr(driver, "inaccessible_device", lambda _address: None)
    monkeypatch.setattr(driver, "wait", lambda stream, other: waits.append((stream, other)))
    monkeypatch.setattr(driver, "launch", launch)
    return launches


def array(
    shape: Any,
    typestr: str,
    *,
    address: int = 0x7000,
    readonly: bool = False,
    dtype: Any = None,
    **more: Any,
) -> Any:
    """Return an array with `__cuda_array_interface__` that has no memory."""
    shape = shape if isinstance(shape, tuple) else (shape,)
    interface = {"shape": shape, "typestr": typestr, "data": (address, readonly), "version": 3, **more}
    return SimpleNamespace(__cuda_array_interface__=interface, **({"dtype": dtype} if dtype else {}))


def kernel_of(*signature: Any, name: str = "taking") -> pl.Kernel:
    """Return a kernel of any parameters that does nothing."""
    labels = ", ".join(f"p{number}" for number, _ in enumerate(signature))
    scope: dict[str, Any] = {"__name__": __name__}
    exec(f"def {name}({labels}): pass", scope)  # noqa: S102 - only names are inserted
    return pl.kernel(types.void(*signature), name=name)(scope[name])


def packer(types_of: dict[str, Any]) -> Callable[..., bytes]:
    """Return a function that packs a value for the parameter of a name, as a launch on a stream does."""
    kernels = [kernel_of(ty, name=f"takes_{name}") for name, ty in types_of.items()]
    library = pl.load(pl.export(kernels, arch="sm_90", emit=["kernels"], name="made"))

    def pack(name: str, value: Any, stream: int = 0) -> bytes:
        (packed,) = library[f"takes_{name}"].parameters.read((value,), DeviceArrayReader(stream))
        return packed

    return pack
