#include "tracer/size_marks.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "guards/guard.h"

namespace lazuli::tracer {
namespace {

using codegen::SizeMark;
using guards::Operand;

struct Mark {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  const c10::StorageImpl* impl;
  std::vector<codegen::Word> sizes;  // Of the marked tensor: views of other sizes are other tensors.
  int64_t dim;
  bool dynamic;
  int64_t least, most;
};

struct Registry {
  std::mutex mutex;
  std::vector<Mark> marks;
  std::atomic<bool> any{false};
};

Registry& GetRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

void AddAsked(const codegen::TraceLog& log, const Operand& operand, const c10::StorageImpl* impl, std::vector<SizeMark>* found) {
  const auto sizes = log.shapes.begin() + operand.position;
  for (const Mark& mark : GetRegistry().marks) {
    if (mark.impl != impl || mark.storage.expired()) continue;
    if (!std::equal(mark.sizes.begin(), mark.sizes.end(), sizes, sizes + operand.ndim)) continue;
    found->push_back({operand.position + static_cast<uint32_t>(mark.dim), mark.dynamic, mark.least, mark.most});
  }
}

void AddAll(const Operand& operand, std::vector<SizeMark>* found) {
  for (uint32_t position = operand.position; position < operand.position + operand.ndim; ++position) {
    const bool marked = std::any_of(found->begin(), found->end(), [&](const SizeMark& mark) { return mark.position == position; });
    if (!marked) found->push_back({position, true, 0, std::numeric_limits<int64_t>::max()});
  }
}

}  // namespace

void CheckMarkable(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined() && tensor.layout() == c10::kStrided, "lazuli: only sizes of strided tensors can be marked");
}

void MarkSize(const at::Tensor& tensor, int64_t dim, bool dynamic, int64_t least, int64_t most) {
  CheckMarkable(tensor);
  TORCH_CHECK_INDEX(dim >= -tensor.dim() && dim < tensor.dim(), "lazuli: no dimension ", dim, " to mark in a tensor of ", tensor.dim(),
                    " dimensions");
  if (dim < 0) dim += tensor.dim();
  TORCH_CHECK_VALUE(tensor.size(dim) >= least && tensor.size(dim) <= most, "lazuli: size ", tensor.size(dim), " of dimension ", dim,
                    " is outside of the range [", least, ", ", most, "] that it is marked with");
  c10::StorageImpl* const impl = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  if (impl == nullptr) return;
  Registry& registry = GetRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  auto& marks = registry.marks;
  const std::vector<codegen::Word> sizes(tensor.sizes().begin(), tensor.sizes().end());
  marks.erase(std::remove_if(marks.begin(), marks.end(),
                             [&](const Mark& mark) {
                               return mark.storage.expired() || (mark.impl == impl && mark.sizes == sizes && mark.dim == dim);
                             }),
              marks.end());
  const auto storage = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(impl);
  marks.push_back({c10::weak_intrusive_ptr<c10::StorageImpl>(storage), impl, sizes, dim, dynamic, least, most});
  registry.any.store(true, std::memory_order_relaxed);
}

std::vector<SizeMark> FindMarks(const codegen::TraceLog& log, absl::Span<const MarkedStorage> storages) {
  std::vector<SizeMark> found;
  Registry& registry = GetRegistry();
  const bool any_data = std::any_of(storages.begin(), storages.end(), [](const MarkedStorage& storage) { return storage.is_data; });
  if (!any_data && !registry.any.load(std::memory_order_relaxed)) return found;
  std::lock_guard<std::mutex> lock(registry.mutex);
  for (const Operand& operand : guards::OperandsOf(log)) {
    const MarkedStorage& storage = storages[operand.storage];
    if (storage.impl != nullptr) AddAsked(log, operand, storage.impl, &found);
    if (storage.is_data && operand.first_use) AddAll(operand, &found);
  }
  return found;
}

}  // namespace lazuli::tracer
