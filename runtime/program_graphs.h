// The CUDA graphs of one program: what it launches on its GPU, captured once and launched as a whole from then on (modes reduce-overhead
// and max-autotune).
//
// A graph serves the runs in which everything that library calls take is where it was: addresses, offsets, numbers, sizes and the stream
// are its key. What only our kernels take may differ: the graph's kernel nodes get this run's addresses and numbers. Results are
// allocated for each run as ever, and memory that only a run needs is the graphs' own (CudaGraphPool), so nothing is copied and no graph
// writes what another run's results are in; but for results that library calls allocate, which are copied out. A key is captured when it
// comes again; steps on the CPU run before the graph, since none of them can depend on it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "runtime/cuda_graph.h"
#include "runtime/executor.h"
#include "runtime/gpu_launch.h"
#include "runtime/program_memory.h"
#include "runtime/step_args.h"

namespace lazuli::runtime {

// What a run is bound to, besides its memories.
struct RunValues {
  absl::Span<const uint64_t> scalars;
  absl::Span<const int64_t> offsets;
  absl::Span<const int64_t> symbols;
};

class ProgramGraphs {
 public:
  explicit ProgramGraphs(const ProgramSpec* spec);
  ~ProgramGraphs();
  ProgramGraphs(const ProgramGraphs&) = delete;
  ProgramGraphs& operator=(const ProgramGraphs&) = delete;

  // Runs so many steps from `first` on, with memories where `bases` says; what fails is in `result`.
  using RunSteps = std::function<void(size_t first, size_t count, const std::vector<void*>& bases, RunResult* result)>;

  // Launches the bound run's work on the GPU as a graph, after what is to be done on the CPU: inputs and outputs of `memory` are bound,
  // arenas are not. False: nothing has run; run it step by step. Throws c10::Error when the graph cannot be launched.
  bool Run(const RunValues& values, ProgramMemory* memory, const RunSteps& run_steps, RunResult* result);

  // Gives up all graphs.
  void Release();

  // Gives up all graphs of the process that are not running now, for their memory. False: there were none.
  static bool ReleaseAll();

 private:
  // Steps that run together.
  struct Unit {
    size_t first = 0;
    size_t count = 1;
    bool on_gpu = false;
    StepArgs args;  // That its kernels take.
  };
  struct Graph {
    std::vector<uint64_t> key;
    std::unique_ptr<CudaGraph> graph;
    LaunchTape tape;
    std::vector<size_t> launches;  // By unit: its first one's place on the tape.
    // As of the last launch.
    std::vector<void*> bases;
    std::vector<uint64_t> scalars;
    std::vector<int64_t> offsets;
    std::vector<at::DataPtr> kept;  // Memory on the CPU that captured calls were given.
    uint64_t last_use = 0;
  };

  void ReadSteps();
  void ReadLaunch(const KernelLaunch& launch, Unit* unit);
  void ReadCall(const AtenCall& call);
  void Refuse(std::string reason);
  // Refuses from now on, and says so.
  void GiveUp(std::string reason);
  void MakeKey(const c10::Stream& stream, const RunValues& values, const std::vector<void*>& bases);
  // Whether `key_` came before, so that it is worth capturing.
  bool ComesAgain();
  Graph* Capture(const c10::Stream& stream, const RunValues& values, ProgramMemory* memory, const RunSteps& run_steps);
  void RunOnCpu(const RunSteps& run_steps, ProgramMemory* memory, RunResult* result) const;
  void Launch(Graph* graph, ProgramMemory* memory) const;
  void Patch(Graph* graph, const RunValues& values, const ProgramMemory& memory, const RunSteps& run_steps);
  void Drop(const Graph* graph);

  const ProgramSpec& spec_;
  std::mutex mutex_;
  std::string refused_;  // Why there are none.
  c10::Device device_ = c10::kCPU;
  std::vector<Unit> units_;
  StepArgs fixed_;                // What library calls take; of memories, inputs and outputs.
  std::vector<int32_t> adopted_;  // Memories that library calls allocate.

  std::vector<uint64_t> key_;  // Of this run.
  std::vector<size_t> seen_;   // Hashes of the last keys that had no graph.
  size_t next_seen_ = 0;
  int64_t runs_without_ = 0;
  int64_t captures_ = 0, launches_ = 0;
  uint64_t clock_ = 0;
  std::vector<std::unique_ptr<Graph>> graphs_;
};

}  // namespace lazuli::runtime
