// The handler that XLA calls for jax.ffi.ffi_call("squash"): launches a kernel written in Python on XLA's stream.
#include <xla/ffi/api/ffi.h>

#include <string>

#include "udfs.launch.h"

namespace ffi = xla::ffi;

static ffi::Error launch_squash(CUstream_st* stream, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y, float scale) {
  const long long count = static_cast<long long>(x.element_count());
  if (count == 0) {
    return ffi::Error::Success();
  }
  const int error = udfs_kernels::squash(stream, (count + 255) / 256, 256, 0, {x.typed_data(), count},
                                         {y->typed_data(), count}, scale);
  return error == 0 ? ffi::Error::Success() : ffi::Error::Internal(numba_ptxlink::error_name(error));
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(Squash, launch_squash,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<CUstream_st*>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Attr<float>("scale"),
                              {ffi::Traits::kCmdBufferCompatible});
