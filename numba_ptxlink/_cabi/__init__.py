"""Model the C ABI without Numba: C types and their layout, legal names, and the generated header."""
