"""The LLVM IR of numba-cuda-mlir: parsed and repaired as text; and the calling convention."""
