#include "codegen/out_variants.h"

#include <c10/core/TensorOptions.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace lazuli::codegen {

bool IsOutVariantOf(const c10::FunctionSchema& out, const c10::FunctionSchema& functional) {
  const auto& a = functional.arguments();
  const auto& b = out.arguments();
  if (b.size() != a.size() + functional.returns().size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].name() != b[i].name() || *a[i].type() != *b[i].type()) return false;
  }
  for (size_t i = a.size(); i < b.size(); ++i) {
    if (!b[i].is_out()) return false;
  }
  return true;
}

bool NeedsMoreThanMemory(const c10::FunctionSchema& schema) {
  const std::string& name = schema.name();
  if (name == "aten::_compute_linear_combination" || name.find("batch_norm") != std::string::npos) return true;
  for (const auto& argument : schema.arguments()) {
    if (argument.name() == "reduction") return true;
  }
  return false;
}

namespace {

// Where there is nothing to read, kernels resize what they write.
bool HasEmptyOperand(const TraceOp& op) {
  for (const TraceArg& arg : op.args) {
    for (const TensorRef& ref : arg.tensors) {
      if (ref.defined() && ref.numel() == 0) return true;
    }
  }
  return false;
}

// Of Fourier transforms, those that take `out` compute aside and go through the result once more.
bool ComputesAside(const OpInfo& info) { return info.name.rfind("aten::_fft_", 0) == 0; }

const OpInfo* Search(const OpInfo& info, c10::DispatchKey key) {
  // Planned memory is of one size and has no contents.
  if (NeedsMoreThanMemory(info.schema()) || ComputesAside(info)) return nullptr;
  const size_t dot = info.name.find('.');
  const std::string base = info.name.substr(0, dot);
  const std::string overload = dot == std::string::npos ? "" : info.name.substr(dot + 1);
  for (const std::string& candidate : {overload.empty() ? base + ".out" : base + "." + overload + "_out", base + ".out"}) {
    const OpInfo* out = FindOpInfo(candidate);
    if (out != nullptr && out->handle.hasKernelForDispatchKey(key) && IsOutVariantOf(out->schema(), info.schema())) {
      return out;
    }
  }
  return nullptr;
}

}  // namespace

const OpInfo* FindOutVariant(const TraceOp& op) {
  if (op.info->mutated_args != 0 || op.results.empty() || HasEmptyOperand(op)) return nullptr;
  for (const TensorRef& result : op.results) {
    if (!result.defined()) return nullptr;
  }
  static std::mutex mutex;
  static auto* found = new absl::flat_hash_map<std::pair<int32_t, c10::DispatchKey>, const OpInfo*>;
  const c10::DispatchKey key = c10::computeDispatchKey(std::nullopt, std::nullopt, op.device);
  std::lock_guard<std::mutex> lock(mutex);
  const auto [it, inserted] = found->try_emplace({op.info->id, key}, nullptr);
  if (inserted) it->second = Search(*op.info, key);
  return it->second;
}

}  // namespace lazuli::codegen
