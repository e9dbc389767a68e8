/*
 * Find the kernels and variables of C++ programs. Before main, code that nvcc adds to a program registers the program's
 * fat binaries, and each kernel and variable with its name and its address on the host. A fat binary is loaded into a
 * device when one of its kernels or variables is first used there.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

/* `__fatBinC_Wrapper_t` of fatbinary_section.h. In version 2, which nvcc -rdc=true writes, `linked` is a list of the
   fat binaries of all files, to be linked when the program runs; NULL ends the list. */
struct wrapper {
  int magic, version;
  const struct fat_binary *content;
  const struct fat_binary *const *linked;
};

/* The header of a fat binary; `size` bytes of content follow it. */
struct fat_binary {
  uint32_t magic;
  uint16_t version, header_size;
  uint64_t size;
};

enum { LINKED_VERSION = 2 }; /* of a wrapper with `linked` */

/* A registered fat binary, and the module that is loaded from it on each device. */
struct registration {
  const struct wrapper *wrapper;
  CUmodule modules[MAX_DEVICES]; /* NULL before it is loaded */
  cudaError_t error;             /* of a failed load on any device: no load is tried again */
  bool has_managed;              /* has __managed__ variables */
};

/* A kernel or variable with its address in the program. */
struct symbol {
  const void *host; /* NULL in a free entry of the table */
  const char *name;
  struct registration *registration; /* NULL after __cudaUnregisterFatBinary */
  bool is_managed;
  CUfunction functions[MAX_DEVICES]; /* a kernel on each device, NULL before its first use */
};

/* A hash table by host addresses, which is never more than half full. Collisions take the next free entry. */
static struct symbol *symbols;
static size_t symbol_count, capacity;
/* `load_lock` is held during a load, `table_lock` only for accesses to the table: a load calls Python, which may load
   libraries whose fat binaries are registered meanwhile. */
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER, load_lock = PTHREAD_MUTEX_INITIALIZER;

/* Return the entry of a symbol, or the free entry where it belongs, in a table with `size` entries. */
static struct symbol *find_entry(struct symbol *table, size_t size, const void *host) {
  /* Fibonacci hashing: the factor is 2^64 / golden ratio. The lowest bits of the product vary least: drop 16. */
  size_t index = ((uintptr_t)host * UINT64_C(0x9E3779B97F4A7C15) >> 16) % size;
  while (table[index].host && table[index].host != host) index = (index + 1) % size;
  return &table[index];
}

static void add_symbol(struct symbol symbol) {
  pthread_mutex_lock(&table_lock);
  if (2 * symbol_count >= capacity) {
    const size_t new_capacity = capacity ? 2 * capacity : 256;
    struct symbol *new_symbols = calloc(new_capacity, sizeof *new_symbols);
    if (!new_symbols) abort(); /* most callers are nvcc's code before main, to which no error can be returned */
    for (size_t index = 0; index < capacity; ++index)
      if (symbols[index].host) *find_entry(new_symbols, new_capacity, symbols[index].host) = symbols[index];
    free(symbols);
    symbols = new_symbols;
    capacity = new_capacity;
  }
  struct symbol *entry = find_entry(symbols, capacity, symbol.host);
  symbol_count += !entry->host;
  *entry = symbol;
  pthread_mutex_unlock(&table_lock);
}

/* Programs also get kernels by cudaLibraryGetKernel, and pass their handles to functions that take the host address of
   a kernel. So each such kernel is a symbol whose `host` is the handle. All share this registration without a fat
   binary: their libraries are loaded already, so that `functions` is set from the start. */
static struct registration library_kernels;

void add_kernel(CUkernel kernel) {
  struct symbol symbol = {.host = kernel, .registration = &library_kernels};
  cuKernelGetName(&symbol.name, kernel);
  for (int device = 0; device < MAX_DEVICES; ++device) symbol.functions[device] = (CUfunction)kernel;
  add_symbol(symbol);
}

/* Copy the symbol with a host address to `found`; return whether there is one. */
static bool find_symbol(const void *host, struct symbol *found) {
  pthread_mutex_lock(&table_lock);
  const struct symbol *entry = capacity && host ? find_entry(symbols, capacity, host) : NULL;
  const bool is_registered = entry && entry->registration;
  if (is_registered) *found = *entry;
  pthread_mutex_unlock(&table_lock);
  return is_registered;
}

/* Functions that nvcc's code calls */

void **__cudaRegisterFatBinary(void *wrapper) {
  struct registration *registration = calloc(1, sizeof *registration);
  if (!registration) abort();
  registration->wrapper = wrapper;
  return (void **)registration;
}

/* Nothing has to be done: a fat binary is loaded at its first use. */
void __cudaRegisterFatBinaryEnd(void **handle) {}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit,
                            uint3 *thread, uint3 *block, dim3 *block_size, dim3 *grid_size, int *warp_size) {
  add_symbol((struct symbol){.host = host, .name = name, .registration = (struct registration *)handle});
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int is_external, size_t size,
                       int is_constant, int is_global) {
  add_symbol((struct symbol){.host = host, .name = name, .registration = (struct registration *)handle});
}

/* The program reads and writes a managed variable through a pointer at `host`. */
void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int is_external, size_t size,
                              int is_constant, int is_global) {
  struct registration *registration = (struct registration *)handle;
  registration->has_managed = true;
  add_symbol((struct symbol){.host = host, .name = name, .registration = registration, .is_managed = true});
}

void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t size) {}

