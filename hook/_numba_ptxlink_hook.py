"""Waits for numba-cuda's driver module, and activates the plugin then."""
