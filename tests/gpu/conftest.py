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

NEEDS_GPU = "pytestmark = pytest.mark.gpu"
# Other tests run similar programs on the CPU in less time.
SLOW_ON_CPU = {"test_cached_kernels.py", "test_gallery_runs.py", "test_mlir_kernels.py"}


class FileOnCpu(pytest.Module):
    """A file whose tests run in a child process, since a process has one CUDA driver."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield an item for the tests of the file."""
        if NEEDS_GPU in self.path.read_text():
            yield OnGpu.from_parent(self, name="on_a_gpu")
            return
        item = OnCpu.from_parent(self, name="on_the_cpu")
        if self.path.name in SLOW_ON_CPU:
            item.add_marker(pytest.mark.slow)
        yield item


class OnGpu(pytest.Item):
    """The tests of a file that need a GPU."""

    def runtest(self) -> None:
        """Skip."""
        pytest.skip(missing_device())

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the first line of the file."""
        return self.path, 0, self.name


class OnCpu(OnGpu):
    """The tests of a file on the CPU device."""

    def runtest(self) -> None:
        """Run the tests; skip if all of them are skipped."""
        options = ("-q", "-n", "0", "-p", "no:cacheprovider")
        environ = {name: value for name, value in processes.environ().items() if "PYTEST" not in name}
        done = processes.run(*ON_CPU, sys.executable, "-m", "pytest", *options, self.path, env=environ)
        if " passed" not in done.stdout.splitlines()[-1]:
            pytest.skip(done.stdout)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Collect the tests if there is a device, or if they are only listed."""
    if parent.config.option.collectonly or not missing_device():
        return None
    return FileOnCpu.from_parent(parent, path=module_path)


@pytest.fixture(scope="session")
def device():
    """Return the first device, as the current one."""
    from cuda.core import Device

    current = Device(0)
    current.set_current()
    return current


@pytest.fixture(scope="session")
def arch(device):
    """Return the device's architecture."""
    return pl.Arch.of(tuple(device.compute_capability))
