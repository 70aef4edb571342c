#include "runtime/executor.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>

#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "runtime/mode_keys.h"
#include "runtime/options.h"
#include "runtime/program_graphs.h"
#include "runtime/program_memory.h"
#include "runtime/spec_symbols.h"

namespace lazuli::runtime {
namespace {

// An IValue of a prepared call that has to be refreshed before each run.
struct ScalarPatch {
  int position;
  int32_t slot;
  c10::ScalarType type;
  bool as_tensor;
};

struct OffsetPatch {
  c10::TensorImpl* tensor;
  int32_t slot;
};

struct PreparedCall {
  const AtenCall* call = nullptr;
  torch::jit::Stack arguments;
  std::vector<ScalarPatch> scalars;
  std::vector<OffsetPatch> offsets;
  std::vector<int> lists;  // Positions of tensor lists.
  absl::InlinedVector<std::pair<const WindowSpec*, at::Tensor>, 4> windows;
};

at::Scalar ReadScalar(c10::ScalarType type, uint64_t bits) {
  if (type == c10::ScalarType::Bool) return bits != 0;
  if (type != c10::ScalarType::Double) return static_cast<int64_t>(bits);
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

at::Tensor WrappedNumber(const at::Scalar& number) {
  at::Tensor tensor = at::empty_strided({}, {}, at::TensorOptions().dtype(number.type()));
  tensor.fill_(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

struct Operands {
  absl::InlinedVector<void*, 16> buffers;
  absl::InlinedVector<uint64_t, 16> scalars;
};

class StepProgram : public Program {
 public:
  explicit StepProgram(ProgramSpec spec) : spec_(std::move(spec)), symbols_(&spec_), memory_(&spec_), poisoned_(spec_.memories.size()) {
    calls_.resize(spec_.steps.size());
    operands_.resize(1);
    for (const StepSpec& step : spec_.steps) operands_.resize(std::max(operands_.size(), static_cast<size_t>(step.batch)));
    batch_.resize(operands_.size());
  }

  int num_kernels() const override { return Count<KernelLaunch>(); }
  int num_aten_calls() const override { return Count<AtenCall>(); }
  bool bit_exact() const override { return spec_.bit_exact; }
  EarlyEnds early_ends() const override { return spec_.early_ends; }

  RunResult Run(const RunArgs& args) override {
    AtenScope scope;
    RunResult result;
    bool as_graph = false;
    if (!Start(args, &as_graph, &result)) return result;
    if (!as_graph) RunSteps(0, spec_.steps.size(), args, &result);
    memory_.HandOver(args, poisoned_);
    memory_.FreeArenas();
    return result;
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
        if (symbols_.Set(args.symbols) && prepared_) Resize();
        if (!prepared_) Prepare();
        memory_.Bind(args);
        BindOffsets(args);
        Reset();
        *as_graph = RunAsGraph(args, result);
        if (!*as_graph) memory_.BindArenas(/*cpu_only=*/false);
        return true;
      } catch (const c10::OutOfMemoryError&) {
        memory_.FreeOutputs();
        memory_.FreeArenas();
        if (ProgramGraphs::ReleaseAll()) continue;  // They keep the memory that they need.
        return NotStarted(result);
      } catch (...) {
        return NotStarted(result);
      }
    }
  }

  // Because of the exception in flight.
  bool NotStarted(RunResult* result) {
    memory_.FreeOutputs();
    memory_.FreeArenas();
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
      Patch(&prepared, args);
      if (!fused.run(fused.plan.get(), prepared.arguments, before, after)) {
        for (size_t i = first; i < first + count; ++i) RunStep(i, args, result);
        return;
      }
    } catch (...) {
      for (size_t i = 0; i < count; ++i) Fail(prepared.call, prepared.call->name, steps[i].writes, result);
    }
    for (size_t i = 0; i < count; ++i) Release(steps[i], args);
  }

  void Release(const StepSpec& step, const RunArgs& args) {
    for (const int32_t m : step.releases) {
      const MemorySpec& memory = spec_.memories[m];
      if (memory.kind != MemorySpec::Kind::kInput) {
        memory_.adopted(m).clear();
      } else if (!args.unshared.empty() && args.unshared[memory.storage] != 0 && !IsInGraph()) {
        args.storages[memory.storage]->set_data_ptr_noswap(at::DataPtr(nullptr, memory.device));
      }
    }
  }

  // Whether the steps are captured, or patched: they do not run yet.
  bool IsInGraph() const { return bases_ != &memory_.bases(); }

  // Builds every ATen call's tensors.
  void Prepare() {
    for (size_t i = 0; i < spec_.steps.size(); ++i) {
      if (const auto* call = std::get_if<AtenCall>(&spec_.steps[i].work)) PrepareCall(*call, &calls_[i]);
    }
    prepared_ = true;
  }

  // The symbols have other values than in the last run.
  void Resize() {
    memory_.Resize();
    for (PreparedCall& prepared : calls_) {
      for (const auto& [window, tensor] : prepared.windows) {
        tensor.unsafeGetTensorImpl()->set_sizes_and_strides(window->sizes, window->strides, 0);
      }
      if (prepared.call == nullptr) continue;
      for (size_t i = 0; i < prepared.call->args.size(); ++i) {
        if (prepared.call->args[i].kind == CallArg::Kind::kConst) prepared.arguments[i] = prepared.call->args[i].value;
      }
    }
  }

  void PrepareCall(const AtenCall& call, PreparedCall* prepared) {
    prepared->call = &call;
    for (size_t i = 0; i < call.args.size(); ++i) {
      const CallArg& arg = call.args[i];
      switch (arg.kind) {
        case CallArg::Kind::kConst:
          prepared->arguments.push_back(arg.value);
          break;
        case CallArg::Kind::kTensor:
          prepared->arguments.emplace_back(Window(arg.windows[0], prepared));
          break;
        case CallArg::Kind::kTensorList: {
          c10::List<at::Tensor> list;
          for (const WindowSpec& window : arg.windows) list.push_back(Window(window, prepared));
          prepared->lists.push_back(static_cast<int>(i));
          prepared->arguments.emplace_back(std::move(list));
          break;
        }
        case CallArg::Kind::kOptionalTensorList: {
          c10::List<std::optional<at::Tensor>> list;
          for (const WindowSpec& window : arg.windows) {
            list.push_back(window.memory == -1 ? std::nullopt : std::optional<at::Tensor>(Window(window, prepared)));
          }
          prepared->lists.push_back(static_cast<int>(i));
          prepared->arguments.emplace_back(std::move(list));
          break;
        }
        case CallArg::Kind::kScalar:
        case CallArg::Kind::kScalarTensor:
          prepared->arguments.emplace_back();
          prepared->scalars.push_back({static_cast<int>(i), arg.slot, arg.scalar_type, arg.kind == CallArg::Kind::kScalarTensor});
          break;
      }
    }
  }

  // Equal windows of one call are one tensor: kernels (attention) ask whether their operands are.
  at::Tensor Window(const WindowSpec& window, PreparedCall* prepared) {
    if (window.memory == WindowSpec::kNoContent) {
      return at::empty_strided(window.sizes, window.strides, at::TensorOptions(window.dtype).device(prepared->call->device));
    }
    if (window.memory < 0) return at::Tensor();
    for (const auto& [spec, tensor] : prepared->windows) {
      if (*spec == window) return tensor;
    }
    prepared->windows.emplace_back(&window, MakeWindow(window, prepared));
    return prepared->windows.back().second;
  }

  at::Tensor MakeWindow(const WindowSpec& window, PreparedCall* prepared) {
    const auto keys = c10::DispatchKeySet(c10::computeDispatchKey(window.dtype, c10::kStrided, memory_.DeviceOf(window.memory)));
    at::Tensor tensor =
        at::detail::make_tensor<c10::TensorImpl>(memory_.StorageOf(window.memory), keys, c10::scalarTypeToTypeMeta(window.dtype));
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(window.sizes, window.strides, 0);
    if (window.wrapped_number) impl->set_wrapped_number(true);
    if (window.offset_slot >= 0) prepared->offsets.push_back({impl, window.offset_slot});
    return tensor;
  }

  void BindOffsets(const RunArgs& args) {
    offsets_ = args.offsets;
    if (spec_.offset_sums.empty()) return;
    all_offsets_.assign(args.offsets.begin(), args.offsets.begin() + spec_.num_offsets);
    for (const OffsetSum& sum : spec_.offset_sums) {
      int64_t offset = sum.slot < 0 ? 0 : args.offsets[sum.slot];
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
        PrepareCall(check.call, &prepared);
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

  // Offsets and numbers of this run.
  void Patch(PreparedCall* prepared, const RunArgs& args) {
    for (const OffsetPatch& patch : prepared->offsets) patch.tensor->set_storage_offset(offsets_[patch.slot]);
    for (const ScalarPatch& patch : prepared->scalars) {
      const at::Scalar number = ReadScalar(patch.type, args.scalars[patch.slot]);
      prepared->arguments[patch.position] = patch.as_tensor ? c10::IValue(WrappedNumber(number)) : c10::IValue(number);
    }
  }

  void Call(PreparedCall* prepared, const RunArgs& args) {
    const AtenCall& call = *prepared->call;
    Patch(prepared, args);
    const bool direct = call.direct != nullptr && call.direct(prepared->arguments, &stack_);
    if (!direct) {
      if (call.kept != nullptr && RunKept(call, prepared->arguments, args)) return;
      stack_.assign(prepared->arguments.begin(), prepared->arguments.end());
      // Lists are shared, and some operators (_unsafe_masked_index) change the one they get.
      for (const int position : prepared->lists) stack_[position] = stack_[position].toList().copy();
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

  ProgramSpec spec_;
  SpecSymbols symbols_;
  ProgramMemory memory_;
  const std::vector<void*>* bases_ = &memory_.bases();  // Where kernels find memories.
  std::unique_ptr<ProgramGraphs> graphs_;               // Where they are wanted.
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
