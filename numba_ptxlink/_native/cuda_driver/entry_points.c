/* cuGetProcAddress: find a function of the driver in the version that a program was built for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "driver.h"

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
  REQUIRE_VALUE(name && function);
  *function = NULL;
  CUdriverProcAddressQueryResult result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  /* `entry_points` has the versions of a function from the oldest to the newest, each with the CUDA release that added
     it. Take the newest one that is not newer than `version`; if all are newer, take the oldest one. */
  for (unsigned index = 0; index < entry_point_count; ++index) {
    const struct entry_point *entry = &entry_points[index];
    if (strcmp(entry->name, name) || (*function && entry->release > version)) continue;
    *function = (void *)entry->function;
    result = CU_GET_PROC_ADDRESS_SUCCESS;
  }
  if (status) {
    *status = result;
    return CUDA_SUCCESS;
  }
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

/*
 * NVIDIA's static runtime library first requests undocumented tables, so that a program which contains the library
 * cannot run here: report the program, or the module of a Python program. NVIDIA's libraries that link code
 * (libnv*.so) contain the library, too, but do not need the tables.
 */
static bool needs_tables(const char *path) {
  const char *name = strrchr(path, '/');
  return strncmp(name ? name + 1 : path, "libnv", strlen("libnv")) != 0;
}

CUresult cuGetExportTable(const void **table, const CUuuid *id) {
  static bool reported;
  Dl_info caller;
  REQUIRE_VALUE(table);
  *table = NULL;
  if (!reported && dladdr(__builtin_return_address(0), &caller) && needs_tables(caller.dli_fname)) {
    reported = true;
    /* A program in Python contains Python, which this library has not started. */
    const bool is_in_python = !has_started_python && dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    const char *cure = is_in_python
                           ? "set NUMBA_PTXLINK_DEVICE=cpu before Python starts if it belongs to cuda.bindings, or "
                             "else run it on a GPU"
                           : "link it with nvcc -cudart shared (CMAKE_CUDA_RUNTIME_LIBRARY=Shared)";
    fprintf(stderr, "numba-ptxlink: %s contains NVIDIA's static CUDA runtime, which the CPU device does not support; "
            "%s.\n", caller.dli_fname, cure);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

/* There is no profiler: functions that start or stop one succeed and do nothing. */
CUresult cuProfilerStart(void) { return check_initialized(); }
CUresult cuProfilerStop(void) { return check_initialized(); }
