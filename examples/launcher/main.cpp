// A C++ program launches kernels that are written in Python, without Python. The launches need no CUDA runtime; the
// program uses it for memory.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <thread>
#include <vector>

#include "udfs.launch.h"

namespace {

constexpr int elements = 100001;

bool succeeds(const char* step, int error) {
  if (error != 0) {
    std::printf("%s: error %d, %s\n", step, error, numba_ptxlink::error_name(error));
  }
  return error == 0;
}

// Computes y += a * x on a stream of its own; returns whether every element is right.
bool run(float a) {
  std::vector<float> x(elements), y(elements);
  for (int i = 0; i < elements; ++i) {
    x[i] = static_cast<float>(i % 1000);
    y[i] = 1;
  }
  constexpr std::size_t bytes = elements * sizeof(float);
  float *device_x = nullptr, *device_y = nullptr;
  cudaStream_t stream = nullptr;
  bool right = succeeds("stream", cudaStreamCreate(&stream)) && succeeds("x", cudaMalloc(reinterpret_cast<void**>(&device_x), bytes)) &&
              succeeds("y", cudaMalloc(reinterpret_cast<void**>(&device_y), bytes)) &&
              succeeds("copy", cudaMemcpyAsync(device_x, x.data(), bytes, cudaMemcpyHostToDevice, stream)) &&
              succeeds("copy", cudaMemcpyAsync(device_y, y.data(), bytes, cudaMemcpyHostToDevice, stream));
  // Stream, grid, block and bytes of dynamic shared memory; then the arguments. An address and a length make an array.
  right = right && succeeds("saxpy", udfs_kernels::saxpy(stream, (elements + 255) / 256, 256, 0, a,
                                                       {device_x, elements}, {device_y, elements}));
  right = right && succeeds("copy", cudaMemcpyAsync(y.data(), device_y, bytes, cudaMemcpyDeviceToHost, stream)) &&
         succeeds("kernel", cudaStreamSynchronize(stream));
  for (int i = 0; right && i < elements; ++i) {
    if (y[i] != a * x[i] + 1) {
      std::printf("element %d is %g, not %g\n", i, y[i], a * x[i] + 1);
      right = false;
    }
  }
  cudaFree(device_x);
  cudaFree(device_y);
  if (stream != nullptr) {
    cudaStreamDestroy(stream);
  }
  return right;
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("Not run: there is no GPU\n");
    return 0;
  }
  // All threads launch at once: the first loads the code, and the others wait for it.
  bool right[4] = {};
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&right, number] { right[number] = run(static_cast<float>(number + 2)); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const bool all = right[0] && right[1] && right[2] && right[3];
  std::printf(all ? "4 threads, %d elements each: right\n" : "wrong\n", elements);
  return all ? 0 : 1;
}
