#include "tracer/foreign_memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/COW.h>

#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "runtime/device.h"
#include "runtime/log.h"
#include "tracer/captured_memory.h"
#include "tracer/lazy_tensor.h"

namespace lazuli::tracer {
namespace {

// Less costs less to copy than to look up.
constexpr size_t kLarge = 1 << 20;
constexpr size_t kMaxKnown = 4096;

// Whether every page of the block is mapped without write permission.
bool IsReadOnly(const void* begin, size_t nbytes) {
  const auto first = reinterpret_cast<uintptr_t>(begin), end = first + nbytes;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(std::fopen("/proc/self/maps", "r"), &std::fclose);
  if (maps == nullptr) return false;
  uintptr_t covered = first;
  char line[4096];
  while (covered < end && std::fgets(line, sizeof(line), maps.get()) != nullptr) {
    unsigned long low = 0, high = 0;  // NOLINT: as scanf wants them.
    char permissions[5] = "";
    if (std::sscanf(line, "%lx-%lx %4s", &low, &high, permissions) != 3 || high <= covered) continue;
    if (low > covered || permissions[1] == 'w') return false;
    covered = high;
  }
  return covered >= end;
}

}  // namespace

bool IsForeign(c10::StorageImpl* storage) {
  if (IsCaptured(storage)) return true;
  if (AsLazy(storage) != nullptr || IsPending(*storage)) return false;
  const at::DataPtr& data = DataOf(storage);
  const c10::Allocator* owner = runtime::AllocatorOf(data.device().is_cuda() ? data.device() : c10::Device(c10::kCPU));
  return data.get() != nullptr && data.get_deleter() != owner->raw_deleter() && !c10::impl::cow::is_cow_data_ptr(data);
}

c10::intrusive_ptr<c10::StorageImpl> Snapshot(const c10::TensorImpl& impl, c10::StorageImpl* storage) {
  int64_t elements = impl.numel() == 0 ? 0 : 1;
  for (int64_t d = 0; d < impl.dim() && elements > 0; ++d) elements += (impl.sizes()[d] - 1) * impl.strides()[d];
  const auto item = static_cast<int64_t>(impl.itemsize());
  const int64_t begin = impl.storage_offset() * item;
  const int64_t bytes = elements * item;
  if (elements > 2 * impl.numel() || begin + bytes > static_cast<int64_t>(storage->nbytes())) return nullptr;
  auto* allocator = c10::GetCPUAllocator();
  auto copy = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, allocator->allocate(bytes), allocator,
                                                    /*resizable=*/false);
  if (bytes > 0) std::memcpy(copy->mutable_data(), static_cast<const char*>(DataOf(storage).get()) + begin, bytes);
  return copy;
}

bool ForeignMemory::CanWait(c10::StorageImpl* storage, uint64_t epoch) {
  if (storage->nbytes() < kLarge) return false;
  const auto it = known_.find(storage);
  if (it != known_.end() && !it->second.storage.expired()) return it->second.read_only && it->second.epoch != epoch;
  if (known_.size() >= kMaxKnown) known_.clear();
  const bool read_only = IsReadOnly(DataOf(storage).get(), storage->nbytes());
  auto strong = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage);
  known_.insert_or_assign(storage, Known{c10::weak_intrusive_ptr<c10::StorageImpl>(strong), epoch, read_only});
  if (!read_only && runtime::LogEnabled(runtime::LogCategory::kPerfHints)) {
    runtime::Log(
        runtime::LogCategory::kPerfHints,
        absl::StrCat(storage->nbytes() >> 20, " MB of memory that LibTorch does not own are copied whenever a recorded operator reads ",
                     "them, since their owner may change them. clone() a tensor that is read often, or map it read-only."));
  }
  return false;
}

}  // namespace lazuli::tracer
