/*
 * Streams and events. All earlier work has ended, so that functions which wait for a stream only check the handle.
 *
 * The structure of a destroyed stream or event is not freed, so that a later use returns CUDA_ERROR_INVALID_HANDLE, and
 * does not access memory of another owner.
 */
#include <stdlib.h>
#include <time.h>

#include "driver.h"

struct CUstream_st {
  CUcontext context;
  unsigned flags;
  int priority;
  uint64_t id;
  bool destroyed;
};

struct CUevent_st {
  double milliseconds; /* the time when it was recorded, by CLOCK_MONOTONIC; 0 before */
  unsigned flags;
  bool destroyed;
};

enum { LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5 };
static uint64_t last_stream_id = 16; /* the default streams have smaller numbers: their handles, 0 to 2 */

/* Whether `stream` is NULL, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD, the handles 0 to 2: streams of the current
   context. */
static bool is_default(CUstream stream) { return (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD; }

static bool is_event(CUevent event) { return event && !event->destroyed; }

/* Write the context of a stream; return an error if the stream or the context cannot be used. */
static CUresult stream_context(CUstream stream, CUcontext *context) {
  if (is_default(stream)) return require_context(context);
  CHECK(check_initialized());
  REQUIRE(!stream->destroyed, CUDA_ERROR_INVALID_HANDLE);
  *context = stream->context;
  REQUIRE(!(*context)->destroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  return (*context)->sticky_error;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
  CUcontext context;
  CHECK(require_context(&context));
  REQUIRE_VALUE(stream && flags <= CU_STREAM_NON_BLOCKING);
  *stream = malloc(sizeof **stream);
  REQUIRE(*stream, CUDA_ERROR_OUT_OF_MEMORY);
  if (priority > LEAST_PRIORITY) priority = LEAST_PRIORITY;
  if (priority < GREATEST_PRIORITY) priority = GREATEST_PRIORITY;
  **stream = (struct CUstream_st){.context = context, .flags = flags, .priority = priority,
                                  .id = __atomic_add_fetch(&last_stream_id, 1, __ATOMIC_RELAXED)};
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

CUresult cuStreamDestroy_v2(CUstream stream) {
  CHECK(check_initialized());
  REQUIRE(!is_default(stream) && !stream->destroyed, CUDA_ERROR_INVALID_HANDLE);
  stream->destroyed = true;
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) { return cuStreamDestroy_v2(stream); }

CUresult cuStreamSynchronize(CUstream stream) {
  CUcontext context;
  return stream_context(stream, &context);
}

CUresult cuStreamQuery(CUstream stream) { return cuStreamSynchronize(stream); }

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  REQUIRE(is_event(event), CUDA_ERROR_INVALID_HANDLE);
  return cuStreamSynchronize(stream);
}

CUresult cuStreamGetPriority(CUstream stream, int *priority) {
  CHECK(check_initialized());
  REQUIRE_VALUE(priority);
  *priority = is_default(stream) ? LEAST_PRIORITY : stream->priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned *flags) {
  CHECK(check_initialized());
  REQUIRE_VALUE(flags);
  *flags = is_default(stream) ? CU_STREAM_DEFAULT : stream->flags;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *id) {
  CHECK(check_initialized());
  REQUIRE_VALUE(id);
  *id = is_default(stream) ? (uintptr_t)stream : stream->id;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
  REQUIRE_VALUE(context);
  return stream_context(stream, context);
}

CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green_context) {
  if (green_context) *green_context = NULL;
  return cuStreamGetCtx(stream, context);
}

CUresult cuStreamGetDevice(CUstream stream, CUdevice *device) {
  CUcontext context;
  REQUIRE_VALUE(device);
  CHECK(stream_context(stream, &context));
  *device = context->device;
  return CUDA_SUCCESS;
}

/* Capturing: no stream is ever captured into a graph. */

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  CHECK(check_initialized());
  REQUIRE_VALUE(status);
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id) {
  return cuStreamIsCapturing(stream, status);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **dependencies, size_t *count) {
  return cuStreamIsCapturing(stream, status);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count) {
  return cuStreamIsCapturing(stream, status);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  static _Thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
  CHECK(check_initialized());
  REQUIRE_VALUE(mode);
  const CUstreamCaptureMode previous = current;
  current = *mode;
  *mode = previous;
  return CUDA_SUCCESS;
}

/* Functions of the program that a stream calls: at once, since all earlier work has ended */

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data, unsigned flags) {
  CHECK(cuStreamSynchronize(stream));
  REQUIRE_VALUE(callback && flags == 0);
  callback(stream, CUDA_SUCCESS, data);
  return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
  CHECK(cuStreamSynchronize(stream));
  REQUIRE_VALUE(function);
  function(data);
  return CUDA_SUCCESS;
}

/* Events */

CUresult cuEventCreate(CUevent *event, unsigned flags) {
  CHECK(require_context(NULL));
  REQUIRE_VALUE(event);
  if (flags & CU_EVENT_INTERPROCESS) return not_supported("cuEventCreate for other processes");
  *event = calloc(1, sizeof **event);
  REQUIRE(*event, CUDA_ERROR_OUT_OF_MEMORY);
  (*event)->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
  CHECK(check_initialized());
  REQUIRE(is_event(event), CUDA_ERROR_INVALID_HANDLE);
  event->destroyed = true;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) { return cuEventDestroy_v2(event); }

CUresult cuEventRecord(CUevent event, CUstream stream) {
  REQUIRE(is_event(event), CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuStreamSynchronize(stream));
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  event->milliseconds = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
  return CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return cuEventRecord(event, stream);
}

CUresult cuEventQuery(CUevent event) {
  REQUIRE(is_event(event), CUDA_ERROR_INVALID_HANDLE);
  return require_context(NULL);
}

CUresult cuEventSynchronize(CUevent event) { return cuEventQuery(event); }

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
  CHECK(require_context(NULL));
  REQUIRE_VALUE(milliseconds);
  REQUIRE(is_event(start) && is_event(end), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(start->milliseconds != 0 && end->milliseconds != 0, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(!((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING), CUDA_ERROR_INVALID_HANDLE);
  *milliseconds = (float)(end->milliseconds - start->milliseconds);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}
