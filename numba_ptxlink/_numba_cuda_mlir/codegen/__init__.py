"""C functions around those of numba-cuda-mlir, written as LLVM IR text."""
