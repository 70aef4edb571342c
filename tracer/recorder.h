// The recorder of one mode: the trace being recorded, its prediction, and its cut points.
//
// Kernels record an op through an OpRecording, which holds the recorder's lock. Cutting runs everything pending in order and starts an
// empty trace. Other threads may settle a pending storage at any time; they take the same lock.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <c10/core/DefaultDtype.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "codegen/caller_location.h"
#include "codegen/ir/op_info.h"
#include "codegen/ir/trace_log.h"
#include "guards/alias_pattern.h"
#include "guards/novelty.h"
#include "guards/program_cache.h"
#include "guards/recording_trial.h"
#include "guards/shape_plan.h"
#include "runtime/cuda_driver.h"
#include "runtime/device.h"
#include "runtime/events.h"
#include "runtime/kernel_settings.h"
#include "tracer/block_cutter.h"
#include "tracer/foreign_memory.h"
#include "tracer/head_start.h"
#include "tracer/lazy_tensor.h"
#include "tracer/live_bytes.h"
#include "tracer/loop_finder.h"
#include "tracer/reentrant_lock.h"
#include "tracer/scopes.h"

namespace lazuli::tracer {

// What a cut is for.
enum class Cut : uint8_t {
  kGraphBreak,    // The program reads data, runs an operator that cannot be recorded, or syncs.
  kTransient,     // An op is observed for the first time. Will not come back at this place, so not worth compiling for.
  kHousekeeping,  // A budget, the end of the mode, a fork, a reset.
};

class Recorder {
 public:
  Recorder();

  // The recorder of the mode that this thread works under; null outside modes.
  static Recorder* Current();

  // Runs everything pending. Rethrows the first error of an op; throws when the stance or an option forbids what the trace needs: in full
  // graphs before anything has run, for compiles after all of it. `cause` goes to the log, the counters and the next trace's site.
  void Flush(std::string_view cause, Cut cut = Cut::kGraphBreak);

  // For Settle(): runs what `storage` waits for, if it still waits.
  void SettleStorage(c10::StorageImpl* storage);

  // Before something that comes after what was launched on a GPU's stream, or on any of them: launches what is pending for it.
  void FlushStream(std::optional<runtime::CudaStreamHandle> stream, std::string_view cause, Cut cut);

  // Another thread is about to write `storage`: runs the trace if it has it as an input, and takes back what counted on it.
  void FlushReader(c10::StorageImpl* storage);

  // The first recorder of a mode; null when there has been none.
  static Recorder* First() { return first.load(std::memory_order_acquire); }
  static void SetFirst(Recorder* recorder) { first.store(recorder, std::memory_order_release); }
  // Whether any recorder has begun a trace.
  static bool AnyBegun() { return Begun::count.load(std::memory_order_relaxed) > 0; }
  // Whether the trace may have `storage` as an input, or steps that run ahead may count on it, for a thread that does not hold the lock:
  // false only if it is not so. Where there is one recorder.
  bool MayHold(c10::StorageImpl* storage) const {
    return AsLazy(storage) == nullptr || NumberOfLazy(storage) >= 0 || HeadStart::AnyActive();
  }

  // There are other recorders: from here on inputs are registered.
  void Share();

  // A pending storage lost its last user. Any thread.
  void OnStorageReleased(LazyStorage* storage);

  // Whether running an op on `tensor` eagerly needs a cut first: its data is pending or, when the op `writes` it, read by the pending
  // trace. A storage that was only allocated so far gets its memory instead of a cut.
  bool NeedsCut(const at::Tensor& tensor, bool writes);

  // Whether `tensor` is a 0-dim CPU tensor whose value is at hand, so that an operator may run at once that reads it or, if it `writes`,
  // overwrites it.
  bool IsSettledNumber(const at::Tensor& tensor, bool writes);

