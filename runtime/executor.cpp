#include "runtime/executor.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/COW.h>

#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "runtime/device.h"
#include "runtime/mode_keys.h"
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
  explicit StepProgram(ProgramSpec spec) : spec_(std::move(spec)), symbols_(&spec_) {
    const size_t count = spec_.memories.size();
    bases_.assign(count, nullptr);
    poisoned_.assign(count, false);
    adopted_.resize(count);
    storages_.resize(count);
    outputs_.resize(count);
    arenas_.resize(spec_.arenas.size());
    calls_.resize(spec_.steps.size());
    operands_.resize(1);
    for (const StepSpec& step : spec_.steps) operands_.resize(std::max(operands_.size(), static_cast<size_t>(step.batch)));
    batch_.resize(operands_.size());
  }

  int num_kernels() const override { return Count<KernelLaunch>(); }
  int num_aten_calls() const override { return Count<AtenCall>(); }
  bool bit_exact() const override { return spec_.bit_exact; }

  RunResult Run(const RunArgs& args) override {
    AtenScope scope;
    failed_ = false;
    RunResult result;
    try {
      if (symbols_.Set(args.symbols) && prepared_) Resize();
      if (!prepared_) Prepare();
      BindMemories(args);
      BindOffsets(args);
    } catch (...) {
      for (at::DataPtr& output : outputs_) output.clear();
      FreeArenas();
      result.error = std::current_exception();
      result.not_started = true;
      return result;
    }
    for (size_t i = 0; i < spec_.steps.size();) {
      // After a failure, some of those that run together may be poisoned and others not.
      const size_t count = failed_ ? 1 : static_cast<size_t>(spec_.steps[i].batch);
      if (count == 1) {
        RunStep(i, args, &result);
      } else if (spec_.steps[i].fused) {
        RunFused(i, count, args, &result);
      } else {
        RunBatch(i, count, args, &result);
      }
      i += count;
    }
    HandOver(args);
    FreeArenas();
    return result;
  }

 private:
  template <class T>
  int Count() const {
    int count = 0;
    for (const StepSpec& step : spec_.steps) count += std::holds_alternative<T>(step.work);
    return count;
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
    for (int32_t memory : step.releases) Release(memory);
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
    ReleaseAll(steps, count);
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
    ReleaseAll(steps, count);
  }

  void ReleaseAll(const StepSpec* steps, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      for (int32_t memory : steps[i].releases) Release(memory);
    }
  }

  // Builds every ATen call's tensors.
  void Prepare() {
    for (size_t i = 0; i < spec_.steps.size(); ++i) {
      if (const auto* call = std::get_if<AtenCall>(&spec_.steps[i].work)) PrepareCall(*call, &calls_[i]);
    }
    prepared_ = true;
  }

  // The symbols have other values than in the last run.
  void Resize() {
    for (size_t m = 0; m < storages_.size(); ++m) {
      if (storages_[m]) storages_[m].unsafeGetStorageImpl()->set_nbytes(spec_.memories[m].nbytes);
    }
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
    const auto keys = c10::DispatchKeySet(c10::computeDispatchKey(window.dtype, c10::kStrided, DeviceOf(window.memory)));
    at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(StorageOf(window.memory), keys, c10::scalarTypeToTypeMeta(window.dtype));
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(window.sizes, window.strides, 0);
    if (window.wrapped_number) impl->set_wrapped_number(true);
    if (window.offset_slot >= 0) prepared->offsets.push_back({impl, window.offset_slot});
    return tensor;
  }

  // The storage, owning nothing, through which ATen sees a memory.
  c10::Storage StorageOf(int32_t memory) {
    c10::Storage& storage = storages_[memory];
    if (!storage) {
      storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), spec_.memories[memory].nbytes,
                                                      at::DataPtr(nullptr, DeviceOf(memory)), /*allocator=*/nullptr, /*resizable=*/false);
    }
    return storage;
  }

  void SetBase(int32_t memory, void* base) {
    if (bases_[memory] == base) return;
    bases_[memory] = base;
    if (storages_[memory]) storages_[memory].unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(base, DeviceOf(memory)));
  }

  c10::Device DeviceOf(int32_t memory) const { return spec_.memories[memory].device; }

  void BindMemories(const RunArgs& args) {
    for (size_t a = 0; a < spec_.arenas.size(); ++a) {
      if (spec_.arenas[a].nbytes > 0) arenas_[a] = AllocateOn(spec_.arenas[a].device, spec_.arenas[a].nbytes, /*scratch=*/true);
    }
    for (size_t m = 0; m < spec_.memories.size(); ++m) {
      const MemorySpec& memory = spec_.memories[m];
      poisoned_[m] = false;
      if (memory.kind == MemorySpec::Kind::kInput) {
        c10::StorageImpl* storage = args.storages[memory.storage];
        // Memory shared lazily (at::_lazy_clone) gets its own copy before anything may write it.
        if (c10::impl::cow::is_cow_data_ptr(storage->_mutable_data_ptr_no_checks())) c10::impl::cow::materialize_cow_storage(*storage);
        SetBase(static_cast<int32_t>(m), storage->_mutable_data_ptr_no_checks().get());
        if (storages_[m]) storages_[m].unsafeGetStorageImpl()->set_nbytes(storage->nbytes());
      } else if (memory.kind == MemorySpec::Kind::kOutput) {
        outputs_[m] = AllocateOn(memory.device, memory.nbytes, /*scratch=*/false);
        SetBase(static_cast<int32_t>(m), outputs_[m].get());
      } else if (memory.kind == MemorySpec::Kind::kArena) {
        SetBase(static_cast<int32_t>(m), static_cast<char*>(arenas_[memory.arena].get()) + memory.offset);
      }
    }
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

  // For storages made while the memories are bound.
  void BindStorages(const RunArgs& args) {
    for (size_t m = 0; m < storages_.size(); ++m) {
      if (!storages_[m]) continue;
      c10::StorageImpl* storage = storages_[m].unsafeGetStorageImpl();
      storage->set_data_ptr_noswap(at::DataPtr(bases_[m], spec_.memories[m].device));
      if (spec_.memories[m].kind == MemorySpec::Kind::kInput) storage->set_nbytes(args.storages[spec_.memories[m].storage]->nbytes());
    }
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
      operands->buffers.push_back(static_cast<char*>(bases_[buffer.memory]) + offset);
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
        BindStorages(args);
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
      if (call.results[i].memory >= 0) Adopt(call, call.results[i], std::move(stack_[i]).toTensor());
    }
    stack_.clear();
  }

  bool RunKept(const AtenCall& call, const torch::jit::Stack& arguments, const RunArgs& args) {
    at::Tensor result = call.kept->Run(arguments, args.storages[spec_.memories[call.kept_input].storage]);
    if (!result.defined()) return false;
    if (call.results[0].memory >= 0) Adopt(call, call.results[0], std::move(result));
    return true;
  }

  // Takes a result's memory when nothing else holds it and its layout is the recorded one; copies it otherwise.
  void Adopt(const AtenCall& call, const WindowSpec& window, at::Tensor tensor) {
    const MemorySpec& memory = spec_.memories[window.memory];
    TORCH_CHECK(tensor.defined() && tensor.sizes() == c10::IntArrayRef(window.sizes) && tensor.scalar_type() == window.dtype,
                "lazuli: a result of ", call.name, " differs from what was recorded: ", tensor.sizes(), " ", tensor.scalar_type(),
                " instead of ", c10::IntArrayRef(window.sizes), " ", window.dtype);
    const bool fits = tensor.strides() == c10::IntArrayRef(window.strides) && tensor.storage_offset() == 0 &&
                      static_cast<int64_t>(tensor.storage().nbytes()) >= memory.nbytes;
    if (!fits || tensor.use_count() != 1 || tensor.storage().use_count() != 1) {
      at::Tensor copy = at::empty_strided(window.sizes, window.strides, tensor.options());
      copy.copy_(tensor);
      tensor = std::move(copy);
    }
    adopted_[window.memory] = tensor.storage().set_data_ptr(at::DataPtr(nullptr, memory.device));
    SetBase(window.memory, adopted_[window.memory].get());
  }

  void Release(int32_t memory) { adopted_[memory].clear(); }

  void FreeArenas() {
    for (at::DataPtr& arena : arenas_) arena.clear();
  }

  void HandOver(const RunArgs& args) {
    for (size_t m = 0; m < spec_.memories.size(); ++m) {
      const MemorySpec& memory = spec_.memories[m];
      const bool output = memory.kind == MemorySpec::Kind::kOutput;
      at::DataPtr& data = output ? outputs_[m] : adopted_[m];
      if (memory.storage >= 0 && memory.kind != MemorySpec::Kind::kInput && !poisoned_[m]) {
        args.outputs[memory.storage] = std::exchange(data, at::DataPtr());
      } else {
        data.clear();
      }
    }
  }

  ProgramSpec spec_;
  SpecSymbols symbols_;
  bool prepared_ = false;
  bool failed_ = false;
  std::vector<at::DataPtr> arenas_;  // By the spec's; only while running.
  std::vector<PreparedCall> calls_;  // By step.
  std::vector<Operands> operands_;   // Of the launch that runs, or of each of its batch. At least one.
  std::vector<BoundKernel> batch_;
  std::vector<void*> bases_;            // By memory: where it is now.
  std::vector<bool> poisoned_;          // By memory: its writer failed in this run.
  std::vector<at::DataPtr> adopted_;    // By memory.
  std::vector<at::DataPtr> outputs_;    // By memory.
  std::vector<c10::Storage> storages_;  // By memory; null when no ATen call touches it.
  torch::jit::Stack stack_;
  absl::Span<const int64_t> offsets_;  // Only while running: by slot.
  std::vector<int64_t> all_offsets_;   // Where some of them are sums.
};

}  // namespace

std::unique_ptr<Program> MakeProgram(ProgramSpec spec) { return std::make_unique<StepProgram>(std::move(spec)); }

}  // namespace lazuli::runtime
