#include "tracer/shared_storages.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "tracer/lazy_tensor.h"
#include "tracer/recorder.h"

namespace lazuli::tracer {

std::atomic<bool> internal::several_recorders{false};

namespace {

// One entry for each trace that reads the storage, and a null one for each operator that is running on it.
using Users = absl::InlinedVector<Recorder*, 2>;

struct Shard {
  std::mutex mutex;
  absl::flat_hash_map<c10::StorageImpl*, Users> users;
};

constexpr size_t kShards = 64;

using Shards = std::array<Shard, kShards>;

Shards*& AllShards() {
  static auto* shards = new Shards;
  return shards;
}

Shard& ShardOf(const c10::StorageImpl* storage) { return (*AllShards())[absl::Hash<const void*>()(storage) % kShards]; }

void Register(c10::StorageImpl* storage, Recorder* user) {
  Shard& shard = ShardOf(storage);
  std::lock_guard<std::mutex> lock(shard.mutex);
  shard.users[storage].push_back(user);
}

void Unregister(c10::StorageImpl* storage, Recorder* user) {
  Shard& shard = ShardOf(storage);
  std::lock_guard<std::mutex> lock(shard.mutex);
  const auto it = shard.users.find(storage);
  if (it == shard.users.end()) return;
  Users& users = it->second;
  const auto at = std::find(users.begin(), users.end(), user);
  if (at != users.end()) users.erase(at);
  if (users.empty()) shard.users.erase(it);
}

// Runs what recorders but `own` are yet to read of `storage`.
void RunReaders(c10::StorageImpl* storage, const Recorder* own) {
  Users users;
  {
    Shard& shard = ShardOf(storage);
    std::lock_guard<std::mutex> lock(shard.mutex);
    const auto it = shard.users.find(storage);
    if (it != shard.users.end()) users = it->second;
  }
  for (Recorder* const user : users) {
    if (user != nullptr && user != own) user->FlushReader(storage);
  }
}

}  // namespace

void NoteSeveralRecorders() { internal::several_recorders.store(true, std::memory_order_relaxed); }

void RegisterInput(c10::StorageImpl* storage, Recorder* recorder) { Register(storage, recorder); }

bool RegisterSettledInput(c10::StorageImpl* storage, Recorder* recorder) {
  Shard& shard = ShardOf(storage);
  std::lock_guard<std::mutex> lock(shard.mutex);
  if (IsPending(*storage)) return false;
  shard.users[storage].push_back(recorder);
  return true;
}

void UnregisterInput(c10::StorageImpl* storage, Recorder* recorder) { Unregister(storage, recorder); }

bool MarkUnlessShared(c10::StorageImpl* storage, const Recorder* recorder, absl::FunctionRef<void()> mark) {
  Shard& shard = ShardOf(storage);
  std::lock_guard<std::mutex> lock(shard.mutex);
  const auto it = shard.users.find(storage);
  const auto is_other = [recorder](const Recorder* user) { return user != recorder; };
  if (it != shard.users.end() && std::any_of(it->second.begin(), it->second.end(), is_other)) return false;
  mark();
  return true;
}

void SettleElsewhere(const at::Tensor& tensor, bool writes, const Recorder* recorder) {
  c10::StorageImpl* const storage = StorageOf(tensor);
  if (storage == nullptr) return;
  if (IsPending(*storage) && PendingIn(storage) != recorder) Settle(storage);
  if (writes) RunReaders(storage, recorder);
}

void ForgetUsersInChild() { AllShards() = new Shards; }

void SettleReaders(c10::StorageImpl* storage, const Recorder* own, bool met) {
  if (SeveralRecorders() || (!met && AsLazy(storage) == nullptr)) {
    RunReaders(storage, own);
  } else if (Recorder* const only = Recorder::First(); only != nullptr && only != own && only->MayHold(storage)) {
    only->FlushReader(storage);
  }
}

void OperandsInUse::Add(const at::Tensor& tensor, bool writes) {
  if (!SeveralRecorders()) return;
  c10::StorageImpl* const storage = StorageOf(tensor);
  if (storage == nullptr) return;
  Register(storage, nullptr);
  operands_.push_back({storage, writes});
}

void OperandsInUse::Settle() const {
  for (const Operand& operand : operands_) {
    if (IsPending(*operand.storage)) tracer::Settle(operand.storage);
    if (operand.written) RunReaders(operand.storage, recorder_);
  }
}

void OperandsInUse::LetGo() {
  for (const Operand& operand : operands_) Unregister(operand.storage, nullptr);
}

}  // namespace lazuli::tracer
