/* Allocate and register memory, manage pools, and describe pointers, by the functions of the driver. */
#include <string.h>

#include "runtime.h"

/*
 * Define a function of the runtime that allocates memory by `call`, a function of the driver; `parameters` contain an
 * `address` and a `size`. For 0 bytes, the runtime returns a null pointer, and the driver would return an error.
 */
#define DEFINE_ALLOCATION(name, parameters, call) \
  cudaError_t name parameters {                   \
    CHECK_AND_RECORD(ensure_context());           \
    REQUIRE(address, cudaErrorInvalidValue);      \
    *address = NULL;                              \
    if (size) CHECK_AND_RECORD(call);             \
    return cudaSuccess;                           \
  }

DEFINE_ALLOCATION(cudaMalloc, (void **address, size_t size), cuMemAlloc((CUdeviceptr *)address, size))
DEFINE_ALLOCATION(cudaMallocHost, (void **address, size_t size), cuMemAllocHost(address, size))
DEFINE_ALLOCATION(cudaHostAlloc, (void **address, size_t size, unsigned flags), cuMemHostAlloc(address, size, flags))
DEFINE_ALLOCATION(cudaMallocAsync, (void **address, size_t size, cudaStream_t stream),
                  cuMemAllocAsync((CUdeviceptr *)address, size, stream))
DEFINE_ALLOCATION(cudaMallocFromPoolAsync,
                  (void **address, size_t size, cudaMemPool_t pool, cudaStream_t stream),
                  cuMemAllocFromPoolAsync((CUdeviceptr *)address, size, pool, stream))
DEFINE_FORWARD(cudaMallocManaged, (void **address, size_t size, unsigned flags),
               cuMemAllocManaged((CUdeviceptr *)address, size, flags))

cudaError_t cudaMallocPitch(void **address, size_t *pitch, size_t width, size_t height) {
  enum { ELEMENT_SIZE = 4 }; /* cuMemAllocPitch accepts 4, 8 and 16 */
  CHECK_AND_RECORD(ensure_context());
  REQUIRE(address && pitch, cudaErrorInvalidValue);
  *address = NULL;
  *pitch = 0;
  if (width && height) CHECK_AND_RECORD(cuMemAllocPitch((CUdeviceptr *)address, pitch, width, height, ELEMENT_SIZE));
  return cudaSuccess;
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *address, struct cudaExtent extent) {
  REQUIRE(address, cudaErrorInvalidValue);
  address->xsize = extent.width;
  address->ysize = extent.height;
  return cudaMallocPitch(&address->ptr, &address->pitch, extent.width, extent.height * extent.depth);
}

DEFINE_FORWARD(cudaFree, (void *address), cuMemFree((CUdeviceptr)address))
DEFINE_FORWARD(cudaFreeHost, (void *address), cuMemFreeHost(address))
DEFINE_FORWARD(cudaFreeAsync, (void *address, cudaStream_t stream), cuMemFreeAsync((CUdeviceptr)address, stream))
DEFINE_FORWARD(cudaHostRegister, (void *address, size_t size, unsigned flags),
               cuMemHostRegister(address, size, flags))
DEFINE_FORWARD(cudaHostUnregister, (void *address), cuMemHostUnregister(address))
DEFINE_FORWARD(cudaHostGetDevicePointer, (void **address, void *host, unsigned flags),
               cuMemHostGetDevicePointer((CUdeviceptr *)address, host, flags))
DEFINE_FORWARD(cudaHostGetFlags, (unsigned *flags, void *address), cuMemHostGetFlags(flags, address))
DEFINE_FORWARD(cudaMemGetInfo, (size_t *free, size_t *total), cuMemGetInfo(free, total))

/* Pools, whose structures are the driver's */

