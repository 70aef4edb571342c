#include "runtime/step_runner.h"

#include <algorithm>
#include <utility>

#include "runtime/default_dtype.h"
#include "runtime/program_graphs.h"

namespace lazuli::runtime {

StepRunner::StepRunner(const ProgramSpec* spec, ProgramMemory* memory)
    : spec_(*spec),
      memory_(*memory),
      bases_(&memory->bases()),
      poisoned_(spec->memories.size()),
      missing_(spec->memories.size()),
      calls_(spec->steps.size()),
      operands_(1) {
  for (const StepSpec& step : spec_.steps) operands_.resize(std::max(operands_.size(), static_cast<size_t>(step.batch)));
  batch_.resize(operands_.size());
}

void StepRunner::Begin(bool resized) {
  if (prepared_ && resized) {
    memory_.Resize();
    for (PreparedCall& prepared : calls_) prepared.Resize(&memory_);
  }
  for (size_t i = 0; i < spec_.steps.size() && !prepared_; ++i) {
    if (const auto* call = std::get_if<AtenCall>(&spec_.steps[i].work)) calls_[i].Prepare(*call, &memory_);
  }
  prepared_ = true;
  changed_ = saves_ = false;
  Reset();
}

void StepRunner::Reset() {
  failed_ = stopped_ = false;
  poisoned_.assign(poisoned_.size(), false);
  missing_.assign(missing_.size(), false);
}

void StepRunner::NoteLaunched(size_t first, size_t count) {
  for (size_t i = first; i < first + count; ++i) changed_ = changed_ || (spec_.steps[i].overwrites > 0 && !saves_);
}

void StepRunner::FailAll(const std::string& name, RunResult* result) {
  failed_ = true;
  poisoned_.assign(poisoned_.size(), true);
  result->error = std::current_exception();
  result->failed_op = name;
}

void StepRunner::RunInGraph(size_t first, size_t count, const std::vector<void*>& bases, const RunArgs& args, RunResult* result) {
  bases_ = &bases;
  in_graph_ = true;
  Run(first, count, args, result);
  in_graph_ = false;
  bases_ = &memory_.bases();
}

void StepRunner::Run(size_t first, size_t number, const RunArgs& args, RunResult* result) {
  for (size_t i = first; i < first + number;) {
    // After a failure, some of those that run together may be poisoned and others not.
    size_t count = failed_ ? 1 : static_cast<size_t>(spec_.steps[i].batch);
    if (!Acquire(i, count, result)) {
      if (stopped_) return;
      count = 1;
    }
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

// False: there is no memory for one of these steps. The run stops where it can be taken back; otherwise the step fails.
bool StepRunner::Acquire(size_t first, size_t count, RunResult* result) {
  if (bases_ != &memory_.bases()) return true;  // A graph has its own.
  bool acquired = true;
  for (size_t i = first; i < first + count; ++i) {
    const StepSpec& step = spec_.steps[i];
    for (const int32_t m : step.acquires) {
      try {
        try {
          memory_.Acquire(m);
        } catch (const c10::OutOfMemoryError&) {
          if (in_graph_ || !ProgramGraphs::ReleaseAll()) throw;  // They keep the memory that they need.
          memory_.Acquire(m);
        }
      } catch (...) {
        acquired = false;
        stopped_ = !changed_ && !in_graph_;
        missing_[m] = true;
        const auto* call = std::get_if<AtenCall>(&step.work);
        Fail(call, call != nullptr ? call->name : std::get<KernelLaunch>(step.work).name, step.writes, result);
        if (stopped_) return false;
      }
    }
  }
  return acquired;
}

void StepRunner::RunStep(size_t i, const RunArgs& args, RunResult* result) {
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

void StepRunner::RunBatch(size_t first, size_t count, const RunArgs& args, RunResult* result) {
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

void StepRunner::RunFused(size_t first, size_t count, const RunArgs& args, RunResult* result) {
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

void StepRunner::Release(const StepSpec& step, const RunArgs& args) {
  changed_ = changed_ || (step.overwrites > 0 && !saves_ && !in_graph_);
  for (const int32_t m : step.releases) {
    if (spec_.memories[m].kind != MemorySpec::Kind::kInput) memory_.adopted(m).clear();
  }
  ReleaseInputs(step, args);
}

void StepRunner::ReleaseInputs(const StepSpec& step, const RunArgs& args) {
  if (args.unshared.empty() || in_graph_) return;
  for (const int32_t m : step.releases) {
    const MemorySpec& memory = spec_.memories[m];
    if (memory.kind != MemorySpec::Kind::kInput || args.unshared[memory.storage] == 0) continue;
    args.storages[memory.storage]->set_data_ptr_noswap(at::DataPtr(nullptr, memory.device));
    changed_ = true;
  }
}

void StepRunner::BindOffsets(const RunArgs& args) {
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

bool StepRunner::IsPoisoned(const StepSpec& step) {
  const bool poisoned = std::any_of(step.reads.begin(), step.reads.end(), [&](int32_t m) { return poisoned_[m] || missing_[m]; }) ||
                        std::any_of(step.writes.begin(), step.writes.end(), [&](int32_t m) { return missing_[m]; });
  if (!poisoned) return false;
  for (const int32_t written : step.writes) poisoned_[written] = true;
  return true;
}

// Of the exception in flight, thrown by `call` or, when that is null, by a kernel.
void StepRunner::Fail(const AtenCall* call, const std::string& name, const std::vector<int32_t>& writes, RunResult* result) {
  failed_ = true;
  for (int32_t memory : writes) poisoned_[memory] = true;
  if (result->error != nullptr) return;
  result->error = std::current_exception();
  result->failed_op = name;
  result->failed_index = call != nullptr ? call->index : -1;
}

void StepRunner::Launch(const KernelLaunch& launch, const RunArgs& args, RunResult* result) {
  char bad_index = 0;
  const BoundKernel bound = Bind(launch, args, &bad_index, &operands_[0]);
  launch.run(bound.kernel, bound.buffers, bound.scalars, bound.symbols);
  if (bad_index != 0) ThrowForIndex(launch, args, result);
}

BoundKernel StepRunner::Bind(const KernelLaunch& launch, const RunArgs& args, char* bad_index, Operands* operands) const {
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
void StepRunner::ThrowForIndex(const KernelLaunch& launch, const RunArgs& args, RunResult* result) {
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

void StepRunner::Call(PreparedCall* prepared, const RunArgs& args) {
  const AtenCall& call = prepared->call();
  prepared->Patch(args.scalars, offsets_);
  const DefaultDtypeScope dtype(call.default_dtype);
  const bool direct = call.direct != nullptr && call.direct(prepared->arguments(), &stack_);
  if (!direct) {
    if (call.kept != nullptr && RunKept(call, prepared->arguments(), args)) return;
    prepared->CopyArguments(&stack_);
    CheckNotGone(call.life, call.name);
    call.op.callBoxed(&stack_);
  }
  for (size_t i = 0; i < call.results.size(); ++i) {
    if (call.results[i].memory >= 0) memory_.Adopt(call, call.results[i], std::move(stack_[i]).toTensor());
  }
  stack_.clear();
}

bool StepRunner::RunKept(const AtenCall& call, const torch::jit::Stack& arguments, const RunArgs& args) {
  at::Tensor result = call.kept->Run(arguments, args.storages[spec_.memories[call.kept_input].storage]);
  if (!result.defined()) return false;
  if (call.results[0].memory >= 0) memory_.Adopt(call, call.results[0], std::move(result));
  return true;
}

}  // namespace lazuli::runtime