  // Operator `op_id` is next. Cuts when the trace has reached its budget of ops or pending bytes, the end of a block, or that of a step of
  // training, so that a loop in which nobody waits is cut as one that waits after each step; and where the default dtype, or what kernels
  // read of settings, has become another one. The lock is held.
  void CutOverBudget(int32_t op_id) {
    if (log_.ops.empty()) {
      BeginTrace(op_id);
    } else if (parameters_updated_ && at::GradMode::is_enabled() && EndsStep()) {
      due_ = kStep;
      CutDue(op_id);
    } else if (log_.ops.size() >= max_ops_ || pending_bytes_ >= max_pending_bytes_ ||
               (input_bytes_ >= look_at_inputs_at_ && HoldsTooMuch())) {
      CutDue(op_id);
    } else if (c10::get_default_dtype_as_scalartype() != default_dtype_) {
      due_ = kDefaultDtype;
      CutDue(op_id);
    } else if (runtime::KernelSettings::Current() != settings_) {
      due_ = kSettings;
      CutDue(op_id);
    } else if (loops_.EndsBefore(op_id) && !Foresees(op_id)) {
      due_ = guards::kEnding;
      CutDue(op_id);
    }
    if (log_.ops.size() >= run_ahead_at_) RunAhead();
  }

  // Somebody is about to use the memory of `storage`, perhaps to write it. Takes a head start back that counts on it, and has not recorded
  // it yet.
  void NoteUse(c10::StorageImpl* storage);

  // Whether the trace keeps `storage`, an input, alive.
  bool Holds(c10::StorageImpl* storage);

  // Somebody asks for the memory of `storage`, perhaps to write it. Runs the trace if it is yet to read it and the program asks (not a
  // kernel that runs for it); else as NoteUse.
  void NoteAccess(c10::StorageImpl* storage, bool by_program);

  // Another number after each operator that is recorded, and for each recorder. Any thread.
  uint64_t mark() const { return mark_.load(std::memory_order_relaxed); }

  // Cuts when the trace is yet to read memory that others may overwrite: operations are about to go past the recorder.
  void SettleReads(Cut cut);

  // Records again after stepping aside: `finished` is the trace that was just run eagerly; null when that was left in the middle, or
  // unknown. `cause` is that of the cut that came last.
  void ResumeAfter(const guards::CachedTracePtr& finished, std::string_view cause);
  // A trace that starts with operator `op_id` where nothing is recorded yet; null: nobody knows.
  guards::CachedTracePtr ExpectedWith(int32_t op_id);

  // Whether nothing is pending.
  bool IsEmpty() const { return log_.ops.empty(); }

  // Whether the trace that begins now, of which nothing is known or which is best not recorded, is to be recorded.
  bool LooksAtNextTrace();
  // So many operators ran eagerly and were not recorded. Of this thread's recorder.
  void NoteEagerOps(size_t num_ops);
  // Whether the options and scopes leave it open what runs eagerly, trace after trace.
  bool MayStepAsideAcrossCuts() const;

  // For operators that run eagerly where blocks would be recorded: whether one of `size` operators ends after this one.
  bool EndsBlockAfter(int32_t op_id, size_t size) { return block_cutter_.EndsAfter(codegen::OpInfoById(op_id).name_hash, size); }

  // Forgets prediction state.
  void ForgetPrediction();

  Scopes& scopes() { return scopes_; }

 private:
  friend class OpRecording;
  friend class RecorderLock;

  // One storage of the current trace.
  struct Slot {
    c10::StorageImpl* impl = nullptr;  // Null once a created storage was released or detached.
    bool is_input = false;
    bool mutated = false;    // Inputs: has pending writes.
    bool unwritten = false;  // Created by an allocation and not mentioned since.
    bool parameter = false;  // Inputs: a leaf that requires grad.
  };
  struct OffsetKey {
    uint32_t storage;
    c10::ScalarType dtype;
    int64_t offset;
    bool operator==(const OffsetKey& o) const { return storage == o.storage && dtype == o.dtype && offset == o.offset; }
    template <typename H>
    friend H AbslHashValue(H h, const OffsetKey& k) {
      return H::combine(std::move(h), k.storage, static_cast<int>(k.dtype), k.offset);
    }
  };
  // What a run needs, gathered from the slots.
  struct Binding {
    std::vector<c10::StorageImpl*> storages;
    std::vector<c10::intrusive_ptr<c10::StorageImpl>> proxies;
    std::vector<at::DataPtr> outputs;
    std::vector<uint8_t> unshared;
  };

