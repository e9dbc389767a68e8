// The library: CUDA C++ that knows nothing of Python. C linkage, so that other languages find the function.
#include <cub/block/block_reduce.cuh>

// Returns the sum of `value` over a block of 256 threads, in its first thread.
extern "C" __device__ float block_sum(float value) {
  using Reduce = cub::BlockReduce<float, 256>;
  __shared__ typename Reduce::TempStorage storage;
  return Reduce(storage).Sum(value);
}
