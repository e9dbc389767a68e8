"""The text of a kernel whose blocks wait for each other."""

EXCHANGE = """
@kernel("void(int32[::1], int32[::1])")
def exchange(source, target):
    block = cuda.blockIdx.x
    source[block] = block
    cuda.cg.this_grid().sync()
    target[block] = source[cuda.gridDim.x - 1 - block]
"""
"""The text uses `cuda` and `kernel`. Block b sets source[b], and target[b] by the opposite block."""
