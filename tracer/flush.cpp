// What happens at a cut: complete the log, look its program up or compile it, run it, hand out the results. START HERE.

#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/caller_location.h"
#include "codegen/emit_aten.h"
#include "guards/compile_policy.h"
#include "guards/compile_wait.h"
#include "runtime/blas_workspace.h"
#include "runtime/counters.h"
#include "runtime/cuda_driver.h"
#include "runtime/device.h"
#include "runtime/kernel_settings.h"
#include "runtime/log.h"
#include "runtime/memory_back.h"
#include "runtime/mode_keys.h"
#include "runtime/options.h"
#include "runtime/own_code.h"
#include "tracer/composite.h"
#include "tracer/flush_events.h"
#include "tracer/recorder.h"
#include "tracer/redirected_calls.h"
#include "tracer/size_marks.h"
#include "tracer/step_aside.h"
#include "tracer/verify.h"

namespace lazuli::tracer {

using runtime::Counters;

namespace {

class BusyScope {
 public:
  explicit BusyScope(bool* busy) : busy_(busy) { *busy_ = true; }
  ~BusyScope() { *busy_ = false; }
  BusyScope(const BusyScope&) = delete;
  BusyScope& operator=(const BusyScope&) = delete;

 private:
  bool* busy_;
};

// Runs a trace op by op, as eager mode would have.
runtime::RunResult RunReplay(runtime::Program* replay, const runtime::RunArgs& args) {
  auto& counters = Counters::Get();
  counters.eager_replays.Add();
  counters.aten_calls.Add(replay->num_aten_calls());
  runtime::GiveScratchBack();
  return replay->Run(args);
}

runtime::RunResult RunReplay(const codegen::TraceLog& log, const runtime::RunArgs& args) {
  return RunReplay(codegen::MakeReplay(codegen::DecodeTrace(log)).get(), args);
}

// Runs `entry` op by op until it has a program, which is compiled `in_background` or not yet.
runtime::RunResult RunMeanwhile(guards::CachedTrace* entry, bool in_background, const runtime::RunArgs& args) {
  if (in_background) Counters::Get().background_replays.Add();
  const auto start = std::chrono::steady_clock::now();
  std::lock_guard<std::mutex> run_lock(entry->body->run_mutex);
  // Most traces that were seen once never come again: many small blocks would stay for each, all over the heap.
  if (entry->body->seen_once()) return RunReplay(entry->log, args);
  if (entry->replay == nullptr) entry->replay = codegen::MakeReplay(codegen::DecodeTrace(entry->log));
  runtime::RunResult result = RunReplay(entry->replay.get(), args);
  const auto elapsed = std::chrono::steady_clock::now() - start;
  entry->body->demand.lost_nanoseconds.fetch_add(std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count(),
                                                 std::memory_order_relaxed);
  return result;
}

}  // namespace

void Recorder::Flush(std::string_view cause, Cut cut) {
  RecorderLock lock(this);
  if (running_) return;
  if (IsEmpty()) {
    if (!StepsAsideAcrossCut(this, cause)) StartTrace(cause, previous_);
    return;
  }
  // Another thread that settles this one's work is in no full graph of its own.
  if (cut == Cut::kGraphBreak && scopes_.InFullGraph() && Current() == this) ThrowGraphBreak(cause, log_.ops.size());
  CancelStepAsideUntilCut(this);
  NoteEagerWork();
  const runtime::KernelSettingsScope settings(settings_);
  auto& counters = Counters::Get();
  counters.traces.Add();
  counters.CountCut(cause);
  counters.ops_recorded.Add(static_cast<int64_t>(log_.ops.size()));
  if (runtime::LogEnabled(runtime::LogCategory::kGraphBreaks)) {
    runtime::Log(runtime::LogCategory::kGraphBreaks, absl::StrCat("graph break after ", log_.ops.size(), " ops: ", std::string(cause)));
  }
  AppendLiveOut();
  FlushEvents events(cause, log_, record_start_);
  auto found = runtime::TraceRun::Found::kMiss;
  guards::CompilePolicy policy(scopes_.stance());
  const guards::CachedTracePtr entry = FindOrCompile(cut, &policy, &found);
  if (!forks_.empty() && cut != Cut::kTransient) guards::ProgramCache::Get().NoteTrace(forks_, log_, StartCause(), entry);
  if (policy.kept_eager()) counters.stance_replays.Add();
  const bool is_new = found == runtime::TraceRun::Found::kMiss;
  if (cut != Cut::kTransient) {
    if (is_new) LookForLoops(entry);
    NoteNovelty(is_new);
  }
  NoteRecordedOps(is_new ? nullptr : entry, cause);
  const bool waited = entry != nullptr && !policy.kept_eager() && guards::AwaitProgram(entry->body.get());
  events.Found(entry, found);
  const bool predicted = found == runtime::TraceRun::Found::kPredicted;
  if (predicted) counters.predicted_hits.Add();
  Binding binding = Bind();
  head_start_.OnRecorded();
  runtime::RunResult result;
  OnStream([&] { result = RunPrograms(entry, !policy.kept_eager(), &binding); });
  // Of the program's threads, the one that ran the trace may not be the one that calls cuBLAS next.
  if (stream_.has_value()) {
    if (!predicted) RedirectCallsOfLinalg();
    runtime::FreeBlasWorkspace(*stream_, runtime::Unless::kAlone);
  }
  events.Ran(entry);
  if (result.error != nullptr) AddLocation(result);
  Distribute(&binding, result);
  std::optional<RecordedArgs> learnt;
  if (entry != nullptr && head_start_.Learns(*entry)) learnt = Recorded(*entry, /*only_foretellable=*/true);
  const bool may_gain = learnt.has_value() && !waited && found != runtime::TraceRun::Found::kMiss && stream_.has_value();
  // On a GPU it is only launched by now.
  if (predicted && !stream_.has_value() && Current() == this) NoteTraceRan(cause);
  head_start_.OnCut(entry, may_gain, /*waits=*/cut == Cut::kGraphBreak, learnt);
  if (entry != nullptr && !predicted) guards::ProgramCache::Get().NoteSuccessor(previous_, start_cause_, entry);
  StartTrace(cause, entry);
  if (result.error != nullptr) std::rethrow_exception(result.error);
  TORCH_CHECK(policy.error().empty(), "lazuli: ", policy.error());
}

void Recorder::FlushStream(std::optional<runtime::CudaStreamHandle> stream, std::string_view cause, Cut cut) {
  RecorderLock lock(this);
  if (running_ || IsEmpty() || !stream_.has_value()) return;
  if (!stream.has_value() || *stream == runtime::HandleOf(*stream_)) Flush(cause, cut);
}

void Recorder::AppendLiveOut() {
  log_.code.push_back(codegen::MakeWord(codegen::Tag::kLiveOut, static_cast<uint64_t>(log_.num_storages)));
  for (size_t i = 0; i < slots_.size(); i += 64) {
    codegen::Word bits = 0;
    for (size_t b = 0; b < 64 && i + b < slots_.size(); ++b) {
      const Slot& slot = slots_[i + b];
      bits |= static_cast<codegen::Word>(slot.impl != nullptr && !slot.is_input) << b;
    }
    log_.code.push_back(bits);
  }
}

guards::CachedTracePtr Recorder::FindOrCompile(Cut cut, guards::CompilePolicy* policy, runtime::TraceRun::Found* found) {
  using Found = runtime::TraceRun::Found;
  auto& cache = guards::ProgramCache::Get();
  auto& counters = Counters::Get();
  const bool predicted = FollowsToTheEnd();
  const std::string_view start_cause = StartCause();
  const auto location = [] { return runtime::Active().stacks ? codegen::CallerLocation(codegen::CaptureStack()) : std::string(); };
  const guards::CachedTracePtr predicted_trace = prediction_;
  if (!predicted) CompleteOutputs();
  guards::CachedTracePtr known = predicted ? prediction_ : cache.Find(log_);
  *found = predicted ? Found::kPredicted : Found::kHit;
  if (predicted && known->body->seen_once()) {
    known = cache.Current(prediction_);
    if (known != prediction_) {
      *found = Found::kHit;
      CompleteOutputs();
    }
  }
  if (known != nullptr && !known->symbols.empty() && known->body->ready()) known = PreferOwnSizes(known, *policy, found);
  if (known == nullptr) known = cache.FindWider(log_, start_cause, predicted_trace);
  if (known == nullptr && cut != Cut::kTransient) known = FindSeparated();
  if (known == nullptr) *found = Found::kMiss;
  if (known != nullptr) {
    counters.cache_hits.Add();
    if (known->body->seen_once()) {
      // Beginnings of which each is another one come again by chance.
      constexpr int kOften = 16;
      if (due_ == guards::kEnding && known->came_again.fetch_add(1, std::memory_order_relaxed) < kOften) return known;
      return cache.CompileSeen(known, location(), policy);
    }
    // Loading kernels takes less time than one more replay, mostly.
    if (!known->body->ready()) known->body->MakeFromDisk();
    return known;
  }
  counters.cache_misses.Add();
  // What the library's start went through: most of its code.
  [[maybe_unused]] static const int64_t released = runtime::ReleaseOwnCode();
  if (cut == Cut::kTransient) return nullptr;
  log_.marks = Marks();
  return cache.Compile(log_, start_cause, location(), policy);
}

guards::CachedTracePtr Recorder::PreferOwnSizes(guards::CachedTracePtr known, const guards::CompilePolicy& policy,
                                                runtime::TraceRun::Found* found) {
  using Advice = guards::HotSizes::Advice;
  const absl::Span<const int64_t> now = SymbolsAs(*known);
  guards::HotSizes& hot_sizes = known->body->hot_sizes;
  guards::HotSizes::Next next = hot_sizes.Note(now, runtime::Active().specialize_after);
  if (next.advice == Advice::kSymbols || (next.advice == Advice::kSpecialize && !policy.AllowsMore())) return known;
  *found = runtime::TraceRun::Found::kHit;
  const std::vector<int64_t> symbols(now.begin(), now.end());
  CompleteOutputs();
  auto& cache = guards::ProgramCache::Get();
  if (next.advice == Advice::kOwn) return guards::Matches(next.own->log, log_) ? std::move(next.own) : cache.Find(log_);
  log_.marks = Marks();
  hot_sizes.Add(symbols, cache.Specialize(*known, log_));
  // `known` was of other sizes, perhaps.
  return cache.Find(log_);
}

guards::CachedTracePtr Recorder::FindSeparated() {
  auto& cache = guards::ProgramCache::Get();
  std::optional<guards::SeparatedLog> separated = guards::SeparateReads(log_);
  if (!separated.has_value()) {
    cache.CameWithOtherAliases(log_, log_);
    return nullptr;
  }
  const guards::CachedTracePtr known = cache.Find(separated->log);
  if (known != nullptr || cache.CameWithOtherAliases(log_, separated->log)) Separate(*std::move(separated));
  return known;
}

void Recorder::Separate(guards::SeparatedLog separated) {
  const std::vector<Slot> slots = std::exchange(slots_, {});
  const auto inputs = std::exchange(inputs_, {});
  for (const int32_t number : separated.storages) {
    const Slot& slot = slots[static_cast<size_t>(number)];
    slots_.push_back(slot);
    if (slot.is_input) inputs_.push_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(slot.impl));
  }
  log_ = std::move(separated.log);
}

