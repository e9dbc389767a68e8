/* Load code that is no part of the program. The handles cudaLibrary_t and cudaKernel_t are handles of the driver. */
#include "runtime.h"

DEFINE_FORWARD(cudaLibraryLoadData,
               (cudaLibrary_t *library, const void *code, enum cudaJitOption *options, void **values, unsigned count,
                enum cudaLibraryOption *library_options, void **library_values, unsigned library_count),
               cuLibraryLoadData((CUlibrary *)library, code, (CUjit_option *)options, values, count,
                                 (CUlibraryOption *)library_options, library_values, library_count))
DEFINE_FORWARD(cudaLibraryLoadFromFile,
               (cudaLibrary_t *library, const char *path, enum cudaJitOption *options, void **values, unsigned count,
                enum cudaLibraryOption *library_options, void **library_values, unsigned library_count),
               cuLibraryLoadFromFile((CUlibrary *)library, path, (CUjit_option *)options, values, count,
                                     (CUlibraryOption *)library_options, library_values, library_count))
DEFINE_FORWARD(cudaLibraryUnload, (cudaLibrary_t library), cuLibraryUnload((CUlibrary)library))
DEFINE_FORWARD(cudaLibraryGetGlobal, (void **address, size_t *size, cudaLibrary_t library, const char *name),
               cuLibraryGetGlobal((CUdeviceptr *)address, size, (CUlibrary)library, name))
DEFINE_FORWARD(cudaLibraryGetManaged, (void **address, size_t *size, cudaLibrary_t library, const char *name),
               cuLibraryGetManaged((CUdeviceptr *)address, size, (CUlibrary)library, name))

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name) {
  CHECK_AND_RECORD(cuLibraryGetKernel((CUkernel *)kernel, (CUlibrary)library, name));
  add_kernel((CUkernel)*kernel);
  return cudaSuccess;
}
