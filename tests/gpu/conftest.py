"""Without a GPU, the tests of each file run in a child process whose device is the CPU."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import processes
import pytest
from devices import ON_CPU, missing_device

import numba_ptxlink as pl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEEDS_GPU, HAS_SLOW = "pytestmark = pytest.mark.gpu", "pytest.mark.slow"


class FileOnCpu(pytest.Module):
    """A file whose tests run in a child process, since a process has one CUDA driver."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield an item for the tests of the file, and one for its slow tests."""
        text = self.path.read_text()
        if NEEDS_GPU in text:
            yield OnCpu.from_parent(self, name="on_a_gpu", expression="")
            return
        yield OnCpu.from_parent(self, name="on_the_cpu", expression="not slow")
        if HAS_SLOW in text:
            item = OnCpu.from_parent(self, name="slow_on_the_cpu", expression="slow")
            item.add_marker(pytest.mark.slow)
            yield item


class OnCpu(pytest.Item):
    """
    Tests of a file.

    Args:
        expression: The expression of markers that selects them; "" if they need a GPU.
    """

    def __init__(self, *, expression: str, **options: object) -> None:
        super().__init__(**options)
        self.expression = expression

    def runtest(self) -> None:
        """Run the tests; skip if all of them are skipped."""
        if not self.expression:
            pytest.skip(missing_device())
        options = ("-q", "-n", "0", "-p", "no:cacheprovider", "-m", self.expression)
        environ = {name: value for name, value in processes.environ().items() if "PYTEST" not in name}
        done = processes.run(*ON_CPU, sys.executable, "-m", "pytest", *options, self.path, env=environ)
        if " passed" not in done.stdout.splitlines()[-1]:
            pytest.skip(done.stdout)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the first line of the file."""
        return self.path, 0, self.name


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Collect the tests if there is a device, or if they are only listed."""
    if parent.config.option.collectonly or not missing_device():
        return None
    return FileOnCpu.from_parent(parent, path=module_path)


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
