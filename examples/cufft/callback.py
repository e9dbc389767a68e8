"""
cuFFT calls a Python function that multiplies the signal by a window, as it loads the signal.

When cuFFT makes the plan, it compiles C++ that calls the function, and links the function's LTO-IR to that
code (cufftXtSetJITCallback). cuFFT declares the function in C++, so the symbol is the mangled name: with the
name alone, cuFFT 12 returned CUFFT_INTERNAL_ERROR. Needs the cuFFT of CUDA 13, NVRTC, and an nvJitLink no
older than the compiler of the LTO-IR. Without a GPU, the function is linked into a kernel that declares and
calls the function as cuFFT does, and that runs on the CPU.
"""

import ctypes

import numpy as np
from numba import cuda

import numba_ptxlink as pl

COUNT = 4096
# CUFFT_R2C of cufft.h, and CUFFT_CB_LD_REAL of cufftXt.h.
R2C = 0x2A
LOAD_REAL = 0x2
# The declaration is that of cuFFT's C++ for a function that loads real numbers.
CALLER = """
extern __device__ float window(void* signal, unsigned long long offset, void* caller_info, void* shared);

extern "C" __global__ void load(void* signal, float* out, void* caller_info, void* shared)
{
    out[threadIdx.x] = window(signal, threadIdx.x, caller_info, shared);
}
"""


# The symbol of the declaration in CALLER, which is not extern "C": the name, and the types of the parameters.
@pl.udf("float32(CPointer(float32), uint64, CPointer(float32), voidptr)", name="_Z6windowPvyS_S_")
def window(signal, offset, weights, _shared):
    return signal[offset] * weights[offset]


def check(status):
    if status:
        raise RuntimeError(f"cuFFT's error {status}")


def transform(cufft, ltoir, signal, spectrum, weights):
    """Write the transform of the windowed *signal* to *spectrum*; the arrays are on the device."""
    pointers = [ctypes.c_void_p(array.__cuda_array_interface__["data"][0]) for array in (signal, spectrum)]
    caller_info = ctypes.c_void_p(weights.__cuda_array_interface__["data"][0])
    plan, work = ctypes.c_int(), ctypes.c_size_t()
    check(cufft.cufftCreate(ctypes.byref(plan)))
    # cuFFT copies neither the name nor the code: keep them until the plan is made.
    check(
        cufft.cufftXtSetJITCallback(
            plan, b"window", ltoir, ctypes.c_size_t(len(ltoir)), LOAD_REAL, ctypes.byref(caller_info)
        )
    )
    check(cufft.cufftMakePlan1d(plan, COUNT, R2C, 1, ctypes.byref(work)))
    check(cufft.cufftExecR2C(plan, *pointers))
    cuda.synchronize()
    check(cufft.cufftDestroy(plan))


def main():
    on_gpu = cuda.is_available()
    arch = pl.Arch.of(cuda.get_current_device().compute_capability if on_gpu else "sm_90")
    exported = pl.export(window, arch=[arch], emit=["ltoir"])
    ltoir = exported.read("ltoir")
    linked = pl.link(CALLER, ltoir, arch=arch)
    print(f"{exported.signatures[0]} {len(ltoir)} bytes of LTO-IR for {arch.sm}; {linked.reason}")
    signal = np.random.default_rng(0).standard_normal(COUNT).astype(np.float32)
    weights = np.hanning(COUNT).astype(np.float32)
    if not on_gpu:
        out = np.zeros(1024, np.float32)
        linked.kernel("load", device="cpu")[1, out.size](signal, out, weights, None)
        np.testing.assert_array_equal(out, (signal * weights)[: out.size])
        print(f"Verified on the CPU: {out.size} windowed samples match NumPy's")
        return
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    try:
        cufft = ctypes.CDLL(load_nvidia_dynamic_lib("cufft").abs_path)
    except DynamicLibNotFoundError as reason:
        print(f"Not run: {reason}")
        return
    spectrum = cuda.device_array(COUNT // 2 + 1, np.complex64)
    transform(cufft, ltoir, cuda.to_device(signal), spectrum, cuda.to_device(weights))
    expected = np.fft.rfft(signal * weights)
    np.testing.assert_allclose(spectrum.copy_to_host(), expected, atol=1e-5 * abs(expected).max())
    print(f"The spectrum of {COUNT} windowed samples matches NumPy's")


if __name__ == "__main__":
    main()
