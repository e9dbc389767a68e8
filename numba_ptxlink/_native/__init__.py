"""The nvPTXCompiler library, linked statically into a cffi extension module."""
