#include "tracer/recorder.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/COW.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "absl/strings/str_format.h"
#include "guards/guard.h"
#include "runtime/counters.h"
#include "runtime/events.h"
#include "runtime/log.h"
#include "runtime/options.h"
#include "tracer/mode.h"
#include "tracer/shared_storages.h"
#include "tracer/step_aside.h"

namespace lazuli::tracer {
namespace {

// Epochs are unique in the process, so that a storage of one recorder's trace is never taken for another's.
std::atomic<uint64_t> next_epoch{1};

constexpr size_t kMaxRememberedShapes = 1 << 18;

struct WordsHash {
  size_t operator()(const std::vector<codegen::Word>& words) const { return codegen::HashWords(words.data(), words.size(), 0); }
};

struct ShapeMemory {
  std::mutex mutex;
  absl::flat_hash_map<std::vector<codegen::Word>, codegen::OutputMetasPtr, WordsHash> by_key;
};

ShapeMemory& GetShapeMemory() {
  static auto* memory = new ShapeMemory;
  return *memory;
}

bool ShareMemory(c10::StorageImpl& a, c10::StorageImpl& b) {
  const auto begin = [](c10::StorageImpl& storage) { return static_cast<const char*>(DataOf(&storage).get()); };
  return begin(a) < begin(b) + b.nbytes() && begin(b) < begin(a) + a.nbytes();
}

size_t TraceLimit() { return static_cast<size_t>(runtime::Active().trace_limit); }

LoopFinder::Cut LoopCutFor(std::string_view cause, std::string_view full) {
  if (guards::IsOfPieces(cause)) return LoopFinder::Cut::kPiece;
  if (cause == guards::kEnding) return LoopFinder::Cut::kBeforeEnding;
  return cause == full ? LoopFinder::Cut::kFull : LoopFinder::Cut::kStop;
}

}  // namespace

codegen::OutputMetasPtr RecallShapes(const std::vector<codegen::Word>& key) {
  auto& memory = GetShapeMemory();
  std::lock_guard<std::mutex> lock(memory.mutex);
  const auto it = memory.by_key.find(key);
  return it == memory.by_key.end() ? nullptr : it->second;
}

bool CannotBeObserved(const std::vector<codegen::Word>& key) {
  auto& memory = GetShapeMemory();
  std::lock_guard<std::mutex> lock(memory.mutex);
  const auto it = memory.by_key.find(key);
  return it != memory.by_key.end() && it->second == nullptr;
}

void RememberShapes(std::vector<codegen::Word> key, codegen::OutputMetasPtr outputs) {
  auto& memory = GetShapeMemory();
  std::lock_guard<std::mutex> lock(memory.mutex);
  if (memory.by_key.size() >= kMaxRememberedShapes) memory.by_key.clear();
  memory.by_key[std::move(key)] = std::move(outputs);
}

void ForgetShapes() {
  auto& memory = GetShapeMemory();
  std::lock_guard<std::mutex> lock(memory.mutex);
  memory.by_key.clear();
}

std::atomic<Recorder*> Recorder::first{nullptr};

Recorder::Recorder() : epoch_(next_epoch++) {}

int32_t Recorder::FindStorage(c10::StorageImpl* storage) const {
  const int32_t known = NumberOfLazy(storage);
  if (known >= 0) return known;
  const auto it = input_numbers_.find(storage);
  return it == input_numbers_.end() ? -1 : it->second;
}

int32_t Recorder::StorageNumber(c10::StorageImpl* storage, bool* first_use) {
  const int32_t known = FindStorage(storage);
  if (known >= 0) return known;
  // Pending in another mode's recorder, guarded by somebody else, or copy-on-write: eager execution deals with it.
  if (IsPending(*storage) || c10::impl::cow::is_cow_data_ptr(DataOf(storage))) return -1;
  const int32_t number = log_.num_storages;
  if (static_cast<uint32_t>(number) >= codegen::kMaxStorages) return -1;
  // Tensors that the recorder has not met may be among the users of memory that was not made here.
  const bool has_others = AsLazy(storage) == nullptr && c10::raw::intrusive_ptr::use_count(storage) > 1;
  if (shared_ && !RegisterSettledInput(storage, this)) return -1;
  if (!shared_ && has_others) RegisterInput(storage, this);
  if (shared_ || has_others) registered_.push_back(storage);
  ++log_.num_storages;
  *first_use = true;
  if (LazyStorage* lazy = AsLazy(storage)) lazy->SetNumber(epoch(), number);
  input_numbers_.emplace(storage, number);
  Slot slot;
  slot.impl = storage;
  slot.is_input = true;
  slots_.push_back(slot);
  inputs_.push_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
  input_bytes_ += static_cast<int64_t>(storage->nbytes());
  return number;
}

uint32_t Recorder::OffsetSlot(uint32_t storage, c10::ScalarType dtype, int64_t offset) {
  const auto [it, inserted] = offset_slots_.try_emplace(OffsetKey{storage, dtype, offset}, static_cast<uint32_t>(log_.offsets.size()));
  if (inserted) log_.offsets.push_back(offset);
  return it->second;
}

void Recorder::UndoInputs(size_t num_slots) {
  while (slots_.size() > num_slots) {
    c10::StorageImpl* impl = slots_.back().impl;
    if (LazyStorage* lazy = AsLazy(impl)) lazy->ClearNumber(epoch(), static_cast<int32_t>(slots_.size()) - 1);
    input_numbers_.erase(impl);
    if (!registered_.empty() && registered_.back() == impl) {
      UnregisterInput(impl, this);
      registered_.pop_back();
    }
    input_bytes_ -= static_cast<int64_t>(impl->nbytes());
    garbage_.push_back(std::move(inputs_.back()));
    inputs_.pop_back();
    slots_.pop_back();
    --log_.num_storages;
  }
}

bool Recorder::MarkMutated(uint32_t storage) {
  Slot& slot = slots_[storage];
  const auto mark = [this, &slot] {
    slot.mutated = true;
    if (LazyStorage* lazy = AsLazy(slot.impl)) {
      lazy->recorder.store(this, std::memory_order_release);
    } else {
      RegisterPendingPlain(slot.impl, this);
    }
    SetPending(slot.impl, true);
  };
  if (shared_) return MarkUnlessShared(slot.impl, this, mark);
  mark();
  return true;
}

void Recorder::UnmarkMutated(uint32_t storage) {
  Slot& slot = slots_[storage];
  slot.mutated = false;
  OpenStorage(slot.impl);
}

// Whoever finds a storage pending finds out where: that it is not any more comes first.
void Recorder::OpenStorage(c10::StorageImpl* storage) {
  SetPending(storage, false);
  if (LazyStorage* lazy = AsLazy(storage)) {
    lazy->LeaveRecorder();
  } else {
    UnregisterPendingPlain(storage);
  }
}

void Recorder::OnStorageReleased(LazyStorage* storage) {
  RecorderLock lock(this);
  // Inputs are kept alive by the trace, so this is a created storage (or one whose trace has just run).
  const int32_t number = storage->NumberIn(epoch());
  if (storage->recorder.load(std::memory_order_relaxed) != this || number < 0) return;
  slots_[number].impl = nullptr;
  pending_bytes_ -= static_cast<int64_t>(storage->nbytes());
  storage->LeaveRecorder();
}

void Recorder::DetachUnwritten(uint32_t storage) {
  Slot& slot = slots_[storage];
  auto* lazy = static_cast<LazyStorage*>(slot.impl);
  const c10::DeviceGuard guard(lazy->device());
  lazy->set_data_ptr_noswap(runtime::AllocatorOf(lazy->device())->allocate(lazy->nbytes()));
  lazy->ClearNumber(epoch(), static_cast<int32_t>(storage));
  SetPending(lazy, false);
  slot.impl = nullptr;
  slot.unwritten = false;
  pending_bytes_ -= static_cast<int64_t>(lazy->nbytes());
  lazy->LeaveRecorder();
}

void Recorder::SettleStorage(c10::StorageImpl* storage) {
  RecorderLock lock(this);
  const int32_t number = FindStorage(storage);
  if (!IsPending(*storage) || number < 0) return;
  if (slots_[number].unwritten) {
    DetachUnwritten(static_cast<uint32_t>(number));
    return;
  }
  Flush("data_ptr");
}

void Recorder::FlushReader(c10::StorageImpl* storage) {
  RecorderLock lock(this);
  if (input_numbers_.contains(storage)) Flush("written_elsewhere");
  NoteUse(storage);
}

void Recorder::Share() {
  RecorderLock lock(this);
  if (shared_) return;
  shared_ = true;
  run_ahead_at_ = HeadStart::kNever;
  TakeBackHeadStart();
  for (c10::StorageImpl* const storage : registered_) UnregisterInput(storage, this);
  registered_.clear();
  for (const auto& input : inputs_) {
    RegisterInput(input.get(), this);
    registered_.push_back(input.get());
  }
}

bool Recorder::NeedsCut(const at::Tensor& tensor, bool writes) {
  c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  if (storage == nullptr) return false;
  if (const LazyStorage* lazy = AsLazy(storage); lazy != nullptr && lazy->error != nullptr) std::rethrow_exception(lazy->error);
  RecorderLock lock(this);
  const int32_t number = FindStorage(storage);
  if (number < 0) {
    if (writes) NoteUse(storage);
    // Memory of a tensor that went out through its pointer and came back as another's.
    return IsForeign(storage) && std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
             return slot.is_input && (writes || slot.mutated) && ShareMemory(*slot.impl, *storage);
           });
  }
  if (slots_[number].unwritten) {
    DetachUnwritten(static_cast<uint32_t>(number));
    return false;
  }
  return writes || IsPending(*storage);
}

