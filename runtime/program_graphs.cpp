#include "runtime/program_graphs.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "runtime/counters.h"
#include "runtime/device.h"
#include "runtime/log.h"

namespace lazuli::runtime {
namespace {

// A graph of fewer steps takes as long to launch as they do.
constexpr size_t kFewestSteps = 4;
// A program of one layer of many has as many keys.
constexpr size_t kMostGraphs = 64;
constexpr size_t kKeysRemembered = 128;
// Where there are that many, and one more is to be captured, each must have been launched so often.
constexpr int64_t kLaunchesWorth = 8;
// So many runs without a graph, and the log says that addresses keep changing.
constexpr int64_t kRunsToSettle = 256;

// All of them that exist, for ReleaseAll.
struct Registry {
  std::mutex mutex;
  std::vector<ProgramGraphs*> all;

  static Registry& Get() {
    static auto* const registry = new Registry;
    return *registry;
  }
};

void RethrowIfFailed(const RunResult& result) {
  if (result.error != nullptr) std::rethrow_exception(result.error);
}

}  // namespace

ProgramGraphs::ProgramGraphs(const ProgramSpec* spec, size_t first, size_t count, const std::atomic<bool>* in_use)
    : spec_(*spec), first_(first), count_(count), in_use_(in_use) {
  ReadSteps();
  Registry& registry = Registry::Get();
  std::lock_guard<std::mutex> lock(registry.mutex);
  registry.all.push_back(this);
}

ProgramGraphs::~ProgramGraphs() {
  Registry& registry = Registry::Get();
  std::lock_guard<std::mutex> lock(registry.mutex);
  registry.all.erase(std::find(registry.all.begin(), registry.all.end(), this));
}

void ProgramGraphs::Release() {
  std::lock_guard<std::mutex> lock(mutex_);
  graphs_.clear();
}

bool ProgramGraphs::ReleaseAll() {
  Registry& registry = Registry::Get();
  std::lock_guard<std::mutex> lock(registry.mutex);
  bool released = false;
  for (ProgramGraphs* graphs : registry.all) {
    std::unique_lock<std::mutex> idle(graphs->mutex_, std::try_to_lock);
    const bool in_use = graphs->is_part_ && graphs->in_use_->load(std::memory_order_acquire);
    if (!idle.owns_lock() || in_use || graphs->graphs_.empty()) continue;
    graphs->graphs_.clear();
    released = true;
  }
  return released;
}

void ProgramGraphs::Refuse(std::string reason) {
  if (refused_.empty()) refused_ = std::move(reason);
}

void ProgramGraphs::GiveUp(std::string reason) {
  Refuse(std::move(reason));
  Counters::Get().cudagraph_failures.Add();
  LogAlways(absl::StrCat("trace #", spec_.serial, " cannot be a CUDA graph and runs without one: ", refused_));
}

bool ProgramGraphs::IsBoundBefore(int32_t memory) const {
  switch (spec_.memories[memory].kind) {
    case MemorySpec::Kind::kInput:
    case MemorySpec::Kind::kOutput:
      return true;
    case MemorySpec::Kind::kAdopted:
      return !std::binary_search(adopted_.begin(), adopted_.end(), memory);
    case MemorySpec::Kind::kArena:
      return false;
  }
  return false;
}

void ProgramGraphs::ReadSteps() {
  size_t on_gpu = 0;
  for (size_t i = first_; i < first_ + count_;) {
    Unit unit;
    unit.first = i;
    unit.count = static_cast<size_t>(spec_.steps[i].batch);
    for (size_t s = i; s < i + unit.count; ++s) {
      for (const int32_t m : spec_.steps[s].acquires) {
        if (spec_.memories[m].kind == MemorySpec::Kind::kAdopted) adopted_.push_back(m);
      }
      if (const auto* launch = std::get_if<KernelLaunch>(&spec_.steps[s].work)) {
        ReadLaunch(*launch, &unit);
      } else if (const auto& call = std::get<AtenCall>(spec_.steps[s].work); !call.device.is_cpu()) {
        unit.on_gpu = true;
        device_ = call.device;
        ReadCall(call);
      }
    }
    on_gpu += unit.on_gpu ? unit.count : 0;
    if (!unit.on_gpu && is_part_) Refuse("a part of it has work for the CPU");
    i += unit.count;
    units_.push_back(std::move(unit));
  }
  if (on_gpu < kFewestSteps) Refuse(absl::StrCat("it does ", on_gpu, " things on a GPU, and a graph would not be faster"));
  std::sort(adopted_.begin(), adopted_.end());
  for (int32_t m = 0; m < static_cast<int32_t>(spec_.memories.size()); ++m) {
    if (IsBoundBefore(m)) bound_before_.push_back(m);
  }
  FindLeaving();
  const auto is_not_bound_before = [this](int32_t m) { return !IsBoundBefore(m); };
  fixed_.memories.erase(std::remove_if(fixed_.memories.begin(), fixed_.memories.end(), is_not_bound_before), fixed_.memories.end());
  for (const Unit& unit : units_) {
    for (size_t s = unit.first; s < unit.first + unit.count; ++s) {
      for (const int32_t memory : spec_.steps[s].reads) {
        const bool made_on_gpu = std::binary_search(adopted_.begin(), adopted_.end(), memory);
        if (unit.on_gpu && (made_on_gpu || !spec_.memories[memory].device.is_cpu())) continue;
        if (!unit.on_gpu && !made_on_gpu) continue;
        Refuse(unit.on_gpu ? "an operator on the GPU reads a tensor on the CPU"
                           : "an operator on the CPU reads a result of one on the GPU");
      }
    }
  }
  if (refused_.empty() || on_gpu == 0) return;
  Log(LogCategory::kCudagraphs, absl::StrCat("Trace #", spec_.serial, ": no CUDA graph: ", refused_));
}

void ProgramGraphs::FindLeaving() {
  for (size_t s = 0; s < spec_.steps.size(); ++s) {
    if (s >= first_ && s < first_ + count_) continue;
    const StepSpec& step = spec_.steps[s];
    for (const int32_t m : adopted_) {
      if (spec_.memories[m].storage >= 0) continue;
      if (Holds(step.reads, m) || Holds(step.writes, m)) AddUnique(&leaving_, m);
    }
  }
}

void ProgramGraphs::ReadLaunch(const KernelLaunch& launch, Unit* unit) {
  for (const KernelLaunch::Buffer& buffer : launch.buffers) {
    if (buffer.memory < 0) continue;
    if (const c10::Device device = spec_.memories[buffer.memory].device; !device.is_cpu()) {
      unit->on_gpu = true;
      device_ = device;
    }
  }
  unit->args.Add(launch);
}

void ProgramGraphs::ReadCall(const AtenCall& call) {
  if (IsGone(call.life) || call.op.hasTag(at::Tag::cudagraph_unsafe)) Refuse(absl::StrCat(call.name, " cannot be captured"));
  fixed_.Add(call);
  for (const WindowSpec& window : call.results) {
    if (window.memory < 0) continue;
    adopted_.push_back(window.memory);
    const MemorySpec& memory = spec_.memories[window.memory];
    if (memory.device.is_cpu() && memory.storage >= 0) Refuse(absl::StrCat(call.name, " has a result on the CPU"));
  }
}

ProgramGraphs::Outcome ProgramGraphs::Run(const BoundRun& run, bool may_capture, RunResult* result) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!refused_.empty()) return Outcome::kNoGraph;
  const c10::Stream stream = CurrentStream(device_);
  MakeKey(stream, run);
  const auto found = std::find_if(graphs_.begin(), graphs_.end(), [&](const auto& graph) { return graph->key == key_; });
  Graph* graph = found == graphs_.end() ? nullptr : found->get();
  if (graph != nullptr) {
    try {
      Patch(graph, run);
    } catch (...) {
      Drop(graph);  // It may hold some of this run's arguments and some of the last one's.
      throw;
    }
  } else {
    const bool comes_again = ComesAgain();
    if (comes_again && !may_capture) return Outcome::kWouldCapture;
    graph = comes_again ? Capture(stream, run) : nullptr;
    if (graph == nullptr) return Outcome::kNoGraph;
  }
  graph->last_use = ++clock_;
  ++launches_;
  if (!is_part_) RunOnCpu(run, result);
  Launch(graph, run.memory);
  Counters::Get().cudagraph_launches.Add();
  return Outcome::kLaunched;
}

