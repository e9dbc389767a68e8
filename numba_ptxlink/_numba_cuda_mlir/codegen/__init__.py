"""The LLVM IR of numba-cuda-mlir: read and mended as text, and how its functions take and return values."""
