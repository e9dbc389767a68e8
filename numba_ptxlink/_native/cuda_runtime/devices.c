/* Select the device of a thread; describe devices, their limits and peers, and the versions of CUDA. */
#include <pthread.h>
#include <string.h>

#include "runtime.h"

/* The primary contexts, NULL before their first use. Each is retained once, so that one release ends it. */
static CUcontext contexts[MAX_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int selected; /* the device of cudaSetDevice, by default 0 */
static unsigned device_flags[MAX_DEVICES];

/* Set `context` to the primary context of a device; the first call for the device retains this context. */
static cudaError_t find_context(int device, CUcontext *context) {
  int count;
  CHECK(cuInit(0));
  CHECK(cuDeviceGetCount(&count));
  if (device < 0 || device >= count || device >= MAX_DEVICES) return cudaErrorInvalidDevice;
  pthread_mutex_lock(&lock);
  const CUresult result = contexts[device] ? CUDA_SUCCESS : cuDevicePrimaryCtxRetain(&contexts[device], device);
  pthread_mutex_unlock(&lock);
  *context = contexts[device];
  return (cudaError_t)result;
}

/* Make the selected device's context current. A context that the program has made current with the driver API stays. */
cudaError_t ensure_context(void) {
  CUcontext context;
  CHECK(cuInit(0));
  CHECK(cuCtxGetCurrent(&context));
  if (context) return cudaSuccess;
  CHECK(find_context(selected, &context));
  return (cudaError_t)cuCtxSetCurrent(context);
}

cudaError_t find_current_device(int *device) { return (cudaError_t)cuCtxGetDevice(device); }

cudaError_t cudaSetDevice(int device) {
  CUcontext context;
  CHECK_AND_RECORD(find_context(device, &context));
  CHECK_AND_RECORD(cuCtxSetCurrent(context));
  selected = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
  CUcontext context;
  REQUIRE(device, cudaErrorInvalidValue);
  *device = selected;
  CHECK_AND_RECORD(cuInit(0));
  CHECK_AND_RECORD(cuCtxGetCurrent(&context));
  if (context) CHECK_AND_RECORD(find_current_device(device));
  return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
  CUcontext context;
  CHECK_AND_RECORD(find_context(device, &context));
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
  REQUIRE(count, cudaErrorInvalidValue);
  *count = 0;
  CHECK_AND_RECORD(cuInit(0));
  CHECK_AND_RECORD(cuDeviceGetCount(count));
  return cudaSuccess;
}

DEFINE_FORWARD(cudaDeviceSynchronize, (void), cuCtxSynchronize())

/* Free all memory and modules of the device, and clear its fault. */
cudaError_t cudaDeviceReset(void) {
  int device;
  CHECK_AND_RECORD(cudaGetDevice(&device));
  pthread_mutex_lock(&lock);
  const bool is_used = contexts[device];
  contexts[device] = NULL;
  pthread_mutex_unlock(&lock);
  forget_modules(device);
  if (is_used) {
    CHECK_AND_RECORD(cuDevicePrimaryCtxReset(device));
    CHECK_AND_RECORD(cuDevicePrimaryCtxRelease(device));
    cuCtxSetCurrent(NULL); /* the next call retains the primary context again */
  }
  cudaGetLastError();
  return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
  int device;
  CHECK_AND_RECORD(cudaGetDevice(&device));
  device_flags[device] = flags;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceFlags(unsigned *flags) {
  int device;
  CHECK_AND_RECORD(cudaGetDevice(&device));
  REQUIRE(flags, cudaErrorInvalidValue);
  *flags = device_flags[device] | cudaDeviceMapHost;
  return cudaSuccess;
}

cudaError_t cudaSetValidDevices(int *devices, int count) { return cudaSuccess; }

cudaError_t cudaChooseDevice(int *device, const struct cudaDeviceProp *properties) {
  REQUIRE(device && properties, cudaErrorInvalidValue);
  *device = 0;
  return cudaSuccess;
}

/* Properties */

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  CHECK_AND_RECORD(cuInit(0));
  CHECK_AND_RECORD(cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, device));
  return cudaSuccess;
}

