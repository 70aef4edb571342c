// Memory for results that outlive a run, and for what only a run needs: freed blocks are kept and given out again, so that a steady loop
// causes no page faults. Blocks in use and idle ones together never exceed the most that was in use at once; where blocks of one size are
// made again and again, since others are kept in their place, by an eighth of that or 8 MiB more.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>

namespace lazuli::runtime {

// Thread-safe. Blocks may be freed by any thread, also after the process starts to exit.
class BufferPool {
 public:
  // The one pool of the process; never destroyed, since tensors may outlive everything else.
  static BufferPool& Get();

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

  // Frees the blocks that nobody uses, or the large scratch blocks among them. Return how many bytes that was.
  int64_t Trim();
  int64_t TrimScratch();

 private:
  BufferPool();
  struct State;
  struct Block;
  static int64_t Delete(Block* block);
  at::DataPtr Provide(int64_t nbytes, bool scratch);
  Block* TakeIdle(int64_t rounded, bool scratch);
  Block* MakeBlock(int64_t rounded, bool scratch);
  static void Free(void* data);
  State* state_;
};

}  // namespace lazuli::runtime
