// A program without Python, whose threads launch a kernel on the device of libcuda.so.1.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

static std::string image;

static void check(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  const char *text = nullptr;
  cuGetErrorString(result, &text);
  std::printf("error %d: %s\n", static_cast<int>(result), text ? text : "");
  std::fflush(stdout);
  std::_Exit(2);
}

static float run(CUcontext context, float factor, int count, int launched, bool written = true) {
  CUmodule module;
  CUfunction kernel;
  CUdeviceptr x, y;
  std::vector<float> host(count, 1.0f);
  const size_t size = count * sizeof(float);
  check(cuCtxSetCurrent(context));
  check(cuModuleLoadData(&module, image.data()));
  check(cuModuleGetFunction(&kernel, module, "saxpy"));
  check(cuMemAlloc(&x, size));
  check(cuMemAlloc(&y, size));
  if (written) check(cuMemcpyHtoD(x, host.data(), size));
  check(cuMemcpyHtoD(y, host.data(), size));
  void *arguments[] = {&factor, &x, &y, &launched};
  check(cuLaunchKernel(kernel, (launched + 127) / 128, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr));
  check(cuCtxSynchronize());
  check(cuMemcpyDtoH(host.data(), y, size));
  check(cuModuleUnload(module));
  return host[count - 1];
}

struct Late {
  CUcontext context = nullptr;
  ~Late() {
    if (context) std::printf("late %.0f\n", run(context, 3, 100, 100));
  }
} late;

int main(int, char **arguments) {
  std::ifstream file(arguments[1], std::ios::binary);
  image.assign(std::istreambuf_iterator<char>(file), {});
  const std::string way = arguments[2];
  CUcontext context;
  CUdevice device;
  std::thread([] { check(cuInit(0)); }).join();  // the thread that started Python is gone
  check(cuDeviceGet(&device, 0));
  check(cuDevicePrimaryCtxRetain(&context, device));
  std::printf("before\n");
  if (way == "threads") {
    std::vector<float> results(8);
    std::vector<std::thread> threads;
    for (int number = 0; number < 8; ++number)
      threads.emplace_back([&, number] { results[number] = run(context, number, 1000, 1000); });
    for (auto &thread : threads) thread.join();
    for (float result : results) std::printf("%.0f ", result);
    std::printf("\n");
  }
  if (way == "overrun") run(context, 2, 1000, 1001);
  if (way == "unwritten") {
    std::atexit([] { std::printf("after\n"); });
    run(context, 2, 1000, 1000, false);
  }
  if (way == "exit") std::thread([] { std::exit(3); }).join();
  if (way == "endless") {
    static volatile unsigned *flag = nullptr;
    check(cuCtxSetCurrent(context));
    check(cuMemHostAlloc((void **)&flag, sizeof *flag, 0));
    *flag = 0;
    std::thread([=] {
      CUmodule module;
      CUfunction kernel;
      CUdeviceptr address = (CUdeviceptr)flag;
      void *arguments[] = {&address};
      check(cuCtxSetCurrent(context));
      check(cuModuleLoadData(&module, image.data()));
      check(cuModuleGetFunction(&kernel, module, "endless"));
      check(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    }).detach();
    while (*flag != 1) std::this_thread::yield();
  }
  if (way == "late") late.context = context;
  return 0;
}
