"""The front ends, Numba's compilers for CUDA: their base class, their list, and shared code; see `base`."""
