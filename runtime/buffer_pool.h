// Memory for results that outlive a run, and for what only a run needs: freed blocks are kept and given out again, so that a steady loop
// causes no page faults. Blocks in use and idle ones together never exceed the most that was in use at once.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>
#include <utility>

namespace lazuli::runtime {

// Thread-safe. Blocks may be freed by any thread, also after the process starts to exit.
class BufferPool {
 public:
  // The one pool of the process; never destroyed, since tensors may outlive everything else.
  static BufferPool& Get();

  // From now on, what an ATen call allocates inside a PoolScope comes from the pool: LibTorch's CPU allocator is replaced by one that
  // passes all else on to it. Does nothing where the program has set an allocator that is not like LibTorch's.
  static void ServeAtenCalls();

  // Whether `deleter` is that of LibTorch's own memory.
  static bool IsOwnDeleter(at::DeleterFnPtr deleter);

  // At least `nbytes` of uninitialised CPU memory, 64-byte aligned. The returned pointer's deleter gives the block back.
  at::DataPtr Allocate(int64_t nbytes);

  // The same for memory that is given back at the end of a run: any idle scratch block that is large enough will do, so that programs
  // share one.
  at::DataPtr AllocateScratch(int64_t nbytes);

  struct Usage {
    int64_t used_bytes = 0;  // By tensors and running programs.
    int64_t idle_bytes = 0;  // Kept to be given out again.
    int64_t peak_bytes = 0;  // The most that was used at once.
  };
  Usage usage() const;

  // Frees the blocks that nobody uses. Returns how many bytes that was.
  int64_t Trim();

 private:
  BufferPool();
  struct State;
  struct Block;
  friend class PoolAllocator;
  Block* Provide(int64_t nbytes, bool scratch);
  at::DataPtr ProvideUnnamed(int64_t nbytes);
  Block* TakeIdle(int64_t rounded, bool scratch);
  Block* MakeBlock(int64_t rounded, bool scratch);
  void GiveBack(Block* block);  // The mutex is held.
  static void Free(void* context);
  static void FreeUnnamed(void* data);
  State* state_;
};

// While it lives, this thread's calls of ATen take the memory of what they return, and what they need meanwhile, from the pool. malloc
// would give large blocks back to the system as soon as the last of them is freed, and get them back page by page.
class PoolScope {
 public:
  PoolScope() : outer_(std::exchange(active_, true)) {}
  ~PoolScope() { active_ = outer_; }
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;
  static bool active() { return active_; }

 private:
  static thread_local bool active_;
  const bool outer_;
};

}  // namespace lazuli::runtime
