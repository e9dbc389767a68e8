/* Copy memory between host and device, and fill it. All earlier work has ended when a function is called, so that
   streams are ignored. All devices use the memory of the host, so that the contexts of a copy between devices are
   ignored, too. */
#include <string.h>

#include "driver.h"

/* Return an error unless a copy or fill may access `size` bytes at `address`. The bytes have to lie in one range of the
   table in heap.c, such as a device or pinned allocation. If `may_be_host`, they may also be ordinary host memory
   outside of the heap; whether cuMemHostRegister has registered it makes no difference then. */
static CUresult check_memory(uintptr_t address, size_t size, bool may_be_host) {
  struct allocation found;
  if (find_allocation(address, &found) && !(may_be_host && found.kind == REGISTERED_MEMORY))
    return size <= found.start + found.size - address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  return may_be_host && address && !is_in_heap(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

enum direction { HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, ANY_DIRECTION };

static CUresult copy(uintptr_t target, uintptr_t source, size_t size, enum direction direction) {
  CHECK(require_context(NULL));
  if (!size) return CUDA_SUCCESS;
  CHECK(check_memory(target, size, direction == DEVICE_TO_HOST || direction == ANY_DIRECTION));
  CHECK(check_memory(source, size, direction == HOST_TO_DEVICE || direction == ANY_DIRECTION));
  memmove((void *)target, (const void *)source, size);
  set_initialised(target, size, true); /* for initcheck */
  return CUDA_SUCCESS;
}

CUresult cuMemcpy(CUdeviceptr target, CUdeviceptr source, size_t size) {
  return copy(target, source, size, ANY_DIRECTION);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void *source, size_t size) {
  return copy(target, (uintptr_t)source, size, HOST_TO_DEVICE);
}
CUresult cuMemcpyDtoH_v2(void *target, CUdeviceptr source, size_t size) {
  return copy((uintptr_t)target, source, size, DEVICE_TO_HOST);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr target, CUdeviceptr source, size_t size) {
  return copy(target, source, size, DEVICE_TO_DEVICE);
}
CUresult cuMemcpyPeer(CUdeviceptr target, CUcontext target_context, CUdeviceptr source, CUcontext source_context,
                      size_t size) {
  return copy(target, source, size, DEVICE_TO_DEVICE);
}

CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t size, CUstream stream) {
  return cuMemcpy(target, source, size);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source, size_t size, CUstream stream) {
  return cuMemcpyHtoD_v2(target, source, size);
}
CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t size, CUstream stream) {
  return cuMemcpyDtoH_v2(target, source, size);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t size, CUstream stream) {
  return cuMemcpyDtoD_v2(target, source, size);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr target, CUcontext target_context, CUdeviceptr source, CUcontext source_context,
                           size_t size, CUstream stream) {
  return cuMemcpyPeer(target, target_context, source, source_context, size);
}

/* Two and three dimensions */

/* The source or the target of a copy: slices of `height` rows of `pitch` bytes. If the program passes 0 for one of
   them, `set_defaults` replaces it by the height, or the width in bytes, of the copied box. */
struct side {
  uintptr_t start;
  bool may_be_host;
  size_t pitch, height;
};

/* Set the address of one side: `host` or `device`, by the type of memory. */
static CUresult set_location(struct side *side, CUmemorytype type, const void *host, CUdeviceptr device) {
  if (type == CU_MEMORYTYPE_ARRAY) return not_supported("a copy of a CUDA array");
  side->may_be_host = type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_UNIFIED;
  side->start = type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : device;
  return CUDA_SUCCESS;
}

static void set_defaults(struct side *side, const CUDA_MEMCPY3D *box) {
  if (!side->pitch) side->pitch = box->WidthInBytes;
  if (!side->height) side->height = box->Height;
}

