"""Make fat binaries and objects of an export, lower its PTX for older CUDA releases, and write its files."""
