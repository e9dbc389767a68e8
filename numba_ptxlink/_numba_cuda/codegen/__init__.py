"""LLVM IR: functions with nvcc's prototypes around Numba's."""
