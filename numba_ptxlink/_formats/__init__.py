"""Readers of the files that compilers write: bytes and text -> values. No tool is called."""
