"""Bytes and text as values: what can be read out of the files that compilers make. Knows no tool."""
