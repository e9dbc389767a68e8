"""Compiled PTX on the CPU: PTX becomes LLVM IR, and llvmlite makes machine code of that."""
