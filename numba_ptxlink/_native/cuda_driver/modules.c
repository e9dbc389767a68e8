/* Load modules and libraries, whose PTX Python compiles, and find their functions and variables. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

static struct CUlib_st *module_list; /* all loaded modules and libraries, for unload_context_modules */

/* A module and a library have the same structure here, and so do a kernel and a function. */
static CUlibrary library_of(CUmodule module) { return (CUlibrary)module; }
static CUfunction function_of(CUkernel kernel) { return (CUfunction)kernel; }

static CUresult check_library(CUlibrary library) {
  CHECK(check_initialized());
  return library && library->is_loaded ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult check_function(CUfunction function) {
  CHECK(check_initialized());
  return function && function->library->is_loaded ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Called by Python while a library is loaded */

void numba_ptxlink_add_function(CUlibrary library, const char *name, const int *attributes, unsigned attribute_count,
                                unsigned param_count, const size_t *sizes, const size_t *offsets) {
  CUfunction function = calloc(1, sizeof *function);
  function->library = library;
  function->name = strdup(name);
  memcpy(function->attributes, attributes, attribute_count * sizeof *attributes);
  function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] =
      STATIC_SHARED_LIMIT - function->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES];
  function->attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1; /* no preference */
  function->param_count = param_count;
  function->param_sizes = calloc(2 * param_count + 1, sizeof *sizes); /* one array: the sizes, then the offsets */
  function->param_offsets = function->param_sizes + param_count;
  memcpy(function->param_sizes, sizes, param_count * sizeof *sizes);
  memcpy(function->param_offsets, offsets, param_count * sizeof *offsets);
  function->next = library->functions;
  library->functions = function;
}

void numba_ptxlink_add_variable(CUlibrary library, const char *name, uintptr_t address, size_t size,
                                int is_constant) {
  struct variable *variable = calloc(1, sizeof *variable);
  *variable = (struct variable){library->variables, strdup(name), address, size};
  library->variables = variable;
  const CUcontext context = current_context();
  add_range((struct allocation){.start = address, .size = size, .kind = is_constant ? CONSTANT : VARIABLE,
                                .device = context ? context->device : 0});
}

void numba_ptxlink_set_program(CUlibrary library, uint64_t program) { library->program = program; }

/* Loading */

/* Write `text` to the buffer for errors that the JIT options pass; return whether they pass one. */
static bool write_error_log(const char *text, const CUjit_option *options, void **values, unsigned count) {
  char *buffer = NULL;
  size_t size = 0;
  for (unsigned index = 0; index < count; ++index) {
    if (options[index] == CU_JIT_ERROR_LOG_BUFFER) buffer = values[index];
    if (options[index] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) size = (size_t)(uintptr_t)values[index];
  }
  if (buffer && size) snprintf(buffer, size, "%s", text);
  return buffer && size;
}

/* Load an image, which is PTX or a fat binary. `context` is that of a module, and NULL for a library. `options` are
   `count` JIT options with their `values`. */
static CUresult load(CUlibrary *library, CUcontext context, const void *image, const CUjit_option *options,
                     void **values, unsigned count) {
  REQUIRE_VALUE(library && image);
  char message[MAX_MESSAGE_SIZE] = "";
  CUlibrary new_library = calloc(1, sizeof *new_library);
  REQUIRE(new_library, CUDA_ERROR_OUT_OF_MEMORY);
  const CUresult result = python.load(new_library, image, message, sizeof message);
  if (result != CUDA_SUCCESS) {
    if (!write_error_log(message, options, values, count)) python.log(message);
    free(new_library);
    return result;
  }
  new_library->is_loaded = true;
  new_library->context = context;
  pthread_mutex_lock(&driver_lock);
  new_library->next = module_list;
  module_list = new_library;
  pthread_mutex_unlock(&driver_lock);
  *library = new_library;
  return CUDA_SUCCESS;
}

static CUresult load_file(CUlibrary *library, CUcontext context, const char *path, const CUjit_option *options,
                          void **values, unsigned count) {
  REQUIRE_VALUE(library && path);
  FILE *file = fopen(path, "rb");
  REQUIRE(file, CUDA_ERROR_FILE_NOT_FOUND);
  fseek(file, 0, SEEK_END);
  const long size = ftell(file);
  rewind(file);
  char *image = size >= 0 ? calloc(1, (size_t)size + 1) : NULL; /* PTX has to end with a null byte */
  const bool is_complete = image && fread(image, 1, (size_t)size, file) == (size_t)size;
  fclose(file);
  const CUresult result =
      is_complete ? load(library, context, image, options, values, count) : CUDA_ERROR_FILE_NOT_FOUND;
  free(image);
  return result;
}

