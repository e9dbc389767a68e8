/* Keep the last error of each thread; give names and texts of errors; report functions that are missing here. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "runtime.h"

static _Thread_local cudaError_t last_error;

cudaError_t record_error(cudaError_t error) {
  /* cudaErrorNotReady, for a stream with unfinished work, is no failure. */
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

/* Without an error of its own, the thread gets that of its context: a kernel's fault stays until the device is reset.
   */
cudaError_t cudaPeekAtLastError(void) {
  CUcontext context;
  if (last_error != cudaSuccess || cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context) return last_error;
  return (cudaError_t)cuCtxSynchronize();
}

cudaError_t cudaGetLastError(void) {
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

static const struct error_name *find_name(cudaError_t error) {
  for (unsigned index = 0; index < error_name_count; ++index)
    if (error_names[index].error == (int)error) return &error_names[index];
  return NULL;
}

const char *cudaGetErrorName(cudaError_t error) {
  const struct error_name *found = find_name(error);
  return found ? found->name : "unrecognized error code";
}

/* NVIDIA's texts of errors for which the driver has no text, or another text; NULL for other errors. */
static const char *runtime_text(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidPitchValue: return "invalid pitch argument";
    case cudaErrorInvalidSymbol: return "invalid device symbol";
    case cudaErrorInvalidMemcpyDirection: return "invalid copy direction for memcpy";
    case cudaErrorInvalidDeviceFunction: return "invalid device function";
    case cudaErrorMissingConfiguration: return "__global__ function call is not configured";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNotReady: return "device not ready";
    default: return NULL;
  }
}

const char *cudaGetErrorString(cudaError_t error) {
  const struct error_name *found = find_name(error);
  const char *text = runtime_text(error);
  if (text || (found && cuGetErrorString((CUresult)error, &text) == CUDA_SUCCESS)) return text;
  return found ? found->words : "unrecognized error code";
}

/* Report each function once: programs call them in loops. */
int not_supported(const char *function) {
  enum { MAX_REPORTED = 256 };
  static const char *reported[MAX_REPORTED];
  static unsigned count;
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  bool is_new = true;
  pthread_mutex_lock(&lock);
  for (unsigned index = 0; index < count; ++index) is_new &= strcmp(reported[index], function) != 0;
  if (is_new && count < MAX_REPORTED) reported[count++] = function;
  pthread_mutex_unlock(&lock);
  if (is_new)
    fprintf(stderr, "numba-ptxlink: %s is not supported on the CPU device; run this part of the program on a GPU.\n",
            function);
  return record_error(cudaErrorNotSupported);
}
