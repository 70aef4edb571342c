#include "runtime/buffer_pool.h"

#include <c10/core/CPUAllocator.h>

#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace lazuli::runtime {
namespace {

// Small blocks come fast from malloc without help.
constexpr int64_t kSmallest = 32 * 1024;
// What the pool may hold on to.
constexpr int64_t kLargestIdle = int64_t{1} << 30;
constexpr int64_t kGranule = 4096;

struct Block {
  at::DataPtr data;
  int64_t nbytes = 0;
};

}  // namespace

struct BufferPool::State {
  std::mutex mutex;
  absl::flat_hash_map<int64_t, std::vector<Block*>> idle;
  int64_t idle_bytes = 0;
};

BufferPool::BufferPool() : state_(new State) {}

BufferPool& BufferPool::Get() {
  static auto* pool = new BufferPool;
  return *pool;
}

at::DataPtr BufferPool::Allocate(int64_t nbytes) {
  if (nbytes < kSmallest) return c10::GetCPUAllocator()->allocate(nbytes);
  const int64_t rounded = (nbytes + kGranule - 1) / kGranule * kGranule;
  Block* block = nullptr;
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    auto found = state_->idle.find(rounded);
    if (found != state_->idle.end() && !found->second.empty()) {
      block = found->second.back();
      found->second.pop_back();
      state_->idle_bytes -= rounded;
    }
  }
  if (block == nullptr) block = new Block{c10::GetCPUAllocator()->allocate(rounded), rounded};
  return at::DataPtr(block->data.get(), block, &BufferPool::Free, c10::kCPU);
}

void BufferPool::Free(void* context) {
  auto* block = static_cast<Block*>(context);
  State& state = *Get().state_;
  {
    std::lock_guard<std::mutex> lock(state.mutex);
    if (state.idle_bytes + block->nbytes <= kLargestIdle) {
      state.idle[block->nbytes].push_back(block);
      state.idle_bytes += block->nbytes;
      return;
    }
  }
  delete block;
}

int64_t BufferPool::Trim() {
  std::vector<Block*> blocks;
  int64_t freed = 0;
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    for (auto& [size, list] : state_->idle) {
      blocks.insert(blocks.end(), list.begin(), list.end());
      list.clear();
    }
    freed = state_->idle_bytes;
    state_->idle_bytes = 0;
  }
  for (Block* block : blocks) delete block;
  return freed;
}

}  // namespace lazuli::runtime
