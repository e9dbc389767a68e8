"""Generate C functions that call those that a front end compiled, as LLVM IR text."""
