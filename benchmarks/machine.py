"""
Print the machine and the versions of packages as JSON.

`python -m benchmarks` runs this file as a script in a process of its own: so Python imports the installed
package, and not the checkout.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "numba-ptxlink",
    "numba",
    "numba-cuda",
    "numba-cuda-mlir",
    "llvmlite",
    "numpy",
    "cuda-core",
    "cuda-bindings",
    "nvidia-cuda-nvcc",
    "nvidia-cuda-nvrtc",
    "nvidia-nvjitlink",
    "nvidia-nvvm",
)


def last_line(*command: str) -> str:
    """Return the last line that *command* prints; "" if the command fails."""
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return ""
    return process.stdout.strip().rpartition("\n")[2]


def find_gpu() -> dict[str, str]:
    """Return the device's name and the newest CUDA that the driver supports; nothing without a device."""
    try:
        from cuda.bindings import driver
        from cuda.core import Device

        device = Device(0)
        _, cuda_release = driver.cuDriverGetVersion()
    except Exception:  # noqa: BLE001 - the exception depends on the missing part
        return {}
    driver_release = last_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0")
    return {
        "GPU": device.name,
        "arch": "sm_{}{}".format(*device.compute_capability),
        "driver": driver_release,
        "driver's CUDA": f"{cuda_release // 1000}.{cuda_release % 1000 // 10}",
    }


def find_cpu() -> str:
    """Return the processor's name."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def find_versions() -> dict[str, str]:
    """Return the versions of packages and tools."""
    versions = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        # Python imports an editable installation in another way, which takes longer.
        is_editable = '"editable": true' in (package.read_text("direct_url.json") or "")
        versions[name] = f"{package.version} (editable)" if is_editable else package.version
    try:
        from numba_ptxlink.assembler import compiler_version
    except ImportError:
        return versions
    versions["nvPTXCompiler"] = "{}.{}".format(*compiler_version())
    if nvcc := shutil.which("nvcc"):
        # The line is such as "Build cuda_13.0.r13.0/compiler.36424714_0".
        versions["nvcc"] = last_line(nvcc, "--version").partition("/")[0].rpartition("r")[2]
    return versions


if __name__ == "__main__":
    machine = {
        **find_gpu(),
        "CPU": find_cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    print(json.dumps({"machine": machine, "versions": find_versions()}))
