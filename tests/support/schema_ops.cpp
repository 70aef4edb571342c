#include "tests/support/schema_ops.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "tests/support/schema_args.h"

namespace lazuli::testing {
namespace {

using Table = std::map<std::string, std::vector<std::string>>;

Table BuildTable() {
  Table table;
  for (const auto* rows : {&PointwiseRows(), &ShapeRows(), &IndexRows(), &LinalgRows(), &NnRows(), &PoolRows(), &LossRows(),
                           &SequenceRows(), &FactoryRows()}) {
    for (const SchemaRow& row : *rows) {
      for (const std::string& name : Split(row.ops, ' ')) table[name].emplace_back(row.args);
    }
  }
  return table;
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool HasCpuKernel(const c10::OperatorHandle& op) {
  for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::CompositeImplicitAutograd, c10::DispatchKey::CompositeExplicitAutograd,
                         c10::DispatchKey::CompositeExplicitAutogradNonFunctional}) {
    if (op.hasKernelForDispatchKey(key)) return true;
  }
  return false;
}

}  // namespace

std::string ReasonUntested(const c10::OperatorHandle& op) {
  const std::string full = FullName(op).substr(std::strlen("aten::"));
  const std::string base = full.substr(0, full.find('.'));
  for (const UntestedRow& row : UntestedRows()) {
    const std::string part = row.part;
    if (part[0] == '=' ? (full == part.substr(1) || base == part.substr(1)) : full.find(part) != std::string::npos) return row.reason;
  }
  return "";
}

bool IsOutOfReach(const std::string& reason) {
  for (const char* out : {"another backend", "another backend's tensors", "sparse tensors", "nested tensors", "quantized tensors",
                          "without a CPU kernel below it"}) {
    if (reason == out) return true;
  }
  return false;
}

std::vector<c10::OperatorHandle> CpuOperators(const std::string& filter) {
  std::vector<c10::OperatorHandle> ops;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (op.has_value() && HasCpuKernel(*op) && FullName(*op).find(filter) != std::string::npos) ops.push_back(*op);
  }
  std::sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) { return FullName(a) < FullName(b); });
  return ops;
}

std::vector<std::string> RowsOf(const c10::OperatorHandle& op) {
  static const Table table = BuildTable();
  const std::string full = FullName(op).substr(std::strlen("aten::"));
  std::string base = full.substr(0, full.find('.'));
  const std::string overload = full.substr(base.size());
  std::vector<std::string> names = {full, base};
  if (EndsWith(base, "_")) {
    base.pop_back();
    names.insert(names.end(), {base + overload, base});
  }
  if (EndsWith(base, "_copy")) {
    base.resize(base.size() - std::strlen("_copy"));
    names.insert(names.end(), {base + overload, base});
  }
  for (const std::string& name : names) {
    const auto it = table.find(name);
    if (it != table.end()) return it->second;
  }
  return {};
}

}  // namespace lazuli::testing
