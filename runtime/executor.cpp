#include "runtime/executor.h"

#include <ATen/core/Tensor.h>

#include <utility>

#include "absl/container/inlined_vector.h"
#include "runtime/default_dtype.h"
#include "runtime/mode_keys.h"
#include "runtime/options.h"
#include "runtime/prepared_call.h"
#include "runtime/program_graphs.h"
#include "runtime/program_memory.h"
#include "runtime/run_ahead.h"
#include "runtime/spec_symbols.h"

namespace lazuli::runtime {
namespace {

struct Operands {
  absl::InlinedVector<void*, 16> buffers;
  absl::InlinedVector<uint64_t, 16> scalars;
};

class StepProgram : public Program {
 public:
  explicit StepProgram(ProgramSpec spec)
      : spec_(std::move(spec)), symbols_(&spec_), memory_(&spec_), ahead_steps_(spec_), poisoned_(spec_.memories.size()) {
    calls_.resize(spec_.steps.size());
    operands_.resize(1);
    for (const StepSpec& step : spec_.steps) operands_.resize(std::max(operands_.size(), static_cast<size_t>(step.batch)));
    batch_.resize(operands_.size());
  }

  int num_kernels() const override { return Count<KernelLaunch>(); }
  int num_aten_calls() const override { return Count<AtenCall>(); }
  bool keeps_plans_by_thread() const override { return keeps_plans_by_thread_; }
  bool bit_exact() const override { return spec_.bit_exact; }

  RunResult Run(const RunArgs& args) override {
    AtenScope scope;
    RunResult result;
    bool as_graph = false;
    if (!(is_ahead_ ? GoOn(args, &result) : Start(args, &as_graph, &result))) return result;
    if (!as_graph) RunSteps(num_ahead_, spec_.steps.size() - num_ahead_, args, &result);
    memory_.HandOver(args, poisoned_);
    End();
    return result;
  }

  size_t LastAheadAt() const override { return ahead_steps_.size() == 0 ? 0 : ahead_steps_.LastAt(); }

  Ahead RunAhead(const PartialArgs& args) override {
    AtenScope scope;
    Ahead ahead;
    while (num_ahead_ < ahead_steps_.size() && may_go_ahead_) {
      ahead.next_at = ahead_steps_.NeededBy(num_ahead_, args);
      if (ahead.next_at > 0) return ahead;
      if (!ahead.ran && !StartAhead(args.run)) return {};
      const auto count = static_cast<size_t>(spec_.steps[num_ahead_].batch);
      if (!BindOutputsOf(num_ahead_, count) || !Save(num_ahead_, count, args.run)) {
        GoNoFurther();
        break;
      }
      RunSteps(num_ahead_, count, args.run, &ahead_result_);
      num_ahead_ += count;
      ahead.ran = true;
    }
    ahead.next_at = kNever;
    return ahead;
  }

  void UndoAhead() override {
    if (!is_ahead_) return;
    AtenScope scope;
    saved_.Restore();
    Drop();
  }

  void ReleaseGraphs() override {
    if (graphs_ != nullptr) graphs_->Release();
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
        StartWith(args);
        memory_.BindOutputs();
        memory_.BindInputs(args);
        BindOffsets(args);
        *as_graph = RunAsGraph(args, result);
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
        StartWith(args);
        memory_.BindArenas(/*cpu_only=*/false);
        ahead_result_ = {};
        is_ahead_ = true;
      }
      memory_.BindInputs(args);
      BindOffsets(args);
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

  // What needs neither inputs nor memory.
  void StartWith(const RunArgs& args) {
    if (symbols_.Set(args.symbols) && prepared_) Resize();
    if (!prepared_) Prepare();
    Reset();
  }

