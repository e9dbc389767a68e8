"""Wrap each of NVIDIA's libraries and programs in one module: its version, its identity and one call."""
