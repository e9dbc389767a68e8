// A library in CUDA C++, without Python. With C linkage, other languages find the function by its name.
#include <cub/block/block_reduce.cuh>

// Returns the sum of `value` over a block of 256 threads, but only in the block's first thread.
extern "C" __device__ float block_sum(float value) {
  using Reduce = cub::BlockReduce<float, 256>;
  __shared__ typename Reduce::TempStorage storage;
  return Reduce(storage).Sum(value);
}
