"""The C ABI as a model: C types with their layout, the names C++ allows, and the header. Knows no Numba."""
