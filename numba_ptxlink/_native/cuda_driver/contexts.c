/* Contexts: the primary context of each device, contexts that programs create, and the context stack of each thread. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { MAX_STACK_DEPTH = 64 };

static struct CUctx_st primary_contexts[MAX_DEVICES];
static _Thread_local CUcontext stack[MAX_STACK_DEPTH]; /* stack[depth - 1] is the current context of the thread */
static _Thread_local int depth;
static uint64_t context_count;

CUcontext current_context(void) { return depth ? stack[depth - 1] : NULL; }

CUcontext primary_context(CUdevice device) { return &primary_contexts[device]; }

CUresult require_context(CUcontext *context) {
  CHECK(check_initialized());
  const CUcontext current = current_context();
  REQUIRE(current, CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE(!current->destroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  if (context) *context = current;
  /* A fault stops all work of a context until it is reset, as on a GPU. */
  return current->sticky_error;
}

/* If `*context` is NULL, set it to the current context. Return an error if there is none, or if it is destroyed. */
static CUresult resolve_context(CUcontext *context) {
  CHECK(check_initialized());
  if (!*context) *context = current_context();
  REQUIRE(*context, CUDA_ERROR_INVALID_CONTEXT);
  return (*context)->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

static void initialize(CUcontext context, CUdevice device) {
  context->device = device;
  context->active = true;
  context->id = __atomic_add_fetch(&context_count, 1, __ATOMIC_RELAXED);
  /* The defaults of NVIDIA's driver, in bytes. */
  context->limits[CU_LIMIT_STACK_SIZE] = 1 << 10;
  context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
  context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
}

/* Unload the modules and free the memory of a context, and clear its fault. */
static void release_resources(CUcontext context) {
  unload_context_modules(context);
  remove_context_memory(context);
  context->sticky_error = CUDA_SUCCESS;
  context->peers = 0;
  context->active = false;
}

/* Primary contexts */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  CHECK(check_device(device));
  REQUIRE_VALUE(context);
  pthread_mutex_lock(&driver_lock);
  *context = &primary_contexts[device];
  ++(*context)->retain_count;
  if (!(*context)->active) initialize(*context, device);
  pthread_mutex_unlock(&driver_lock);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  CHECK(check_device(device));
  pthread_mutex_lock(&driver_lock);
  const CUcontext context = &primary_contexts[device];
  const bool is_retained = context->retain_count > 0, is_last_release = context->retain_count == 1;
  context->retain_count -= is_retained;
  pthread_mutex_unlock(&driver_lock);
  if (is_last_release) release_resources(context);
  return is_retained ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  CHECK(check_device(device));
  release_resources(&primary_contexts[device]);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  CHECK(check_device(device));
  primary_contexts[device].flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }
CUresult cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }
CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  CHECK(check_device(device));
  REQUIRE_VALUE(flags && active);
  *flags = primary_contexts[device].flags;
  *active = primary_contexts[device].active;
  return CUDA_SUCCESS;
}

/* Contexts that programs create */

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
  CHECK(check_device(device));
  REQUIRE_VALUE(context);
  *context = calloc(1, sizeof **context);
  REQUIRE(*context, CUDA_ERROR_OUT_OF_MEMORY);
  initialize(*context, device);
  (*context)->flags = flags;
  return cuCtxPushCurrent_v2(*context);
}

CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device) {
  return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int count, unsigned flags, CUdevice device) {
  REQUIRE(count == 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
  return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned flags, CUdevice device) {
  REQUIRE(!params || params->numExecAffinityParams == 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
  return cuCtxCreate_v2(context, flags, device);
}

/* Do not free the structure, so that the handle of a destroyed context causes an error, not a crash. */
CUresult cuCtxDestroy_v2(CUcontext context) {
  CHECK(check_initialized());
  REQUIRE(context, CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE(!context->destroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  REQUIRE(context != primary_context(context->device), CUDA_ERROR_INVALID_CONTEXT);
  release_resources(context);
  context->destroyed = true;
  if (current_context() == context) --depth;
  return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext context) { return cuCtxDestroy_v2(context); }

/* The stack of a thread */

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  CHECK(check_initialized());
  REQUIRE(context, CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE(!context->destroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  REQUIRE_VALUE(depth < MAX_STACK_DEPTH);
  stack[depth++] = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  CHECK(check_initialized());
  REQUIRE(depth, CUDA_ERROR_INVALID_CONTEXT);
  --depth;
  if (context) *context = stack[depth];
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) { return cuCtxPushCurrent_v2(context); }
CUresult cuCtxPopCurrent(CUcontext *context) { return cuCtxPopCurrent_v2(context); }

CUresult cuCtxSetCurrent(CUcontext context) {
  CHECK(check_initialized());
  if (depth) --depth;
  return context ? cuCtxPushCurrent_v2(context) : CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
  CHECK(check_initialized());
  REQUIRE_VALUE(context);
  *context = current_context();
  return CUDA_SUCCESS;
}

/* Properties */

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context) {
  CHECK(resolve_context(&context));
  REQUIRE_VALUE(device);
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) { return cuCtxGetDevice_v2(device, NULL); }

CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
  CHECK(resolve_context(&context));
  REQUIRE_VALUE(id);
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned *flags) {
  CUcontext context;
  CHECK(require_context(&context));
  REQUIRE_VALUE(flags);
  *flags = context->flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned flags) {
  CUcontext context;
  CHECK(require_context(&context));
  context->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) {
  CHECK(resolve_context(&context));
  REQUIRE_VALUE(version);
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) { return require_context(NULL); }

CUresult cuCtxSynchronize_v2(CUcontext context) {
  CHECK(resolve_context(&context));
  return context->sticky_error;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  CHECK(require_context(NULL));
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  CUcontext context;
  CHECK(require_context(&context));
  REQUIRE((unsigned)limit < CU_LIMIT_MAX, CUDA_ERROR_UNSUPPORTED_LIMIT);
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
  CUcontext context;
  CHECK(require_context(&context));
  REQUIRE((unsigned)limit < CU_LIMIT_MAX, CUDA_ERROR_UNSUPPORTED_LIMIT);
  REQUIRE_VALUE(value);
  *value = context->limits[limit];
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) { return require_context(NULL); }

CUresult cuCtxGetCacheConfig(CUfunc_cache *config) {
  CHECK(require_context(NULL));
  REQUIRE_VALUE(config);
  *config = CU_FUNC_CACHE_PREFER_NONE;
  return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void) { return require_context(NULL); }

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  CUcontext context;
  CHECK(require_context(&context));
  REQUIRE(peer && !peer->destroyed, CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE_VALUE(flags == 0);
  REQUIRE(peer->device != context->device, CUDA_ERROR_INVALID_DEVICE);
  REQUIRE(!(context->peers >> peer->device & 1), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  context->peers |= 1u << peer->device;
  regions_changed();
  return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  CUcontext context;
  CHECK(require_context(&context));
  REQUIRE(peer, CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE(context->peers >> peer->device & 1, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  context->peers &= ~(1u << peer->device);
  regions_changed();
  return CUDA_SUCCESS;
}
