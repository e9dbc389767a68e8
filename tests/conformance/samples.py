"""
Link CUDA C++ of others as PTX of two units, by nvJitLink and here, and compare what the kernels write.

The programs of two_units.py use CUB, libcu++ and cooperative groups; they run where there is a device. PATH
is a checkout of NVIDIA's cuda-samples, whose sources nvcc compiles to PTX, one file a unit; the samples are
linked alone, since only their own host code knows how to launch them.

    python tests/conformance/samples.py
    python tests/conformance/samples.py ~/cuda-samples --workers 8
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
import numpy as np
import two_units
from devices import missing_device
from linkcases import find_nvcc

import numba_ptxlink as pl
from numba_ptxlink._arch import Arch
from numba_ptxlink._tools import nvrtc

POLICIES = ("none", "auto", "all")


def compiled(source: str, arch: str) -> str:
    """Return *source* as PTX by NVRTC."""
    flags = ["-std=c++17", "-w"]
    folders = [str(folder) for folder in nvrtc.toolkit_include_dirs()]
    unit = nvrtc.compile_source(
        source, "unit.cu", Arch.of(arch), output="ptx", flags=flags, include_dirs=folders
    )
    return unit.code.rstrip(b"\0").decode()


def linked(units: list[str], arch: str) -> dict[str, pl.Linked | str]:
    """Return *units* linked by each policy, or why they are not."""
    results: dict[str, pl.Linked | str] = {}
    for policy in POLICIES:
        try:
            results[policy] = pl.link(*units, arch=arch, inline=policy, lto=False)
        except pl.PtxlinkError as error:
            results[policy] = str(error).splitlines()[0]
    return results


def run(cubin: bytes) -> np.ndarray:
    """Return what the kernel `k(unsigned long long* out, int n)` of *cubin* writes on the device."""
    from cuda.bindings import runtime
    from cuda.core import Device, LaunchConfig, ObjectCode, launch

    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    host = np.zeros(two_units.THREADS, np.uint64)
    buffer = device.allocate(host.nbytes, stream=stream)
    kernel = ObjectCode.from_cubin(cubin).get_kernel("k")
    launch(stream, LaunchConfig(grid=1, block=host.size), kernel, int(buffer.handle), np.int32(3))
    stream.sync()
    kind = runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
    runtime.cudaMemcpy(host.ctypes.data, int(buffer.handle), host.nbytes, kind)
    buffer.close()
    return host


def programs(arch: str, *, execute: bool) -> int:
    """Link the programs of two units, and run them where there is a device; return how many are wrong."""
    wrong = 0
    for name, units in two_units.PROGRAMS.items():
        results = linked([compiled(source, arch) for source in units.sources], arch)
        verdict = ", ".join(f"{policy} {_told(result)}" for policy, result in results.items())
        failed = any(isinstance(result, str) for result in results.values())
        if execute and not failed:
            values = {policy: run(result.cubin).tobytes() for policy, result in results.items()}
            failed = len(set(values.values())) > 1
            verdict += "; WRONG: other values" if failed else "; equal"
        wrong += failed
        print(f"{name}: {verdict}", flush=True)
    return wrong


def _told(result: pl.Linked | str) -> str:
    if isinstance(result, str):
        return f"FAILED: {result}"
    return f"{result.backend}, {result.inlined} inlined"


def sample(folder: Path, root: Path, arch: str, nvcc: str) -> tuple[str, list[str]]:
    """Return the name of the sample in *folder*, and what became of it."""
    units = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, source in enumerate(sorted(folder.glob("*.cu"))):
            output = Path(scratch, f"{number}.ptx")
            common = root / "Common"
            command = [
                nvcc,
                "-ptx",
                "-rdc=true",
                f"-arch={arch}",
                "-std=c++17",
                "-w",
                f"-I{common}",
                str(source),
            ]
            subprocess.run([*command, "-o", str(output)], capture_output=True, check=False, timeout=300)
            if output.exists():
                units.append(output.read_text())
    if not units:
        return folder.name, ["not compiled"]
    results = linked(units, arch)
    if isinstance(results["none"], str):
        return folder.name, ["refused by nvJitLink too"]
    outcomes = []
    for policy in ("auto", "all"):
        result = results[policy]
        if isinstance(result, str):
            outcomes.append(f"WRONG: {policy}: {result}")
        else:
            outcomes.append(f"{policy}: {result.backend}")
            outcomes += [f"{policy}: calls inlined"] * result.inlined
            left = [line for line in result.log.splitlines() if line.startswith("call not inlined")]
            outcomes += [f"{policy}: call left: {line.rpartition(': ')[2]}" for line in left]
    return folder.name, outcomes


def samples(root: Path, arch: str, workers: int) -> int:
    """Link the samples; print the counts and return how many only nvJitLink links."""
    nvcc = find_nvcc()
    if nvcc is None:
        print("the samples are left out: there is no nvcc, or no g++ for it")
        return 0
    folders = sorted({path.parent for path in root.rglob("*.cu")})
    totals: Counter[str] = Counter()
    wrong = 0
    with ThreadPoolExecutor(workers) as pool:
        for name, outcomes in pool.map(lambda folder: sample(folder, root, arch, nvcc), folders):
            totals.update(outcomes)
            for outcome in outcomes:
                if outcome.startswith("WRONG"):
                    wrong += 1
                    print(f"{name}: {outcome}", flush=True)
    for what, number in sorted(totals.items()):
        print(f"{number:6} {what}")
    print(f"{len(folders)} samples, {wrong} that only nvJitLink links")
    return wrong


def find_device() -> str:
    """Return the architecture of the device, "" where there is none."""
    if missing_device():
        return ""
    from cuda.core import Device

    return "sm_{}{}".format(*Device(0).compute_capability)


def main() -> int:
    """Return 1 if something is linked wrongly."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", nargs="?", type=Path, help="a checkout of cuda-samples")
    parser.add_argument("--arch", help="by default the device's, without one sm_90")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    device = find_device()
    arch = options.arch or device or "sm_90"
    wrong = programs(arch, execute=device == arch)
    ran = "" if device == arch else f"; not run: there is no {arch}"
    print(f"{len(two_units.PROGRAMS)} programs, {wrong} wrong{ran}")
    if options.path:
        wrong += samples(options.path, arch, options.workers)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
