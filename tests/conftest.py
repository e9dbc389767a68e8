"""Shared PTX, the path set-up that shows tests the installed package, and the rule about devices."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

# "python -m pytest" puts the checkout first on sys.path, where the package lacks its compiled part.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
os.environ["PYTHONSAFEPATH"] = "1"
# The tests are about the work; those of the cache turn it on, each in a directory of its own.
os.environ["NUMBA_PTXLINK_CACHE"] = "0"

KERNEL = """\
.version 8.0
.target sm_75
.address_size 64

.visible .entry {name}(.param .u64 out)
{{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    {body}
    ret;
}}
"""


def make_kernel(name: str = "kernel", body: str = "") -> str:
    """Return a PTX module with one kernel around *body*, which begins in line 9."""
    return KERNEL.format(name=name, body=body)


def make_large_kernel(name: str = "large", operations: int = 4000) -> str:
    """Return a PTX module that keeps the compiler busy for a while."""
    lines = [".reg .f32 %f<34>;"]
    lines += [f"ld.global.f32 %f{i}, [%rd1+{4 * i}];" for i in range(32)]
    lines += [
        f"fma.rn.f32 %f{i % 32}, %f{(i + 7) % 32}, %f{(i + 13) % 32}, %f{i % 32};" for i in range(operations)
    ]
    lines += [f"st.global.f32 [%rd1+{4 * i}], %f{i};" for i in range(32)]
    return make_kernel(name, "\n    ".join(lines))


@pytest.fixture
def kernel() -> str:
    """Return a small valid PTX module with the kernel "kernel"."""
    return make_kernel(body="st.global.u32 [%rd1], 7;")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the golden files and of how much the long tests do."""
    parser.addoption(
        "--numba-tests", type=int, default=100, help="how many of Numba's own tests to compile (full: 800)"
    )
    parser.addoption("--hostile-cases", default="300", help="damaged inputs to link (full: 20000)")
    parser.addoption("--update-golden", action="store_true", help="rewrite the files in tests/golden")


def missing_device() -> str:
    """Return why there is no usable device, "" where there is one."""
    try:
        from cuda.core import Device

        Device(0).set_current()
    except Exception as error:  # noqa: BLE001 - what a missing driver raises depends on the version
        return f"no CUDA device: {type(error).__name__}"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in gpu/, and skip them without a device."""
    here = [item for item in items if HERE / "gpu" in item.path.parents]
    reason = missing_device() if here else ""
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
