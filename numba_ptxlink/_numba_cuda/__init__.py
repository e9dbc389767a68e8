"""numba-cuda: the only package that refers to its private names."""
