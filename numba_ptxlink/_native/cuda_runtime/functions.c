/* Describe kernels: their attributes, parameters and occupancy. */
#include <string.h>

#include "runtime.h"

/* Define a function of the runtime that calls one function of the driver. A parameter has to be named `kernel`; `call`
   uses `function`, the handle of that kernel on the current device. */
#define DEFINE_OF_KERNEL(name, parameters, call)        \
  cudaError_t name parameters {                         \
    CUfunction function;                                \
    CHECK_AND_RECORD(find_function(kernel, &function)); \
    CHECK_AND_RECORD(call);                             \
    return cudaSuccess;                                 \
  }

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *function, const void *host) {
  REQUIRE(function, cudaErrorInvalidValue);
  return record_error(find_function(host, function));
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel) {
  CUfunction function;
  REQUIRE(attributes, cudaErrorInvalidValue);
  CHECK_AND_RECORD(find_function(kernel, &function));
  int values[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT + 1];
  for (unsigned index = 0; index < sizeof values / sizeof *values; ++index)
    CHECK_AND_RECORD(cuFuncGetAttribute(&values[index], (CUfunction_attribute)index, function));
  *attributes = (struct cudaFuncAttributes){
      .sharedSizeBytes = (size_t)values[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES],
      .constSizeBytes = (size_t)values[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES],
      .localSizeBytes = (size_t)values[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES],
      .maxThreadsPerBlock = values[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
      .numRegs = values[CU_FUNC_ATTRIBUTE_NUM_REGS],
      .ptxVersion = values[CU_FUNC_ATTRIBUTE_PTX_VERSION],
      .binaryVersion = values[CU_FUNC_ATTRIBUTE_BINARY_VERSION],
      .cacheModeCA = values[CU_FUNC_ATTRIBUTE_CACHE_MODE_CA],
      .maxDynamicSharedSizeBytes = values[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES],
      .preferredShmemCarveout = values[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT]};
  return cudaSuccess;
}

DEFINE_OF_KERNEL(cudaFuncSetAttribute, (const void *kernel, enum cudaFuncAttribute attribute, int value),
                 cuFuncSetAttribute(function, (CUfunction_attribute)attribute, value))
DEFINE_OF_KERNEL(cudaFuncSetCacheConfig, (const void *kernel, enum cudaFuncCache config),
                 cuFuncSetCacheConfig(function, (CUfunc_cache)config))
DEFINE_OF_KERNEL(cudaFuncSetSharedMemConfig, (const void *kernel, enum cudaSharedMemConfig config), CUDA_SUCCESS)
DEFINE_OF_KERNEL(cudaFuncGetParamInfo, (const void *kernel, size_t index, size_t *offset, size_t *size),
                 cuFuncGetParamInfo(function, index, offset, size))
DEFINE_OF_KERNEL(cudaFuncGetParamCount, (const void *kernel, size_t *count), cuFuncGetParamCount(function, count))
DEFINE_OF_KERNEL(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
                 (int *blocks, const void *kernel, int block_size, size_t shared_size, unsigned flags),
                 cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, shared_size, flags))
DEFINE_OF_KERNEL(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
                 (int *blocks, const void *kernel, int block_size, size_t shared_size),
                 cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block_size, shared_size))
DEFINE_OF_KERNEL(cudaOccupancyAvailableDynamicSMemPerBlock,
                 (size_t *size, const void *kernel, int blocks, int block_size),
                 cuOccupancyAvailableDynamicSMemPerBlock(size, function, blocks, block_size))