void ProgramGraphs::MakeKey(const c10::Stream& stream, const BoundRun& run) {
  const ProgramMemory& memory = *run.memory;
  key_.clear();
  key_.push_back(static_cast<uint64_t>(stream.id()));
  for (const int64_t symbol : run.args.symbols) key_.push_back(static_cast<uint64_t>(symbol));
  for (size_t a = 0; a < spec_.arenas.size() && is_part_; ++a) key_.push_back(reinterpret_cast<uint64_t>(memory.arena(a)));
  for (const int32_t m : fixed_.memories) key_.push_back(reinterpret_cast<uint64_t>(memory.bases()[m]));
  for (const int32_t slot : fixed_.scalars) key_.push_back(run.args.scalars[slot]);
  for (const int32_t slot : fixed_.offsets) key_.push_back(static_cast<uint64_t>(run.runner->offsets()[slot]));
}

bool ProgramGraphs::ComesAgain() {
  if (++runs_without_ == kRunsToSettle && graphs_.empty() && LogEnabled(LogCategory::kCudagraphs)) {
    Log(LogCategory::kCudagraphs,
        absl::StrCat("Trace #", spec_.serial, ": no CUDA graph in ", runs_without_,
                     " runs: where library calls find their operands, or numbers that they take, keeps changing"));
  }
  const size_t hash = absl::HashOf(key_);
  if (std::find(seen_.begin(), seen_.end(), hash) != seen_.end()) return true;
  if (seen_.size() < kKeysRemembered) {
    seen_.push_back(hash);
  } else {
    seen_[next_seen_++ % kKeysRemembered] = hash;
  }
  return false;
}