std::vector<codegen::SizeMark> Recorder::Marks() const {
  std::vector<MarkedStorage> storages;
  storages.reserve(slots_.size());
  for (const Slot& slot : slots_) {
    storages.push_back({slot.impl, all_dynamic_ && slot.is_input && !slot.mutated && !slot.parameter});
  }
  return FindMarks(log_, storages);
}

Recorder::Binding Recorder::Bind() {
  Binding binding;
  binding.storages.reserve(slots_.size());
  binding.outputs.resize(slots_.size());
  binding.unshared.resize(slots_.size());
  auto input = inputs_.begin();
  for (const Slot& slot : slots_) {
    if (!slot.is_input) {
      binding.storages.push_back(nullptr);
      continue;
    }
    const c10::intrusive_ptr<c10::StorageImpl>& held = *input++;
    if (!slot.mutated) {
      // Only `inputs_` holds what the program let go of after it was recorded (activations that a backward pass has used).
      const bool unshared = held.use_count() == 1 && held.weak_use_count() == 1 && AsLazy(slot.impl) != nullptr;
      binding.unshared[binding.storages.size()] = unshared ? 1 : 0;
      binding.storages.push_back(slot.impl);
    } else {
      // The storage itself stays closed until the run is over, so that another thread waits rather than reads half-written memory.
      const at::DataPtr& data = DataOf(slot.impl);
      binding.proxies.push_back(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                                      static_cast<int64_t>(slot.impl->nbytes()),
                                                                      at::DataPtr(data.get(), data.device()), nullptr, false));
      binding.storages.push_back(binding.proxies.back().get());
    }
  }
  return binding;
}

