// A PyTorch extension whose kernels are written in Python. A host compiler builds it; udfs.launch.h holds the kernels.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "udfs.launch.h"

namespace {

constexpr int64_t block = 256;

void check(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous() && tensor.scalar_type() == at::kFloat, "a contiguous tensor of float32 is needed");
}

// A tensor as an array of one dimension: an address and a length.
numba_ptxlink::array_view<float, 1, numba_ptxlink::layout_c> view(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), tensor.numel()};
}

at::Tensor softsign(const at::Tensor& x, int64_t stream) {
  check(x);
  at::Tensor y = at::empty_like(x);
  if (const int64_t count = x.numel()) {
    const int error = udfs_kernels::forward(reinterpret_cast<CUstream_st*>(stream), (count + block - 1) / block, block, 0,
                                            view(x), view(y));
    TORCH_CHECK(error == 0, numba_ptxlink::error_name(error));
  }
  return y;
}

at::Tensor softsign_backward(const at::Tensor& x, const at::Tensor& dy, int64_t stream) {
  check(x);
  check(dy);
  TORCH_CHECK(x.numel() == dy.numel(), "both need as many elements");
  at::Tensor dx = at::empty_like(x);
  if (const int64_t count = x.numel()) {
    const int error = udfs_kernels::backward(reinterpret_cast<CUstream_st*>(stream), (count + block - 1) / block, block, 0,
                                             view(x), view(dy), view(dx));
    TORCH_CHECK(error == 0, numba_ptxlink::error_name(error));
  }
  return dx;
}

}  // namespace

TORCH_LIBRARY(gallery, library) {
  library.def("softsign(Tensor x, int stream) -> Tensor", {});
  library.def("softsign_backward(Tensor x, Tensor dy, int stream) -> Tensor", {});
  library.impl("softsign", c10::DispatchKey::CUDA, &softsign);
  library.impl("softsign_backward", c10::DispatchKey::CUDA, &softsign_backward);
}
