#include "guards/steady_args.h"

namespace lazuli::guards {

void SteadyArgs::Note(absl::Span<c10::StorageImpl* const> storages, absl::Span<const uint64_t> scalars, absl::Span<const int64_t> offsets) {
  for (size_t i = 0; i < storages.size(); ++i) storages_.Note(i, storages[i]);
  for (size_t i = 0; i < scalars.size(); ++i) scalars_.Note(i, scalars[i]);
  for (size_t i = 0; i < offsets.size(); ++i) offsets_.Note(i, offsets[i]);
}

c10::intrusive_ptr<c10::StorageImpl> SteadyArgs::Storage(size_t number) const {
  const Input* const input = storages_.Find(number);
  return input == nullptr ? c10::intrusive_ptr<c10::StorageImpl>() : input->storage.lock();
}

}  // namespace lazuli::guards
