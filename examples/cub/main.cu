// CUB's algorithms apply functions that are written in Python: DeviceTransform maps, DeviceReduce reduces.
// Needs nvcc of a whole toolkit, for -dlto.
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_transform.cuh>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "udfs.h"

// Function objects that call the functions of udfs.py: a lambda would need --extended-lambda.
struct Squash {
  __device__ float operator()(float value) const { return squash(value); }
};

struct Farther {
  __device__ float operator()(float first, float second) const { return farther(first, second); }
};

void check(cudaError_t error) {
  if (error != cudaSuccess) {
    std::printf("Failed: %s\n", cudaGetErrorString(error));
    std::exit(1);
  }
}

int main() {
  constexpr int count = 1 << 20;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("Not run: there is no GPU\n");
    return 0;
  }
  std::vector<float> in(count), out(count);
  float farthest = 0, expected_farthest = 0, greatest_error = 0;
  for (int i = 0; i < count; ++i) {
    in[i] = 5 * std::sin(0.001f * i);
  }
  float *x, *y;
  check(cudaMalloc(&x, (count + 1) * sizeof(float)));
  check(cudaMalloc(&y, count * sizeof(float)));
  check(cudaMemcpy(x, in.data(), count * sizeof(float), cudaMemcpyHostToDevice));

  check(cub::DeviceTransform::Transform(x, y, count, Squash{}));

  // Without scratch memory, the call only writes the size that it needs.
  void* scratch = nullptr;
  std::size_t scratch_size = 0;
  check(cub::DeviceReduce::Reduce(scratch, scratch_size, y, x + count, count, Farther{}, 0.0f));
  check(cudaMalloc(&scratch, scratch_size));
  check(cub::DeviceReduce::Reduce(scratch, scratch_size, y, x + count, count, Farther{}, 0.0f));

  check(cudaMemcpy(out.data(), y, count * sizeof(float), cudaMemcpyDeviceToHost));
  check(cudaMemcpy(&farthest, x + count, sizeof(float), cudaMemcpyDeviceToHost));
  for (int i = 0; i < count; ++i) {
    greatest_error = std::fmax(greatest_error, std::fabs(out[i] - in[i] / (1 + std::fabs(in[i]))));
    expected_farthest = std::fmax(expected_farthest, std::fabs(out[i]));
  }
  const bool right = greatest_error < 1e-6f && std::fabs(farthest) == expected_farthest;
  std::printf("%d elements, greatest error %g; farthest %g: %s\n", count, greatest_error, farthest,
              right ? "right" : "WRONG");
  return right ? 0 : 1;
}
