/* Launch kernels: check the configuration, and pack the arguments into the buffer that a kernel reads. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum {
  MAX_STACK_PARAMS = 4096, /* bytes; larger arguments are packed into allocated memory */
  INTERRUPTED = -1,        /* the result of python.launch after Ctrl-C */
};

/* Log why a launch is refused, since the program gets only the code of the error; return the code. */
static CUresult refuse(const char *format, ...) {
  if (python.log) {
    char text[256];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    python.log(text);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

/* Check the numbers of blocks and threads against the limits of GPUs. */
static CUresult check_shape(const struct launch *launch) {
  static const unsigned max_grid[] = {INT32_MAX, UINT16_MAX, UINT16_MAX}, max_block[] = {1024, 1024, 64};
  uint64_t threads = 1;
  for (int axis = 0; axis < 3; ++axis) {
    const unsigned blocks = launch->grid[axis], threads_on_axis = launch->block[axis];
    if (!blocks || !threads_on_axis)
      return refuse("A launch has a grid or block of the size 0 along %c; pass at least 1, or do not launch.",
                    "xyz"[axis]);
    if (blocks > max_grid[axis])
      return refuse("A launch has %u blocks along %c, and the limit is %u; let each thread do more.", blocks,
                    "xyz"[axis], max_grid[axis]);
    if (threads_on_axis > max_block[axis])
      return refuse("A launch has blocks of %u threads along %c, and the limit is %u; use smaller blocks.",
                    threads_on_axis, "xyz"[axis], max_block[axis]);
    threads *= threads_on_axis;
  }
  if (threads > MAX_THREADS_PER_BLOCK)
    return refuse("A launch has blocks of %llu threads, and the limit is %u; use smaller blocks.",
                  (unsigned long long)threads, (unsigned)MAX_THREADS_PER_BLOCK);
  return CUDA_SUCCESS;
}

/* Check threads and shared memory against the limits of the kernel; for a cooperative launch, the number of blocks. */
static CUresult check_resources(const struct launch *launch, CUfunction function) {
  const uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
  const int *attributes = function->attributes;
  const unsigned max_threads = (unsigned)attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  if (threads > max_threads)
    return refuse("A launch has blocks of %llu threads, and the kernel is compiled for at most %u; use smaller blocks.",
                  (unsigned long long)threads, max_threads);
  /* A block may have more than 48 KiB of shared memory, static and dynamic, only after cuFuncSetAttribute. */
  const int opt_in_limit = attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
  const int default_limit = STATIC_SHARED_LIMIT - attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES];
  const unsigned shared_limit = (unsigned)(opt_in_limit > default_limit ? opt_in_limit : default_limit);
  if (launch->shared_size > shared_limit)
    return refuse("A launch has %u bytes of dynamic shared memory, and the limit of the kernel is %u; use less, or "
                  "raise the limit by cuFuncSetAttribute (cudaFuncSetAttribute).",
                  launch->shared_size, shared_limit);
  if (launch->cooperative) {
    /* All blocks have to be resident at once, since they wait for each other. */
    int blocks;
    CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, (int)threads, launch->shared_size));
    const uint64_t grid_blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    const uint64_t max_blocks = (uint64_t)(blocks * device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    REQUIRE(grid_blocks <= max_blocks, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  }
  return CUDA_SUCCESS;
}

/* Whether a context is unusable after this error of a kernel, as on a GPU, until it is reset. In a Python program,
   numba_ptxlink_clear_fault makes it usable again. */
static bool is_sticky(CUresult error) {
  switch (error) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED: return true;
    default: return false;
  }
}

/* Called when Python raises the fault of the last launch as an exception: the program knows it, and may go on. */
void numba_ptxlink_clear_fault(void) {
  const CUcontext context = current_context();
  if (context) context->sticky_error = CUDA_SUCCESS;
}

