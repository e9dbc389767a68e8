"""Generate LLVM IR text of C functions that call the functions of a front end."""