void Recorder::NoteUse(c10::StorageImpl* storage) {
  RecorderLock lock(this);
  if (running_ || FindStorage(storage) >= 0 || !head_start_.CountsOn(storage)) return;
  run_ahead_at_ = HeadStart::kNever;
  TakeBackHeadStart();
}

bool Recorder::Holds(c10::StorageImpl* storage) {
  RecorderLock lock(this);
  const int32_t number = FindStorage(storage);
  return number >= 0 && slots_[static_cast<size_t>(number)].is_input;
}

void Recorder::NoteAccess(c10::StorageImpl* storage, bool by_program) {
  RecorderLock lock(this);
  if (by_program && !running_ && FindStorage(storage) >= 0) Flush("data_ptr");
  NoteUse(storage);
}

void Recorder::SettleReads(Cut cut) {
  RecorderLock lock(this);
  const bool reads = std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.is_input && !slot.mutated; });
  if (reads) Flush("eager_scope", cut);
}

void Recorder::BeginTrace(int32_t op_id) {
  begun_.Set(true);
  if (prediction_ != nullptr && prediction_->log.ops.front().op_id != op_id) {
    if (guards::CachedTracePtr other = ExpectedWith(op_id)) {
      prediction_ = std::move(other);
      guards::ProgramCache::Get().NoteSuccessor(previous_, start_cause_, prediction_);
    }
  }
  default_dtype_ = c10::get_default_dtype_as_scalartype();
  NoteSettings(runtime::KernelSettings::Current());
  max_ops_ = TraceLimit();
  BeginPrediction();
  LimitBytes(c10::kCPU);
  keeps_stacks_ = runtime::Active().stacks;
  all_dynamic_ = runtime::Active().dynamic == runtime::When::kAlways;
  record_start_ = runtime::EventTime();
  has_forward_pass_ = at::GradMode::is_enabled();
  has_backward_pass_ = parameters_updated_ = false;
}

