// The CUDA graphs of one program, or of a part of its steps: what they launch on its GPU, captured once and launched as a whole from then
// on (modes reduce-overhead and max-autotune).
//
// A graph serves the runs in which everything that library calls take is where it was: addresses, offsets, numbers, sizes and the stream
// are its key. What only our kernels take may differ: the graph's kernel nodes get this run's addresses and numbers. Results are
// allocated for each run as ever, and memory that only a run needs is the graphs' own (CudaGraphPool), so nothing is copied and no graph
// writes what another run's results are in; but for results that library calls allocate, which are copied out. A key is captured when it
// comes again; steps on the CPU run before the graph, since none of them can depend on it.
//
// A part's graph has no steps on the CPU. The arenas are the run's, and so in the key; what other parts read of what its library calls
// allocate stays where it is as long as the graph is there, in a pool of its own: graphs that were captured before, and are launched in
// between, would else have what they only need for a while in the same place.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/cuda_graph.h"
#include "runtime/executor.h"
#include "runtime/gpu_launch.h"
#include "runtime/program_memory.h"
#include "runtime/step_args.h"
#include "runtime/step_runner.h"

namespace lazuli::runtime {

// A run whose memories and offsets are bound.
struct BoundRun {
  const RunArgs& args;
  ProgramMemory* memory = nullptr;
  StepRunner* runner = nullptr;
};

class ProgramGraphs {
 public:
  // Of the whole program.
  explicit ProgramGraphs(const ProgramSpec* spec) : ProgramGraphs(spec, 0, spec->steps.size(), /*in_use=*/nullptr) {}
  // Of a part: `count` steps from `first` on. `in_use`: whether other parts are yet to read what this one's graph has made.
  ProgramGraphs(const ProgramSpec* spec, size_t first, size_t count, const std::atomic<bool>* in_use);
  ~ProgramGraphs();
  ProgramGraphs(const ProgramGraphs&) = delete;
  ProgramGraphs& operator=(const ProgramGraphs&) = delete;

  enum class Outcome : uint8_t {
    kLaunched,
    kNoGraph,       // Nothing has run: run it step by step.
    kWouldCapture,  // Likewise, only because no graph may be captured.
  };
  // Launches the run's work on the GPU as a graph, after what is to be done on the CPU: inputs and outputs are bound, arenas only for a
  // part. What fails on the CPU is in `result`. Throws c10::Error when the graph cannot be launched.
  Outcome Run(const BoundRun& run, bool may_capture, RunResult* result);

  // Gives up all graphs.
  void Release();

  // Gives up all graphs of the process that are not in use now, for their memory. False: there were none.
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
    std::vector<at::DataPtr> kept;  // Memory on the CPU that captured calls were given, and what leaves the part.
    uint64_t last_use = 0;
  };

  // Whether a memory is bound before the steps run, other than as a place in an arena.
  bool IsBoundBefore(int32_t memory) const;
  void ReadSteps();
  void FindLeaving();
  void ReadLaunch(const KernelLaunch& launch, Unit* unit);
  void ReadCall(const AtenCall& call);
  void Refuse(std::string reason);
  // Refuses from now on, and says so.
  void GiveUp(std::string reason);
  void MakeKey(const c10::Stream& stream, const BoundRun& run);
  // Whether `key_` came before, so that it is worth capturing.
  bool ComesAgain();
  // For graphs that are launched on `stream`.
  absl::StatusOr<CudaGraphPool*> PoolFor(const c10::Stream& stream);
  Graph* Capture(const c10::Stream& stream, const BoundRun& run);
  void RunOnCpu(const BoundRun& run, RunResult* result) const;
  void Launch(Graph* graph, ProgramMemory* memory) const;
  void Patch(Graph* graph, const BoundRun& run);
  static void NoteValues(const BoundRun& run, Graph* graph);
  void Drop(const Graph* graph);

  const ProgramSpec& spec_;
  const size_t first_, count_;
  const std::atomic<bool>* const in_use_;  // Null for the whole program.
  const bool is_part_ = in_use_ != nullptr;
  std::mutex mutex_;
  std::string refused_;  // Why there are none.
  c10::Device device_ = c10::kCPU;
  std::vector<Unit> units_;
  StepArgs fixed_;                // What library calls take; of memories, those that are bound before.
  std::vector<int32_t> adopted_;  // Memories that its steps allocate, library calls or what they acquire.
  std::vector<int32_t> bound_before_;
  std::vector<int32_t> leaving_;  // Of adopted_, those that other parts use, and the trace does not.

  std::vector<uint64_t> key_;  // Of this run.
  std::vector<size_t> seen_;   // Hashes of the last keys that had no graph.
  size_t next_seen_ = 0;
  int64_t runs_without_ = 0;
  int64_t captures_ = 0, launches_ = 0;
  uint64_t clock_ = 0;
  std::map<int64_t, std::unique_ptr<CudaGraphPool>> pools_;  // Its own, by stream. They outlive the graphs.
  std::vector<std::unique_ptr<Graph>> graphs_;
};

}  // namespace lazuli::runtime
