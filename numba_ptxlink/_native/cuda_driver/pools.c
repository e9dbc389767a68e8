/* Memory pools. Freed memory goes back to the heap (heap.c) at once, so that a pool only counts allocated bytes. */
#include <stdlib.h>

#include "driver.h"

struct CUmemPoolHandle_st {
  CUdevice device;
  uint32_t peers; /* a bit for each other device whose kernels may access the memory */
  uint64_t used, used_high, release_threshold; /* bytes; `used_high` is the maximum of `used` since its last reset */
  int forbids_reuse[3];                        /* the CU_MEMPOOL_ATTR_REUSE_... attributes, which are 1 by default */
};

static struct CUmemPoolHandle_st default_pools[MAX_DEVICES];
static CUmemoryPool current_pools[MAX_DEVICES]; /* by cuDeviceSetMemPool; NULL for the default pool */

void count_pool_memory(CUmemoryPool pool, ptrdiff_t change) {
  if (!pool) return; /* the memory is not from a pool */
  const uint64_t used = __atomic_add_fetch(&pool->used, change, __ATOMIC_RELAXED);
  if (used > pool->used_high) pool->used_high = used;
}

/* Return the default pool of a device. Its `device` is set here, since the array begins as zeros. */
static CUmemoryPool default_pool(CUdevice device) {
  CUmemoryPool pool = &default_pools[device];
  pool->device = device;
  return pool;
}

static CUmemoryPool current_pool(CUdevice device) {
  return current_pools[device] ? current_pools[device] : default_pool(device);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
  CHECK(check_device(device));
  REQUIRE_VALUE(pool);
  *pool = default_pool(device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
  CHECK(check_device(device));
  REQUIRE_VALUE(pool);
  *pool = current_pool(device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  CHECK(check_device(device));
  REQUIRE_VALUE(pool && pool->device == device);
  current_pools[device] = pool;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
  REQUIRE_VALUE(pool && properties);
  if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE) return not_supported("cuMemPoolCreate for other processes");
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return not_supported("cuMemPoolCreate on the host");
  CHECK(check_device(properties->location.id));
  *pool = calloc(1, sizeof **pool);
  REQUIRE(*pool, CUDA_ERROR_OUT_OF_MEMORY);
  (*pool)->device = properties->location.id;
  return CUDA_SUCCESS;
}

/* Do not free the structure, since allocations of the pool may still exist. */
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  CHECK(check_initialized());
  REQUIRE_VALUE(pool && pool != &default_pools[pool->device]);
  if (current_pools[pool->device] == pool) current_pools[pool->device] = NULL;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes_to_keep) {
  CHECK(check_initialized());
  REQUIRE_VALUE(pool);
  return CUDA_SUCCESS;
}

static bool is_reuse_attribute(CUmemPool_attribute attribute) {
  return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
         attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  CHECK(check_initialized());
  REQUIRE_VALUE(pool && value);
  if (is_reuse_attribute(attribute)) {
    *(int *)value = !pool->forbids_reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
    return CUDA_SUCCESS;
  }
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: *(uint64_t *)value = pool->release_threshold; return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: *(uint64_t *)value = pool->used; return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: *(uint64_t *)value = pool->used_high; return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  CHECK(check_initialized());
  REQUIRE_VALUE(pool && value);
  if (is_reuse_attribute(attribute))
    pool->forbids_reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = !*(int *)value;
  else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
    pool->release_threshold = *(uint64_t *)value;
  else
    pool->used_high = pool->used; /* the only value that programs may set is 0, which resets it */
  return CUDA_SUCCESS;
}

bool is_pool_peer(CUmemoryPool pool, CUdevice device) { return pool && pool->peers >> device & 1; }

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *accesses, size_t count) {
  CHECK(check_initialized());
  REQUIRE_VALUE(pool && (accesses || !count));
  for (size_t index = 0; index < count; ++index) {
    const int device = accesses[index].location.id;
    REQUIRE_VALUE(accesses[index].location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    CHECK(check_device(device));
    REQUIRE(device != pool->device || accesses[index].flags, CUDA_ERROR_INVALID_DEVICE);
    pool->peers &= ~(1u << device);
    pool->peers |= (uint32_t)(accesses[index].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) << device;
  }
  regions_changed();
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location) {
  CHECK(check_initialized());
  REQUIRE_VALUE(flags && pool && location);
  CHECK(check_device(location->id));
  const bool has_access = location->id == pool->device || is_pool_peer(pool, location->id);
  *flags = has_access ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream) {
  CUcontext context;
  CHECK(require_context(&context));
  REQUIRE_VALUE(address && pool);
  uintptr_t start;
  CHECK(allocate((struct allocation){.size = size, .kind = DEVICE_MEMORY, .context = primary_context(pool->device),
                                     .device = pool->device, .pool = pool}, &start));
  *address = start;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream) {
  CUcontext context;
  CHECK(require_context(&context));
  return cuMemAllocFromPoolAsync(address, size, current_pool(context->device), stream);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) { return cuMemFree_v2(address); }
