"""numba-cuda: the only package that names what is private to it."""
