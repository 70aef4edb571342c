#include "runtime/executor.h"

#include <algorithm>
#include <utility>

#include "runtime/mode_keys.h"
#include "runtime/options.h"
#include "runtime/program_graphs.h"
#include "runtime/program_memory.h"
#include "runtime/program_parts.h"
#include "runtime/run_ahead.h"
#include "runtime/spec_symbols.h"
#include "runtime/step_runner.h"

namespace lazuli::runtime {
namespace {

class StepProgram : public Program {
 public:
  explicit StepProgram(ProgramSpec spec)
      : spec_(std::move(spec)), symbols_(&spec_), memory_(&spec_), runner_(&spec_, &memory_), ahead_steps_(spec_) {}

  int num_kernels() const override { return Count<KernelLaunch>(); }
  int num_aten_calls() const override { return Count<AtenCall>(); }
  bool keeps_plans_by_thread() const override { return keeps_plans_by_thread_; }
  bool bit_exact() const override { return spec_.bit_exact; }

  RunResult Run(const RunArgs& args) override {
    AtenScope scope;
    RunResult result;
    may_capture_ = true;
    bool as_graph = false;
    if (!(is_ahead_ ? GoOn(args, &result) : Start(args, &as_graph, &result))) return result;
    if (!as_graph) RunRest(args, &result);
    if (runner_.stopped()) {
      TakeBack();
      result.not_started = true;
      return result;
    }
    memory_.HandOver(args, runner_.poisoned());
    End();
    return result;
  }

  size_t LastAheadAt() const override { return ahead_steps_.size() == 0 ? 0 : ahead_steps_.LastAt(); }

  Ahead RunAhead(const PartialArgs& args) override {
    AtenScope scope;
    Ahead ahead;
    may_capture_ = args.may_capture;
    in_parts_ = args.in_parts;
    would_capture_ = false;
    while (num_ahead_ < ahead_steps_.size() && may_go_ahead_) {
      const Together steps = TogetherFrom(num_ahead_);
      ahead.next_at = ahead_steps_.NeededBy(num_ahead_, steps.count, args);
      if (ahead.next_at > 0) return ahead;
      if (!ahead.ran && !StartAhead(args.run)) return {};
      if (!BindOutputsOf(num_ahead_, steps.count) || !Save(num_ahead_, steps.count, args.run)) {
        GoNoFurther();
        break;
      }
      runner_.set_saves(true);
      RunTogether(steps, args.run, &ahead_result_);
      runner_.set_saves(false);
      if (runner_.stopped()) {  // The run itself does what it can.
        TakeBack();
        may_go_ahead_ = false;
        break;
      }
      num_ahead_ += steps.count;
      ahead.ran = true;
      ahead.would_capture = would_capture_;
    }
    ahead.next_at = kNever;
    return ahead;
  }

  void UndoAhead() override {
    may_go_ahead_ = true;
    if (!is_ahead_) return;
    AtenScope scope;
    TakeBack();
  }

  void ReleaseGraphs(Graphs which) override {
    if (which == Graphs::kOfParts) {
      parts_.reset();
    } else if (graphs_ != nullptr) {
      graphs_->Release();
    }
  }

 private:
  template <class T>
  int Count() const {
    int count = 0;
    for (const StepSpec& step : spec_.steps) count += std::holds_alternative<T>(step.work);
    return count;
  }

  // Binds everything, or runs it all as a CUDA graph. False: there is not enough memory, and nothing has run.
  bool Start(const RunArgs& args, bool* as_graph, RunResult* result) {
    for (;;) {
      try {
        runner_.Begin(/*resized=*/symbols_.Set(args.symbols));
        BindOutputs();
        memory_.BindInputs(args);
        runner_.BindOffsets(args);
        if (Active().cudagraphs && graphs_ == nullptr) graphs_ = std::make_unique<ProgramGraphs>(&spec_);
        *as_graph = Active().cudagraphs && RunAsGraph(graphs_.get(), args, result);
        if (!*as_graph) memory_.BindArenas(/*cpu_only=*/false);
        return true;
      } catch (const c10::OutOfMemoryError&) {
        Drop();
        if (ProgramGraphs::ReleaseAll()) continue;  // They keep the memory that they need.
        return NotStarted(result);
      } catch (...) {
        return NotStarted(result);
      }
    }
  }