  // A program that changes settings oftener than this does not only do so before its work begins.
  static constexpr int kMostSettingsAtStart = 8;
  // Causes of cuts where a trace may as well end, and of those where it must.
  static constexpr std::string_view kBlock = guards::kBlock, kLoop = guards::kLoop, kFull = "trace_limit", kStep = "step",
                                    kDefaultDtype = "default_dtype", kSettings = "settings";

  void CutDue(int32_t op_id);
  // The next op is recorded with grad mode on, after parameters were updated. Whether it begins another step than the trace has: not where
  // that began with an update, as between a loss that is read and the next, nor between updates that are computed with grad mode on.
  bool EndsStep() {
    parameters_updated_ = false;
    const bool has_backward_pass = std::exchange(has_backward_pass_, false);
    return std::exchange(has_forward_pass_, true) && has_backward_pass;
  }
  // An op was recorded.
  void FollowStep(bool writes_parameters) {
    if (writes_parameters) {
      parameters_updated_ = parameters_updated_ || !at::GradMode::is_enabled();
    } else if (has_forward_pass_ && !has_backward_pass_) {
      has_backward_pass_ = !at::GradMode::is_enabled();
    }
  }
  // Whether the sizes that make the predicted program's symbols are recorded.
  bool SymbolsAreSeen() const;
  // Runs what can run of the predicted program.
  void RunAhead();
  void TakeBackHeadStart();
  // What the trace has so far, for a program of `trace`; of storages, with `only_foretellable`, those that may be foretold.
  RecordedArgs Recorded(const guards::CachedTrace& trace, bool only_foretellable) const;
  // Whether this trace may have a head start, if it is predicted.
  bool MayRunAhead() const;
  // With CUDA graphs: whether this trace, as predicted, rather has a head start.
  bool IsBetterAhead() const;
  // After each op: whether a round of a loop ends here, or a block, if this trace is recorded in those.
  void FollowLoops() {
    if (!loops_.EndsAfter(log_.ops.back().op_id, live_bytes_.Count(), in_blocks_)) return;
    max_ops_ = log_.ops.size();
    due_ = kLoop;
  }
  void FollowBlocks() {
    if (log_.ops.size() == advice_at_ && (prediction_ == nullptr || prediction_->site->refuses)) FollowAdvice();
    if (in_blocks_) EndBlock();
  }
  void EndBlock();
  void FollowAdvice();
  // Whether the trace is predicted to go on with operator `op_id`, or there is a program for one that does.
  bool Foresees(int32_t op_id) const;
  // Of the cut before this trace, or, where traces are cut into pieces that come back, what these have in common.
  std::string_view StartCause() const { return in_blocks_ ? kBlock : due_ == kLoop ? kLoop : std::string_view(start_cause_); }
  // A trace was cut for which there was none in the cache, or one.
  void NoteNovelty(bool is_new);
  // The trace was cut for `cause`. `known` came before and runs it; null: it is new, or has none.
  void NoteRecordedOps(const guards::CachedTracePtr& known, std::string_view cause);
  // So many operators came, recorded or not; for `doubtful` of them recording may have been in vain.
  void NoteOps(size_t num_ops, size_t doubtful);
  // Where a trace is new, with `entry` for it, null where it may have none: whether such traces are to be cut between rounds of a loop.
  void LookForLoops(const guards::CachedTracePtr& entry);
  // Whether the options and scopes leave it open what runs eagerly.
  bool MayStepAside() const;
  // The number of `storage` in this trace, added as an input when new; -1 when it cannot take part.
  int32_t StorageNumber(c10::StorageImpl* storage, bool* first_use);
  int32_t FindStorage(c10::StorageImpl* storage) const;
  // The same of a storage of ours, at a glance; -1 for others, and where another recorder has numbered it since.
  int32_t NumberOfLazy(c10::StorageImpl* storage) const {
    const LazyStorage* lazy = AsLazy(storage);
    return lazy == nullptr ? -1 : lazy->NumberIn(epoch());
  }
  uint32_t OffsetSlot(uint32_t storage, c10::ScalarType dtype, int64_t offset);
  // From here on `storage` has pending writes. False, and it has not: another thread uses it.
  bool MarkMutated(uint32_t storage);
  // Takes it back: nothing was recorded that writes `storage`.
  void UnmarkMutated(uint32_t storage);
  // The contents of `storage` are there.
  static void OpenStorage(c10::StorageImpl* storage);
  void DetachUnwritten(uint32_t storage);
  void UndoInputs(size_t num_slots);

