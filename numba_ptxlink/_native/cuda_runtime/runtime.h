/*
 * Structures and functions that the files of the CPU's CUDA runtime share.
 *
 * The runtime is a layer over the driver of ../cuda_driver, with the same handles and error numbers. It is built once
 * for each major version of CUDA, which RUNTIME_MAJOR names: programs of both find the functions under their versions.
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

#define CHECK(call)                                        \
  do {                                                     \
    const cudaError_t check_result = (cudaError_t)(call);  \
    if (check_result != cudaSuccess) return check_result;  \
  } while (0)

/* The same in a function that programs call: cudaGetLastError returns the error, too. */
#define TRY(call)                                                        \
  do {                                                                   \
    const cudaError_t try_result = (cudaError_t)(call);                  \
    if (try_result != cudaSuccess) return record_error(try_result);      \
  } while (0)
#define REQUIRE(condition, error)                   \
  do {                                              \
    if (!(condition)) return record_error(error);   \
  } while (0)

/* Define a function of the runtime that is one call of the driver, with a context. */
#define DEFINE_FORWARD(name, parameters, call) \
  cudaError_t name parameters {                \
    TRY(use_device());                         \
    TRY(call);                                 \
    return cudaSuccess;                        \
  }

/* errors.c */

cudaError_t record_error(cudaError_t error); /* returns `error` */

/* devices.c */

cudaError_t use_device(void);                 /* gives the thread a context, as the first call of a thread does */
cudaError_t find_current_device(int *device); /* the device of the current context */

/* registration.c */

cudaError_t find_function(const void *host, CUfunction *function);
cudaError_t find_variable(const void *host, CUdeviceptr *address, size_t *size);
void add_kernel(CUkernel kernel); /* makes it known to find_function by its handle */
void forget_modules(int device); /* after a reset */