  // The same for steps that run ahead, where that is not done yet but for inputs that were not known. Without memory for them, the run
  // itself does what it can.
  bool StartAhead(const RunArgs& args) {
    try {
      if (!is_ahead_) {
        runner_.Begin(/*resized=*/symbols_.Set(args.symbols));
        memory_.BindArenas(/*cpu_only=*/false);
        ahead_result_ = {};
        is_ahead_ = true;
      }
      memory_.BindInputs(args);
      runner_.BindOffsets(args);
      return true;
    } catch (...) {
      GoNoFurther();
      return false;
    }
  }

  // No more steps run ahead of this run.
  void GoNoFurther() {
    if (num_ahead_ == 0) Drop();
    may_go_ahead_ = num_ahead_ == 0;
  }

  // Outputs, which may be many, once the first of these steps writes one: a GPU has work by then. False: there is no memory for them.
  bool BindOutputsOf(size_t first, size_t count) {
    const auto is_output = [&](int32_t m) { return spec_.memories[m].kind == MemorySpec::Kind::kOutput; };
    for (size_t i = first; i < first + count && !has_outputs_; ++i) {
      const std::vector<int32_t>& writes = spec_.steps[i].writes;
      if (std::none_of(writes.begin(), writes.end(), is_output)) continue;
      try {
        BindOutputs();
      } catch (...) {
        return false;
      }
      has_outputs_ = true;
    }
    return true;
  }

  // The run of which steps ran ahead.
  bool GoOn(const RunArgs& args, RunResult* result) {
    try {
      if (!has_outputs_) BindOutputs();
    } catch (...) {
      saved_.Restore();
      return NotStarted(result);
    }
    memory_.BindInputs(args);
    runner_.BindOffsets(args);
    *result = std::move(ahead_result_);
    for (size_t i = 0; i < num_ahead_; ++i) runner_.ReleaseInputs(spec_.steps[i], args);
    return true;
  }

  void End() {
    memory_.FreeArenas();
    saved_.Forget();
    if (is_ahead_ && parts_ != nullptr) parts_->SetInUse(false);
    is_ahead_ = false;
    may_go_ahead_ = true;
    has_outputs_ = false;
    num_ahead_ = 0;
  }

  // CUDA graphs know outputs by where they are.
  void BindOutputs() { memory_.BindOutputs(/*all=*/Active().cudagraphs); }

  // Ends as if nothing had run.
  void TakeBack() {
    saved_.Restore();
    Drop();
  }

  // Ends without results.
  void Drop() {
    memory_.FreeResults();
    End();
  }

  // Saves the inputs that these steps overwrite. False: they are too large, or there is no memory for it.
  bool Save(size_t first, size_t count, const RunArgs& args) {
    std::vector<SavedMemory::Piece> pieces;
    c10::Device device = c10::kCPU;  // A step is on one, and so are those that run together.
    for (size_t i = first; i < first + count; ++i) {
      if (spec_.steps[i].overwrites == 0) continue;
      for (const int32_t m : spec_.steps[i].writes) {
        const MemorySpec& memory = spec_.memories[m];
        if (memory.kind != MemorySpec::Kind::kInput) continue;
        const size_t nbytes = args.storages[memory.storage]->nbytes();
        if (nbytes > static_cast<size_t>(kMostSavedBytes)) return false;
        device = memory.device;
        pieces.push_back({memory_.bases()[m], nbytes});
      }
    }
    try {
      saved_.Save(std::move(pieces), device);
    } catch (...) {  // The steps run later.
      return false;
    }
    return true;
  }

