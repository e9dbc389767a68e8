/* Describe kernels: their attributes, parameters and occupancy. */
#include "driver.h"

static int min(int a, int b) { return a < b ? a : b; }
static int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

CUresult cuFuncLoad(CUfunction function) { return check_function(function); }

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function) {
  CHECK(check_function(function));
  REQUIRE_VALUE(state);
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  CHECK(check_function(function));
  REQUIRE_VALUE(value && (unsigned)attribute < CU_FUNC_ATTRIBUTE_MAX);
  *value = function->attributes[attribute];
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  CHECK(check_function(function));
  const int static_size = function->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES];
  const int limit = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      REQUIRE_VALUE(value >= 0 && value <= limit - static_size);
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: REQUIRE_VALUE(value >= -1 && value <= 100); break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  function->attributes[attribute] = value;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) {
  CHECK(check_device(device));
  return cuFuncGetAttribute(value, attribute, (CUfunction)kernel);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
  CHECK(check_device(device));
  return cuFuncSetAttribute((CUfunction)kernel, attribute, value);
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) { return check_function(function); }
CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device) {
  return check_function((CUfunction)kernel);
}
CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config) { return check_function(function); }

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size) {
  CHECK(check_function(function));
  REQUIRE_VALUE(index < function->param_count);
  if (offset) *offset = function->param_offsets[index];
  if (size) *size = function->param_sizes[index];
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamCount(CUfunction function, size_t *count) {
  CHECK(check_function(function));
  REQUIRE_VALUE(count);
  *count = function->param_count;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size) {
  return cuFuncGetParamInfo((CUfunction)kernel, index, offset, size);
}
CUresult cuKernelGetParamCount(CUkernel kernel, size_t *count) {
  return cuFuncGetParamCount((CUfunction)kernel, count);
}

/* Occupancy: the blocks that a multiprocessor can run at once, by threads, shared memory and registers. */

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_size,
                                                     size_t dynamic_size) {
  /* A GPU allocates the registers of a warp in units of REGISTER_UNIT, and shared memory in units of SHARED_UNIT
     bytes. */
  enum { WARP_SIZE = 32, REGISTER_UNIT = 256, SHARED_UNIT = 128 };
  CHECK(check_function(function));
  REQUIRE_VALUE(blocks && block_size > 0);
  const int threads = round_up(block_size, WARP_SIZE);
  const size_t shared_size = (size_t)function->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] + dynamic_size;
  const int warp_registers = round_up(function->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] * WARP_SIZE, REGISTER_UNIT);
  *blocks = min(device_attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 0),
                device_attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 0) / threads);
  if (warp_registers) {
    const int total = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 0);
    const int fitting_blocks = total / warp_registers / (threads / WARP_SIZE);
    /* The number of registers is an estimate from the PTX, and no launch may fail because of an estimate: let one
       block always fit. */
    *blocks = min(*blocks, fitting_blocks > 0 ? fitting_blocks : 1);
  }
  if (shared_size) {
    const int reserved = device_attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 0);
    const int total = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 0);
    if (shared_size > (size_t)total) *blocks = 0;
    else *blocks = min(*blocks, total / round_up((int)shared_size + reserved, SHARED_UNIT));
  }
  if (block_size > function->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK]) *blocks = 0;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int block_size,
                                                              size_t dynamic_size, unsigned flags) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block_size, dynamic_size);
}

/* Find the block size with the most threads on a multiprocessor; `limit` is the largest size, 0 for none. */
CUresult cuOccupancyMaxPotentialBlockSize(int *grid_size, int *block_size, CUfunction function,
                                          CUoccupancyB2DSize dynamic_size_of, size_t dynamic_size, int limit) {
  CHECK(check_function(function));
  REQUIRE_VALUE(grid_size && block_size);
  int max_size = function->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK], most_threads = 0;
  if (limit > 0) max_size = min(max_size, limit);
  *grid_size = *block_size = 0;
  /* A block that ends in a part of a warp takes the room of a whole warp: below the largest size, try whole warps. */
  for (int size = max_size; size > 0; size = round_up(size - 32, 32)) {
    int blocks;
    CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, size,
                                                      dynamic_size_of ? dynamic_size_of(size) : dynamic_size));
    if (blocks * size <= most_threads) continue;
    most_threads = blocks * size;
    *block_size = size;
    *grid_size = blocks * device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
  }
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid_size, int *block_size, CUfunction function,
                                                   CUoccupancyB2DSize dynamic_size_of, size_t dynamic_size, int limit,
                                                   unsigned flags) {
  return cuOccupancyMaxPotentialBlockSize(grid_size, block_size, function, dynamic_size_of, dynamic_size, limit);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *size, CUfunction function, int blocks, int block_size) {
  CHECK(check_function(function));
  REQUIRE_VALUE(size && blocks > 0 && block_size > 0);
  const int reserved = device_attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 0);
  const int share = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 0) / blocks - reserved;
  const int available = min(share - function->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES],
                            function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES]);
  *size = available > 0 ? (size_t)available : 0;
  return CUDA_SUCCESS;
}