template <class Run>
void Recorder::OnStream(const Run& run) {
  const BusyScope busy(&running_);
  if (!stream_.has_value()) {
    run();
    return;
  }
  const c10::Stream now = runtime::CurrentStream(stream_->device());
  if (runtime::IsCapturing(now)) {
    // What was recorded is no part of the graph that the program captures now, and is done when the graph runs.
    const runtime::AnyCaptures any;
    const c10::Stream aside = runtime::IsCapturing(*stream_) ? runtime::NewStream(stream_->device()) : *stream_;
    const c10::StreamGuard guard(aside);
    run();
    aside.synchronize();
    return;
  }
  {
    const c10::StreamGuard guard(*stream_);
    run();
  }
  if (now == *stream_) return;
  // Whoever goes on elsewhere has ordered the streams by events, perhaps, that came before what was launched only now. Threads that share
  // what was recorded have ordered themselves, perhaps, by waiting for the device.
  Current() == this ? runtime::OrderStreams(*stream_, now) : stream_->synchronize();
}

absl::Span<const int64_t> Recorder::SymbolsAs(const guards::CachedTrace& trace) const {
  return symbols_.active() ? symbols_.Symbols() : absl::MakeConstSpan(trace.symbols);
}

bool Recorder::SymbolsAreSeen() const {
  if (symbols_.active()) return !symbols_.Symbols().empty();
  const auto plan = prediction_->body->plan();
  return plan == nullptr || log_.shapes.size() >= plan->AllSeenAt();
}