  // Outputs, which may be many, once the first of these steps writes one: a GPU has work by then. False: there is no memory for them.
  bool BindOutputsOf(size_t first, size_t count) {
    const auto is_output = [&](int32_t m) { return spec_.memories[m].kind == MemorySpec::Kind::kOutput; };
    for (size_t i = first; i < first + count && !has_outputs_; ++i) {
      const std::vector<int32_t>& writes = spec_.steps[i].writes;
      if (std::none_of(writes.begin(), writes.end(), is_output)) continue;
      try {
        memory_.BindOutputs();
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
      if (!has_outputs_) memory_.BindOutputs();
    } catch (...) {
      saved_.Restore();
      return NotStarted(result);
    }
    memory_.BindInputs(args);
    BindOffsets(args);
    *result = std::move(ahead_result_);
    for (size_t i = 0; i < num_ahead_; ++i) ReleaseInputs(spec_.steps[i], args);
    return true;
  }

  void End() {
    memory_.FreeArenas();
    saved_.Forget();
    is_ahead_ = false;
    may_go_ahead_ = true;
    has_outputs_ = false;
    num_ahead_ = 0;
  }

  // Ends without results.
  void Drop() {
    memory_.FreeResults();
    End();
  }

  // Saves the inputs that these steps overwrite. False: they are too large, or there is no memory for it.
  bool Save(size_t first, size_t count, const RunArgs& args) {
    for (size_t i = first; i < first + count; ++i) {
      if (spec_.steps[i].overwrites == 0) continue;
      for (const int32_t m : spec_.steps[i].writes) {
        const MemorySpec& memory = spec_.memories[m];
        if (memory.kind != MemorySpec::Kind::kInput) continue;
        const size_t nbytes = args.storages[memory.storage]->nbytes();
        if (nbytes > static_cast<size_t>(kMostSavedBytes)) return false;
        try {
          saved_.Save(memory_.bases()[m], nbytes, memory.device);
        } catch (...) {  // The steps run later.
          return false;
        }
      }
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

  void Reset() {
    failed_ = false;
    poisoned_.assign(poisoned_.size(), false);
  }

  bool RunAsGraph(const RunArgs& args, RunResult* result) {
    if (!Active().cudagraphs) return false;
    if (graphs_ == nullptr) graphs_ = std::make_unique<ProgramGraphs>(&spec_);
    const auto run_steps = [&](size_t first, size_t count, const std::vector<void*>& bases, RunResult* of_steps) {
      bases_ = &bases;
      RunSteps(first, count, args, of_steps);
      bases_ = &memory_.bases();
    };
    try {
      if (graphs_->Run({args.scalars, offsets_, args.symbols}, &memory_, run_steps, result)) return true;
    } catch (...) {
      poisoned_.assign(poisoned_.size(), true);
      result->error = std::current_exception();
      result->failed_op = "a CUDA graph";
      return true;
    }
    Reset();  // It may have met an error while it tried.
    return false;
  }

  void RunSteps(size_t first, size_t number, const RunArgs& args, RunResult* result) {
    for (size_t i = first; i < first + number;) {
      // After a failure, some of those that run together may be poisoned and others not.
      const size_t count = failed_ ? 1 : static_cast<size_t>(spec_.steps[i].batch);
      if (count == 1) {
        RunStep(i, args, result);
      } else if (spec_.steps[i].fused) {
        RunFused(i, count, args, result);
      } else {
        RunBatch(i, count, args, result);
      }
      i += count;
    }
  }

  void RunStep(size_t i, const RunArgs& args, RunResult* result) {
    const StepSpec& step = spec_.steps[i];
    if (failed_ && IsPoisoned(step)) return;
    try {
      if (const auto* launch = std::get_if<KernelLaunch>(&step.work)) {
        Launch(*launch, args, result);
      } else {
        Call(&calls_[i], args);
      }
    } catch (...) {
      const auto* call = std::get_if<AtenCall>(&step.work);
      Fail(call, call != nullptr ? call->name : std::get<KernelLaunch>(step.work).name, step.writes, result);
    }
    Release(step, args);
  }

  void RunBatch(size_t first, size_t count, const RunArgs& args, RunResult* result) {
    const StepSpec* steps = &spec_.steps[first];
    try {
      for (size_t i = 0; i < count; ++i) {
        const auto& launch = std::get<KernelLaunch>(steps[i].work);
        batch_[i] = Bind(launch, args, /*bad_index=*/nullptr, &operands_[i]);
      }
      std::get<KernelLaunch>(steps[0].work).run_batch({batch_.data(), count});
    } catch (...) {
      for (size_t i = 0; i < count; ++i) Fail(nullptr, std::get<KernelLaunch>(steps[i].work).name, steps[i].writes, result);
    }
    for (size_t i = 0; i < count; ++i) Release(steps[i], args);
  }

  void RunFused(size_t first, size_t count, const RunArgs& args, RunResult* result) {
    const StepSpec* steps = &spec_.steps[first];
    const FusedSteps& fused = *steps[0].fused;
    const size_t call = fused.has_before ? 1 : 0;
    PreparedCall& prepared = calls_[first + call];
    try {
      const auto bind = [&](size_t i, Operands* operands) {
        return Bind(std::get<KernelLaunch>(steps[i].work), args, /*bad_index=*/nullptr, operands);
      };
      const BoundKernel before = fused.has_before ? bind(0, &operands_[0]) : BoundKernel();
      const BoundKernel after = call + 1 < count ? bind(call + 1, &operands_[1]) : BoundKernel();
      prepared.Patch(args.scalars, offsets_);
      if (!fused.run(fused.plan.get(), prepared.arguments(), before, after)) {
        for (size_t i = first; i < first + count; ++i) RunStep(i, args, result);
        return;
      }
    } catch (...) {
      for (size_t i = 0; i < count; ++i) Fail(&prepared.call(), prepared.call().name, steps[i].writes, result);
    }
    for (size_t i = 0; i < count; ++i) Release(steps[i], args);
  }

  void Release(const StepSpec& step, const RunArgs& args) {
    for (const int32_t m : step.releases) {
      if (spec_.memories[m].kind != MemorySpec::Kind::kInput) memory_.adopted(m).clear();
    }
    ReleaseInputs(step, args);
  }

  void ReleaseInputs(const StepSpec& step, const RunArgs& args) {
    if (args.unshared.empty() || IsInGraph()) return;
    for (const int32_t m : step.releases) {
      const MemorySpec& memory = spec_.memories[m];
      if (memory.kind != MemorySpec::Kind::kInput || args.unshared[memory.storage] == 0) continue;
      args.storages[memory.storage]->set_data_ptr_noswap(at::DataPtr(nullptr, memory.device));
    }
  }

  // Whether the steps are captured, or patched: they do not run yet.
  bool IsInGraph() const { return bases_ != &memory_.bases(); }

  // Builds every ATen call's tensors.
  void Prepare() {
    for (size_t i = 0; i < spec_.steps.size(); ++i) {
      if (const auto* call = std::get_if<AtenCall>(&spec_.steps[i].work)) calls_[i].Prepare(*call, &memory_);
    }
    prepared_ = true;
  }

  // The symbols have other values than in the last run.
  void Resize() {
    memory_.Resize();
    for (PreparedCall& prepared : calls_) prepared.Resize(&memory_);
  }

  void BindOffsets(const RunArgs& args) {
    offsets_ = args.offsets;
    if (spec_.offset_sums.empty()) return;
    // Steps that run ahead come before the last ones are known.
    const auto known = std::min<int32_t>(spec_.num_offsets, static_cast<int32_t>(args.offsets.size()));
    all_offsets_.assign(args.offsets.begin(), args.offsets.begin() + known);
    all_offsets_.resize(static_cast<size_t>(spec_.num_offsets));
    for (const OffsetSum& sum : spec_.offset_sums) {
      int64_t offset = sum.slot < 0 ? 0 : all_offsets_[sum.slot];
      for (const int64_t term : sum.terms) offset += term;
      all_offsets_.push_back(offset);
    }
    offsets_ = all_offsets_;
  }

  bool IsPoisoned(const StepSpec& step) {
    for (int32_t memory : step.reads) {
      if (!poisoned_[memory]) continue;
      for (int32_t written : step.writes) poisoned_[written] = true;
      return true;
    }
    return false;
  }

  // Of the exception in flight, thrown by `call` or, when that is null, by a kernel.
  void Fail(const AtenCall* call, const std::string& name, const std::vector<int32_t>& writes, RunResult* result) {
    failed_ = true;
    for (int32_t memory : writes) poisoned_[memory] = true;
    if (result->error != nullptr) return;
    result->error = std::current_exception();
    result->failed_op = name;
    result->failed_index = call != nullptr ? call->index : -1;
  }

  void Launch(const KernelLaunch& launch, const RunArgs& args, RunResult* result) {
    char bad_index = 0;
    const BoundKernel bound = Bind(launch, args, &bad_index, &operands_[0]);
    launch.run(bound.kernel, bound.buffers, bound.scalars, bound.symbols);
    if (bad_index != 0) ThrowForIndex(launch, args, result);
  }

  BoundKernel Bind(const KernelLaunch& launch, const RunArgs& args, char* bad_index, Operands* operands) const {
    operands->buffers.clear();
    operands->scalars.clear();
    for (const auto& buffer : launch.buffers) {
      if (buffer.memory < 0) {
        operands->buffers.push_back(bad_index);
        continue;
      }
      const int64_t offset = buffer.offset_slot < 0 ? 0 : offsets_[buffer.offset_slot] * buffer.element_size;
      operands->buffers.push_back(static_cast<char*>((*bases_)[buffer.memory]) + offset);
    }
    for (int32_t slot : launch.scalar_slots) operands->scalars.push_back(args.scalars[slot]);
    return {launch.kernel.get(), operands->buffers.data(), operands->buffers.size(), operands->scalars.data(), launch.symbols.data()};
  }

  // The kernel has computed everything, but what depends on a bad index is wrong.
  void ThrowForIndex(const KernelLaunch& launch, const RunArgs& args, RunResult* result) {
    bool thrown = false;
    for (const KernelLaunch::Check& check : launch.checks) {
      PreparedCall prepared;
      try {
        prepared.Prepare(check.call, &memory_);
        memory_.BindStorages(args);
        Call(&prepared, args);
      } catch (...) {
        Fail(&check.call, check.call.name, check.writes, result);
        thrown = true;
      }
      stack_.clear();
    }
    TORCH_INTERNAL_ASSERT(thrown, "lazuli: ", launch.name, " met an index that no operator throws for");
  }

  void Call(PreparedCall* prepared, const RunArgs& args) {
    const AtenCall& call = prepared->call();
    prepared->Patch(args.scalars, offsets_);
    const DefaultDtypeScope dtype(call.default_dtype);
    const bool direct = call.direct != nullptr && call.direct(prepared->arguments(), &stack_);
    if (!direct) {
      if (call.kept != nullptr && RunKept(call, prepared->arguments(), args)) return;
      prepared->CopyArguments(&stack_);
      call.op.callBoxed(&stack_);
    }
    for (size_t i = 0; i < call.results.size(); ++i) {
      if (call.results[i].memory >= 0) memory_.Adopt(call, call.results[i], std::move(stack_[i]).toTensor());
    }
    stack_.clear();
  }

  bool RunKept(const AtenCall& call, const torch::jit::Stack& arguments, const RunArgs& args) {
    at::Tensor result = call.kept->Run(arguments, args.storages[spec_.memories[call.kept_input].storage]);
    if (!result.defined()) return false;
    if (call.results[0].memory >= 0) memory_.Adopt(call, call.results[0], std::move(result));
    return true;
  }

  static bool KeepsPlansByThread(const StepSpec& step) {
    const auto* call = std::get_if<AtenCall>(&step.work);
    return call != nullptr && call->name.find("cudnn_attention") != std::string::npos;
  }

  ProgramSpec spec_;
  const bool keeps_plans_by_thread_ = std::any_of(spec_.steps.begin(), spec_.steps.end(), &KeepsPlansByThread);
  SpecSymbols symbols_;
  ProgramMemory memory_;
  const std::vector<void*>* bases_ = &memory_.bases();  // Where kernels find memories.
  std::unique_ptr<ProgramGraphs> graphs_;               // Where they are wanted.
  AheadSteps ahead_steps_;
  bool is_ahead_ = false;  // Memory is bound, that of outputs perhaps, and so many steps have run:
  size_t num_ahead_ = 0;
  bool may_go_ahead_ = true;
  bool has_outputs_ = false;
  RunResult ahead_result_;  // Of these.
  SavedMemory saved_;
  bool prepared_ = false;
  bool failed_ = false;
  std::vector<bool> poisoned_;       // By memory: its writer failed in this run.
  std::vector<PreparedCall> calls_;  // By step.
  std::vector<Operands> operands_;   // Of the launch that runs, or of each of its batch. At least one.
  std::vector<BoundKernel> batch_;
  torch::jit::Stack stack_;
  absl::Span<const int64_t> offsets_;  // Only while running: by slot.
  std::vector<int64_t> all_offsets_;   // Where some of them are sums.
};

}  // namespace

std::unique_ptr<Program> MakeProgram(ProgramSpec spec) { return std::make_unique<StepProgram>(std::move(spec)); }

}  // namespace lazuli::runtime