  void AppendLiveOut();
  guards::CachedTracePtr FindOrCompile(Cut cut, guards::CompilePolicy* policy, runtime::TraceRun::Found* found);
  // A trace that is this one but for which of its inputs share memory; null when there is none. When there is, or when this one came
  // with others before, this one becomes what has a number for each mention of them.
  guards::CachedTracePtr FindSeparated();
  // What runs instead of `known`, the program of which may serve all sizes: a trace of these sizes alone, if they come again and again.
  guards::CachedTracePtr PreferOwnSizes(guards::CachedTracePtr known, const guards::CompilePolicy& policy, runtime::TraceRun::Found* found);
  void Separate(guards::SeparatedLog separated);
  void CompleteOutputs();
  // Whether the trace so far is the predicted one.
  bool FollowsPrediction(size_t code_begin, size_t shapes_begin);
  // Where the first operator is not as predicted: whether another trace that came here of late begins like this. It is predicted then.
  bool TakesOtherBeginning(size_t code_begin, size_t shapes_begin);
  bool FollowsToTheEnd() const;
  // The metadata of the results of operator `op` of the predicted trace; null when it has to be inferred.
  const codegen::OutputMetas* PredictedResults(size_t op);
  // Sizes that the program marked, or LAZULI_DYNAMIC=1 did.
  std::vector<codegen::SizeMark> Marks() const;
  Binding Bind();
  runtime::RunResult RunPrograms(const guards::CachedTracePtr& entry, bool in_background, Binding* binding);
  // Calls `run` with the trace's stream as the current one, and says that the recorder is busy.
  template <class Run>
  void OnStream(const Run& run);
  // The values of `trace`'s symbols in the current trace, which is, so far or whole, as `trace`. Empty where some are not known yet.
  absl::Span<const int64_t> SymbolsAs(const guards::CachedTrace& trace) const;
  void Distribute(Binding* binding, const runtime::RunResult& result);
  // Says in the error, when the call stacks are kept, which op of the trace failed and where the program called it.
  void AddLocation(const runtime::RunResult& result) const;
  void StartTrace(std::string_view cause, const guards::CachedTracePtr& previous);
  // With operator `op_id`.
  void BeginTrace(int32_t op_id);
  void BeginPrediction();
  void NoteSettings(runtime::KernelSettings settings);
  // Sets the budgets of a trace on `device`: of pending results, and of inputs that nobody but the trace holds any more.
  void LimitBytes(c10::Device device);
  // Whether these have come to theirs, or both together to that of results.
  bool HoldsTooMuch();
  void UnlockWithGarbage();

  uint64_t epoch() const { return epoch_.load(std::memory_order_relaxed); }

  // Whether the trace has begun, and how many recorders' have.
  struct Begun {
    Begun() = default;
    ~Begun() { Set(false); }
    Begun(const Begun&) = delete;
    Begun& operator=(const Begun&) = delete;
    void Set(bool begun) {
      if (begun != has_begun) count.fetch_add(begun ? 1 : -1, std::memory_order_relaxed);
      has_begun = begun;
    }
    static inline std::atomic<int> count{0};
    bool has_begun = false;
  };

  static std::atomic<Recorder*> first;

  ReentrantLock mutex_;
  Begun begun_;
  std::vector<c10::StorageImpl*> registered_;  // Inputs that other threads find (RegisterInput), in order.
  bool running_ = false;

  codegen::TraceLog log_;
  std::vector<Slot> slots_;
  absl::flat_hash_map<c10::StorageImpl*, int32_t> input_numbers_;
  bool shared_ = false;  // Inputs are registered (shared_storages.h).
  absl::flat_hash_map<OffsetKey, uint32_t> offset_slots_;
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> inputs_;   // Keeps inputs alive until the trace has run.
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> garbage_;  // Released after the lock: a deleter may run foreign code.
  std::atomic<uint64_t> epoch_{0};                             // Changed under the lock.
  std::atomic<uint64_t> mark_{0};
  int64_t pending_bytes_ = 0;
  int64_t input_bytes_ = 0, look_at_inputs_at_ = 0;  // Of all inputs; the program may have let go of enough of them from there on.
  bool better_ahead_ = false;
  size_t max_ops_ = 0;  // Budgets of the current trace, read at its first op.
  int64_t max_pending_bytes_ = 0, max_held_bytes_ = 0;
  int64_t record_start_ = 0;         // EventTime() at its first op.
  bool has_forward_pass_ = false;    // It has ops that were recorded with grad mode on,
  bool has_backward_pass_ = false;   // after them others with it off,
  bool parameters_updated_ = false;  // and writes of parameters with it off: an optimizer's work.

