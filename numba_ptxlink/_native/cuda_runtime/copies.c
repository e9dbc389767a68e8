/* Copy and fill memory and variables. */
#include "runtime.h"

/* Copy memory. Every call of this driver ends its work before it returns, so that no copy has to wait for earlier work:
   asynchronous copies use this function, too. */
static cudaError_t copy(void *target, const void *source, size_t size, enum cudaMemcpyKind kind) {
  CHECK(ensure_context());
  switch (kind) {
    case cudaMemcpyHostToDevice: return (cudaError_t)cuMemcpyHtoD((CUdeviceptr)target, source, size);
    case cudaMemcpyDeviceToHost: return (cudaError_t)cuMemcpyDtoH(target, (CUdeviceptr)source, size);
    case cudaMemcpyDeviceToDevice:
      return (cudaError_t)cuMemcpyDtoD((CUdeviceptr)target, (CUdeviceptr)source, size);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault: return (cudaError_t)cuMemcpy((CUdeviceptr)target, (CUdeviceptr)source, size);
    default: return cudaErrorInvalidMemcpyDirection;
  }
}

cudaError_t cudaMemcpy(void *target, const void *source, size_t size, enum cudaMemcpyKind kind) {
  return record_error(copy(target, source, size, kind));
}
cudaError_t cudaMemcpyAsync(void *target, const void *source, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return record_error(copy(target, source, size, kind));
}
cudaError_t cudaMemcpyPeer(void *target, int target_device, const void *source, int source_device, size_t size) {
  return record_error(copy(target, source, size, cudaMemcpyDefault));
}
cudaError_t cudaMemcpyPeerAsync(void *target, int target_device, const void *source, int source_device, size_t size,
                                cudaStream_t stream) {
  return record_error(copy(target, source, size, cudaMemcpyDefault));
}

/* Two and three dimensions */

/* Whether `kind` is a value of the enumeration: programs may pass any number. */
static bool is_direction(enum cudaMemcpyKind kind) { return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault; }
static CUmemorytype source_type(enum cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return CU_MEMORYTYPE_UNIFIED;
  const bool is_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice;
  return is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}
static CUmemorytype target_type(enum cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return CU_MEMORYTYPE_UNIFIED;
  const bool is_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost;
  return is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

cudaError_t cudaMemcpy2D(void *target, size_t target_pitch, const void *source, size_t source_pitch, size_t width,
                         size_t height, enum cudaMemcpyKind kind) {
  CHECK_AND_RECORD(ensure_context());
  REQUIRE(is_direction(kind), cudaErrorInvalidMemcpyDirection);
  REQUIRE(width <= target_pitch && width <= source_pitch, cudaErrorInvalidPitchValue);
  const CUDA_MEMCPY2D rectangle = {
      .srcMemoryType = source_type(kind), .srcHost = source, .srcDevice = (CUdeviceptr)source, .srcPitch = source_pitch,
      .dstMemoryType = target_type(kind), .dstHost = target, .dstDevice = (CUdeviceptr)target, .dstPitch = target_pitch,
      .WidthInBytes = width, .Height = height};
  if (width && height) CHECK_AND_RECORD(cuMemcpy2D(&rectangle));
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *target, size_t target_pitch, const void *source, size_t source_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpy2D(target, target_pitch, source, source_pitch, width, height, kind);
}

cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *box) {
  CHECK_AND_RECORD(ensure_context());
  REQUIRE(box, cudaErrorInvalidValue);
  REQUIRE(is_direction(box->kind), cudaErrorInvalidMemcpyDirection);
  if (box->srcArray || box->dstArray) return not_supported("cudaMemcpy3D of an array");
  const struct cudaPitchedPtr *source = &box->srcPtr, *target = &box->dstPtr;
  const CUDA_MEMCPY3D driver_box = {
      .srcXInBytes = box->srcPos.x, .srcY = box->srcPos.y, .srcZ = box->srcPos.z,
      .srcMemoryType = source_type(box->kind), .srcHost = source->ptr, .srcDevice = (CUdeviceptr)source->ptr,
      .srcPitch = source->pitch, .srcHeight = source->ysize,
      .dstXInBytes = box->dstPos.x, .dstY = box->dstPos.y, .dstZ = box->dstPos.z,
      .dstMemoryType = target_type(box->kind), .dstHost = target->ptr, .dstDevice = (CUdeviceptr)target->ptr,
      .dstPitch = target->pitch, .dstHeight = target->ysize,
      .WidthInBytes = box->extent.width, .Height = box->extent.height, .Depth = box->extent.depth};
  CHECK_AND_RECORD(cuMemcpy3D(&driver_box));
  return cudaSuccess;
}

cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *box, cudaStream_t stream) { return cudaMemcpy3D(box); }

cudaError_t cudaMemcpy3DPeer(const struct cudaMemcpy3DPeerParms *peer_box) {
  REQUIRE(peer_box, cudaErrorInvalidValue);
  const struct cudaMemcpy3DParms box = {
      .srcArray = peer_box->srcArray, .srcPos = peer_box->srcPos, .srcPtr = peer_box->srcPtr,
      .dstArray = peer_box->dstArray, .dstPos = peer_box->dstPos, .dstPtr = peer_box->dstPtr,
      .extent = peer_box->extent, .kind = cudaMemcpyDefault};
  return cudaMemcpy3D(&box);
}

cudaError_t cudaMemcpy3DPeerAsync(const struct cudaMemcpy3DPeerParms *box, cudaStream_t stream) {
  return cudaMemcpy3DPeer(box);
}

/* Fills */

cudaError_t cudaMemset2D(void *target, size_t pitch, int value, size_t width, size_t height) {
  CHECK_AND_RECORD(ensure_context());
  REQUIRE(height <= 1 || width <= pitch, cudaErrorInvalidPitchValue);
  if (width && height) CHECK_AND_RECORD(cuMemsetD2D8((CUdeviceptr)target, pitch, (unsigned char)value, width, height));
  return cudaSuccess;
}
cudaError_t cudaMemset(void *target, int value, size_t size) { return cudaMemset2D(target, size, value, size, 1); }

cudaError_t cudaMemset3D(struct cudaPitchedPtr target, int value, struct cudaExtent extent) {
  cudaError_t error = cudaSuccess;
  for (size_t slice = 0; slice < extent.depth && error == cudaSuccess; ++slice)
    error = cudaMemset2D((char *)target.ptr + slice * target.pitch * target.ysize, target.pitch, value, extent.width,
                         extent.height);
  return error;
}

cudaError_t cudaMemsetAsync(void *target, int value, size_t size, cudaStream_t stream) {
  return cudaMemset(target, value, size);
}
cudaError_t cudaMemset2DAsync(void *target, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  return cudaMemset2D(target, pitch, value, width, height);
}
cudaError_t cudaMemset3DAsync(struct cudaPitchedPtr target, int value, struct cudaExtent extent,
                              cudaStream_t stream) {
  return cudaMemset3D(target, value, extent);
}

/* Variables */

cudaError_t cudaGetSymbolAddress(void **address, const void *symbol) {
  REQUIRE(address, cudaErrorInvalidValue);
  CHECK_AND_RECORD(find_variable(symbol, (CUdeviceptr *)address, NULL));
  return cudaSuccess;
}

cudaError_t cudaGetSymbolSize(size_t *size, const void *symbol) {
  CUdeviceptr address;
  REQUIRE(size, cudaErrorInvalidValue);
  CHECK_AND_RECORD(find_variable(symbol, &address, size));
  return cudaSuccess;
}

/* Set `address` to the place `offset` bytes after the start of a variable; return an error unless `size` bytes of the
   variable follow. */
static cudaError_t find_part(const void *symbol, size_t offset, size_t size, CUdeviceptr *address) {
  size_t total;
  CHECK(find_variable(symbol, address, &total));
  *address += offset;
  return offset <= total && size <= total - offset ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *source, size_t size, size_t offset,
                               enum cudaMemcpyKind kind) {
  CUdeviceptr address;
  CHECK_AND_RECORD(find_part(symbol, offset, size, &address));
  return cudaMemcpy((void *)address, source, size, kind);
}

cudaError_t cudaMemcpyFromSymbol(void *target, const void *symbol, size_t size, size_t offset,
                                 enum cudaMemcpyKind kind) {
  CUdeviceptr address;
  CHECK_AND_RECORD(find_part(symbol, offset, size, &address));
  return cudaMemcpy(target, (const void *)address, size, kind);
}

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *source, size_t size, size_t offset,
                                    enum cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpyToSymbol(symbol, source, size, offset, kind);
}
cudaError_t cudaMemcpyFromSymbolAsync(void *target, const void *symbol, size_t size, size_t offset,
                                      enum cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpyFromSymbol(target, symbol, size, offset, kind);
}