static CUresult run_kernel(CUcontext context, CUfunction function, const struct launch *launch, void *params) {
  char message[MAX_MESSAGE_SIZE] = "";
  const int result =
      python.launch(function->library->program, function->name, launch, params, message, sizeof message);
  if (result == INTERRUPTED) {
    /* The user has pressed Ctrl-C. The Python callback cannot raise an exception through C code: send the signal again,
       so that Python raises KeyboardInterrupt when it continues after this call. */
    raise(SIGINT);
    return CUDA_ERROR_LAUNCH_FAILED;
  }
  if (result != CUDA_SUCCESS) {
    memcpy(context->fault_message, message, sizeof message);
    /* A C++ program learns of any error by a later call, since a launch by <<<>>> returns none. */
    if (is_sticky((CUresult)result) || has_started_python) context->sticky_error = (CUresult)result;
    if (has_started_python) fprintf(stderr, "%s\n", message);
  }
  return (CUresult)result;
}

/* Launch a kernel. The arguments are either in `params`, an array with the address of each, or packed in a buffer that
   `extra` names: a list of keys and values, of which CU_LAUNCH_PARAM_END is the last. */
static CUresult launch_kernel(CUfunction function, struct launch *launch, void **params, void **extra) {
  CUcontext context;
  CHECK(require_context(&context));
  CHECK(check_function(function));
  CHECK(check_shape(launch));
  CHECK(check_resources(launch, function));
  launch->device = context->device;
  const unsigned count = function->param_count;
  const size_t size = count ? function->param_offsets[count - 1] + function->param_sizes[count - 1] : 0;
  char on_stack[MAX_STACK_PARAMS], *packed = size > sizeof on_stack ? malloc(size) : on_stack;
  REQUIRE(packed, CUDA_ERROR_OUT_OF_MEMORY);
  CUresult result = CUDA_SUCCESS;
  if (params) {
    memset(packed, 0, size);
    for (unsigned index = 0; index < count; ++index)
      memcpy(packed + function->param_offsets[index], params[index], function->param_sizes[index]);
  } else if (extra) {
    const void *buffer = NULL;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2)
      if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
    if (buffer)
      memcpy(packed, buffer, size);
    else
      result = CUDA_ERROR_INVALID_VALUE;
  } else if (count) {
    result = CUDA_ERROR_INVALID_VALUE;
  }
  if (result == CUDA_SUCCESS) result = run_kernel(context, function, launch, packed);
  if (packed != on_stack) free(packed);
  return result;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_size, CUstream stream, void **params,
                        void **extra) {
  struct launch launch = {.grid = {grid_x, grid_y, grid_z}, .block = {block_x, block_y, block_z},
                          .shared_size = shared_size, .stream = (uintptr_t)stream};
  return launch_kernel(function, &launch, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_size,
                                   CUstream stream, void **params) {
  struct launch launch = {.grid = {grid_x, grid_y, grid_z}, .block = {block_x, block_y, block_z},
                          .shared_size = shared_size, .cooperative = 1, .stream = (uintptr_t)stream};
  return launch_kernel(function, &launch, params, NULL);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
  REQUIRE_VALUE(config);
  struct launch launch = {.grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                          .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                          .shared_size = config->sharedMemBytes,
                          .stream = (uintptr_t)config->hStream};
  for (unsigned index = 0; index < config->numAttrs; ++index) {
    const CUlaunchAttribute *attribute = &config->attrs[index];
    if (attribute->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) launch.cooperative = (uint32_t)attribute->value.cooperative;
    if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      launch.cluster[0] = attribute->value.clusterDim.x;
      launch.cluster[1] = attribute->value.clusterDim.y;
      launch.cluster[2] = attribute->value.clusterDim.z;
      if (launch.cluster[0] * launch.cluster[1] * launch.cluster[2] > 1) return not_supported("a launch of clusters");
    }
  }
  return launch_kernel(function, &launch, params, extra);
}