  // Because of the exception in flight.
  bool NotStarted(RunResult* result) {
    Drop();
    result->error = std::current_exception();
    result->not_started = true;
    return false;
  }

  // The part that begins with step `first`, where parts of a run that is ahead are to be graphs; null: none.
  const ProgramParts::Part* PartFrom(size_t first) {
    if (!Active().cudagraphs || !in_parts_) return nullptr;
    if (parts_ == nullptr) parts_ = std::make_unique<ProgramParts>(&spec_, ahead_steps_.most());
    return parts_->From(first);
  }

  // Steps that run together where the run is ahead: those of a part, or of a batch.
  struct Together {
    size_t first = 0;
    size_t count = 0;
    ProgramGraphs* graphs = nullptr;  // Of the part; null: none.
  };
  Together TogetherFrom(size_t first) {
    const ProgramParts::Part* const part = PartFrom(first);
    if (part == nullptr) return {first, static_cast<size_t>(spec_.steps[first].batch)};
    return {first, part->count, part->graphs.get()};
  }

  void RunTogether(const Together& steps, const RunArgs& args, RunResult* result) {
    if (steps.graphs != nullptr && !runner_.failed()) {
      parts_->SetInUse(true);
      if (RunAsGraph(steps.graphs, args, result)) {
        runner_.NoteLaunched(steps.first, steps.count);
        return;
      }
    }
    runner_.Run(steps.first, steps.count, args, result);
  }

  // What did not run ahead.
  void RunRest(const RunArgs& args, RunResult* result) {
    const size_t end = spec_.steps.size();
    if (!is_ahead_) runner_.Run(0, end, args, result);
    for (size_t i = num_ahead_; is_ahead_ && i < end && !runner_.stopped();) {
      const Together steps = TogetherFrom(i);
      RunTogether(steps, args, result);
      i += steps.count;
    }
  }

  // False: it does not run as one, and nothing has run.
  bool RunAsGraph(ProgramGraphs* graphs, const RunArgs& args, RunResult* result) {
    try {
      const auto outcome = graphs->Run({args, &memory_, &runner_}, may_capture_, result);
      would_capture_ |= outcome == ProgramGraphs::Outcome::kWouldCapture;
      if (outcome == ProgramGraphs::Outcome::kLaunched) return true;
    } catch (...) {
      runner_.FailAll("a CUDA graph", result);
      return true;
    }
    runner_.Reset();  // It may have met an error while it tried.
    return false;
  }

  static bool KeepsPlansByThread(const StepSpec& step) {
    const auto* call = std::get_if<AtenCall>(&step.work);
    if (call == nullptr) return false;
    if (call->name.find("cudnn_attention") != std::string::npos) return true;
    return !call->device.is_cpu() && call->name.rfind("lazuli::_attention", 0) == 0;
  }

  ProgramSpec spec_;
  const bool keeps_plans_by_thread_ = std::any_of(spec_.steps.begin(), spec_.steps.end(), &KeepsPlansByThread);
  SpecSymbols symbols_;
  ProgramMemory memory_;
  StepRunner runner_;
  std::unique_ptr<ProgramGraphs> graphs_;  // Where they are wanted, and then
  std::unique_ptr<ProgramParts> parts_;    // for runs of which steps are ahead.
  bool may_capture_ = true;                // As PartialArgs says,
  bool in_parts_ = false;
  bool would_capture_ = false;  // and as Ahead does.
  AheadSteps ahead_steps_;
  bool is_ahead_ = false;  // Memory is bound, that of outputs perhaps, and so many steps have run:
  size_t num_ahead_ = 0;
  bool may_go_ahead_ = true;
  bool has_outputs_ = false;
  RunResult ahead_result_;  // Of these.
  SavedMemory saved_;
};

}  // namespace

std::unique_ptr<Program> MakeProgram(ProgramSpec spec) { return std::make_unique<StepProgram>(std::move(spec)); }

}  // namespace lazuli::runtime