void Recorder::BeginPrediction() {
  better_ahead_ = runtime::Active().cudagraphs && IsBetterAhead();
  run_ahead_at_ = head_start_.OnBegin(MayRunAhead() ? prediction_.get() : nullptr);
}

bool Recorder::TakesOtherBeginning(size_t code_begin, size_t shapes_begin) {
  if (!log_.ops.empty() || prediction_ == nullptr) return false;
  const guards::CachedTracePtr expected = prediction_;
  auto& cache = guards::ProgramCache::Get();
  for (const guards::CachedTracePtr& other : cache.AllSuccessors(previous_, start_cause_)) {
    symbols_.Stop();
    if (other == expected || other->body->trial.runs_eagerly()) continue;
    prediction_ = other;
    if (!FollowsPrediction(code_begin, shapes_begin)) continue;
    cache.NoteSuccessor(previous_, start_cause_, other);
    BeginPrediction();
    return true;
  }
  symbols_.Stop();
  prediction_ = expected;
  return false;
}

// What is pending takes no memory yet; inputs that the program has let go of do, which eager mode would have used again.
void Recorder::LimitBytes(c10::Device device) {
  constexpr int64_t kMostOnCpu = int64_t{2} << 30, kHeldShare = 16;
  const int64_t asked = runtime::Active().trace_bytes, all = device.is_cpu() ? 0 : runtime::MemoryOf(device);
  max_pending_bytes_ = asked > 0 ? asked : std::max(kMostOnCpu, all / 4);
  max_held_bytes_ = asked > 0 ? asked : max_pending_bytes_ / kHeldShare;
  look_at_inputs_at_ = max_held_bytes_;
}

