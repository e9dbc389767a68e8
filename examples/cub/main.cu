// CUB's algorithms apply functions that are written in Python: DeviceTransform maps, DeviceReduce reduces.
// Needs nvcc of a whole toolkit, for -dlto.
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_transform.cuh>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "udfs.h"

// A lambda would need --extended-lambda; an object whose operator calls the function is as short.
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
  float most = 0, found = 0, error = 0;
  for (int i = 0; i < count; ++i) {
    in[i] = 5 * std::sin(0.001f * i);
  }
  float *x, *y;
  check(cudaMalloc(&x, (count + 1) * sizeof(float)));
  check(cudaMalloc(&y, count * sizeof(float)));
  check(cudaMemcpy(x, in.data(), count * sizeof(float), cudaMemcpyHostToDevice));

  check(cub::DeviceTransform::Transform(x, y, count, Squash{}));

  // The first call only says how much memory the second one needs.
  void* scratch = nullptr;
  std::size_t bytes = 0;
  check(cub::DeviceReduce::Reduce(scratch, bytes, y, x + count, count, Farther{}, 0.0f));
  check(cudaMalloc(&scratch, bytes));
  check(cub::DeviceReduce::Reduce(scratch, bytes, y, x + count, count, Farther{}, 0.0f));

  check(cudaMemcpy(out.data(), y, count * sizeof(float), cudaMemcpyDeviceToHost));
  check(cudaMemcpy(&found, x + count, sizeof(float), cudaMemcpyDeviceToHost));
  for (int i = 0; i < count; ++i) {
    error = std::fmax(error, std::fabs(out[i] - in[i] / (1 + std::fabs(in[i]))));
    most = std::fmax(most, std::fabs(out[i]));
  }
  const bool right = error < 1e-6f && std::fabs(found) == most;
  std::printf("%d elements, greatest error %g; farthest %g: %s\n", count, error, found, right ? "right" : "WRONG");
  return right ? 0 : 1;
}
