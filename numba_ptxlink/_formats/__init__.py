"""Formats of code: bytes and text become values."""