absl::StatusOr<CudaGraphPool*> ProgramGraphs::PoolFor(const c10::Stream& stream) {
  const absl::StatusOr<CudaGraphPool*> shared = CudaGraph::PoolOf(stream);
  if (!shared.ok() || leaving_.empty()) return shared;
  std::unique_ptr<CudaGraphPool>& own = pools_[stream.id()];
  // Libraries have a workspace for each stream.
  if (own == nullptr) own = std::make_unique<CudaGraphPool>((*shared)->capture_stream());
  return own.get();
}

ProgramGraphs::Graph* ProgramGraphs::Capture(const c10::Stream& stream, const BoundRun& run) {
  if (graphs_.size() == kMostGraphs && launches_ < kLaunchesWorth * captures_) {
    graphs_.clear();
    GiveUp("where library calls find their operands changes too often");
    return nullptr;
  }
  ProgramMemory* const memory = run.memory;
  auto graph = std::make_unique<Graph>();
  const auto work = [&] {
    if (!is_part_) memory->BindArenas(/*cpu_only=*/false);
    const LaunchTape::Recording recording(&graph->tape);
    for (const Unit& unit : units_) {
      graph->launches.push_back(graph->tape.size());
      if (!unit.on_gpu) continue;
      RunResult result;
      run.runner->RunInGraph(unit.first, unit.count, memory->bases(), run.args, &result);
      RethrowIfFailed(result);
    }
  };
  const absl::StatusOr<CudaGraphPool*> pool = PoolFor(stream);
  auto captured = pool.ok() ? CudaGraph::Capture(*pool, work) : pool.status();
  graph->bases = memory->bases();
  for (const int32_t m : adopted_) {
    at::DataPtr& data = memory->adopted(m);
    if (spec_.memories[m].device.is_cpu() || Holds(leaving_, m)) {
      graph->kept.push_back(std::move(data));
    }
    data.clear();
  }
  if (!is_part_) memory->FreeArenas();
  if (!captured.ok()) {
    GiveUp(std::string(captured.status().message()));
    return nullptr;
  }
  ++captures_;
  Counters::Get().cudagraph_captures.Add();
  Log(LogCategory::kCudagraphs,
      absl::StrCat("Trace #", spec_.serial, ": captured a CUDA graph, with ", graph->tape.size(), " kernels of ours"));
  graph->key = key_;
  graph->graph = *std::move(captured);
  NoteValues(run, graph.get());
  if (graphs_.size() == kMostGraphs) {
    const auto oldest =
        std::min_element(graphs_.begin(), graphs_.end(), [](const auto& a, const auto& b) { return a->last_use < b->last_use; });
    Drop(oldest->get());
  }
  graphs_.push_back(std::move(graph));
  return graphs_.back().get();
}

