#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/ir/trace.h"

namespace lazuli::codegen {
std::string PrintTrace(const Trace& trace) {
  std::string t;
  for (auto& op : trace.ops) absl::StrAppend(&t, op.info->name, "\n");
  return t;
}
}