/* Forget the symbols: a shared library was closed, and another one may be loaded at its addresses. */
void __cudaUnregisterFatBinary(void **handle) {
  struct registration *registration = (struct registration *)handle;
  pthread_mutex_lock(&table_lock);
  for (size_t index = 0; index < capacity; ++index)
    if (symbols[index].registration == registration) symbols[index].registration = NULL;
  pthread_mutex_unlock(&table_lock);
  for (int device = 0; device < MAX_DEVICES; ++device)
    if (registration->modules[device]) cuModuleUnload(registration->modules[device]);
  free(registration);
}

/* Loading */

/* Link the PTX of several files, which nvcc -rdc=true has left to be linked when the program runs. */
static cudaError_t link_and_load(const struct wrapper *wrapper, CUmodule *module) {
  char log[4096] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, (void *)sizeof log};
  CUlinkState state;
  CHECK(cuLinkCreate(2, options, values, &state));
  CUresult result = CUDA_SUCCESS;
  for (unsigned index = 0; wrapper->linked[index] && result == CUDA_SUCCESS; ++index) {
    const struct fat_binary *binary = wrapper->linked[index];
    char name[32];
    snprintf(name, sizeof name, "object %u", index + 1);
    result = cuLinkAddData(state, CU_JIT_INPUT_FATBINARY, (void *)binary, binary->header_size + binary->size, name, 0,
                           NULL, NULL);
  }
  void *image;
  size_t size;
  if (result == CUDA_SUCCESS) result = cuLinkComplete(state, &image, &size);
  if (result == CUDA_SUCCESS)
    result = cuModuleLoadData(module, image);
  else
    fprintf(stderr, "numba-ptxlink: the program's objects cannot be linked: %s\n", log);
  cuLinkDestroy(state);
  return (cudaError_t)result;
}

/* Store the address of each managed variable where the program reads it. */
static cudaError_t set_managed(const struct registration *registration, CUmodule module) {
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&table_lock);
  for (size_t index = 0; index < capacity && result == CUDA_SUCCESS; ++index) {
    const struct symbol *symbol = &symbols[index];
    if (symbol->registration == registration && symbol->is_managed)
      result = cuModuleGetGlobal((CUdeviceptr *)symbol->host, NULL, module, symbol->name);
  }
  pthread_mutex_unlock(&table_lock);
  return (cudaError_t)result;
}

/* Load a fat binary into a device, unless it is loaded or a load has failed; the caller holds load_lock. */
static cudaError_t load_locked(struct registration *registration, int device) {
  CUmodule *module = &registration->modules[device];
  if (*module || registration->error) return registration->error;
  /* The program has one pointer to a managed variable, which cannot lie in the modules of two devices. */
  if (registration->has_managed)
    for (int other = 0; other < MAX_DEVICES; ++other)
      if (registration->modules[other]) return not_supported("a __managed__ variable on two devices");
  const struct wrapper *wrapper = registration->wrapper;
  const bool needs_link = wrapper->version == LINKED_VERSION && wrapper->linked && wrapper->linked[0];
  cudaError_t error = needs_link ? link_and_load(wrapper, module) : (cudaError_t)cuModuleLoadData(module, wrapper);
  if (error == cudaSuccess && registration->has_managed) error = set_managed(registration, *module);
  return registration->error = error;
}

/* Load a fat binary into the current device, unless it is loaded; write the number of the device. */
static cudaError_t load(struct registration *registration, int *device) {
  CHECK(ensure_context());
  CHECK(find_current_device(device));
  pthread_mutex_lock(&load_lock);
  const cudaError_t error = load_locked(registration, *device);
  pthread_mutex_unlock(&load_lock);
  return error;
}

/* Called by code of nvcc before the program accesses a managed variable. */
char __cudaInitModule(void **handle) {
  int device;
  return record_error(load((struct registration *)handle, &device)) == cudaSuccess;
}

/* After cudaDeviceReset, which unloads the modules of a device: load them again at their next use. */
void forget_modules(int device) {
  pthread_mutex_lock(&table_lock);
  for (size_t index = 0; index < capacity; ++index) {
    /* Libraries belong to no device, so that a reset leaves them loaded. */
    if (!symbols[index].registration || symbols[index].registration == &library_kernels) continue;
    symbols[index].registration->modules[device] = NULL;
    symbols[index].functions[device] = NULL;
  }
  pthread_mutex_unlock(&table_lock);
}

cudaError_t find_function(const void *host, CUfunction *function) {
  struct symbol found;
  int device;
  if (!find_symbol(host, &found)) return cudaErrorInvalidDeviceFunction;
  CHECK(ensure_context());
  CHECK(find_current_device(&device));
  *function = found.functions[device];
  if (*function) return cudaSuccess;
  CHECK(load(found.registration, &device));
  if (cuModuleGetFunction(function, found.registration->modules[device], found.name) != CUDA_SUCCESS)
    return cudaErrorInvalidDeviceFunction;
  pthread_mutex_lock(&table_lock);
  find_entry(symbols, capacity, host)->functions[device] = *function;
  pthread_mutex_unlock(&table_lock);
  return cudaSuccess;
}

cudaError_t find_variable(const void *host, CUdeviceptr *address, size_t *size) {
  struct symbol found;
  int device;
  if (!find_symbol(host, &found)) return cudaErrorInvalidSymbol;
  CHECK(load(found.registration, &device));
  const CUresult result = cuModuleGetGlobal(address, size, found.registration->modules[device], found.name);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidSymbol;
}

cudaError_t cudaFuncGetName(const char **name, const void *host) {
  struct symbol found;
  REQUIRE(name, cudaErrorInvalidValue);
  REQUIRE(find_symbol(host, &found), cudaErrorInvalidDeviceFunction);
  *name = found.name;
  return cudaSuccess;
}
