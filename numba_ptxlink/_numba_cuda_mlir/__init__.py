"""All code for the front end numba-cuda-mlir; no other package uses numba-cuda-mlir's private names."""
