/* Allocate device, managed and pinned memory, register memory of the program, and describe pointers. */
#include <string.h>

#include "driver.h"

/* Allocate memory of a kind in the current context. */
static CUresult allocate_kind(uintptr_t *address, size_t size, enum memory_kind kind, unsigned flags) {
  CUcontext context;
  CHECK(require_context(&context));
  return allocate((struct allocation){.size = size, .kind = kind, .context = context, .device = context->device,
                                      .flags = flags}, address);
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
  uintptr_t start;
  REQUIRE_VALUE(address);
  CHECK(allocate_kind(&start, size, DEVICE_MEMORY, 0));
  *address = start;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element_size) {
  enum { PITCH_ALIGNMENT = 512 };
  REQUIRE_VALUE(pitch && width && height);
  *pitch = (width + PITCH_ALIGNMENT - 1) / PITCH_ALIGNMENT * PITCH_ALIGNMENT;
  return cuMemAlloc_v2(address, *pitch * height);
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags) {
  uintptr_t start;
  REQUIRE_VALUE(address && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST));
  CHECK(allocate_kind(&start, size, MANAGED_MEMORY, flags));
  *address = start;
  return CUDA_SUCCESS;
}

/* Return the error of the context that an allocation belongs to. A thread may free memory without a current context. */
static CUresult check_owner(uintptr_t address) {
  struct allocation found;
  CHECK(check_initialized());
  REQUIRE_VALUE(find_allocation(address, &found));
  return found.context ? found.context->sticky_error : CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  struct allocation removed;
  if (!address) return check_initialized();
  CHECK(check_owner(address));
  /* Pinned memory is freed here if it is from a pool, and otherwise by cuMemFreeHost. */
  REQUIRE_VALUE(find_allocation(address, &removed));
  CHECK(remove_range(address, DEVICE_MEMORY | MANAGED_MEMORY | (removed.pool ? PINNED_MEMORY : 0), &removed));
  count_pool_memory(removed.pool, -(ptrdiff_t)removed.size);
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **address, size_t size, unsigned flags) {
  REQUIRE_VALUE(address);
  return allocate_kind((uintptr_t *)address, size, PINNED_MEMORY, flags);
}

CUresult cuMemAllocHost_v2(void **address, size_t size) { return cuMemHostAlloc(address, size, 0); }

CUresult cuMemFreeHost(void *address) {
  if (!address) return check_initialized();
  CHECK(check_owner((uintptr_t)address));
  return remove_range((uintptr_t)address, PINNED_MEMORY, NULL);
}

CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned flags) {
  CUcontext context;
  CHECK(require_context(&context));
  REQUIRE_VALUE(address && size);
  struct allocation found;
  REQUIRE(!find_allocation((uintptr_t)address, &found), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  return add_range((struct allocation){.start = (uintptr_t)address, .size = size, .kind = REGISTERED_MEMORY,
                                       .context = context, .device = context->device, .flags = flags});
}

CUresult cuMemHostRegister(void *address, size_t size, unsigned flags) {
  return cuMemHostRegister_v2(address, size, flags);
}

CUresult cuMemHostUnregister(void *address) {
  CHECK(check_initialized());
  const CUresult result = remove_range((uintptr_t)address, REGISTERED_MEMORY, NULL);
  return result ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *host, unsigned flags) {
  CHECK(require_context(NULL));
  struct allocation found;
  REQUIRE_VALUE(address && flags == 0 && find_allocation((uintptr_t)host, &found));
  REQUIRE_VALUE(found.kind & (PINNED_MEMORY | REGISTERED_MEMORY | MANAGED_MEMORY));
  *address = (uintptr_t)host;
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned *flags, void *host) {
  CHECK(require_context(NULL));
  struct allocation found;
  REQUIRE_VALUE(flags && find_allocation((uintptr_t)host, &found) && found.kind == PINNED_MEMORY);
  /* With unified addressing, all pinned memory is mapped, whatever the program has requested. */
  *flags = found.flags | CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
  CUcontext context;
  CHECK(require_context(&context));
  if (free) *free = devices.memory_size - used_memory(context->device);
  if (total) *total = devices.memory_size;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *size, CUdeviceptr address) {
  CHECK(require_context(NULL));
  struct allocation found;
  REQUIRE(find_allocation(address, &found), CUDA_ERROR_NOT_FOUND);
  if (start) *start = found.start;
  if (size) *size = found.size;
  return CUDA_SUCCESS;
}

/* Advice about the place of memory: all memory lies on the host, so that only the range is checked. */

static CUresult check_range(CUdeviceptr address, size_t size) {
  CHECK(require_context(NULL));
  struct allocation found;
  REQUIRE_VALUE(find_allocation(address, &found) && size <= found.start + found.size - address);
  return CUDA_SUCCESS;
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t size, CUmem_advise advice, CUmemLocation location) {
  return check_range(address, size);
}
CUresult cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise advice, CUdevice device) {
  return check_range(address, size);
}
CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t size, CUmemLocation location, unsigned flags,
                               CUstream stream) {
  return check_range(address, size);
}
CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t size, CUdevice device, CUstream stream) {
  return check_range(address, size);
}
CUresult cuMemDiscardBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count, unsigned long long flags,
                                CUstream stream) {
  CHECK(require_context(NULL));
  REQUIRE_VALUE(addresses && sizes);
  for (size_t index = 0; index < count; ++index) CHECK(check_range(addresses[index], sizes[index]));
  return CUDA_SUCCESS;
}
CUresult cuMemPrefetchBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *locations,
                                 size_t *location_indices, size_t location_count, unsigned long long flags,
                                 CUstream stream) {
  return cuMemDiscardBatchAsync(addresses, sizes, count, flags, stream);
}
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count,
                                           CUmemLocation *locations, size_t *location_indices, size_t location_count,
                                           unsigned long long flags, CUstream stream) {
  return cuMemDiscardBatchAsync(addresses, sizes, count, flags, stream);
}
CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t size, unsigned flags) {
  return check_range(address, size);
}

/* Attributes of pointers */

static bool is_host_memory(const struct allocation *range) { return range->kind & (PINNED_MEMORY | REGISTERED_MEMORY); }

/* Write an attribute of the pointer `address` to `value`. The pointer lies in the range `found`, whose size is 0 if the
   table has no memory at the address. */
static CUresult write_attribute(void *value, CUpointer_attribute attribute, CUdeviceptr address,
                                const struct allocation *found) {
  const bool is_known = found->size;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *(CUcontext *)value = !is_known ? NULL : found->context ? found->context : primary_context(found->device);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *(unsigned *)value = !is_known ? 0 : is_host_memory(found) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      REQUIRE_VALUE(!is_known || is_host_memory(found) || found->kind == MANAGED_MEMORY);
      *(uintptr_t *)value = is_known ? address : 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      /* Kernels of the current context have no pointer to memory of a device that is no peer. */
      REQUIRE_VALUE(!is_known || !current_context() || is_accessible(found, current_context()));
      *(uintptr_t *)value = is_known ? address : 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: *(uint64_t *)value = found->id; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(int *)value = found->kind == MANAGED_MEMORY; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *(int *)value = is_known ? found->device : CU_DEVICE_INVALID;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: *(uintptr_t *)value = found->start; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: *(size_t *)value = found->size; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(int *)value = is_known; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      *(int *)value = is_known ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: *(CUmemoryPool *)value = found->pool; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: *(uint64_t *)value = 0; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: *(int *)value = 0; return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address) {
  CHECK(check_initialized());
  struct allocation found;
  REQUIRE_VALUE(value && find_allocation(address, &found));
  return write_attribute(value, attribute, address, &found);
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **values, CUdeviceptr address) {
  CHECK(check_initialized());
  REQUIRE_VALUE(attributes && values);
  struct allocation found;
  if (!find_allocation(address, &found)) found = (struct allocation){0};
  for (unsigned index = 0; index < count; ++index) {
    const CUresult result = write_attribute(values[index], attributes[index], address, &found);
    /* An attribute that memory lacks, such as the host pointer of device memory, is NULL here, and an error in
       cuPointerGetAttribute. */
    if (result == CUDA_ERROR_INVALID_VALUE) *(uintptr_t *)values[index] = 0;
    else CHECK(result);
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address) {
  CHECK(check_initialized());
  REQUIRE_VALUE(value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
  return CUDA_SUCCESS;
}
