#include "tracer/replaced_kernels.h"

#include <torch/library.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "codegen/ir/op_info.h"
#include "codegen/ir/replaced_kernels.h"
#include "runtime/mode_keys.h"
#include "tracer/dispatcher.h"
#include "tracer/eager_call.h"

namespace lazuli::tracer {
namespace {

struct State {
  std::mutex mutex;
  std::map<std::string, std::vector<std::string>> twins;
  std::set<std::string> kernels, autograd;  // Operators of which these were replaced.
};
std::atomic<bool> any_replaced{false};

State& GetState() {
  static auto* state = new State;
  return *state;
}

// Kernels live as long as the process: they may run during exit.
torch::Library& LibraryAt(c10::DispatchKey key) {
  static auto* recorder = new torch::Library(torch::Library::IMPL, "aten", runtime::kRecorderKey, __FILE__, __LINE__);
  static auto* generic = new torch::Library(torch::Library::IMPL, "aten", runtime::kGenericKey, __FILE__, __LINE__);
  return key == runtime::kRecorderKey ? *recorder : *generic;
}

// Calls go past `key` from now on, if a kernel of ours is there.
void GoPast(c10::DispatchKey key, const std::string& name) {
  const codegen::OpInfo* const info = codegen::FindOpInfo(name);
  if (info == nullptr || !info->handle.hasKernelForDispatchKey(key)) return;
  const bool in_pieces = key == runtime::kRecorderKey && name.rfind("aten::_foreach_", 0) == 0;  // A GPU has kernels of its own for them.
  LibraryAt(key).impl(name.c_str(),
                      in_pieces ? torch::CppFunction::makeFromBoxedFunction<&BoxedPieces>() : torch::CppFunction::makeFallthrough());
}

// Whether `name` is not in the set yet, into which it goes.
bool Insert(std::set<std::string> State::*set, const std::string& name) {
  State& state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  return (state.*set).insert(name).second;
}

std::vector<std::string> TwinsOf(const std::string& name) {
  State& state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  return state.twins[name];
}

}  // namespace

void NoteTwin(const std::string& op, const std::string& called) {
  State& state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.twins[op].push_back(called);
}

bool WasReplaced(const std::string& name) {
  if (!any_replaced.load(std::memory_order_acquire)) return false;
  State& state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  return state.kernels.count(name) != 0;
}

bool MayReplace(const c10::OperatorName& name, std::optional<c10::DispatchKey> key) {
  const bool is_ours = key == runtime::kRecorderKey || key == runtime::kGenericKey;
  return name.name.rfind("aten::", 0) == 0 && !is_ours && key != c10::DispatchKey::Meta;
}

void NoteRegistered(const c10::OperatorName& name, std::optional<c10::DispatchKey> key) {
  if (!MayReplace(name, key)) return;
  const auto op = c10::Dispatcher::singleton().findOp(name);
  if (!op.has_value() || !op->hasSchema()) return;
  const std::string& full = codegen::GetOpInfo(*op).name;
  if (codegen::IsKernelReplaced(*op)) {
    if (!Insert(&State::kernels, full)) return;
    any_replaced.store(true, std::memory_order_release);
    GoPast(runtime::kGenericKey, full);
    LibraryAt(runtime::kRecorderKey).impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&BoxedEager>());
    for (const std::string& twin : TwinsOf(full)) {
      GoPast(runtime::kGenericKey, twin);
      GoPast(runtime::kRecorderKey, twin);
    }
  } else if (codegen::IsAutogradReplaced(*op) && Insert(&State::autograd, full)) {
    GoPast(runtime::kGenericKey, full);
  }
}

}  // namespace lazuli::tracer