  guards::CachedTracePtr prediction_;  // The trace that the current one has followed so far; null when it left it.
  std::optional<c10::Stream> stream_;  // That work for the trace's GPU goes to; none while it has no op on one.
  guards::ShapeCursor symbols_;        // Active when it follows it with other sizes.
  guards::CachedTracePtr previous_;
  std::string start_cause_ = "start";
  Scopes scopes_;

  ForeignMemory foreign_;
  size_t advice_at_ = 0;  // So many operators into the trace, and some after it left what was predicted, what is best for it is looked up.
  std::vector<guards::ForkKeys> forks_;  // What it was then.
  bool in_blocks_ = false;
  std::string_view due_ = kFull;  // Cause of the cut at max_ops_.
  BlockCutter block_cutter_;
  LoopFinder loops_;
  guards::Novelty novelty_;
  guards::RecordingTrial recording_trial_;
  LiveBytes live_bytes_;
  HeadStart head_start_;
  size_t run_ahead_at_ = HeadStart::kNever;                 // So many operators into the trace.
  c10::ScalarType default_dtype_ = c10::ScalarType::Float;  // torch::get_default_dtype() for all operators of the trace.
  runtime::KernelSettings settings_;                        // So, for all of them.
  uint16_t settings_number_ = 0;
  int settings_changes_ = 0;
  bool all_dynamic_ = false;                // LAZULI_DYNAMIC=1, as of the trace's first op.
  bool keeps_stacks_ = false;               // LAZULI_STACKS, as of the trace's first op.
  std::vector<codegen::CallStack> stacks_;  // By op: where the program called it.
};

// Locks a recorder; re-entrant. What the trace kept alive is released after the outermost unlock.
class RecorderLock {
 public:
  explicit RecorderLock(Recorder* recorder) : recorder_(recorder) { recorder_->mutex_.lock(); }
  ~RecorderLock() {
    if (recorder_->mutex_.depth() == 0 && !recorder_->garbage_.empty()) {
      recorder_->UnlockWithGarbage();
    } else {
      recorder_->mutex_.unlock();
    }
  }
  RecorderLock(const RecorderLock&) = delete;
  RecorderLock& operator=(const RecorderLock&) = delete;

 private:
  Recorder* recorder_;
};

// Records one op: Begin, one Add call per schema argument in order, then Finish. Destroyed without a successful Finish, it takes back
// everything it added.
class OpRecording {
 public:
  OpRecording(Recorder* recorder, const codegen::OpInfo& info);
  ~OpRecording();
  OpRecording(const OpRecording&) = delete;
  OpRecording& operator=(const OpRecording&) = delete;

  // False from any Add: the op cannot be recorded.
  bool AddTensor(const at::Tensor& tensor);
  bool AddTensorList(at::ArrayRef<at::Tensor> tensors);
  void AddListHeader(size_t size);  // Followed by `size` AddTensorItem calls.
  bool AddTensorItem(const at::Tensor& tensor);
  void EndList() { ++arg_; }
  void AddNone();
  void AddInt(int64_t value);
  void AddBool(bool value);
  void AddDouble(double value);  // A `float` argument: run time, or part of the skeleton for static_scalars ops.
  bool AddScalar(const at::Scalar& value);
  bool AddDevice(c10::Device device);  // Of the results.
  void AddIntList(at::IntArrayRef values);
  void AddDoubleList(at::ArrayRef<double> values);
  void AddBoolList(const bool* values, size_t size);
  void AddString(std::string_view value);

