/* Stands in for libcuda.so.1 where a library wants one to be there: it tells its version and has no device. */

#define NO_DEVICE(name) int name(void) { return 100; }

int cuDriverGetVersion(int *version) { *version = 13050; return 0; }

NO_DEVICE(cuCtxGetCurrent)
NO_DEVICE(cuCtxGetDevice)
NO_DEVICE(cuCtxPopCurrent_v2)
NO_DEVICE(cuCtxPushCurrent_v2)
NO_DEVICE(cuDeviceGet)
NO_DEVICE(cuDeviceGetAttribute)
NO_DEVICE(cuDevicePrimaryCtxRetain)
NO_DEVICE(cuFuncGetAttribute)
NO_DEVICE(cuFuncSetAttribute)
NO_DEVICE(cuGetErrorString)
NO_DEVICE(cuInit)
NO_DEVICE(cuKernelGetFunction)
NO_DEVICE(cuLaunchKernel)
NO_DEVICE(cuLaunchKernelEx)
NO_DEVICE(cuLibraryGetKernel)
NO_DEVICE(cuLibraryLoadData)
NO_DEVICE(cuLibraryUnload)
NO_DEVICE(cuMemcpyAsync)
NO_DEVICE(cuMemsetD8Async)
NO_DEVICE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
