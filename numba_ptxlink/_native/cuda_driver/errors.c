/* Names and texts of errors, and the report of functions that are not supported. */
#include <stdio.h>
#include <string.h>

#include "driver.h"

/* NVIDIA's texts of the errors that programs print most, but for the hint that the CPU device needs PTX. NULL for
   others, which get the words of their names. */
static const char *known_text(CUresult error) {
  switch (error) {
    case CUDA_SUCCESS: return "no error";
    case CUDA_ERROR_INVALID_VALUE: return "invalid argument";
    case CUDA_ERROR_NOT_INITIALIZED: return "initialization error";
    case CUDA_ERROR_DEINITIALIZED: return "driver shutting down";
    case CUDA_ERROR_NO_DEVICE: return "no CUDA-capable device is detected";
    case CUDA_ERROR_INVALID_DEVICE: return "invalid device ordinal";
    case CUDA_ERROR_INVALID_CONTEXT: return "invalid device context";
    case CUDA_ERROR_NO_BINARY_FOR_GPU: return "no kernel image is available: the CPU device needs PTX";
    case CUDA_ERROR_INVALID_PTX: return "a PTX JIT compilation failed";
    case CUDA_ERROR_INVALID_HANDLE: return "invalid resource handle";
    case CUDA_ERROR_NOT_FOUND: return "named symbol not found";
    case CUDA_ERROR_ILLEGAL_ADDRESS: return "an illegal memory access was encountered";
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: return "too many resources requested for launch";
    case CUDA_ERROR_ASSERT: return "device-side assert triggered";
    case CUDA_ERROR_LAUNCH_FAILED: return "unspecified launch failure";
    case CUDA_ERROR_NOT_SUPPORTED: return "operation not supported";
    default: return NULL;
  }
}

static const struct error_name *find_name(CUresult error) {
  for (unsigned index = 0; index < error_name_count; ++index)
    if (error_names[index].error == (int)error) return &error_names[index];
  return NULL;
}

CUresult cuGetErrorName(CUresult error, const char **name) {
  const struct error_name *found = find_name(error);
  REQUIRE_VALUE(name);
  *name = found ? found->name : NULL;
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* If the current context has the error, after the fault of a kernel, the text names the place and the cause. */
CUresult cuGetErrorString(CUresult error, const char **text) {
  const struct error_name *found = find_name(error);
  const CUcontext context = current_context();
  REQUIRE_VALUE(text);
  if (context && error != CUDA_SUCCESS && context->sticky_error == error && *context->fault_message)
    *text = context->fault_message;
  else if (!(*text = known_text(error)))
    *text = found ? found->words : NULL;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Report each function once: programs probe for features in loops. */
int not_supported(const char *function) {
  enum { MAX_REPORTED = 256 };
  static const char *reported[MAX_REPORTED];
  static unsigned count;
  bool is_new = true;
  pthread_mutex_lock(&driver_lock);
  /* Each caller passes one string literal, so that the addresses can be compared. */
  for (unsigned index = 0; index < count; ++index) is_new &= reported[index] != function;
  if (is_new && count < MAX_REPORTED) reported[count++] = function;
  pthread_mutex_unlock(&driver_lock);
  if (is_new && python.log) {
    char text[256];
    snprintf(text, sizeof text, "%s is not supported on the CPU device; run this part of the program on a GPU.",
             function);
    python.log(text);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}
