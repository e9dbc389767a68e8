// A PyTorch extension whose kernels are written in Python. udfs.launch.h contains the kernels, so that a host compiler
// builds the extension.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "udfs.launch.h"

namespace {

constexpr int64_t block = 256;

void check_tensor(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous() && tensor.scalar_type() == at::kFloat, "the tensor is not contiguous float32; pass x.float().contiguous()");
}

// A tensor as an array of one dimension: an address and a length.
numba_ptxlink::array_view<float, 1, numba_ptxlink::layout_c> view(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), tensor.numel()};
}

at::Tensor softsign(const at::Tensor& x, int64_t stream) {
  check_tensor(x);
  at::Tensor y = at::empty_like(x);
  if (const int64_t count = x.numel()) {
    const int error = udfs_kernels::forward(reinterpret_cast<CUstream_st*>(stream), (count + block - 1) / block, block, 0,
                                            view(x), view(y));
    TORCH_CHECK(error == 0, numba_ptxlink::error_name(error));
  }
  return y;
}

at::Tensor softsign_backward(const at::Tensor& x, const at::Tensor& dy, int64_t stream) {
  check_tensor(x);
  check_tensor(dy);
  TORCH_CHECK(x.numel() == dy.numel(), "x and dy have different numbers of elements; pass a gradient of the shape of x");
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
