// Views at a glance: where the window of a view follows from its operand's, it is made here, without ATen's kernel and the operators that
// that one calls. Whatever is unusual, errors among it, is left to the kernel.
#pragma once

#include <ATen/Operators.h>
#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/DimVector.h>

#include <cstdint>
#include <optional>

namespace lazuli::tracer {

// Sizes, strides and offset in elements.
struct ViewWindow {
  c10::DimVector sizes, strides;
  int64_t offset = 0;
};

// Whether `self` is but a strided window over memory; then `window` becomes it.
bool StartFrom(const at::Tensor& self, ViewWindow* window);

// The tensor `window` over `self`'s memory, as ATen's kernels of views make it.
at::Tensor MakeView(const at::Tensor& self, const ViewWindow& window);

// Each makes of `window`, `self`'s, that of the view of operator `Op`. False: the kernel has to.
template <class Op, class... A>
bool FindWindow(const Op*, ViewWindow*, const at::Tensor&, const A&...) {
  return false;
}
bool FindWindow(const at::_ops::t*, ViewWindow* window, const at::Tensor& self);
bool FindWindow(const at::_ops::transpose_int*, ViewWindow* window, const at::Tensor& self, int64_t dim0, int64_t dim1);
bool FindWindow(const at::_ops::permute*, ViewWindow* window, const at::Tensor& self, const at::IntArrayRef& dims);
bool FindWindow(const at::_ops::select_int*, ViewWindow* window, const at::Tensor& self, int64_t dim, const c10::SymInt& index);
bool FindWindow(const at::_ops::slice_Tensor*, ViewWindow* window, const at::Tensor& self, int64_t dim,
                const std::optional<c10::SymInt>& start, const std::optional<c10::SymInt>& end, const c10::SymInt& step);
bool FindWindow(const at::_ops::unsqueeze*, ViewWindow* window, const at::Tensor& self, int64_t dim);
bool FindWindow(const at::_ops::squeeze_dim*, ViewWindow* window, const at::Tensor& self, int64_t dim);
bool FindWindow(const at::_ops::expand*, ViewWindow* window, const at::Tensor& self, const c10::SymIntArrayRef& size, bool implicit);
bool FindWindow(const at::_ops::view*, ViewWindow* window, const at::Tensor& self, const c10::SymIntArrayRef& size);
bool FindWindow(const at::_ops::_unsafe_view*, ViewWindow* window, const at::Tensor& self, const c10::SymIntArrayRef& size);
bool FindWindow(const at::_ops::alias*, ViewWindow* window, const at::Tensor& self);

}  // namespace lazuli::tracer
