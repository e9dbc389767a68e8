"""NVIDIA's libraries, one module each: which version it is, which build, and one call. Knows no Numba."""