bool Recorder::HoldsTooMuch() {
  int64_t held = 0;
  for (const auto& input : inputs_) held += input.use_count() == 1 ? static_cast<int64_t>(input->nbytes()) : 0;
  const int64_t left = std::min(max_held_bytes_ - held, max_pending_bytes_ - pending_bytes_ - held);
  look_at_inputs_at_ = input_bytes_ + std::max<int64_t>(left, 0);
  return left <= 0;
}

void Recorder::NoteSettings(runtime::KernelSettings settings) {
  if (settings == settings_ && settings_changes_ != 0) return;
  settings_ = settings;
  settings_number_ = settings.number();
  if (settings_changes_ <= kMostSettingsAtStart) ++settings_changes_;
}

void Recorder::EndBlock() {
  if (!EndsBlockAfter(log_.ops.back().op_id, log_.ops.size())) return;
  max_ops_ = log_.ops.size();
  due_ = kBlock;
}

void Recorder::CutDue(int32_t op_id) {
  if (due_ == kFull) loops_.OnFullTrace(TraceLimit());
  Flush(due_, Cut::kHousekeeping);
  BeginTrace(op_id);
}

bool Recorder::MayRunAhead() const {
  // Others may want to run the same program meanwhile; a graph is launched as a whole; steps that are being launched read settings that the
  // program may be changing.
  const auto& active = runtime::Active();
  return !shared_ && settings_changes_ <= kMostSettingsAtStart && (!active.cudagraphs || better_ahead_) && active.verify == 0;
}

bool Recorder::IsBetterAhead() const {
  if (shared_ || prediction_ == nullptr || !HeadStart::IsPossible(*prediction_)) return false;
  guards::CompiledProgram& body = *prediction_->body;
  const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
  using Way = guards::GraphTrial::Way;
  const Way likelier = body.head_start.hides_much.load(std::memory_order_relaxed) ? Way::kAhead : Way::kGraph;
  const guards::GraphTrial::Choice choice = body.graph_trial.OnBegin(now.count(), likelier);
  const bool is_better = choice.way == Way::kAhead;
  if (choice.decided_now) {
    if (is_better) runtime::Counters::Get().cudagraphs_dropped.Add();
    std::lock_guard<std::mutex> run_lock(body.run_mutex);
    body.program->ReleaseGraphs(is_better ? runtime::Program::Graphs::kOfWhole : runtime::Program::Graphs::kOfParts);
  }
  if (choice.decided_now && runtime::LogEnabled(runtime::LogCategory::kCudagraphs)) {
    runtime::Log(runtime::LogCategory::kCudagraphs,
                 absl::StrFormat("trace #%d comes every %.3f ms as a CUDA graph, every %.3f ms with a head start", prediction_->serial,
                                 1e-6 * static_cast<double>(body.graph_trial.graph_nanoseconds()),
                                 1e-6 * static_cast<double>(body.graph_trial.ahead_nanoseconds())));
  }
  return is_better;
}

void Recorder::UnlockWithGarbage() {
  // A deleter may run foreign code: not under the lock.
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> garbage;
  garbage.swap(garbage_);
  mutex_.unlock();
}

void Recorder::ResumeAfter(const guards::CachedTracePtr& finished, std::string_view cause) {
  RecorderLock lock(this);
  if (!IsEmpty()) return;
  previous_ = finished;
  prediction_ = guards::ProgramCache::Get().Successor(finished, cause);
  start_cause_.assign(cause);
  in_blocks_ = cause == kBlock;
}

guards::CachedTracePtr Recorder::ExpectedWith(int32_t op_id) {
  RecorderLock lock(this);
  return guards::ProgramCache::Get().SuccessorStartingWith(previous_, start_cause_, op_id);
}

void Recorder::ForgetPrediction() {
  RecorderLock lock(this);
  CompleteOutputs();
  previous_ = nullptr;
  loops_ = LoopFinder();
  novelty_ = guards::Novelty();
  recording_trial_ = guards::RecordingTrial();
}

