#include "tracer/mode.h"

#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pthread.h>

#include <exception>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "guards/program_cache.h"
#include "runtime/compile_pool.h"
#include "runtime/launch_thread.h"
#include "runtime/log.h"
#include "runtime/mode_keys.h"
#include "runtime/process_end.h"
#include "runtime/status.h"
#include "tracer/dispatcher.h"
#include "tracer/python_operators.h"
#include "tracer/shape_inference.h"
#include "tracer/shared_storages.h"
#include "tracer/step_aside.h"
#include "tracer/verify.h"

namespace lazuli::tracer {
namespace {

constexpr auto kInfoKind = c10::DebugInfoKind::TEST_INFO;

// Recorders outlive the threads that made them, since tensors may still be pending in them; a new thread takes over a free one.
struct Pool {
  std::mutex mutex;
  std::vector<Recorder*> all;
  std::vector<Recorder*> free;
};

Pool*& ThePool() {
  static auto* pool = new Pool;
  return pool;
}
Pool& GetPool() { return *ThePool(); }

// Runs `settle` where nobody can catch its exception.
template <class Settle>
void OrLog(std::string_view where, const Settle& settle) {
  try {
    settle();
  } catch (...) {
    runtime::LogAlways(
        absl::StrCat("error in work that was pending at ", std::string(where), ": ", runtime::ExceptionMessage(std::current_exception())));
  }
}

// Whether this thread records, and will not under `stance`.
bool EndsRecording(Scopes::GivenStance stance) {
  return ModeKeysIncluded() && stance.value_or(runtime::Active().stance) == runtime::Stance::kForceEager;
}

// The mode is on, but the stance is force_eager.
thread_local bool on_but_eager = false;

void BeforeFork() {
  if (ModeIsOn()) SyncThreadOrLog("fork", "a fork");
}

// A child has none of the parent's other threads, whose recorders nobody gives back, nor the locks that they held: it starts eager and may
// open a mode of its own.
void InChild() {
  TurnMode(false);
  Recorder* const own = Recorder::Current();
  ThePool() = new Pool;
  if (own != nullptr) GetPool().all.push_back(own);
  Recorder::SetFirst(own);
  ForgetUsersInChild();
}

using internal::Backward;

void MayKeepBackwardHere(bool may) {
  Backward& backward = internal::backward;
  if (may) {
    if (backward == Backward::kAsTheProgramSays) backward = Backward::kStaysHereOnceOnGpu;
    return;
  }
  if (backward == Backward::kStaysHere) c10::AutogradState::get_tls_state().set_multithreading_enabled(true);
  backward = Backward::kAsTheProgramSays;
}

// A thread's objects go before handlers of exit() and destructors of static objects run: LibTorch's list that the recorder is in, among
// them. Made after that list, this one goes before it. What the thread does from then on runs eagerly.
struct ThreadEnd {
  ~ThreadEnd() {
    runtime::NoteThreadEnds();
    if (c10::ThreadLocalDebugInfo::get(kInfoKind) == nullptr) return;
    TurnMode(false);
    try {
      c10::ThreadLocalDebugInfo::_pop(kInfoKind);
    } catch (...) {  // Something came on top.
      c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(nullptr);
    }
  }
};

void EnsureModeInfo() {
  if (c10::ThreadLocalDebugInfo::get(kInfoKind) != nullptr) return;
  c10::ThreadLocalDebugInfo::_push(kInfoKind, std::make_shared<ModeInfo>());
  static thread_local ThreadEnd end;
  (void)end;
}

std::vector<Recorder*> AllRecorders() {
  auto& pool = GetPool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  return pool.all;
}

}  // namespace

__thread Backward internal::backward __attribute__((tls_model("initial-exec"))) = Backward::kAsTheProgramSays;

ModeInfo::ModeInfo() {
  std::vector<Recorder*> sharing;
  {
    auto& pool = GetPool();
    std::lock_guard<std::mutex> lock(pool.mutex);
    if (pool.free.empty()) {
      pool.all.push_back(new Recorder);
      pool.free.push_back(pool.all.back());
      if (pool.all.size() == 1) Recorder::SetFirst(pool.all[0]);
      if (pool.all.size() > 1) sharing = pool.all;
    }
    recorder_ = pool.free.back();
    pool.free.pop_back();
  }
  if (sharing.empty()) return;
  NoteSeveralRecorders();
  for (Recorder* recorder : sharing) recorder->Share();
}

ModeInfo::~ModeInfo() {
  recorder_->scopes().Reset();
  auto& pool = GetPool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  pool.free.push_back(recorder_);
}

Recorder* Recorder::Current() {
  auto* info = static_cast<ModeInfo*>(c10::ThreadLocalDebugInfo::get(kInfoKind));
  return info == nullptr ? nullptr : info->recorder();
}

void TurnMode(bool on) {
  bool record = on;
  if (on) {
    static const bool registered = [] {
      RegisterKernels();
      guards::ProgramCache::Get().SetShapeInference(&InferShapes);
      // Before a fork, handlers run in the reverse order: what is pending runs while others' locks are free.
      runtime::CompilePool::Get();
      runtime::LaunchJob::Prepare();
      pthread_atfork(BeforeFork, nullptr, InChild);
      return true;
    }();
    (void)registered;
    LetPythonOperatorsPass();
    const Scopes& scopes = ThreadRecorder()->scopes();
    record = scopes.stance() != runtime::Stance::kForceEager;
    // The options of an inner mode may say so.
    if (!record && ModeKeysIncluded()) Recorder::Current()->SettleReads(Cut::kGraphBreak);
    if (scopes.InFullGraph()) RecordFromHere();
  }
  if (!record) StopSteppingAside();
  on_but_eager = on && !record;
  c10::impl::tls_set_dispatch_key_included(runtime::kRecorderKey, record);
  c10::impl::tls_set_dispatch_key_included(runtime::kGenericKey, record);
  MayKeepBackwardHere(record && !runtime::Active().autograd_multithreading);
}

void internal::TakeBackward() {
  auto& autograd = c10::AutogradState::get_tls_state();
  if (!autograd.get_multithreading_enabled()) return;  // The program said so, or a scope that ends.
  autograd.set_multithreading_enabled(false);
  backward = Backward::kStaysHere;
}

bool ModeIsOn() { return ModeKeysIncluded() || on_but_eager; }

bool ModeKeysIncluded() { return c10::impl::tls_is_dispatch_key_included(runtime::kRecorderKey); }

Recorder* ThreadRecorder() {
  EnsureModeInfo();
  return Recorder::Current();
}

Scopes::GivenStance GiveStance(Recorder* recorder, Scopes::GivenStance stance) {
  if (EndsRecording(stance)) recorder->SettleReads(Cut::kGraphBreak);
  const Scopes::GivenStance before = recorder->scopes().GiveStance(stance);
  if (ModeIsOn()) TurnMode(true);
  return before;
}

void RestoreStance(Recorder* recorder, Scopes::GivenStance stance) {
  if (EndsRecording(stance)) {
    OrLog("the end of a StanceGuard", [recorder] { recorder->SettleReads(Cut::kHousekeeping); });
  }
  recorder->scopes().GiveStance(stance);
  if (ModeIsOn()) TurnMode(true);
}

void LeaveModeForScope() {
  if (Recorder* recorder = Recorder::Current()) recorder->SettleReads(Cut::kGraphBreak);
  TurnMode(false);
}

void SyncThread(std::string_view cause) {
  if (Recorder* recorder = Recorder::Current()) recorder->Flush(cause, Cut::kHousekeeping);
}

void SyncThreadOrLog(std::string_view cause, std::string_view where) {
  OrLog(where, [cause] { SyncThread(cause); });
}

void SyncAll(std::string_view cause, Cut cut) {
  std::exception_ptr error;
  for (Recorder* recorder : AllRecorders()) {
    try {
      recorder->Flush(cause, cut);
    } catch (...) {
      if (error == nullptr) error = std::current_exception();
    }
  }
  if (error != nullptr) std::rethrow_exception(error);
}

void ResetAll() {
  SyncAll("reset", Cut::kHousekeeping);
  runtime::CompilePool::Get().Wait();
  StopSteppingAside();
  for (Recorder* recorder : AllRecorders()) recorder->ForgetPrediction();
  guards::ProgramCache::Get().Clear();
  ForgetShapes();
  ForgetVerified();
}

}  // namespace lazuli::tracer
