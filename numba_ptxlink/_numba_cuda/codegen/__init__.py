"""Generate LLVM IR of wrappers with nvcc's prototypes around functions that Numba compiled."""
