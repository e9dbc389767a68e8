// A C++ program links a Python function into a kernel at run time: NVRTC compiles the kernel, nvJitLink links both.
//
//   jit build/udfs.h build/udfs.sm_90.ltoir sm_90 linked.cubin
//
// The header and the code are those of an export; PTX in place of LTO-IR works too. LTO-IR can also be linked to PTX,
// linked.ptx, which later GPUs and the CPU device of numba-ptxlink run. Without a GPU the program writes the linked
// code and says that it was not run.
#include <cuda_runtime_api.h>
#include <nvJitLink.h>
#include <nvrtc.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

constexpr char kernel_source[] = R"(
#include "udfs.h"

extern "C" __global__ void apply(float* values, int count)
{
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < count)
        values[index] = transform(values[index], index);
}
)";

[[noreturn]] void fail(const std::string& step, const std::string& log) {
  std::fprintf(stderr, "%s failed: %s\n", step.c_str(), log.c_str());
  std::exit(1);
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    fail("Reading " + path, "pass a file that exists and can be read");
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the LTO-IR or the PTX of the kernel, which includes the header of the export.
std::string compile(const std::string& header, const std::string& arch, bool lto) {
  const char* headers[] = {header.c_str()};
  const char* names[] = {"udfs.h"};
  nvrtcProgram program;
  nvrtcCreateProgram(&program, kernel_source, "apply.cu", 1, headers, names);
  const std::string target = "--gpu-architecture=" + arch;
  const char* options[] = {target.c_str(), "--relocatable-device-code=true", "-dlto"};
  const int option_count = lto ? 3 : 2;  // Without LTO-IR all but -dlto.
  if (const nvrtcResult error = nvrtcCompileProgram(program, option_count, options)) {
    std::size_t size = 0;
    nvrtcGetProgramLogSize(program, &size);
    std::string log(size, '\0');
    nvrtcGetProgramLog(program, log.data());
    fail("NVRTC", nvrtcGetErrorString(error) + ("\n" + log));
  }
  std::size_t size = 0;
  lto ? nvrtcGetLTOIRSize(program, &size) : nvrtcGetPTXSize(program, &size);
  std::string code(size, '\0');
  lto ? nvrtcGetLTOIR(program, code.data()) : nvrtcGetPTX(program, code.data());
  nvrtcDestroyProgram(&program);
  return code;
}

// Returns the kernel and the function, linked to a cubin, or to PTX.
std::vector<char> link(const std::string& kernel, const std::string& function, const std::string& arch, bool lto,
                       bool to_ptx) {
  const std::string target = "-arch=" + arch;
  std::vector<const char*> options = {target.c_str()};
  if (lto) {
    options.push_back("-lto");
  }
  if (to_ptx) {
    options.push_back("-ptx");
  }
  const nvJitLinkInputType type = lto ? NVJITLINK_INPUT_LTOIR : NVJITLINK_INPUT_PTX;
  nvJitLinkHandle handle = nullptr;
  nvJitLinkResult error = nvJitLinkCreate(&handle, static_cast<unsigned>(options.size()), options.data());
  if (error == NVJITLINK_SUCCESS) {
    error = nvJitLinkAddData(handle, type, kernel.data(), kernel.size(), "apply");
  }
  if (error == NVJITLINK_SUCCESS) {
    error = nvJitLinkAddData(handle, type, function.data(), function.size(), "udfs");
  }
  if (error == NVJITLINK_SUCCESS) {
    error = nvJitLinkComplete(handle);
  }
  std::size_t size = 0;
  if (error != NVJITLINK_SUCCESS) {
    nvJitLinkGetErrorLogSize(handle, &size);
    std::string log(size, '\0');
    nvJitLinkGetErrorLog(handle, log.data());
    fail("nvJitLink", log);
  }
  to_ptx ? nvJitLinkGetLinkedPtxSize(handle, &size) : nvJitLinkGetLinkedCubinSize(handle, &size);
  std::vector<char> code(size);
  to_ptx ? nvJitLinkGetLinkedPtx(handle, code.data()) : nvJitLinkGetLinkedCubin(handle, code.data());
  nvJitLinkDestroy(&handle);
  return code;
}

void check(const char* step, cudaError_t error) {
  if (error != cudaSuccess) {
    fail(step, cudaGetErrorString(error));
  }
}

// Launches the kernel of the linked code, and returns the number of elements that differ from those of the function.
int run(const std::vector<char>& code) {
  constexpr int count = 100001;
  std::vector<float> values(count, 0.5f);
  cudaLibrary_t library;
  cudaKernel_t kernel;
  void* memory = nullptr;
  check("Loading the code", cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  check("Finding the kernel", cudaLibraryGetKernel(&kernel, library, "apply"));
  check("Allocating memory", cudaMalloc(&memory, count * sizeof(float)));
  check("Copying to the device", cudaMemcpy(memory, values.data(), count * sizeof(float), cudaMemcpyHostToDevice));
  int count_argument = count;
  void* arguments[] = {&memory, &count_argument};
  check("The launch", cudaLaunchKernel(reinterpret_cast<const void*>(kernel), (count + 255) / 256, 256, arguments, 0, nullptr));
  check("Copying to the host", cudaMemcpy(values.data(), memory, count * sizeof(float), cudaMemcpyDeviceToHost));
  check("Freeing memory", cudaFree(memory));
  check("Unloading the code", cudaLibraryUnload(library));
  int wrong_count = 0;
  for (int index = 0; index < count; ++index) {
    const double expected = index % 2 ? 0.5 * std::exp(-0.001 * index) : 1.5;
    wrong_count += std::abs(values[index] - expected) > 1e-6 * expected + 1e-30;
  }
  return wrong_count;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s HEADER CODE ARCH OUTPUT\n", argv[0]);
    return 2;
  }
  const std::string header = read(argv[1]), function = read(argv[2]), arch = argv[3], output = argv[4];
  const bool lto = std::string(argv[2]).find(".ltoir") != std::string::npos;
  const std::string kernel = compile(header, arch, lto);
  const bool to_ptx = output.size() > 4 && output.substr(output.size() - 4) == ".ptx";
  if (to_ptx && !lto) {
    fail("Linking", "PTX is linked to a cubin only; pass LTO-IR, or an OUTPUT without .ptx");
  }
  const std::vector<char> code = link(kernel, function, arch, lto, to_ptx);
  const char* kind = to_ptx ? "PTX" : "machine code";
  std::printf("%s for %s: %zu bytes of %s\n", lto ? "LTO-IR" : "PTX", arch.c_str(), code.size(), kind);
  std::ofstream(output, std::ios::binary).write(code.data(), static_cast<std::streamsize>(code.size()));
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("Not run: there is no GPU\n");
    return 0;
  }
  const int wrong_count = run(code);
  std::printf("%d elements are wrong\n", wrong_count);
  return wrong_count != 0;
}
