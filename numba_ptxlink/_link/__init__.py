"""Many inputs to one cubin: what they are, what they define, which tool links them. Knows no Numba."""
