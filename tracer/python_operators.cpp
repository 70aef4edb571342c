#include "tracer/python_operators.h"

#include <c10/core/DispatchKey.h>

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/mode_keys.h"
#include "runtime/open_library.h"

namespace lazuli::tracer {
namespace {

// In a namespace of its own, since nothing may be left behind in the program's __main__. Sets `done`.
std::string Script(const std::atomic<int>* done) {
  const auto name = [](c10::DispatchKey key) { return std::string(c10::toString(key)); };
  const std::string body = absl::StrCat(
      "import sys, ctypes\\n"
      "ops = sys.modules.get('torch._ops')\\n"
      "keys = getattr(ops, '_HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS', None)\\n"
      "if keys is not None and hasattr(ops, '_higher_order_ops'):\\n"
      "  import torch\\n"
      "  for name in ('",
      name(runtime::kRecorderKey), "', '", name(runtime::kGenericKey),
      "'):\\n"
      "    key = torch._C._parse_dispatch_key(name)\\n"
      "    keys.append(key)\\n"
      "    for op in list(ops._higher_order_ops.values()):\\n"
      "      op.fallthrough(key)\\n"
      "  ctypes.c_int.from_address(",
      reinterpret_cast<uintptr_t>(done), ").value = 1\\n");
  return absl::StrCat("exec(\"", body, "\", {})");
}

}  // namespace

void LetPythonOperatorsPass() {
  static std::atomic<int> done{0};
  if (done.load(std::memory_order_relaxed) != 0) return;
  const auto is_initialized = runtime::FindInPython<int()>("Py_IsInitialized");
  if (is_initialized == nullptr || is_initialized() == 0) return;
  const auto ensure = runtime::FindInPython<int()>("PyGILState_Ensure");
  const auto release = runtime::FindInPython<void(int)>("PyGILState_Release");
  const auto run = runtime::FindInPython<int(const char*, void*)>("PyRun_SimpleStringFlags");
  if (ensure == nullptr || release == nullptr || run == nullptr) return;
  const int state = ensure();
  run(Script(&done).c_str(), nullptr);
  release(state);
}

}  // namespace lazuli::tracer
