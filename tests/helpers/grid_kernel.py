"""A kernel of which all blocks wait for each other, as text for a file of kernels."""

EXCHANGE = """
@kernel("void(int32[::1], int32[::1])")
def exchange(source, target):
    block = cuda.blockIdx.x
    source[block] = block
    cuda.cg.this_grid().sync()
    target[block] = source[cuda.gridDim.x - 1 - block]
"""
"""It names `cuda` and `kernel`. Block b sets source[b], and target[b] to what the last but b set."""
