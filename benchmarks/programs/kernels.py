"""
Compile and run kernels with a front end: the first kernel, later ones, and Python to PTX.

NUMBA_PTXLINK chooses whether this package links. Without a device, kernels are compiled and linked, but not
loaded or launched; for numba-cuda, a stand-in replaces the device.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import timing

WITH_PLUGIN = os.environ["NUMBA_PTXLINK"] == "1"
KERNEL_COUNT = 4
# The number of functions that are compiled from Python to PTX.
PTX_COUNT = 5
SOURCE = """\
extern "C" __device__ float blend(float a, float b) {
  float r = a;
  for (int i = 0; i < 8; ++i) r = r * b + a;
  return r;
}
"""
# The first lines of the module of kernels, for each front end.
HEADS = {
    "numba-cuda": "from numba import cuda\nfrom numba.cuda.cudadrv.linkable_code import CUSource\n",
    "numba-cuda-mlir": (
        "from numba_cuda_mlir import cuda\n"
        "from numba_cuda_mlir.numba_cuda.cudadrv.linkable_code import CUSource\n"
    ),
}
DECLARATION = """
SOURCE = {source!r}
blend = cuda.declare_device(
    "blend", "float32(float32, float32)", abi="c", link=CUSource(SOURCE, name="blend.cu")
)
"""
KERNEL = """
@cuda.jit(cache={cache})
def kernel{number}(x, y):
    i = cuda.grid(1)
    if i < x.size:
        value = x[i]
        for step in range({number} % 7 + 3):
            value = value * y[i] + math.sin(value) * {number}.5
        y[i] = {call}
"""


def main(front_end: str, *, linked: bool, cache: bool, device: bool, texts: bool) -> None:
    """
    Measure the first kernel of *front_end* in this process, and later ones.

    Args:
        front_end: The front end.
        linked: Whether the kernels link CUDA C++.
        cache: Whether the kernels are kept on disk, by `cache=True`.
        device: Whether there is a device.
        texts: Whether to measure Python to PTX, too, afterwards.
    """
    if not WITH_PLUGIN:
        import _numba_ptxlink_hook

        # Behave as if this package were not installed.
        _numba_ptxlink_hook.remove()
    cuda, types = import_front_end(front_end, device=device)
    module = Path("kernels_of_this_folder.py")
    if not module.exists():
        call = "blend(value, y[i])" if linked else "value"
        text = f"{HEADS[front_end]}import math\n"
        if linked:
            text += DECLARATION.format(source=SOURCE)
        numbers = range(KERNEL_COUNT + PTX_COUNT)
        module.write_text(text + "".join(KERNEL.format(number=n, call=call, cache=cache) for n in numbers))
    sys.path.insert(0, str(Path.cwd()))
    kernels = vars(importlib.import_module(module.stem))
    launch_kernel = make_launcher(cuda, types, device=device)
    figures = {"the first kernel": timing.time_call(lambda: launch_kernel(kernels["kernel0"]))}
    figures["start to first kernel"] = timing.since_start()
    later = [
        timing.time_call(lambda n=n: launch_kernel(kernels[f"kernel{n}"])) for n in range(1, KERNEL_COUNT)
    ]
    figures["later kernels"] = timing.shortest(later)
    check_linker(front_end)
    if texts:
        signature = types.void(types.float32[::1], types.float32[::1])
        functions = [
            kernels[f"kernel{number}"].py_func for number in range(KERNEL_COUNT, KERNEL_COUNT + PTX_COUNT)
        ]
        to_ptx = [
            timing.time_call(lambda f=f: cuda.compile(f, signature, cc=(9, 0), device=False, abi="numba"))
            for f in functions
        ]
        figures["Python to PTX"] = timing.shortest(to_ptx)
    timing.print_figures(figures)


def import_front_end(front_end: str, *, device: bool) -> tuple[Any, Any]:
    """Return the modules `cuda` and `types` of *front_end*, with a stand-in if there is no *device*."""
    if front_end == "numba-cuda":
        from numba import cuda, types

        if not device:
            install_stand_in()
    else:
        from numba_cuda_mlir import cuda, tools, types

        if not device:
            tools._cached_cc = (9, 0)  # noqa: SLF001 - read from the device otherwise
    return cuda, types


def make_launcher(cuda: Any, types: Any, *, device: bool) -> Any:
    """Return a function that launches a kernel, or that only compiles and links it without a *device*."""
    if not device:
        return lambda kernel: kernel.compile((types.float32[::1], types.float32[::1]))
    import numpy as np

    arrays = [cuda.to_device(np.ones(1024, np.float32)) for _ in range(2)]

    def launch(kernel: Any) -> None:
        kernel[8, 128](*arrays)
        cuda.synchronize()

    return launch


def check_linker(front_end: str) -> None:
    """End the process if the linker is not the one that NUMBA_PTXLINK chooses."""
    is_active = False
    if "numba_ptxlink" in sys.modules:
        import numba_ptxlink

        is_active = numba_ptxlink.status().active
    if is_active is not WITH_PLUGIN:
        state = "active" if is_active else "inactive"
        sys.exit(f"numba-ptxlink is {state} in {front_end}, but NUMBA_PTXLINK={os.environ['NUMBA_PTXLINK']}")


def install_stand_in() -> None:
    """Give numba-cuda a device that loads nothing."""
    import numba.cuda.api
    import numba.cuda.cudadrv.devices
    import numba.cuda.dispatcher
    from numba import cuda

    device = SimpleNamespace(compute_capability=(9, 0), id=0)
    module = SimpleNamespace(initialized=True, setup=lambda: None)
    module.get_function = lambda _: SimpleNamespace(module=module, read_func_attr_all=lambda: None)
    context = SimpleNamespace(device=device, create_module_image=lambda *_: module)
    for module_with_device in (numba.cuda.api, numba.cuda.dispatcher, cuda):
        module_with_device.get_current_device = lambda: device
    numba.cuda.cudadrv.devices.get_context = lambda *_: context


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
