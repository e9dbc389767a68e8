"""All code for the front end numba-cuda; no other package uses numba-cuda's private names."""
