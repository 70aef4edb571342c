#include "tracer/replaced_kernels.h"

#include <torch/library.h>

#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "codegen/ir/op_info.h"
#include "codegen/ir/replaced_kernels.h"
#include "runtime/mode_keys.h"
#include "tracer/eager_call.h"

namespace lazuli::tracer {
namespace {

struct State {
  std::mutex mutex;
  std::map<std::string, std::vector<std::string>> twins;
  std::set<std::string> replaced;
};

State& GetState() {
  static auto* state = new State;
  return *state;
}

std::string NameOf(const c10::OperatorName& name) { return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name; }

// Kernels live as long as the process: they may run during exit.
torch::Library& LibraryAt(c10::DispatchKey key) { return *new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__); }

// Calls go past `key` from now on, if a kernel of ours is there.
void GoPast(c10::DispatchKey key, const std::string& name) {
  const size_t dot = name.find('.');
  const auto op = c10::Dispatcher::singleton().findOp({name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
  if (op.has_value() && op->hasKernelForDispatchKey(key)) LibraryAt(key).impl(name.c_str(), torch::CppFunction::makeFallthrough());
}

// Of the first time that this is asked of `name`.
bool IsNew(const std::string& name) {
  State& state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  return state.replaced.insert(name).second;
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

void NoteRegistered(const c10::OperatorName& name, std::optional<c10::DispatchKey> key) {
  if (name.name.rfind("aten::", 0) != 0 || key == runtime::kRecorderKey || key == runtime::kGenericKey) return;
  const auto op = c10::Dispatcher::singleton().findOp(name);
  if (!op.has_value() || !op->hasSchema()) return;
  const std::string full = NameOf(name);
  if (codegen::IsKernelReplaced(*op)) {
    if (!IsNew(full)) return;
    GoPast(runtime::kGenericKey, full);
    LibraryAt(runtime::kRecorderKey).impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&BoxedEager>());
    for (const std::string& twin : TwinsOf(full)) {
      GoPast(runtime::kGenericKey, twin);
      GoPast(runtime::kRecorderKey, twin);
    }
  } else if (codegen::IsAutogradReplaced(*op) && IsNew("autograd of " + full)) {
    GoPast(runtime::kGenericKey, full);
  }
}

}  // namespace lazuli::tracer
