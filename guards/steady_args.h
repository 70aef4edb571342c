// Arguments of a trace that are the same run after run (weights, factors), so that those of the next run are known before it is recorded.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace lazuli::guards {

// Values that were noted round after round, each by its place.
template <class T>
class SteadyValues {
 public:
  template <class U>
  void Note(size_t place, const U& value) {
    if (place >= all_.size()) all_.resize(place + 1);
    Steady& steady = all_[place];
    if (steady.value == value) {
      steady.rounds += steady.rounds < kRounds ? 1 : 0;
      return;
    }
    if (steady.rounds >= kRounds) steady.rounds = kDistrust;
    if (steady.rounds > 0) steady.rounds = 0;
    steady.value = T(value);
  }
  // Null where it was not the same for long.
  const T* Find(size_t place) const { return place < all_.size() && all_[place].rounds >= kRounds ? &all_[place].value : nullptr; }
  size_t size() const { return all_.size(); }
  // Those equal to `value` do not count as steady for long from here on.
  template <class U>
  void Distrust(const U& value) {
    for (Steady& steady : all_) {
      if (steady.value == value) steady.rounds = kDistrust;
    }
  }

 private:
  static constexpr int kRounds = 2;      // As often it has to be what it was before.
  static constexpr int kDistrust = -64;  // Of rounds, after it was not what it had been for long.
  struct Steady {
    T value{};
    int rounds = 0;
  };
  std::vector<Steady> all_;
};

// Of one trace. The caller guards it by a lock.
class SteadyArgs {
 public:
  // A run's arguments; of storages, null for those that are not to be foretold.
  void Note(absl::Span<c10::StorageImpl* const> storages, absl::Span<const uint64_t> scalars, absl::Span<const int64_t> offsets);

  // What the next run has there; null where that cannot be foretold. A storage that the program let go of cannot.
  c10::intrusive_ptr<c10::StorageImpl> Storage(size_t number) const;
  const uint64_t* Scalar(size_t slot) const { return scalars_.Find(slot); }
  const int64_t* Offset(size_t slot) const { return offsets_.Find(slot); }

  size_t num_offsets() const { return offsets_.size(); }

  // Somebody else uses it.
  void Distrust(const c10::StorageImpl* storage) { storages_.Distrust(storage); }

 private:
  // Equal to the very storage, not to another one in its place.
  struct Input {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage{c10::intrusive_ptr<c10::StorageImpl>()};
    Input() = default;
    explicit Input(c10::StorageImpl* of) : storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(of)) {}
    bool operator==(const c10::StorageImpl* other) const { return storage._unsafe_get_target() == other; }
  };
  SteadyValues<Input> storages_;
  SteadyValues<uint64_t> scalars_;
  SteadyValues<int64_t> offsets_;
};

}  // namespace lazuli::guards
