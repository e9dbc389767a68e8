// What host code of an export asks the CUDA runtime for, told on the standard output. No device is needed.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

struct dim3_ {
  unsigned x, y, z;
};
struct wrapper {
  int magic, version;
  const char* code;
  const void* name;
};

// Libraries register theirs before the static objects of the program are made.
static std::map<const void*, std::string>& kernels() {
  static std::map<const void*, std::string> all;
  return all;
}

extern "C" {
// How many bytes each parameter has, ended by 0: the program says it before it launches.
extern const int sizes[];

void** __cudaRegisterFatBinary(const void* content) {
  const wrapper* segment = static_cast<const wrapper*>(content);
  std::printf("binary %x %d %x\n", segment->magic, segment->version,
              *reinterpret_cast<const unsigned*>(segment->code));
  return static_cast<void**>(std::malloc(8));
}

void __cudaRegisterFunction(void**, const void* host, const char* device, const char* name, int, void*, void*, void*,
                            void*, int*) {
  kernels()[host] = device;
  std::printf("function %s %s\n", device, name);
}

void __cudaRegisterFatBinaryEnd(void**) { std::printf("end\n"); }

void __cudaUnregisterFatBinary(void** handle) {
  std::printf("gone\n");
  std::free(handle);
}

int __cudaPopCallConfiguration(dim3_* grid, dim3_* block, size_t* shared, void* stream) {
  *grid = {1, 2, 3};
  *block = {4, 5, 6};
  *shared = 7;
  *static_cast<void**>(stream) = reinterpret_cast<void*>(8);
  return 0;
}

int cudaLaunchKernel(const void* kernel, dim3_ grid, dim3_ block, void** arguments, size_t shared, void* stream) {
  std::printf("launch %s %u %u %u %u %u %u %zu %zu", kernels().at(kernel).c_str(), grid.x, grid.y, grid.z, block.x,
              block.y, block.z, shared, reinterpret_cast<size_t>(stream));
  for (int number = 0; sizes[number]; ++number) {
    std::printf(" ");
    for (int at = 0; at < sizes[number]; ++at)
      std::printf("%02x", static_cast<unsigned char*>(arguments[number])[at]);
  }
  std::printf("\n");
  return 0;
}
}
