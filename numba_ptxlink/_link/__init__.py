"""Link many inputs to one cubin: read them, compare their symbols, choose the tool. Independent of Numba."""
