"""numba-cuda: the only package that names what is inside it."""