void Recorder::RunAhead() {
  run_ahead_at_ = HeadStart::kNever;
  // What has run of a trace that left what was predicted is taken back when it is cut.
  if (prediction_ == nullptr || running_ || !MayRunAhead()) return;
  const bool needs_stream = runtime::Active().head_start != runtime::When::kAlways;
  const bool waits = (needs_stream && !stream_.has_value()) || !SymbolsAreSeen();
  if (waits || (stream_.has_value() && runtime::IsCapturing(*stream_))) {
    constexpr size_t kAskAgain = 8;  // Operators later.
    run_ahead_at_ = log_.ops.size() + kAskAgain;
    return;
  }
  // Without a GPU there is nothing to gain but that everything runs ahead that can.
  if (stream_.has_value() && head_start_.launching()) {
    run_ahead_at_ = head_start_.Later(*prediction_, log_.ops.size());
    return;
  }
  const RecordedArgs recorded = Recorded(*prediction_, /*only_foretellable=*/false);
  OnStream([&] { run_ahead_at_ = head_start_.Advance(prediction_, recorded, stream_); });
}

void Recorder::TakeBackHeadStart() {
  if (head_start_.active()) OnStream([&] { head_start_.Settle(nullptr, {}); });
}

RecordedArgs Recorder::Recorded(const guards::CachedTrace& trace, bool only_foretellable) const {
  RecordedArgs recorded;
  recorded.storages.reserve(slots_.size());
  for (const Slot& slot : slots_) {
    // On a CPU what is no parameter may be written through a pointer that was taken long before.
    const bool is_written = slot.mutated && !slot.impl->device().is_cpu();
    const bool may_be_foretold = (slot.parameter || is_written) && !IsForeign(slot.impl);
    recorded.storages.push_back(slot.is_input && (may_be_foretold || !only_foretellable) ? slot.impl : nullptr);
  }
  recorded.scalars = log_.scalars;
  recorded.offsets = log_.offsets;
  recorded.symbols = SymbolsAs(trace);
  recorded.num_ops = log_.ops.size();
  return recorded;
}