  // The outputs' metadata from the prediction or from memory; null when the op was never seen with these arguments: then Learn.
  const codegen::OutputMetas* Known();
  // The op and whatever of its arguments decides its outputs' metadata.
  std::vector<codegen::Word> ShapeKey() const;
  // Remembers the outputs' metadata for these arguments.
  const codegen::OutputMetas* Learn(codegen::OutputMetas outputs);
  // Whether the result's type holds every number: nearly all of ATen's kernels throw where it does not. After Known.
  bool NumbersFit() const { return !wide_number_.has_value() || FitsResult(*wide_number_); }
  // After the arguments: whether the operands and the results are on one device, and work for it goes where the trace's does. Numbers on
  // the CPU may meet a GPU's tensors, as they may in ATen.
  bool IsOnOneDevice();
  // Whether it may throw since it is not deterministic (determinism.h). After IsOnOneDevice.
  bool MayRefuse() const;
  // Where the operator runs. After IsOnOneDevice.
  c10::Device device() const { return runtime::DeviceOf(device_); }
  // Whether written windows overlap others in a way that only eager execution checks.
  bool OverlapsAreSafe() const { return info_.mutated_args == 0 || WritesAreApart(); }
  // Whether running the op takes less than recording it would, and holds nothing up: a number is computed from numbers (0-dim CPU tensors,
  // such as an optimizer's step counters) whose values are at hand. The program often reads it next. After Known.
  bool RunsAtOnce() const;

  // Makes the op part of the trace. Afterwards Result(i) makes the lazy tensor of output i, once each, in order. False: other threads use
  // what it writes.
  bool Commit();
  at::Tensor Result(size_t index);

 private:
  struct Operand {
    uint32_t storage;
    uint32_t code_position;
    uint32_t shape_position;
    uint8_t ndim;
    bool known_offset;
    bool mutated;
  };

  void NoteDevice(runtime::DeviceCode device, bool is_number);
  bool WritesAreApart() const;
  bool MarkMutatedOperands();
  void Append(codegen::Word word) { recorder_->log_.code.push_back(word); }
  // Whether the next argument's numbers are sizes.
  bool HoldsSizes() const { return (info_.size_args >> arg_ & 1) != 0; }
  void AddSlot(c10::ScalarType type, uint64_t bits);
  void AddNumberSlot(c10::ScalarType type, uint64_t bits);
  bool NumbersAreAlike() const;
  bool AddWrappedNumber(const at::Tensor& tensor);
  bool FitsResult(const at::Scalar& number) const;
  bool HasComplexOperand() const;

  Recorder* recorder_;
  RecorderLock lock_;
  const codegen::OpInfo& info_;
  size_t code_begin_, shapes_begin_, scalars_begin_, offsets_begin_, slots_begin_;
  c10::SmallVector<Operand, 8> operands_;
  bool only_settled_numbers_ = true;  // Every operand is 0-dim, nothing pending writes it, and nothing pending reads what the op writes.
  c10::SmallVector<uint32_t, 8> slot_positions_;  // Of kScalarSlot words in the code.
  std::optional<at::Scalar> wide_number_;         // The last number that may not fit some integer type; usually none.
  uint64_t numbers_ = 0;                          // Bit i: the op's slot i is a number that its kernel gets, and may refuse.
  int arg_ = 0;
  runtime::DeviceCode device_ = runtime::kCpuCode;   // Of the operands.
  std::optional<runtime::DeviceCode> asked_device_;  // For the results.
  bool on_cpu_ = false;                              // An operand is there that has to be where the others are.
  bool writes_parameters_ = false;
  bool refused_ = false;  // Operands are on two GPUs, or what is asked for is not recorded.
  bool predicted_ = false;
  bool committed_ = false;
  codegen::OutputMetasPtr outputs_;
  const codegen::OutputMetas* metas_ = nullptr;
  int32_t next_result_ = 0;
};

// Metadata remembered by op and arguments, for the process; null when there is none. Null may be remembered too: the results have no
// shape that could be known. Thread-safe.
codegen::OutputMetasPtr RecallShapes(const std::vector<codegen::Word>& key);
bool CannotBeObserved(const std::vector<codegen::Word>& key);
void RememberShapes(std::vector<codegen::Word> key, codegen::OutputMetasPtr outputs);
void ForgetShapes();

}  // namespace lazuli::tracer