bool Recorder::FollowsPrediction(size_t code_begin, size_t shapes_begin) {
  if (prediction_ == nullptr) return false;
  const codegen::TraceLog& want = prediction_->log;
  if (log_.ops.size() >= want.ops.size() || !guards::ContinuesAs(log_.code, want.code, code_begin)) return false;
  if (!symbols_.active()) {
    if (guards::ContinuesAs(log_.shapes, want.shapes, shapes_begin)) return true;
    std::shared_ptr<const guards::ShapePlan> plan = prediction_->body->plan();
    if (plan == nullptr || !symbols_.Start(std::move(plan), want, log_.ops.size(), shapes_begin, prediction_->symbols)) return false;
  }
  return symbols_.Take(log_.shapes, shapes_begin);
}

const codegen::OutputMetas* Recorder::PredictedResults(size_t op) {
  const codegen::OutputMetas* const metas = prediction_->log.ops[op].outputs.get();
  return symbols_.active() && metas != nullptr ? symbols_.Results(op, *metas) : metas;
}

// Every op so far matched the prediction; what is left to compare is the length and the live-out set.
bool Recorder::FollowsToTheEnd() const {
  if (prediction_ == nullptr || prediction_->log.ops.size() != log_.ops.size() || prediction_->body->failed()) return false;
  if (!symbols_.active()) {
    if (guards::Matches(prediction_->log, log_)) return true;
    // At times it is looked for: there may be a program for what is visible alone.
    constexpr int kLook = 16;
    return prediction_->widest && prediction_->body->ready() && guards::MatchesButForDead(prediction_->log, log_) &&
           prediction_->wider_runs.fetch_add(1, std::memory_order_relaxed) % kLook != 0;
  }
  // Replays and verification need a trace of these sizes.
  return prediction_->log.code == log_.code && prediction_->body->ready() && prediction_->body->compiled && !symbols_.Symbols().empty() &&
         runtime::Active().verify == 0;
}

void Recorder::CompleteOutputs() {
  if (prediction_ == nullptr) return;
  NotePredictionLeft();
  for (size_t i = 0; i < log_.ops.size(); ++i) {
    codegen::OutputMetasPtr& outputs = log_.ops[i].outputs;
    if (outputs != nullptr) continue;
    const codegen::OutputMetasPtr& predicted = prediction_->log.ops[i].outputs;
    const bool computed = symbols_.active() && i >= symbols_.first_op();
    outputs = computed ? std::make_shared<const codegen::OutputMetas>(symbols_.ResultsAgain(i, *predicted)) : predicted;
  }
  symbols_.Stop();
  prediction_ = nullptr;
  advice_at_ = log_.ops.size() + guards::kSiteOps;
}

void Recorder::StartTrace(std::string_view cause, const guards::CachedTracePtr& previous) {
  begun_.Set(false);
  log_.Clear();
  slots_.clear();
  input_numbers_.clear();
  offset_slots_.clear();
  for (c10::StorageImpl* const storage : registered_) UnregisterInput(storage, this);
  registered_.clear();
  garbage_.insert(garbage_.end(), std::make_move_iterator(inputs_.begin()), std::make_move_iterator(inputs_.end()));
  inputs_.clear();
  for (auto& storage : head_start_.TakeGarbage()) garbage_.push_back(std::move(storage));
  stacks_.clear();
  pending_bytes_ = input_bytes_ = 0;
  epoch_.store(next_epoch++, std::memory_order_relaxed);
  start_cause_.assign(cause);
  advice_at_ = guards::kSiteOps;
  forks_.clear();
  due_ = kFull;
  loops_.OnCut(LoopCutFor(cause, kFull), TraceLimit());
  in_blocks_ = cause == kBlock;
  if (!in_blocks_) block_cutter_.Reset();
  symbols_.Stop();
  stream_.reset();
  previous_ = previous;
  prediction_ = guards::ProgramCache::Get().Successor(previous, cause);
  if (Current() != this) return;
  const bool may_step_aside = recording_trial_.StepsAside() || (prediction_ == nullptr && novelty_.ever_new());
  if (may_step_aside && ModeKeysIncluded() && !LooksAtNextTrace()) {
    StepAsideAcrossCuts(this);
  } else if (prediction_ != nullptr && !scopes_.InFullGraph()) {
    ExpectTrace(this, prediction_);
  }
}

}  // namespace lazuli::tracer
