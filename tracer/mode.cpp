#include "tracer/mode.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pthread.h>

#include <mutex>
#include <vector>

#include "guards/program_cache.h"
#include "runtime/compile_pool.h"
#include "runtime/mode_keys.h"
#include "tracer/dispatcher.h"
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

Pool& GetPool() {
  static auto* pool = new Pool;
  return *pool;
}

void BeforeFork() {
  if (ModeKeysIncluded()) SyncThread("fork");
}

// A child has none of the parent's worker threads: it starts eager and may open a mode of its own.
void InChild() { IncludeModeKeys(false); }

void EnsureModeInfo() {
  if (c10::ThreadLocalDebugInfo::get(kInfoKind) == nullptr) {
    c10::ThreadLocalDebugInfo::_push(kInfoKind, std::make_shared<ModeInfo>());
  }
}

std::vector<Recorder*> AllRecorders() {
  auto& pool = GetPool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  return pool.all;
}

}  // namespace

ModeInfo::ModeInfo() {
  auto& pool = GetPool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  if (pool.free.empty()) {
    pool.all.push_back(new Recorder);
    pool.free.push_back(pool.all.back());
  }
  recorder_ = pool.free.back();
  pool.free.pop_back();
}

ModeInfo::~ModeInfo() {
  auto& pool = GetPool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  pool.free.push_back(recorder_);
}

Recorder* Recorder::Current() {
  auto* info = static_cast<ModeInfo*>(c10::ThreadLocalDebugInfo::get(kInfoKind));
  return info == nullptr ? nullptr : info->recorder();
}

void IncludeModeKeys(bool include) {
  if (include) {
    static const bool registered = [] {
      RegisterKernels();
      pthread_atfork(BeforeFork, nullptr, InChild);
      return true;
    }();
    (void)registered;
    EnsureModeInfo();
  } else {
    StopSteppingAside();
  }
  c10::impl::tls_set_dispatch_key_included(runtime::kRecorderKey, include);
  c10::impl::tls_set_dispatch_key_included(runtime::kGenericKey, include);
}

bool ModeKeysIncluded() { return c10::impl::tls_is_dispatch_key_included(runtime::kRecorderKey); }

void SyncThread(std::string_view cause) {
  if (Recorder* recorder = Recorder::Current()) recorder->Flush(cause);
}

void SyncAll(std::string_view cause) {
  for (Recorder* recorder : AllRecorders()) recorder->Flush(cause);
}

void ResetAll() {
  SyncAll("reset");
  runtime::CompilePool::Get().Wait();
  StopSteppingAside();
  for (Recorder* recorder : AllRecorders()) recorder->ForgetPrediction();
  guards::ProgramCache::Get().Clear();
  ForgetShapes();
  ForgetVerified();
}

}  // namespace lazuli::tracer