DEFINE_FORWARD(cudaDeviceGetDefaultMemPool, (cudaMemPool_t *pool, int device), cuDeviceGetDefaultMemPool(pool, device))
DEFINE_FORWARD(cudaDeviceGetMemPool, (cudaMemPool_t *pool, int device), cuDeviceGetMemPool(pool, device))
DEFINE_FORWARD(cudaDeviceSetMemPool, (int device, cudaMemPool_t pool), cuDeviceSetMemPool(device, pool))
DEFINE_FORWARD(cudaMemPoolCreate, (cudaMemPool_t *pool, const struct cudaMemPoolProps *properties),
               cuMemPoolCreate(pool, (const CUmemPoolProps *)properties))
DEFINE_FORWARD(cudaMemPoolDestroy, (cudaMemPool_t pool), cuMemPoolDestroy(pool))
DEFINE_FORWARD(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t bytes_to_keep), cuMemPoolTrimTo(pool, bytes_to_keep))
DEFINE_FORWARD(cudaMemPoolGetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value),
               cuMemPoolGetAttribute(pool, (CUmemPool_attribute)attribute, value))
DEFINE_FORWARD(cudaMemPoolSetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value),
               cuMemPoolSetAttribute(pool, (CUmemPool_attribute)attribute, value))
DEFINE_FORWARD(cudaMemPoolSetAccess, (cudaMemPool_t pool, const struct cudaMemAccessDesc *accesses, size_t count),
               cuMemPoolSetAccess(pool, (const CUmemAccessDesc *)accesses, count))
DEFINE_FORWARD(cudaMemPoolGetAccess,
               (enum cudaMemAccessFlags *flags, cudaMemPool_t pool, struct cudaMemLocation *location),
               cuMemPoolGetAccess((CUmemAccess_flags *)flags, pool, (CUmemLocation *)location))

/* Advice */

/*
 * Programs of CUDA 12 pass a device, and programs of CUDA 13 a location. The CPU's driver ignores devices and
 * locations, and only checks the range, so that one definition serves all programs.
 */
DEFINE_FORWARD(cudaMemAdvise,
               (const void *address, size_t size, enum cudaMemoryAdvise advice, struct cudaMemLocation location),
               cuMemAdvise((CUdeviceptr)address, size, (CUmem_advise)advice, (CUmemLocation){0}))
DEFINE_FORWARD(cudaMemPrefetchAsync,
               (const void *address, size_t size, struct cudaMemLocation location, unsigned flags,
                cudaStream_t stream),
               cuMemPrefetchAsync((CUdeviceptr)address, size, (CUmemLocation){0}, 0, NULL))

/* Pointers */

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer) {
  enum { MEMORY_TYPE, IS_MANAGED, DEVICE, HOST_POINTER, COUNT };
  CHECK_AND_RECORD(ensure_context());
  REQUIRE(attributes, cudaErrorInvalidValue);
  CUpointer_attribute queried[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_HOST_POINTER};
  uint64_t values[COUNT] = {0};
  void *addresses[] = {&values[MEMORY_TYPE], &values[IS_MANAGED], &values[DEVICE], &values[HOST_POINTER]};
  CHECK_AND_RECORD(cuPointerGetAttributes(COUNT, queried, addresses, (CUdeviceptr)pointer));
  const bool is_known = values[MEMORY_TYPE];
  /* Write each member alone: CUDA 13 has appended members, and the smaller structure of a CUDA 12 program would
     overflow if a whole structure were assigned. */
  attributes->type = !is_known                                  ? cudaMemoryTypeUnregistered
                     : values[IS_MANAGED]                       ? cudaMemoryTypeManaged
                     : values[MEMORY_TYPE] == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                                                 : cudaMemoryTypeDevice;
  attributes->device = (int)values[DEVICE];
  attributes->devicePointer = is_known ? (void *)pointer : NULL;
  attributes->hostPointer = is_known ? (void *)values[HOST_POINTER] : (void *)pointer;
  return cudaSuccess;
}

/* Formats of arrays */

struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, enum cudaChannelFormatKind kind) {
  return (struct cudaChannelFormatDesc){x, y, z, w, kind};
}
