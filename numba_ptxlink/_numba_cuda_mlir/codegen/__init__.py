"""Parse and repair the LLVM IR of numba-cuda-mlir as text, and convert values to its calling convention."""
