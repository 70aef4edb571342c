#include "tracer/foretold_args.h"

#include <c10/core/impl/COW.h>

#include <algorithm>
#include <utility>

#include "tracer/lazy_tensor.h"

namespace lazuli::tracer {
namespace {

// Takes `count` values of which `find` knows some, from number `first` on.
template <class T, class Find>
void TakeSteady(size_t first, size_t count, const Find& find, std::vector<T>* values, std::vector<uint8_t>* known) {
  values->assign(count, 0);
  known->assign(count, 0);
  for (size_t i = first; i < count; ++i) {
    const T* const value = find(i);
    if (value == nullptr) continue;
    (*values)[i] = *value;
    (*known)[i] = 1;
  }
}

template <class T>
bool AgreesWith(absl::Span<const T> recorded, const std::vector<T>& values, const std::vector<uint8_t>& known) {
  for (size_t i = 0; i < std::min(recorded.size(), values.size()); ++i) {
    if (known[i] != 0 && recorded[i] != values[i]) return false;
  }
  return true;
}

template <class T>
void Overlay(absl::Span<const T> recorded, const std::vector<T>& values, const std::vector<uint8_t>& known, std::vector<T>* all,
             std::vector<uint8_t>* all_known) {
  *all = values;
  *all_known = known;
  if (all->size() < recorded.size()) all->resize(recorded.size());
  all_known->resize(all->size());
  std::copy(recorded.begin(), recorded.end(), all->begin());
  std::fill_n(all_known->begin(), recorded.size(), uint8_t{1});
}

// Whether it can be read where it is.
bool IsThere(c10::StorageImpl* storage) {
  return storage != nullptr && !IsPending(*storage) && !c10::impl::cow::is_cow_data_ptr(DataOf(storage));
}

}  // namespace

void ForetoldArgs::Foretell(const guards::SteadyArgs& steady, const RecordedArgs& recorded, size_t num_storages, size_t num_scalars) {
  storages_.resize(num_storages);
  for (size_t i = recorded.storages.size(); i < num_storages; ++i) {
    storages_[i] = steady.Storage(i);
    if (!IsThere(storages_[i].get())) storages_[i].reset();
  }
  const auto scalar = [&](size_t slot) { return steady.Scalar(slot); };
  const auto offset = [&](size_t slot) { return steady.Offset(slot); };
  TakeSteady(recorded.scalars.size(), num_scalars, scalar, &scalars_, &known_scalars_);
  TakeSteady(recorded.offsets.size(), steady.num_offsets(), offset, &offsets_, &known_offsets_);
}

void ForetoldArgs::Clear(std::vector<c10::intrusive_ptr<c10::StorageImpl>>* garbage) {
  for (auto& storage : storages_) {
    if (storage != nullptr) garbage->push_back(std::move(storage));
  }
  storages_.clear();
  scalars_.clear();
  offsets_.clear();
  known_scalars_.clear();
  known_offsets_.clear();
}

bool ForetoldArgs::Agrees(const RecordedArgs& recorded) const {
  for (size_t i = 0; i < std::min(recorded.storages.size(), storages_.size()); ++i) {
    if (storages_[i] != nullptr && recorded.storages[i] != storages_[i].get()) return false;
  }
  return AgreesWith(recorded.scalars, scalars_, known_scalars_) && AgreesWith(recorded.offsets, offsets_, known_offsets_);
}

bool ForetoldArgs::Has(const c10::StorageImpl* storage) const {
  return std::any_of(storages_.begin(), storages_.end(), [storage](const auto& foretold) { return foretold.get() == storage; });
}

runtime::PartialArgs ForetoldArgs::With(const RecordedArgs& recorded) {
  all_.storages = recorded.storages;
  for (size_t i = all_.storages.size(); i < storages_.size(); ++i) all_.storages.push_back(storages_[i].get());
  Overlay(recorded.scalars, scalars_, known_scalars_, &all_.scalars, &all_.known_scalars);
  Overlay(recorded.offsets, offsets_, known_offsets_, &all_.offsets, &all_.known_offsets);
  runtime::PartialArgs args{{all_.storages, all_.scalars, all_.offsets, {}}, all_.known_scalars, all_.known_offsets, recorded.num_ops};
  args.run.symbols = recorded.symbols;
  return args;
}

}  // namespace lazuli::tracer
