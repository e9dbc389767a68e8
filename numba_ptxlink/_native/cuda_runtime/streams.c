/* Streams and events, by the functions of the driver. */
#include <string.h>

#include "runtime.h"

DEFINE_FORWARD(cudaStreamCreateWithPriority, (cudaStream_t *stream, unsigned flags, int priority),
               cuStreamCreateWithPriority(stream, flags, priority))

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithFlags(stream, 0); }

DEFINE_FORWARD(cudaStreamDestroy, (cudaStream_t stream), cuStreamDestroy(stream))
DEFINE_FORWARD(cudaStreamSynchronize, (cudaStream_t stream), cuStreamSynchronize(stream))
DEFINE_FORWARD(cudaStreamQuery, (cudaStream_t stream), cuStreamQuery(stream))
DEFINE_FORWARD(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned flags),
               cuStreamWaitEvent(stream, event, flags))
DEFINE_FORWARD(cudaStreamGetPriority, (cudaStream_t stream, int *priority), cuStreamGetPriority(stream, priority))
DEFINE_FORWARD(cudaStreamGetFlags, (cudaStream_t stream, unsigned *flags), cuStreamGetFlags(stream, flags))
DEFINE_FORWARD(cudaStreamGetId, (cudaStream_t stream, unsigned long long *id), cuStreamGetId(stream, id))
DEFINE_FORWARD(cudaStreamGetDevice, (cudaStream_t stream, int *device), cuStreamGetDevice(stream, device))
DEFINE_FORWARD(cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *status),
               cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)status))
/* All streams can access all managed memory at any time, so that nothing has to be attached. */
DEFINE_FORWARD(cudaStreamAttachMemAsync, (cudaStream_t stream, void *address, size_t size, unsigned flags),
               CUDA_SUCCESS)
DEFINE_FORWARD(cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode *mode),
               cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode))

/* No stream is captured, so that only `status` is written. CUDA 12 also has versions of this function with fewer
   parameters: all begin with `stream` and `status`, so that this function serves them, too. */
DEFINE_FORWARD(cudaStreamGetCaptureInfo,
               (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
                const cudaGraphNode_t **dependencies, const cudaGraphEdgeData **edges, size_t *count),
               cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)status))

/* Attributes are hints about caches and priorities, without an effect on results: they are not kept, and are zero when
   they are read. */
DEFINE_FORWARD(cudaStreamSetAttribute,
               (cudaStream_t stream, cudaStreamAttrID attribute, const cudaStreamAttrValue *value), CUDA_SUCCESS)
DEFINE_FORWARD(cudaStreamCopyAttributes, (cudaStream_t target, cudaStream_t source), CUDA_SUCCESS)

cudaError_t cudaStreamGetAttribute(cudaStream_t stream, cudaStreamAttrID attribute, cudaStreamAttrValue *value) {
  CHECK_AND_RECORD(ensure_context());
  REQUIRE(value, cudaErrorInvalidValue);
  memset(value, 0, sizeof *value);
  return cudaSuccess;
}

DEFINE_FORWARD(cudaEventCreateWithFlags, (cudaEvent_t *event, unsigned flags), cuEventCreate(event, flags))

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

DEFINE_FORWARD(cudaEventDestroy, (cudaEvent_t event), cuEventDestroy(event))
DEFINE_FORWARD(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), cuEventRecord(event, stream))
DEFINE_FORWARD(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned flags),
               cuEventRecordWithFlags(event, stream, flags))
DEFINE_FORWARD(cudaEventQuery, (cudaEvent_t event), cuEventQuery(event))
DEFINE_FORWARD(cudaEventSynchronize, (cudaEvent_t event), cuEventSynchronize(event))
DEFINE_FORWARD(cudaEventElapsedTime, (float *milliseconds, cudaEvent_t start, cudaEvent_t end),
               cuEventElapsedTime(milliseconds, start, end))
