#include "tracer/direct_views.h"

#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "tracer/lazy_tensor.h"

namespace lazuli::tracer {
namespace {

// `dim` as an index into `count` dimensions, counted from behind where it is negative. False: there is none.
bool Wrap(int64_t* dim, int64_t count) {
  if (*dim < 0) *dim += count;
  return *dim >= 0 && *dim < count;
}

int64_t DimsOf(const ViewWindow& window) { return static_cast<int64_t>(window.sizes.size()); }

bool Reshape(ViewWindow* window, const at::Tensor& self, const c10::SymIntArrayRef& size) {
  const auto asked = c10::asIntArrayRefSlowOpt(size);
  if (!asked.has_value()) return false;
  c10::DimVector sizes = at::infer_size_dv(*asked, self.numel());
  const auto strides = at::detail::computeStride(window->sizes, window->strides, sizes);
  if (!strides.has_value()) return false;
  window->sizes = std::move(sizes);
  window->strides.assign(strides->begin(), strides->end());
  return true;
}

}  // namespace

bool StartFrom(const at::Tensor& self, ViewWindow* window) {
  if (!self.defined()) return false;
  const c10::TensorImpl& impl = *self.unsafeGetTensorImpl();
  if (!IsStridedWindow(impl) || impl.unsafe_storage().unsafeGetStorageImpl() == nullptr) return false;
  window->sizes.assign(impl.sizes().begin(), impl.sizes().end());
  window->strides.assign(impl.strides().begin(), impl.strides().end());
  window->offset = impl.storage_offset();
  return true;
}

at::Tensor MakeView(const at::Tensor& self, const ViewWindow& window) {
  const c10::TensorImpl& impl = *self.unsafeGetTensorImpl();
  auto view = c10::make_intrusive<LazyTensorImpl>(c10::TensorImpl::VIEW, c10::Storage(impl.unsafe_storage()), impl.key_set(), impl.dtype());
  view->set_sizes_and_strides(window.sizes, window.strides, window.offset);
  return at::Tensor(std::move(view));
}

bool FindWindow(const at::_ops::t*, ViewWindow* window, const at::Tensor&) {
  if (DimsOf(*window) != 2) return false;
  std::swap(window->sizes[0], window->sizes[1]);
  std::swap(window->strides[0], window->strides[1]);
  return true;
}

bool FindWindow(const at::_ops::transpose_int*, ViewWindow* window, const at::Tensor&, int64_t dim0, int64_t dim1) {
  if (!Wrap(&dim0, DimsOf(*window)) || !Wrap(&dim1, DimsOf(*window))) return false;
  std::swap(window->sizes[dim0], window->sizes[dim1]);
  std::swap(window->strides[dim0], window->strides[dim1]);
  return true;
}

bool FindWindow(const at::_ops::permute*, ViewWindow* window, const at::Tensor& self, const at::IntArrayRef& dims) {
  const int64_t count = DimsOf(*window);
  if (static_cast<int64_t>(dims.size()) != count) return false;
  uint64_t seen = 0;
  for (int64_t i = 0; i < count; ++i) {
    int64_t dim = dims[i];
    if (!Wrap(&dim, count) || (seen >> dim & 1) != 0) return false;
    seen |= uint64_t{1} << dim;
    window->sizes[i] = self.sizes()[dim];
    window->strides[i] = self.strides()[dim];
  }
  return true;
}

bool FindWindow(const at::_ops::select_int*, ViewWindow* window, const at::Tensor&, int64_t dim, const c10::SymInt& index) {
  const auto known = index.maybe_as_int();
  if (!known.has_value() || !Wrap(&dim, DimsOf(*window))) return false;
  int64_t at = *known;
  if (!Wrap(&at, window->sizes[dim])) return false;
  window->offset += at * window->strides[dim];
  window->sizes.erase(window->sizes.begin() + dim);
  window->strides.erase(window->strides.begin() + dim);
  return true;
}

bool FindWindow(const at::_ops::slice_Tensor*, ViewWindow* window, const at::Tensor&, int64_t dim, const std::optional<c10::SymInt>& start,
                const std::optional<c10::SymInt>& end, const c10::SymInt& step) {
  constexpr int64_t kToTheEnd = std::numeric_limits<int64_t>::max();
  const auto first = start.has_value() ? start->maybe_as_int() : std::optional<int64_t>(0);
  const auto last = end.has_value() ? end->maybe_as_int() : std::optional<int64_t>(kToTheEnd);
  const auto by = step.maybe_as_int();
  if (!first.has_value() || !last.has_value() || !by.has_value() || *by <= 0 || !Wrap(&dim, DimsOf(*window))) return false;
  const int64_t size = window->sizes[dim];
  // What stands for no number, and strides that overflow, are the kernel's.
  if (*first == kToTheEnd || (*by > size && *by > 1)) return false;
  const auto clamp = [size](int64_t place, int64_t least) { return std::clamp(place < 0 ? place + size : place, least, size); };
  const int64_t from = clamp(*first, 0), to = clamp(*last, from);
  window->offset += from * window->strides[dim];
  window->sizes[dim] = (to - from + *by - 1) / *by;
  window->strides[dim] *= *by;
  return true;
}

bool FindWindow(const at::_ops::unsqueeze*, ViewWindow* window, const at::Tensor&, int64_t dim) {
  const int64_t count = DimsOf(*window);
  if (!Wrap(&dim, count + 1)) return false;
  const int64_t stride = dim == count ? 1 : window->sizes[dim] * window->strides[dim];
  window->sizes.insert(window->sizes.begin() + dim, 1);
  window->strides.insert(window->strides.begin() + dim, stride);
  return true;
}

bool FindWindow(const at::_ops::squeeze_dim*, ViewWindow* window, const at::Tensor&, int64_t dim) {
  if (!Wrap(&dim, DimsOf(*window))) return false;
  if (window->sizes[dim] != 1) return true;
  window->sizes.erase(window->sizes.begin() + dim);
  window->strides.erase(window->strides.begin() + dim);
  return true;
}

bool FindWindow(const at::_ops::expand*, ViewWindow* window, const at::Tensor& self, const c10::SymIntArrayRef& size, bool) {
  const auto asked = c10::asIntArrayRefSlowOpt(size);
  if (!asked.has_value() || static_cast<int64_t>(asked->size()) < DimsOf(*window)) return false;
  auto expanded = at::inferExpandGeometry_dimvector(self.sizes(), self.strides(), *asked);
  window->sizes = std::move(expanded.sizes);
  window->strides = std::move(expanded.strides);
  return true;
}

bool FindWindow(const at::_ops::view*, ViewWindow* window, const at::Tensor& self, const c10::SymIntArrayRef& size) {
  return Reshape(window, self, size);
}

bool FindWindow(const at::_ops::_unsafe_view*, ViewWindow* window, const at::Tensor& self, const c10::SymIntArrayRef& size) {
  return Reshape(window, self, size);
}

bool FindWindow(const at::_ops::alias*, ViewWindow*, const at::Tensor&) { return true; }

}  // namespace lazuli::tracer
