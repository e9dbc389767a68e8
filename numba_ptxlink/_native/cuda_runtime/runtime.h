/*
 * Structures and functions that the files of the CPU's CUDA runtime share.
 *
 * The runtime is a layer over the driver of ../cuda_driver, with the same handles and error numbers. The library is
 * built twice, as libcudart.so.12 and libcudart.so.13; RUNTIME_MAJOR is 12 or 13.
 */
#pragma once

#define __CUDART_API_VERSION_INTERNAL
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tables.h"

enum { MAX_DEVICES = 16 };

/* If `call`, of the runtime or the driver, returns an error, return the error from the calling function. */
#define CHECK(call)                                        \
  do {                                                     \
    const cudaError_t check_result = (cudaError_t)(call);  \
    if (check_result != cudaSuccess) return check_result;  \
  } while (0)

/* CHECK for functions that programs call: also record the error, which cudaGetLastError then returns. */
#define CHECK_AND_RECORD(call)                                          \
  do {                                                                  \
    const cudaError_t check_result = (cudaError_t)(call);               \
    if (check_result != cudaSuccess) return record_error(check_result); \
  } while (0)
/* Unless `condition` holds, record `error` and return it: for functions that programs call. */
#define REQUIRE(condition, error)                   \
  do {                                              \
    if (!(condition)) return record_error(error);   \
  } while (0)

/* Define a function of the runtime that forwards to one function of the driver, `call`, with a current context. */
#define DEFINE_FORWARD(name, parameters, call) \
  cudaError_t name parameters {                \
    CHECK_AND_RECORD(ensure_context());        \
    CHECK_AND_RECORD(call);                    \
    return cudaSuccess;                        \
  }

/* errors.c */

cudaError_t record_error(cudaError_t error); /* keeps `error` as the thread's last error; returns it */

/* devices.c */

cudaError_t ensure_context(void);             /* makes the context of the selected device current, if none is */
cudaError_t find_current_device(int *device); /* the device of the current context */

/* registration.c */

/* Find the kernel or variable with the address `host` in the C++ program, on the current device. */
cudaError_t find_function(const void *host, CUfunction *function);
cudaError_t find_variable(const void *host, CUdeviceptr *address, size_t *size);
void add_kernel(CUkernel kernel); /* lets find_function accept the handle of a kernel in place of a host address */
void forget_modules(int device);  /* after a reset of the device */