/* Unload a module or library. Do not free its structures, so that a later use of a handle is an error, not a crash. */
static void unload(CUlibrary library) {
  pthread_mutex_lock(&driver_lock);
  for (struct CUlib_st **link = &module_list; *link; link = &(*link)->next)
    if (*link == library) {
      *link = library->next;
      break;
    }
  library->is_loaded = false;
  pthread_mutex_unlock(&driver_lock);
  for (struct variable *variable = library->variables; variable; variable = variable->next)
    remove_range(variable->address, VARIABLE | CONSTANT, NULL);
  python.unload(library->program);
}

void unload_context_modules(CUcontext context) {
  /* `unload` takes the lock and calls Python: search the list from its start after each module. */
  for (;;) {
    pthread_mutex_lock(&driver_lock);
    CUlibrary found = module_list;
    while (found && found->context != context) found = found->next;
    pthread_mutex_unlock(&driver_lock);
    if (!found) return;
    unload(found);
  }
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *options, void **values, unsigned count,
                           CUlibraryOption *library_options, void **library_values, unsigned library_count) {
  CHECK(check_initialized());
  return load(library, NULL, image, options, values, count);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *options, void **values,
                               unsigned count, CUlibraryOption *library_options, void **library_values,
                               unsigned library_count) {
  CHECK(check_initialized());
  return load_file(library, NULL, path, options, values, count);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options, void **values) {
  CUcontext context;
  CHECK(require_context(&context));
  return load((CUlibrary *)module, context, image, options, values, count);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) { return cuModuleLoadData(module, image); }

CUresult cuModuleLoad(CUmodule *module, const char *path) {
  CUcontext context;
  CHECK(require_context(&context));
  return load_file((CUlibrary *)module, context, path, NULL, NULL, 0);
}

CUresult cuLibraryUnload(CUlibrary library) {
  CHECK(check_library(library));
  unload(library);
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) { return cuLibraryUnload(library_of(module)); }

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
  CHECK(check_initialized());
  REQUIRE_VALUE(mode);
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

/* Members */

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
  CHECK(check_library(library));
  REQUIRE_VALUE(kernel && name);
  CUfunction found = library->functions;
  while (found && strcmp(found->name, name)) found = found->next;
  *kernel = (CUkernel)found;
  return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name) {
  CHECK(check_library(library));
  REQUIRE_VALUE(name);
  const struct variable *found = library->variables;
  while (found && strcmp(found->name, name)) found = found->next;
  REQUIRE(found, CUDA_ERROR_NOT_FOUND);
  if (address) *address = found->address;
  if (size) *size = found->size;
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name) {
  return cuLibraryGetGlobal(address, size, library, name);
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
  CHECK(check_library(library));
  REQUIRE_VALUE(module);
  *module = (CUmodule)library;
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary library) {
  CHECK(check_library(library));
  REQUIRE_VALUE(count);
  *count = 0;
  for (CUfunction function = library->functions; function; function = function->next) ++*count;
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned count, CUlibrary library) {
  CHECK(check_library(library));
  REQUIRE_VALUE(kernels || !count);
  for (CUfunction function = library->functions; function && count; function = function->next, --count)
    *kernels++ = (CUkernel)function;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  return cuLibraryGetKernel((CUkernel *)function, library_of(module), name);
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule module, const char *name) {
  return cuLibraryGetGlobal(address, size, library_of(module), name);
}
CUresult cuModuleGetFunctionCount(unsigned *count, CUmodule module) {
  return cuLibraryGetKernelCount(count, library_of(module));
}
CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned count, CUmodule module) {
  return cuLibraryEnumerateKernels((CUkernel *)functions, count, library_of(module));
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
  CHECK(check_function(function_of(kernel)));
  REQUIRE_VALUE(function);
  *function = function_of(kernel);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel) {
  CHECK(check_function(function_of(kernel)));
  REQUIRE_VALUE(library);
  *library = function_of(kernel)->library;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function) {
  return cuKernelGetLibrary((CUlibrary *)module, (CUkernel)function);
}

CUresult cuFuncGetName(const char **name, CUfunction function) {
  CHECK(check_function(function));
  REQUIRE_VALUE(name);
  *name = function->name;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char **name, CUkernel kernel) { return cuFuncGetName(name, function_of(kernel)); }