runtime::RunResult Recorder::RunPrograms(const guards::CachedTracePtr& entry, bool in_background, Binding* binding) {
  auto& counters = Counters::Get();
  runtime::RunArgs args{binding->storages, log_.scalars, log_.offsets, absl::MakeSpan(binding->outputs), binding->unshared};
  if (entry != nullptr) args.symbols = SymbolsAs(*entry);
  if (head_start_.active()) {
    head_start_.Settle(entry.get(), entry == nullptr ? RecordedArgs() : Recorded(*entry, /*only_foretellable=*/false));
  }
  if (entry == nullptr) return RunReplay(log_, args);
  guards::CompiledProgram& body = *entry->body;
  if (!body.ready()) return RunMeanwhile(entry.get(), in_background, args);
  entry->site->NoteRun();
  if (!body.compiled) counters.eager_replays.Add();
  counters.kernel_launches.Add(body.program->num_kernels());
  counters.aten_calls.Add(body.program->num_aten_calls());
  runtime::RunResult result;
  {
    std::lock_guard<std::mutex> run_lock(body.run_mutex);
    entry->replay.reset();
    Verification verification(*entry, args);
    if (verification.active()) args.unshared = {};
    const auto run = [&] { result = body.program->Run(args); };
    MayRunAhead() ? HeadStart::OnThreadOf(*entry, stream_, run) : run();
    verification.Check(args, result);
  }
  if (!result.not_started) return result;
  // Without memory for all of it at once, op by op may still do; else the op fails that would have failed in eager mode.
  runtime::LogOnce(absl::StrCat("not enough memory for the program of trace #", entry->serial, ": it runs eagerly when that happens"));
  CompleteOutputs();
  return RunReplay(log_, args);
}

void Recorder::AddLocation(const runtime::RunResult& result) const {
  if (stacks_.empty() || result.failed_index < 0) return;
  const std::string location = codegen::CallerLocation(stacks_[static_cast<size_t>(result.failed_index)]);
  const std::string words = absl::StrCat(result.failed_op, location.empty() ? "" : ", called at ", location);
  try {
    std::rethrow_exception(result.error);
  } catch (c10::AcceleratorError& error) {  // Of anything that a GPU was given before.
    error.add_context(absl::StrCat("noticed while running ", words));
  } catch (c10::Error& error) {
    error.add_context(absl::StrCat("while running ", words));
  } catch (...) {  // Has no room for more words.
  }
}

void Recorder::Distribute(Binding* binding, const runtime::RunResult& result) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.impl == nullptr || (slot.is_input && !slot.mutated)) continue;
    LazyStorage* lazy = AsLazy(slot.impl);
    if (!slot.is_input && binding->outputs[i].get() == nullptr && slot.impl->nbytes() != 0) {
      // Stays closed: whoever asks for the data gets the error of the op that should have made it.
      lazy->error =
          result.error != nullptr ? result.error : std::make_exception_ptr(std::runtime_error("lazuli: a program left a result empty"));
      lazy->LeaveRecorder();
      continue;
    }
    if (!slot.is_input) slot.impl->set_data_ptr_noswap(std::move(binding->outputs[i]));
    OpenStorage(slot.impl);
  }
}

}  // namespace lazuli::tracer
