/* Launch kernels, and call functions on the host. */
#include "runtime.h"

struct configuration {
  dim3 grid, block;
  size_t shared_size;
  cudaStream_t stream;
};

/* For a launch by <<<>>>, nvcc's code pushes the configuration, evaluates the arguments, which may contain other
   launches, and pops the configuration. */
enum { MAX_PUSHED = 64 };
static _Thread_local struct configuration pushed[MAX_PUSHED];
static _Thread_local unsigned pushed_count;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_size, struct CUstream_st *stream) {
  if (pushed_count == MAX_PUSHED) return 1; /* nvcc's code then skips the launch */
  pushed[pushed_count++] = (struct configuration){grid, block, shared_size, stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_size, void *stream) {
  REQUIRE(pushed_count, cudaErrorMissingConfiguration);
  const struct configuration *top = &pushed[--pushed_count];
  *grid = top->grid;
  *block = top->block;
  *shared_size = top->shared_size;
  *(cudaStream_t *)stream = top->stream;
  return cudaSuccess;
}

/* Whether a GPU can run a grid of these numbers of blocks, and blocks of these numbers of threads. */
static bool is_possible(dim3 grid, dim3 block) {
  enum { MAX_BLOCK_THREADS = 1024, MAX_BLOCK_Z = 64 };
  const bool fits_grid = grid.x && grid.x <= INT32_MAX && grid.y && grid.y <= UINT16_MAX &&
                         grid.z && grid.z <= UINT16_MAX;
  const bool fits_block = block.x && block.x <= MAX_BLOCK_THREADS && block.y && block.y <= MAX_BLOCK_THREADS &&
                          block.z && block.z <= MAX_BLOCK_Z;
  return fits_grid && fits_block && block.x * block.y * block.z <= MAX_BLOCK_THREADS;
}

/* Launch a kernel, and wait until it has ended. A fault is returned here, as on a GPU with CUDA_LAUNCH_BLOCKING=1. */
static cudaError_t launch(const void *kernel, const cudaLaunchConfig_t *config, void **arguments) {
  CUfunction function;
  CHECK_AND_RECORD(find_function(kernel, &function));
  REQUIRE(is_possible(config->gridDim, config->blockDim), cudaErrorInvalidConfiguration);
  const CUlaunchConfig launch_config = {
      .gridDimX = config->gridDim.x, .gridDimY = config->gridDim.y, .gridDimZ = config->gridDim.z,
      .blockDimX = config->blockDim.x, .blockDimY = config->blockDim.y, .blockDimZ = config->blockDim.z,
      .sharedMemBytes = (unsigned)config->dynamicSmemBytes, .hStream = config->stream,
      .attrs = (CUlaunchAttribute *)config->attrs, .numAttrs = config->numAttrs};
  CHECK_AND_RECORD(cuLaunchKernelEx(&launch_config, function, arguments, NULL));
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_size,
                             cudaStream_t stream) {
  const cudaLaunchConfig_t config = {grid, block, shared_size, stream, NULL, 0};
  return launch(kernel, &config, arguments);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments) {
  REQUIRE(config, cudaErrorInvalidValue);
  return launch(kernel, config, arguments);
}

cudaError_t cudaLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                                        size_t shared_size, cudaStream_t stream) {
  cudaLaunchAttribute attribute = {.id = cudaLaunchAttributeCooperative, .val = {.cooperative = 1}};
  const cudaLaunchConfig_t config = {grid, block, shared_size, stream, &attribute, 1};
  return launch(kernel, &config, arguments);
}

/* The handle of a kernel is its host address: code by nvcc requests handles before main, when nothing can be loaded. */
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
  *kernel = (cudaKernel_t)host;
  return cudaSuccess;
}

cudaError_t cudaGetKernel(cudaKernel_t *kernel, const void *host) { return __cudaGetKernel(kernel, host); }

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared_size,
                               cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared_size, stream);
}

DEFINE_FORWARD(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t function, void *data),
               cuLaunchHostFunc(stream, function, data))
DEFINE_FORWARD(cudaStreamAddCallback,
               (cudaStream_t stream, cudaStreamCallback_t function, void *data, unsigned flags),
               cuStreamAddCallback(stream, (CUstreamCallback)function, data, flags))
