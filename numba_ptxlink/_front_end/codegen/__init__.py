"""C functions around those that a front end compiled, written as LLVM IR text."""
