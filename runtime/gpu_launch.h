// Launching a kernel on a GPU, and writing such launches down while a CUDA graph is captured, so that the graph's kernel nodes can be given
// other arguments later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "runtime/cuda_driver.h"

namespace lazuli::runtime {

struct GpuLaunch {
  // An argument and its size in bytes.
  struct Argument {
    void* data = nullptr;
    size_t size = 8;
  };
  CudaKernelHandle kernel = nullptr;
  unsigned grid_x = 1, grid_y = 1;
  unsigned block_x = 1, block_y = 1;
  unsigned shared_bytes = 0;  // Beside what the kernel declares.
  // The kernel waits by itself for what is ahead of it on the stream (griddepcontrol.wait), so its blocks may be there before.
  bool waits = false;
  absl::Span<const Argument> arguments;
  // So many of the last arguments are the launch's own (scratch memory): in a graph they stay what they were when it was captured.
  size_t num_own = 0;
};

// The launches of one captured graph, in order. One thread at a time uses a tape.
class LaunchTape {
 public:
  size_t size() const { return entries_.size(); }

  // While one of these is in scope, this thread's launches are captured and written down at the tape's end,
  class Recording;
  // or are those from number `first` on, and make no launch: where arguments differ, the node of `exec` gets them.
  class Patching;

  // Whether this thread's launches go onto a tape, or come from one, now; and whether they only patch a graph.
  static bool IsActive();
  static bool IsPatching();

 private:
  friend int Launch(const GpuLaunch& launch, CudaStreamHandle stream);
  struct Entry {
    CudaGraphNode node = nullptr;
    GpuLaunch shape;  // Without arguments.
    std::vector<size_t> sizes;
    std::vector<char> bytes;  // Of all arguments, each at a multiple of 8.
  };
  class Scope;

  int Record(const GpuLaunch& launch, CudaStreamHandle stream);
  int Patch(const GpuLaunch& launch);

  std::vector<Entry> entries_;
  size_t next_ = 0;
  CudaGraphExec exec_ = nullptr;
};

class LaunchTape::Scope {
 public:
  explicit Scope(LaunchTape* tape);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  LaunchTape* outer_;
};

class LaunchTape::Recording : Scope {
 public:
  explicit Recording(LaunchTape* tape) : Scope(tape) { tape->exec_ = nullptr; }
};

class LaunchTape::Patching : Scope {
 public:
  Patching(LaunchTape* tape, size_t first, CudaGraphExec exec) : Scope(tape) {
    tape->next_ = first;
    tape->exec_ = exec;
  }
};

// Launches on `stream`, or does what this thread's tape is for. Returns the driver's error; 0 is none.
int Launch(const GpuLaunch& launch, CudaStreamHandle stream);

}  // namespace lazuli::runtime
