"""numba-cuda-mlir: the only package that refers to its private names."""
