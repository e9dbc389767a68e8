/* Initialise the driver, and describe the devices by their attributes. */
#include <stdio.h>
#include <string.h>

#include "driver.h"

/* The settings until Python calls numba_ptxlink_configure. */
struct device_settings devices = {.count = 1, .major = 7, .minor = 5, .memory_size = (size_t)16 << 30};
pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
static enum { NOT_INITIALIZED, INITIALIZED, FORKED, DEINITIALIZED } state;

/* The most threads, blocks and KiB of shared memory on a multiprocessor, from the table "Technical Specifications per
   Compute Capability" of the CUDA C++ Programming Guide. A compute capability is 75 for 7.5. */
static const struct architecture {
  int compute_capability, threads, blocks, shared_kib;
} architectures[] = {
    {70, 2048, 32, 96}, {75, 1024, 16, 64}, {80, 2048, 32, 164}, {86, 1536, 16, 100}, {87, 1536, 16, 164},
    {89, 1536, 24, 100}, {90, 2048, 32, 228}, {110, 1536, 24, 228}, {120, 1536, 24, 100},
};

/* Return the row of the latest compute capability that is not later than that of the devices. */
static struct architecture find_architecture(void) {
  size_t row = 0;
  while (row + 1 < sizeof architectures / sizeof *architectures &&
         architectures[row + 1].compute_capability <= 10 * devices.major + devices.minor)
    ++row;
  return architectures[row];
}

void numba_ptxlink_configure(int count, int major, int minor, size_t memory_size) {
  devices = (struct device_settings){count < MAX_DEVICES ? count : MAX_DEVICES, major, minor, memory_size};
}

/* A child that is forked after cuInit cannot use CUDA, as on a GPU. */
static void after_fork(void) {
  pthread_mutex_init(&driver_lock, NULL);
  if (state == INITIALIZED) state = FORKED;
}

static void register_fork_handler(void) { pthread_atfork(NULL, NULL, after_fork); }

CUresult check_initialized(void) {
  REQUIRE(state != DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
  return state == INITIALIZED ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

void deinitialize_driver(void) { state = DEINITIALIZED; }

CUresult check_device(CUdevice device) {
  CHECK(check_initialized());
  return device >= 0 && device < devices.count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuInit(unsigned flags) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  REQUIRE_VALUE(flags == 0);
  REQUIRE(state != FORKED, CUDA_ERROR_NOT_INITIALIZED);
  REQUIRE(state != DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
  if (state == INITIALIZED) return CUDA_SUCCESS;
  CHECK(attach_python());
  REQUIRE(devices.count > 0, CUDA_ERROR_NO_DEVICE);
  pthread_once(&once, register_fork_handler);
  state = INITIALIZED;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
  REQUIRE_VALUE(version);
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
  CHECK(check_initialized());
  REQUIRE_VALUE(count);
  *count = devices.count;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  CHECK(check_device(ordinal));
  REQUIRE_VALUE(device);
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
  CHECK(check_device(device));
  REQUIRE_VALUE(name && size > 0);
  snprintf(name, (size_t)size, "CPU (numba-ptxlink, sm_%d%d)", devices.major, devices.minor);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  CHECK(check_device(device));
  REQUIRE_VALUE(uuid);
  memset(uuid, 0, sizeof *uuid);
  memcpy(uuid->bytes, "numba-ptxlink", 13);
  uuid->bytes[15] = (char)device;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  CHECK(check_device(device));
  REQUIRE_VALUE(bytes);
  *bytes = devices.memory_size;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice device) {
  CHECK(check_device(device));
  REQUIRE_VALUE(id && size > 0);
  snprintf(id, (size_t)size, "0000:%02X:00.0", device + 1u);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id) {
  CHECK(check_initialized());
  unsigned domain, bus;
  REQUIRE_VALUE(device && id && sscanf(id, "%x:%x", &domain, &bus) == 2);
  CHECK(check_device((int)bus - 1));
  *device = (int)bus - 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
  CHECK(check_device(device));
  REQUIRE_VALUE(major && minor);
  *major = devices.major;
  *minor = devices.minor;
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can_access, CUdevice device, CUdevice peer) {
  CHECK(check_device(device));
  CHECK(check_device(peer));
  REQUIRE_VALUE(can_access);
  *can_access = device != peer;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice source, CUdevice target) {
  CHECK(check_device(source));
  CHECK(check_device(target));
  REQUIRE(source != target, CUDA_ERROR_INVALID_DEVICE);
  REQUIRE_VALUE(value);
  *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ||
           attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int *supported, CUexecAffinityType type, CUdevice device) {
  CHECK(check_device(device));
  REQUIRE_VALUE(supported);
  *supported = 0;
  return CUDA_SUCCESS;
}

/* Attributes of features that the CPU lacks have no case, and are 0: IPC, clusters, virtual memory management, the
   sizes of textures and the like. Clock rates, the bus, the number of multiprocessors and the alignments of textures
   are those of a plausible GPU. */
int device_attribute(CUdevice_attribute attribute, CUdevice device) {
  const struct architecture limits = find_architecture();
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return devices.major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return devices.minor;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return MAX_THREADS_PER_BLOCK;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return INT32_MAX;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return UINT16_MAX;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 4;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return limits.threads;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return limits.blocks;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: return 64 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return STATIC_SHARED_LIMIT;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return limits.shared_kib << 10;
    /* From 8.0 on, the system reserves 1 KiB of shared memory for each block. */
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: return devices.major >= 8 ? 1 << 10 : 0;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return (limits.shared_kib << 10) -
             device_attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, device);
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: return 64 << 10;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return 4 << 20;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH: return INT32_MAX;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return 1500000;        /* kHz */
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return 5000000; /* kHz */
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return 256;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT: return 512;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO: return 32;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return device + 1;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: return 1;
    case CU_DEVICE_ATTRIBUTE_NUMA_ID:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: return -1;
    default: return 0;
  }
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  CHECK(check_device(device));
  REQUIRE_VALUE(value && attribute > 0 && attribute < CU_DEVICE_ATTRIBUTE_MAX);
  *value = device_attribute(attribute, device);
  return CUDA_SUCCESS;
}
