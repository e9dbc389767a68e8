"""Without a device each file here is one skipped test, and nothing in it is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from devices import missing_device

import numba_ptxlink as pl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class WithoutDevice(pytest.Module):
    """A file that is not looked into."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one test in place of all."""
        yield Skipped.from_parent(self, name="needs_a_device")


class Skipped(pytest.Item):
    """What stands for the tests of a file."""

    def runtest(self) -> None:
        """Say what is missing."""
        pytest.skip(missing_device())

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the first line of the file."""
        return self.path, 0, self.name


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Look into the files where there is a device, or where they are only collected."""
    if parent.config.option.collectonly or not missing_device():
        return None
    return WithoutDevice.from_parent(parent, path=module_path)


@pytest.fixture(scope="session")
def device():
    """Return the first device, as the current one."""
    from cuda.core import Device

    found = Device(0)
    found.set_current()
    return found


@pytest.fixture(scope="session")
def arch(device):
    """Return the device's architecture."""
    return pl.Arch.of(tuple(device.compute_capability))
