#include "runtime/buffer_pool.h"

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "runtime/memory_back.h"

namespace lazuli::runtime {
namespace {

// Small blocks come fast from malloc without help.
constexpr int64_t kSmallest = 32 * 1024;
constexpr int64_t kGranule = 4096;
// From here on the pages that a block covers whole are asked to be huge. On a virtual machine kernels read such memory 10 to 30 % faster,
// and its first write is 3 to 10 times as fast.
constexpr int64_t kHugeBlock = int64_t{4} << 20;
// From here on the system is asked for each block: DEFAULT_MMAP_THRESHOLD_MAX of glibc's malloc.
constexpr int64_t kBeyondHeap = int64_t{32} << 20;
constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
// Blocks of one size that were made so often in place of others, which are gone then, are kept beside them: not so many bytes, though, or
// more than that share of the peak. Each one made leaves a hole in malloc's heap, in which small allocations settle.
constexpr int kMadeAgain = 4;
constexpr int64_t kMostBeside = int64_t{8} << 20, kShareBeside = 8;

void AskForHugePages(const at::DataPtr& data, int64_t nbytes) {
  if (nbytes < kHugeBlock) return;
  const auto begin = (reinterpret_cast<uintptr_t>(data.get()) + kHugePage - 1) / kHugePage * kHugePage;
  const auto end = (reinterpret_cast<uintptr_t>(data.get()) + static_cast<uintptr_t>(nbytes)) / kHugePage * kHugePage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace

struct BufferPool::Block {
  at::DataPtr data;
  int64_t nbytes = 0;
  bool scratch = false;
};

struct BufferPool::State {
  using Idle = std::map<int64_t, std::vector<Block*>>;  // By size.

  std::mutex mutex;
  Idle idle, idle_scratch;
  // By address. It is all that a DataPtr has for a context: LibTorch takes others for memory that is not its own, and does not share it
  // lazily (at::_lazy_clone).
  absl::flat_hash_map<void*, Block*> used;
  int64_t idle_bytes = 0;
  int64_t used_bytes = 0;
  int64_t peak_bytes = 0;                           // The most that was in use at once.
  int64_t beside_bytes = 0;                         // So much more may be idle.
  absl::flat_hash_map<int64_t, int> made_in_place;  // By size: blocks made in place of others.

  Idle& IdleOf(bool scratch) { return scratch ? idle_scratch : idle; }

  Block* Take(Idle* from, Idle::iterator it) {
    Block* block = it->second.back();
    it->second.pop_back();
    if (it->second.empty()) from->erase(it);
    idle_bytes -= block->nbytes;
    return block;
  }

  // Takes idle blocks out until `nbytes` more fit under what there may be; their owner frees them.
  std::vector<Block*> EvictFor(int64_t nbytes) {
    std::vector<Block*> evicted;
    const auto fits = [&] { return used_bytes + idle_bytes + nbytes <= peak_bytes + beside_bytes; };
    if (idle_bytes > 0 && !fits()) NoteMadeInPlace(nbytes);
    while (idle_bytes > 0 && !fits()) {
      // The largest first: fewest go.
      const bool scratch = idle.empty() || (!idle_scratch.empty() && idle_scratch.rbegin()->first > idle.rbegin()->first);
      Idle& from = IdleOf(scratch);
      evicted.push_back(Take(&from, std::prev(from.end())));
    }
    return evicted;
  }

  void NoteMadeInPlace(int64_t nbytes) {
    constexpr size_t kMostSizes = 1024;
    if (made_in_place.size() >= kMostSizes) made_in_place.clear();
    if (++made_in_place[nbytes] <= kMadeAgain) return;
    beside_bytes = std::min(beside_bytes + nbytes, std::max(peak_bytes / kShareBeside, kMostBeside));
  }
};

int64_t BufferPool::Delete(Block* block) {
  const int64_t nbytes = block->nbytes;
  delete block;
  return nbytes;
}

BufferPool::BufferPool() : state_(new State) { KeepHeap(); }

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
    if (it != idle.end()) {
      block = state_->Take(&idle, it);
      state_->used.emplace(block->data.get(), block);
    }
    const int64_t nbytes = block != nullptr ? block->nbytes : rounded;
    if (block == nullptr) evicted = state_->EvictFor(rounded);
    state_->used_bytes += nbytes;
    state_->peak_bytes = std::max(state_->peak_bytes, state_->used_bytes);
  }
  for (Block* old : evicted) Delete(old);
  return block;
}

BufferPool::Block* BufferPool::MakeBlock(int64_t rounded, bool scratch) {
  if (rounded >= kBeyondHeap) GiveHeapBack();
  const auto make = [&] {
    auto* block = new Block{c10::GetCPUAllocator()->allocate(static_cast<size_t>(rounded)), rounded, scratch};
    AskForHugePages(block->data, rounded);
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->used.emplace(block->data.get(), block);
    return block;
  };
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

at::DataPtr BufferPool::Provide(int64_t nbytes, bool scratch) {
  const int64_t rounded = (nbytes + kGranule - 1) / kGranule * kGranule;
  Block* block = TakeIdle(rounded, scratch);
  if (block == nullptr) block = MakeBlock(rounded, scratch);
  void* const data = block->data.get();
  return at::DataPtr(data, data, &BufferPool::Free, c10::kCPU);
}

at::DataPtr BufferPool::Allocate(int64_t nbytes) {
  if (nbytes < kSmallest) return c10::GetCPUAllocator()->allocate(static_cast<size_t>(nbytes));
  return Provide(nbytes, /*scratch=*/false);
}

at::DataPtr BufferPool::AllocateScratch(int64_t nbytes) { return Provide(nbytes, /*scratch=*/true); }

void BufferPool::Free(void* data) {
  State& state = *Get().state_;
  std::lock_guard<std::mutex> lock(state.mutex);
  const auto it = state.used.find(data);
  Block* const block = it->second;
  state.used.erase(it);
  state.used_bytes -= block->nbytes;
  state.idle_bytes += block->nbytes;
  state.IdleOf(block->scratch)[block->nbytes].push_back(block);
}

BufferPool::Usage BufferPool::usage() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return {state_->used_bytes, state_->idle_bytes, state_->peak_bytes};
}

int64_t BufferPool::Trim() {
  std::vector<Block*> blocks;
  int64_t nbytes = 0;
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    for (auto* idle : {&state_->idle, &state_->idle_scratch}) {
      while (!idle->empty()) blocks.push_back(state_->Take(idle, idle->begin()));
    }
    state_->peak_bytes = state_->used_bytes;
    state_->beside_bytes = 0;
    state_->made_in_place.clear();
  }
  for (Block* block : blocks) nbytes += Delete(block);
  return nbytes;
}

int64_t BufferPool::TrimScratch() {
  std::vector<Block*> blocks;
  int64_t nbytes = 0;
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    auto& idle = state_->idle_scratch;
    for (auto it = idle.lower_bound(kHugeBlock); it != idle.end(); it = idle.lower_bound(kHugeBlock)) {
      blocks.push_back(state_->Take(&idle, it));
    }
  }
  for (Block* block : blocks) nbytes += Delete(block);
  return nbytes;
}

}  // namespace lazuli::runtime