/* CUDA 12 and 13 have different structures cudaDeviceProp: the table in stubs.c has the offsets of each member. */
static cudaError_t write_properties(char *properties, int device) {
  enum { COLUMN = RUNTIME_MAJOR >= 13 }; /* 0 for CUDA 12 */
  CHECK_AND_RECORD(cuInit(0));
  REQUIRE(properties, cudaErrorInvalidValue);
  memset(properties, 0, device_properties_sizes[COLUMN]);
  /* The first members of the structure are equal in CUDA 12 and 13. */
  struct cudaDeviceProp *start = (struct cudaDeviceProp *)properties;
  CHECK_AND_RECORD(cuDeviceGetName(start->name, sizeof start->name, device));
  CHECK_AND_RECORD(cuDeviceGetUuid((CUuuid *)&start->uuid, device));
  CHECK_AND_RECORD(cuDeviceTotalMem(&start->totalGlobalMem, device));
  for (unsigned index = 0; index < device_property_count; ++index) {
    const struct device_property *property = &device_properties[index];
    int value;
    if (property->offsets[COLUMN] < 0) continue;
    CHECK_AND_RECORD(cuDeviceGetAttribute(&value, (CUdevice_attribute)property->attribute, device));
    /* The machine is little-endian: in a member of 8 bytes, the upper 4 stay 0. */
    memcpy(properties + property->offsets[COLUMN], &value, sizeof value);
  }
  return cudaSuccess;
}

#if RUNTIME_MAJOR >= 13
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
  return write_properties((char *)properties, device);
}
#else
cudaError_t cudaGetDeviceProperties_v2(char *properties, int device) { return write_properties(properties, device); }
#endif

cudaError_t cudaDriverGetVersion(int *version) {
  CHECK_AND_RECORD(cuDriverGetVersion(version));
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  enum { LAST_RELEASE_OF_12 = 12090 };
  REQUIRE(version, cudaErrorInvalidValue);
  *version = RUNTIME_MAJOR >= 13 ? CUDART_VERSION : LAST_RELEASE_OF_12;
  return cudaSuccess;
}

DEFINE_FORWARD(cudaDeviceGetPCIBusId, (char *id, int size, int device), cuDeviceGetPCIBusId(id, size, device))
DEFINE_FORWARD(cudaDeviceGetByPCIBusId, (int *device, const char *id), cuDeviceGetByPCIBusId(device, id))
DEFINE_FORWARD(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest),
               cuCtxGetStreamPriorityRange(least, greatest))
DEFINE_FORWARD(cudaDeviceSetLimit, (enum cudaLimit limit, size_t value), cuCtxSetLimit((CUlimit)limit, value))
DEFINE_FORWARD(cudaDeviceGetLimit, (size_t *value, enum cudaLimit limit), cuCtxGetLimit(value, (CUlimit)limit))
DEFINE_FORWARD(cudaDeviceSetCacheConfig, (enum cudaFuncCache config), cuCtxSetCacheConfig((CUfunc_cache)config))
DEFINE_FORWARD(cudaDeviceGetCacheConfig, (enum cudaFuncCache *config), cuCtxGetCacheConfig((CUfunc_cache *)config))
DEFINE_FORWARD(cudaCtxResetPersistingL2Cache, (void), cuCtxResetPersistingL2Cache())
DEFINE_FORWARD(cudaProfilerStart, (void), CUDA_SUCCESS)
DEFINE_FORWARD(cudaProfilerStop, (void), CUDA_SUCCESS)

cudaError_t cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig config) { return cudaSuccess; }
cudaError_t cudaDeviceGetSharedMemConfig(enum cudaSharedMemConfig *config) {
  REQUIRE(config, cudaErrorInvalidValue);
  *config = cudaSharedMemBankSizeFourByte;
  return cudaSuccess;
}

/* Peers */

DEFINE_FORWARD(cudaDeviceCanAccessPeer, (int *can_access, int device, int peer),
               cuDeviceCanAccessPeer(can_access, device, peer))
DEFINE_FORWARD(cudaDeviceGetP2PAttribute, (int *value, enum cudaDeviceP2PAttr attribute, int source, int target),
               cuDeviceGetP2PAttribute(value, (CUdevice_P2PAttribute)attribute, source, target))

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  CUcontext context;
  CHECK_AND_RECORD(ensure_context());
  CHECK_AND_RECORD(find_context(peer, &context));
  CHECK_AND_RECORD(cuCtxEnablePeerAccess(context, flags));
  return cudaSuccess;
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  CUcontext context;
  CHECK_AND_RECORD(ensure_context());
  CHECK_AND_RECORD(find_context(peer, &context));
  CHECK_AND_RECORD(cuCtxDisablePeerAccess(context));
  return cudaSuccess;
}

/* The driver's functions by name */

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *query_result) {
  CUdriverProcAddressQueryResult found;
  CHECK_AND_RECORD(ensure_context());
  CHECK_AND_RECORD(cuGetProcAddress(name, function, (int)version, flags, &found));
  if (query_result) *query_result = (enum cudaDriverEntryPointQueryResult)found;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *query_result) {
  int version;
  CHECK_AND_RECORD(cudaRuntimeGetVersion(&version));
  return cudaGetDriverEntryPointByVersion(name, function, (unsigned)version, flags, query_result);
}
