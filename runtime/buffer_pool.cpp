#include "runtime/buffer_pool.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace lazuli::runtime {
namespace {

// Small blocks come fast from malloc without help.
constexpr int64_t kSmallest = 32 * 1024;
constexpr int64_t kGranule = 4096;

// Ours, and the one that it took the place of.
c10::Allocator* pool_allocator = nullptr;
c10::Allocator* replaced = nullptr;

// LibTorch's allocator, or the program's, which may also have been set after ours.
c10::Allocator* Base() {
  c10::Allocator* current = c10::GetCPUAllocator();
  return current == pool_allocator ? replaced : current;
}

}  // namespace

struct BufferPool::Block {
  at::DataPtr data;
  int64_t nbytes = 0;
  bool scratch = false;
};

class PoolAllocator final : public c10::Allocator {
 public:
  at::DataPtr allocate(size_t nbytes) override {
    if (!PoolScope::active() || static_cast<int64_t>(nbytes) < kSmallest) return replaced->allocate(nbytes);
    return BufferPool::Get().ProvideUnnamed(static_cast<int64_t>(nbytes));
  }
  bool is_simple_data_ptr(const at::DataPtr& data) const override { return replaced->is_simple_data_ptr(data); }
  at::DeleterFnPtr raw_deleter() const override { return &BufferPool::FreeUnnamed; }  // oneDNN's memory is freed without a DataPtr.
  void copy_data(void* target, const void* source, size_t count) const override { replaced->copy_data(target, source, count); }
};

struct BufferPool::State {
  using Idle = std::map<int64_t, std::vector<Block*>>;  // By size.

  std::mutex mutex;
  Idle idle, idle_scratch;
  int64_t idle_bytes = 0;
  int64_t used_bytes = 0;
  int64_t peak_bytes = 0;  // The most that was in use at once.
  absl::flat_hash_map<void*, Block*> unnamed;

  Idle& IdleOf(bool scratch) { return scratch ? idle_scratch : idle; }

  Block* Take(Idle* from, Idle::iterator it) {
    Block* block = it->second.back();
    it->second.pop_back();
    if (it->second.empty()) from->erase(it);
    idle_bytes -= block->nbytes;
    return block;
  }

  // Takes idle blocks out until `nbytes` more fit under the peak; their owner frees them.
  std::vector<Block*> EvictFor(int64_t nbytes) {
    std::vector<Block*> evicted;
    while (idle_bytes > 0 && used_bytes + idle_bytes + nbytes > peak_bytes) {
      // The largest first: fewest go.
      const bool scratch = idle.empty() || (!idle_scratch.empty() && idle_scratch.rbegin()->first > idle.rbegin()->first);
      Idle& from = IdleOf(scratch);
      evicted.push_back(Take(&from, std::prev(from.end())));
    }
    return evicted;
  }
};

thread_local bool PoolScope::active_ = false;

BufferPool::BufferPool() : state_(new State) {}

void BufferPool::ServeAtenCalls() {
  if (pool_allocator != nullptr || c10::GetCPUAllocator()->raw_deleter() == nullptr) return;
  replaced = c10::GetCPUAllocator();
  pool_allocator = new PoolAllocator;
  c10::SetCPUAllocator(pool_allocator);
}

bool BufferPool::IsOwnDeleter(at::DeleterFnPtr deleter) {
  return deleter == &FreeUnnamed || deleter == Base()->raw_deleter() || (replaced != nullptr && deleter == replaced->raw_deleter());
}

BufferPool& BufferPool::Get() {
  static auto* pool = new BufferPool;
  return *pool;
}

BufferPool::Block* BufferPool::TakeIdle(int64_t rounded, bool scratch) {
  std::vector<Block*> evicted;
  Block* block = nullptr;
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    auto& idle = state_->IdleOf(scratch);
    const auto it = scratch ? idle.lower_bound(rounded) : idle.find(rounded);
    if (it != idle.end()) block = state_->Take(&idle, it);
    const int64_t nbytes = block != nullptr ? block->nbytes : rounded;
    if (block == nullptr) evicted = state_->EvictFor(rounded);
    state_->used_bytes += nbytes;
    state_->peak_bytes = std::max(state_->peak_bytes, state_->used_bytes);
  }
  for (Block* old : evicted) delete old;
  return block;
}

BufferPool::Block* BufferPool::MakeBlock(int64_t rounded, bool scratch) {
  const auto make = [&] { return new Block{Base()->allocate(static_cast<size_t>(rounded)), rounded, scratch}; };
  try {
    return make();
  } catch (...) {
    if (Trim() > 0) {
      try {
        return make();
      } catch (...) {  // Counted off below.
      }
    }
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->used_bytes -= rounded;
    throw;
  }
}

BufferPool::Block* BufferPool::Provide(int64_t nbytes, bool scratch) {
  const int64_t rounded = (nbytes + kGranule - 1) / kGranule * kGranule;
  Block* block = TakeIdle(rounded, scratch);
  return block != nullptr ? block : MakeBlock(rounded, scratch);
}

at::DataPtr BufferPool::Allocate(int64_t nbytes) {
  if (nbytes < kSmallest) return Base()->allocate(static_cast<size_t>(nbytes));
  Block* block = Provide(nbytes, /*scratch=*/false);
  return at::DataPtr(block->data.get(), block, &BufferPool::Free, c10::kCPU);
}

at::DataPtr BufferPool::AllocateScratch(int64_t nbytes) {
  Block* block = Provide(nbytes, /*scratch=*/true);
  return at::DataPtr(block->data.get(), block, &BufferPool::Free, c10::kCPU);
}

// Memory that can be given back by its address alone.
at::DataPtr BufferPool::ProvideUnnamed(int64_t nbytes) {
  Block* block = Provide(nbytes, /*scratch=*/false);
  void* data = block->data.get();
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->unnamed.emplace(data, block);
  return at::DataPtr(data, data, &BufferPool::FreeUnnamed, c10::kCPU);
}

void BufferPool::GiveBack(Block* block) {
  state_->used_bytes -= block->nbytes;
  state_->idle_bytes += block->nbytes;
  state_->IdleOf(block->scratch)[block->nbytes].push_back(block);
}

void BufferPool::Free(void* context) {
  BufferPool& pool = Get();
  std::lock_guard<std::mutex> lock(pool.state_->mutex);
  pool.GiveBack(static_cast<Block*>(context));
}

void BufferPool::FreeUnnamed(void* data) {
  BufferPool& pool = Get();
  {
    std::lock_guard<std::mutex> lock(pool.state_->mutex);
    const auto it = pool.state_->unnamed.find(data);
    if (it != pool.state_->unnamed.end()) {
      pool.GiveBack(it->second);
      pool.state_->unnamed.erase(it);
      return;
    }
  }
  replaced->raw_deleter()(data);
}

BufferPool::Usage BufferPool::usage() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return {state_->used_bytes, state_->idle_bytes, state_->peak_bytes};
}

int64_t BufferPool::Trim() {
  std::vector<Block*> blocks;
  int64_t freed = 0;
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    for (auto* idle : {&state_->idle, &state_->idle_scratch}) {
      for (auto& [size, list] : *idle) blocks.insert(blocks.end(), list.begin(), list.end());
      idle->clear();
    }
    freed = state_->idle_bytes;
    state_->idle_bytes = 0;
    state_->peak_bytes = state_->used_bytes;
  }
  for (Block* block : blocks) delete block;
  return freed;
}

}  // namespace lazuli::runtime
