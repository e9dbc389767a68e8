"""Artifacts of exports beside PTX: fat binaries and objects, for older tools and drivers, and their files."""