/* Copy a box row by row. Rows before one that cannot be accessed are copied. */
static CUresult copy_rows(const CUDA_MEMCPY3D *box) {
  CHECK(require_context(NULL));
  struct side source = {.pitch = box->srcPitch, .height = box->srcHeight};
  struct side target = {.pitch = box->dstPitch, .height = box->dstHeight};
  CHECK(set_location(&source, box->srcMemoryType, box->srcHost, box->srcDevice));
  CHECK(set_location(&target, box->dstMemoryType, box->dstHost, box->dstDevice));
  set_defaults(&source, box);
  set_defaults(&target, box);
  for (size_t z = 0; z < box->Depth; ++z)
    for (size_t y = 0; y < box->Height; ++y) {
      const uintptr_t from = source.start + box->srcXInBytes +
                             ((box->srcZ + z) * source.height + box->srcY + y) * source.pitch;
      const uintptr_t to = target.start + box->dstXInBytes +
                           ((box->dstZ + z) * target.height + box->dstY + y) * target.pitch;
      CHECK(check_memory(from, box->WidthInBytes, source.may_be_host));
      CHECK(check_memory(to, box->WidthInBytes, target.may_be_host));
      memmove((void *)to, (const void *)from, box->WidthInBytes);
      set_initialised(to, box->WidthInBytes, true);
    }
  return CUDA_SUCCESS;
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *box) {
  REQUIRE_VALUE(box);
  return copy_rows(box);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *rectangle) {
  REQUIRE_VALUE(rectangle);
  const CUDA_MEMCPY3D box = {
      .srcXInBytes = rectangle->srcXInBytes, .srcY = rectangle->srcY, .srcMemoryType = rectangle->srcMemoryType,
      .srcHost = rectangle->srcHost, .srcDevice = rectangle->srcDevice, .srcPitch = rectangle->srcPitch,
      .dstXInBytes = rectangle->dstXInBytes, .dstY = rectangle->dstY, .dstMemoryType = rectangle->dstMemoryType,
      .dstHost = rectangle->dstHost, .dstDevice = rectangle->dstDevice, .dstPitch = rectangle->dstPitch,
      .WidthInBytes = rectangle->WidthInBytes, .Height = rectangle->Height, .Depth = 1};
  return copy_rows(&box);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *rectangle) { return cuMemcpy2D_v2(rectangle); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *rectangle, CUstream stream) { return cuMemcpy2D_v2(rectangle); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *box, CUstream stream) { return cuMemcpy3D_v2(box); }

/* Fills */

/* Fill `height` rows of `width` elements; the next row begins `pitch` bytes after the start of a row. */
static CUresult fill(uintptr_t target, size_t pitch, const void *value, size_t element_size, size_t width,
                     size_t height) {
  CHECK(require_context(NULL));
  REQUIRE_VALUE(target % element_size == 0);
  for (size_t row = 0; row < height && width; ++row) {
    const uintptr_t start = target + row * pitch;
    CHECK(check_memory(start, width * element_size, false));
    set_initialised(start, width * element_size, true);
    if (element_size == 1)
      memset((void *)start, *(const unsigned char *)value, width);
    else
      for (size_t index = 0; index < width; ++index)
        memcpy((void *)(start + index * element_size), value, element_size);
  }
  return CUDA_SUCCESS;
}

#define DEFINE_FILLS(bits, type)                                                                                  \
  CUresult cuMemsetD##bits##_v2(CUdeviceptr target, type value, size_t count) {                                   \
    return fill(target, 0, &value, sizeof value, count, 1);                                                       \
  }                                                                                                               \
  CUresult cuMemsetD##bits##Async(CUdeviceptr target, type value, size_t count, CUstream stream) {                \
    return cuMemsetD##bits##_v2(target, value, count);                                                            \
  }                                                                                                               \
  CUresult cuMemsetD2D##bits##_v2(CUdeviceptr target, size_t pitch, type value, size_t width, size_t height) {    \
    return fill(target, pitch, &value, sizeof value, width, height);                                              \
  }                                                                                                               \
  CUresult cuMemsetD2D##bits##Async(CUdeviceptr target, size_t pitch, type value, size_t width, size_t height,    \
                                    CUstream stream) {                                                            \
    return cuMemsetD2D##bits##_v2(target, pitch, value, width, height);                                           \
  }
DEFINE_FILLS(8, unsigned char)
DEFINE_FILLS(16, unsigned short)
DEFINE_FILLS(32, unsigned)
