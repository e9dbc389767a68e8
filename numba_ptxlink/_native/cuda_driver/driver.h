/*
 * Structures and functions that the files of the CPU's CUDA driver share.
 *
 * One lock protects all tables. The lock is not held while Python is called or a kernel runs. Each call of the driver
 * has done its work when it returns, so that streams and events have no queues. Python calls the functions whose names
 * begin with numba_ptxlink_; see _cpu/device/callbacks.py.
 */
#pragma once

#define __CUDA_API_VERSION_INTERNAL /* declares the old versions of functions, too */
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "entry_points.h" /* declares not_supported, too */

enum {
  MAX_DEVICES = 16,
  MAX_THREADS_PER_BLOCK = 1024, /* of all GPUs since compute capability 2.0 */
  STATIC_SHARED_LIMIT = 48 << 10, /* bytes of shared memory of a block without an opt-in by cuFuncSetAttribute */
  MAX_MESSAGE_SIZE = 4096,
};

/* Return `error` from the calling function unless `condition` holds. */
#define REQUIRE(condition, error)    \
  do {                               \
    if (!(condition)) return error;  \
  } while (0)
/* Return the error of `call` from the calling function, if there is one. */
#define CHECK(call)                            \
  do {                                         \
    const CUresult check_result = (call);      \
    if (check_result != CUDA_SUCCESS) return check_result; \
  } while (0)
#define REQUIRE_VALUE(condition) REQUIRE(condition, CUDA_ERROR_INVALID_VALUE)

/* devices.c */

struct device_settings {
  int count, major, minor;
  size_t memory_size; /* bytes of each device */
};
extern struct device_settings devices;
extern pthread_mutex_t driver_lock;

CUresult check_initialized(void);
CUresult check_device(CUdevice device);
int device_attribute(CUdevice_attribute attribute, CUdevice device);
void deinitialize_driver(void); /* later calls return CUDA_ERROR_DEINITIALIZED */

/* contexts.c */

struct CUctx_st {
  CUdevice device;
  bool destroyed, active; /* a primary context is active from its first use to its release or reset */
  unsigned retain_count;  /* of a primary context: the calls of cuDevicePrimaryCtxRetain without a release */
  unsigned flags;
  uint64_t id;                 /* unique in the process */
  uint32_t peers;              /* a bit for each device whose memory kernels may access */
  size_t limits[CU_LIMIT_MAX]; /* by CUlimit */
  CUresult sticky_error; /* of a kernel, returned by all later calls */
  char fault_message[MAX_MESSAGE_SIZE];
};

/* Write the current context to `context`, which may be NULL. Return an error if there is none, or its sticky error. */
CUresult require_context(CUcontext *context);
CUcontext current_context(void); /* NULL if the thread has none */
CUcontext primary_context(CUdevice device);

/* heap.c */

enum memory_kind {
  DEVICE_MEMORY = 1 << 0,
  MANAGED_MEMORY = 1 << 1,
  PINNED_MEMORY = 1 << 2,
  REGISTERED_MEMORY = 1 << 3, /* memory of the program, by cuMemHostRegister */
  VARIABLE = 1 << 4,
  CONSTANT = 1 << 5, /* a variable that kernels cannot write */
};
enum { ALLOCATED = DEVICE_MEMORY | MANAGED_MEMORY | PINNED_MEMORY, ANY_KIND = ~0 };

struct allocation {
  uintptr_t start;
  size_t size;
  enum memory_kind kind;
  CUcontext context; /* NULL for variables */
  CUdevice device;
  unsigned flags;    /* of the call that allocated or registered the memory */
  uint64_t id;       /* unique in the process */
  CUmemoryPool pool; /* NULL if the memory is not from a pool */
};

/* Tell initcheck, which reports uninitialised reads, whether memory is initialised: false after an allocation of device
   memory, true after a copy or fill. Managed and pinned memory counts as initialised from the start, since the host may
   write it without a call of the driver. A call for ordinary host memory, which kernels cannot read, is harmless. */
void set_initialised(uintptr_t address, size_t size, bool is_initialised);
/* Allocate memory with the members of `request`, but for `start` and `id`, which are set here; write the address. */
CUresult allocate(struct allocation request, uintptr_t *address);
CUresult add_range(struct allocation range); /* adds memory that was not allocated here to the table */
/* Remove the range that begins at `start`, if it is of one of `kinds`; write it to `removed`, which may be NULL. */
CUresult remove_range(uintptr_t start, int kinds, struct allocation *removed);
void remove_context_memory(CUcontext context);
bool find_allocation(uintptr_t address, struct allocation *found); /* the range that contains `address` */
bool is_in_heap(uintptr_t address);
size_t used_memory(CUdevice device); /* bytes */
bool is_accessible(const struct allocation *range, const struct CUctx_st *context); /* by kernels of `context` */
void regions_changed(void); /* makes Python read the table again before the next launch */

/* pools.c */

void count_pool_memory(CUmemoryPool pool, ptrdiff_t change); /* `change`: allocated bytes; freed ones are negative */
bool is_pool_peer(CUmemoryPool pool, CUdevice device);       /* whether cuMemPoolSetAccess gave it access */

/* modules.c. CUmodule and CUlibrary both point to a CUlib_st here, and CUfunction and CUkernel both to a CUfunc_st. */

struct CUfunc_st {
  struct CUlib_st *library;
  struct CUfunc_st *next;
  char *name;
  int attributes[CU_FUNC_ATTRIBUTE_MAX];
  unsigned param_count;
  size_t *param_sizes, *param_offsets;
};

struct variable {
  struct variable *next;
  char *name;
  uintptr_t address;
  size_t size;
};

struct CUlib_st {
  uint64_t program;  /* the number by which Python knows the compiled PTX */
  bool is_loaded;    /* false after it is unloaded */
  CUcontext context; /* of a module; NULL for a library, which serves all contexts */
  struct CUfunc_st *functions;
  struct variable *variables;
  struct CUlib_st *next;
};

void unload_context_modules(CUcontext context);
CUresult check_function(CUfunction function); /* CUDA_ERROR_INVALID_HANDLE if its module is unloaded */

/* python.c */

/* `shared_size` is that of dynamic shared memory in bytes, and `cooperative` is 0 or 1. */
struct launch {
  uint32_t grid[3], block[3], cluster[3], shared_size, cooperative;
  int32_t device;
  uint64_t stream;
};

/* The methods of PythonDriver in _cpu/device/callbacks.py. Those that return an int return a CUresult, and write the
   reason of an error to `message`. `link` allocates `*output` by malloc, and its caller frees it. */
struct python_functions {
  int (*load)(struct CUlib_st *library, const void *image, char *message, size_t message_size);
  void (*unload)(uint64_t program);
  int (*launch)(uint64_t program, const char *kernel, const struct launch *launch, void *params, char *message,
                size_t message_size);
  int (*link)(void *const *inputs, const size_t *sizes, const char *const *names, unsigned count, void **output,
              size_t *output_size, char *message, size_t message_size);
  void (*log)(const char *text);
  void (*stop_compiling)(void);
};
extern struct python_functions python;
extern bool has_started_python; /* this library has started Python, since the program is not in Python */

CUresult attach_python(void); /* fills `python` */