void ProgramGraphs::NoteValues(const BoundRun& run, Graph* graph) {
  const absl::Span<const uint64_t> scalars = run.args.scalars;
  const absl::Span<const int64_t> offsets = run.runner->offsets();
  graph->scalars.assign(scalars.begin(), scalars.end());
  graph->offsets.assign(offsets.begin(), offsets.end());
}

void ProgramGraphs::Patch(Graph* graph, const BoundRun& run) {
  const std::vector<void*>& bases = run.memory->bases();
  std::vector<bool> moved(spec_.memories.size(), false);
  for (const int32_t m : bound_before_) {
    moved[m] = graph->bases[m] != bases[m];
    graph->bases[m] = bases[m];
  }
  const auto differs = [&](const Unit& unit) {
    const auto is_moved = [&](int32_t m) { return moved[m]; };
    const auto has_other_scalar = [&](int32_t slot) { return graph->scalars[slot] != run.args.scalars[slot]; };
    const auto has_other_offset = [&](int32_t slot) { return graph->offsets[slot] != run.runner->offsets()[slot]; };
    return std::any_of(unit.args.memories.begin(), unit.args.memories.end(), is_moved) ||
           std::any_of(unit.args.scalars.begin(), unit.args.scalars.end(), has_other_scalar) ||
           std::any_of(unit.args.offsets.begin(), unit.args.offsets.end(), has_other_offset);
  };
  for (size_t u = 0; u < units_.size(); ++u) {
    // Library calls are as they were, and there is no need to look at kernels next to them: none is in a unit with one on a GPU.
    if (!units_[u].on_gpu || units_[u].args.memories.empty() || !differs(units_[u])) continue;
    const LaunchTape::Patching patching(&graph->tape, graph->launches[u], graph->graph->exec());
    RunResult result;
    run.runner->RunInGraph(units_[u].first, units_[u].count, graph->bases, run.args, &result);
    RethrowIfFailed(result);
  }
  NoteValues(run, graph);
}

void ProgramGraphs::RunOnCpu(const BoundRun& run, RunResult* result) const {
  run.memory->BindArenas(/*cpu_only=*/true);
  for (const Unit& unit : units_) {
    if (!unit.on_gpu) run.runner->Run(unit.first, unit.count, run.args, result);
  }
}

void ProgramGraphs::Launch(Graph* graph, ProgramMemory* memory) const {
  std::lock_guard<std::mutex> lock(graph->graph->pool()->launch_mutex());
  graph->graph->Launch();
  for (const int32_t m : adopted_) {
    const MemorySpec& spec = spec_.memories[m];
    if (Holds(leaving_, m)) memory->SetBase(m, graph->bases[m]);
    if (spec.storage < 0) continue;
    at::DataPtr copy = AllocateOn(spec.device, spec.nbytes, /*scratch=*/false);
    const int error =
        RequireCudaDriver().memcpy_device_to_device(reinterpret_cast<uint64_t>(copy.get()), reinterpret_cast<uint64_t>(graph->bases[m]),
                                                    static_cast<size_t>(spec.nbytes), HandleOf(CurrentStream(spec.device)));
    TORCH_CHECK(error == 0, "lazuli: cannot copy a result of a CUDA graph: ", RequireCudaDriver().ErrorText(error));
    memory->SetBase(m, copy.get());
    memory->adopted(m) = std::move(copy);
  }
}

void ProgramGraphs::Drop(const Graph* graph) {
  graphs_.erase(std::find_if(graphs_.begin(), graphs_.end(), [graph](const auto& kept) { return kept.get() == graph; }));
}

}  // namespace lazuli::runtime
