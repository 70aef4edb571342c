// The public functions of lazuli.h, their twins for Python, and LAZULI=1 at load.

#include <c10/util/Exception.h>
#include <torch/library.h>

#include "codegen/kernel_compiler.h"
#include "codegen/kernel_store.h"
#include "lazuli/lazuli.h"
#include "runtime/compile_pool.h"
#include "runtime/counters.h"
#include "runtime/history.h"
#include "runtime/options.h"
#include "tracer/mode.h"
#include "tracer/size_marks.h"
#include "tracer/step_aside.h"

namespace lazuli {
namespace {

void Activate(const Options& options) {
  const absl::Status status = runtime::ActivateOptions(options);
  TORCH_CHECK_VALUE(status.ok(), "lazuli: ", std::string(status.message()));
}

void Check(const absl::Status& status) { TORCH_CHECK(status.ok(), "lazuli: ", std::string(status.message())); }

runtime::Stance StanceNamed(const std::string& name) {
  const absl::StatusOr<runtime::Stance> stance = runtime::ParseStance(name);
  TORCH_CHECK_VALUE(stance.ok(), "lazuli: ", std::string(stance.status().message()));
  return *stance;
}

// LAZULI=1: the program's main thread records from the start.
const bool kEnabledAtLoad = [] {
  const auto enabled = runtime::EnabledFromEnv();
  if (!enabled.ok()) runtime::ExitForBadOptions(enabled.status());
  if (!*enabled) return false;
  const absl::Status status = runtime::ActivateOptions(Options());
  if (!status.ok()) runtime::ExitForBadOptions(status);
  tracer::TurnMode(true);
  return true;
}();

}  // namespace

struct DeviceMode::State {
  bool outermost = false;
};

DeviceMode::DeviceMode() : DeviceMode(Options()) {}

DeviceMode::DeviceMode(const Options& options) : state_(std::make_unique<State>()) {
  Activate(options);
  state_->outermost = !tracer::ModeIsOn();
  tracer::TurnMode(true);
}

DeviceMode::~DeviceMode() {
  if (!state_->outermost) return;
  tracer::TurnMode(false);
  tracer::SyncThreadOrLog("mode_end", "the end of the mode");
}

EagerScope::EagerScope() : saved_(tracer::ModeIsOn() ? 1 : 0) {
  if (saved_ != 0) tracer::LeaveModeForScope();
}

EagerScope::~EagerScope() {
  if (saved_ != 0) tracer::TurnMode(true);
}

struct StanceGuard::State {
  tracer::Recorder* recorder;
  tracer::Scopes::GivenStance before;
};

StanceGuard::StanceGuard(const std::string& stance) : state_(std::make_unique<State>()) {
  const runtime::Stance given = StanceNamed(stance);
  state_->recorder = tracer::ThreadRecorder();
  state_->before = tracer::GiveStance(state_->recorder, given);
}

StanceGuard::~StanceGuard() { tracer::RestoreStance(state_->recorder, state_->before); }

void set_stance(const std::string& stance) {
  const runtime::Stance given = StanceNamed(stance);
  tracer::GiveStance(tracer::ThreadRecorder(), given);
}

FullGraph::FullGraph() : recorder_(tracer::ThreadRecorder()) {
  recorder_->scopes().EnterFullGraph();
  tracer::RecordFromHere();
}

FullGraph::~FullGraph() { recorder_->scopes().LeaveFullGraph(); }

void enable() { enable(Options()); }

void enable(const Options& options) {
  Activate(options);
  tracer::TurnMode(true);
}

void disable() {
  tracer::TurnMode(false);
  tracer::SyncThread("disable");
}

bool is_enabled() { return tracer::ModeKeysIncluded(); }

void sync() { tracer::SyncAll("sync", tracer::Cut::kGraphBreak); }

void reset() {
  tracer::ResetAll();
  runtime::Counters::Get().Reset();
  runtime::History::Get().Clear();
}

void wait_for_compiles() { runtime::CompilePool::Get().Wait(); }

void mark_dynamic(const at::Tensor& tensor, int64_t dim, int64_t min, int64_t max) { tracer::MarkSize(tensor, dim, true, min, max); }

void mark_static(const at::Tensor& tensor, int64_t dim) { tracer::MarkSize(tensor, dim, false); }

void mark_static(const at::Tensor& tensor) {
  tracer::CheckMarkable(tensor);
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) mark_static(tensor, dim);
}

void save_cache(const std::string& path) { Check(codegen::SaveCompiledKernels(path)); }

void load_cache(const std::string& path) { Check(codegen::LoadKernels(path)); }

Stats stats() { return runtime::Counters::Get().Snapshot(); }

std::string explain() { return runtime::Explain(); }

TORCH_LIBRARY(lazuli, m) {
  m.def("enable() -> ()", [] { enable(); });
  m.def("disable() -> ()", [] { disable(); });
  m.def("set_stance(str stance) -> ()", [](const std::string& stance) { set_stance(stance); });
  m.def("is_enabled() -> bool", [] { return is_enabled(); });
  m.def("sync() -> ()", [] { sync(); });
  m.def("reset() -> ()", [] { reset(); });
  m.def("wait_for_compiles() -> ()", [] { wait_for_compiles(); });
  m.def("mark_dynamic(Tensor tensor, int dim, int min=0, int max=9223372036854775807) -> ()", &mark_dynamic);
  m.def("mark_static(Tensor tensor, int? dim=None) -> ()",
        [](const at::Tensor& tensor, std::optional<int64_t> dim) { dim.has_value() ? mark_static(tensor, *dim) : mark_static(tensor); });
  m.def("save_cache(str path) -> ()", [](const std::string& path) { save_cache(path); });
  m.def("load_cache(str path) -> ()", [](const std::string& path) { load_cache(path); });
  m.def("stats() -> str", [] { return stats().ToJson(); });
  m.def("explain() -> str", [] { return explain(); });
}

}  // namespace lazuli
