"""What is replaced in numba-cuda-mlir."""
