/* Memory pools. Freed memory goes back to the heap (heap.c) at once, so that a pool only counts allocated bytes. */
#include <stdlib.h>

#include "driver.h"

struct CUmemPoolHandle_st {
  enum memory_kind kind; /* DEVICE_MEMORY, PINNED_MEMORY or MANAGED_MEMORY */
  CUdevice device;       /* of a pool of device memory */
  uint32_t peers; /* a bit for each other device whose kernels may access the memory */
  size_t max_size; /* bytes; 0 for no limit */
  uint64_t used, used_high, release_threshold; /* bytes; `used_high` is the maximum of `used` since its last reset */
  int forbids_reuse[3];                        /* the CU_MEMPOOL_ATTR_REUSE_... attributes, which are 1 by default */
};

static struct CUmemPoolHandle_st default_pools[MAX_DEVICES];
static struct CUmemPoolHandle_st pinned_pool = {.kind = PINNED_MEMORY}, managed_pool = {.kind = MANAGED_MEMORY};
static CUmemoryPool current_pools[MAX_DEVICES]; /* by cuDeviceSetMemPool; NULL for the default pool */

void count_pool_memory(CUmemoryPool pool, ptrdiff_t change) {
  if (!pool) return; /* the memory is not from a pool */
  const uint64_t used = __atomic_add_fetch(&pool->used, change, __ATOMIC_RELAXED);
  if (used > pool->used_high) pool->used_high = used;
}

/* Return the default pool of a device. Its members are set here, since the array begins as zeros. */
static CUmemoryPool default_pool(CUdevice device) {
  CUmemoryPool pool = &default_pools[device];
  pool->kind = DEVICE_MEMORY;
  pool->device = device;
  return pool;
}

static CUmemoryPool current_pool(CUdevice device) {
  return current_pools[device] ? current_pools[device] : default_pool(device);
}

/* Return the kind of memory of a pool; 0 if there is no such pool. All places of the host are one. */
static enum memory_kind kind_of_pool(CUmemAllocationType type, CUmemLocationType location) {
  const bool is_host = location == CU_MEM_LOCATION_TYPE_HOST || location == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  if (type == CU_MEM_ALLOCATION_TYPE_MANAGED) return MANAGED_MEMORY;
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED) return 0;
  return is_host ? PINNED_MEMORY : location == CU_MEM_LOCATION_TYPE_DEVICE ? DEVICE_MEMORY : 0;
}

/* Write the pool of a location: of a device the pool that `device_pool` returns. */
static CUresult find_pool(CUmemoryPool *pool, const CUmemLocation *location, CUmemAllocationType type,
                          CUmemoryPool device_pool(CUdevice)) {
  CHECK(check_initialized());
  REQUIRE_VALUE(pool && location);
  const enum memory_kind kind = kind_of_pool(type, location->type);
  REQUIRE_VALUE(kind);
  if (kind == DEVICE_MEMORY) CHECK(check_device(location->id));
  *pool = kind == DEVICE_MEMORY ? device_pool(location->id) : kind == PINNED_MEMORY ? &pinned_pool : &managed_pool;
  return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
  return find_pool(pool, location, type, default_pool);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
  return find_pool(pool, location, type, current_pool);
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
  REQUIRE_VALUE(pool && pool->kind == DEVICE_MEMORY && pool->device == device);
  current_pools[device] = pool;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
  REQUIRE_VALUE(pool && properties);
  if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE) return not_supported("cuMemPoolCreate for other processes");
  const enum memory_kind kind = kind_of_pool(properties->allocType, properties->location.type);
  REQUIRE_VALUE(kind);
  if (kind == DEVICE_MEMORY) CHECK(check_device(properties->location.id));
  *pool = calloc(1, sizeof **pool);
  REQUIRE(*pool, CUDA_ERROR_OUT_OF_MEMORY);
  (*pool)->kind = kind;
  (*pool)->device = kind == DEVICE_MEMORY ? properties->location.id : 0;
  /* A GPU's pool grows by steps of 2 MiB, so that a smaller limit has the effect of the next multiple. */
  enum { GROWTH_STEP = 2 << 20 };
  (*pool)->max_size = (properties->maxSize + GROWTH_STEP - 1) / GROWTH_STEP * GROWTH_STEP;
  return CUDA_SUCCESS;
}

/* Do not free the structure, since allocations of the pool may still exist. */
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  CHECK(check_initialized());
  REQUIRE_VALUE(pool && pool != &default_pools[pool->device] && pool != &pinned_pool && pool != &managed_pool);
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
    REQUIRE(pool->kind != DEVICE_MEMORY || device != pool->device || accesses[index].flags, CUDA_ERROR_INVALID_DEVICE);
    pool->peers &= ~(1u << device);
    pool->peers |= (uint32_t)(accesses[index].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) << device;
  }
  regions_changed();
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location) {
  CHECK(check_initialized());
  REQUIRE_VALUE(flags && pool && location);
  if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) CHECK(check_device(location->id));
  const bool has_access = pool->kind != DEVICE_MEMORY || (location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
                          (location->id == pool->device || is_pool_peer(pool, location->id)));
  *flags = has_access ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream) {
  CUcontext context;
  CHECK(require_context(&context));
  REQUIRE_VALUE(address && pool);
  *address = 0;
  if (!size) return CUDA_SUCCESS;
  REQUIRE(!pool->max_size || (size <= pool->max_size && pool->used <= pool->max_size - size),
          CUDA_ERROR_OUT_OF_MEMORY);
  uintptr_t start;
  if (pool->kind == DEVICE_MEMORY) context = primary_context(pool->device);
  CHECK(allocate((struct allocation){.size = size, .kind = pool->kind, .context = context, .device = context->device,
                                     .pool = pool}, &start));
  *address = start;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream) {
  CUcontext context;
  CHECK(require_context(&context));
  return cuMemAllocFromPoolAsync(address, size, current_pool(context->device), stream);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) { return cuMemFree_v2(address); }
