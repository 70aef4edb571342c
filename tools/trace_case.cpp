#include "tools/trace_case.h"

#include <ATen/Context.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/ir/trace_text.h"
#include "runtime/status.h"

namespace lazuli::tools {
namespace {

using codegen::TensorRef;

template <class Fn>
void ForEachRef(const codegen::Trace& trace, const Fn& fn) {
  for (const auto& op : trace.ops) {
    for (const auto& arg : op.args) {
      for (const TensorRef& ref : arg.tensors) {
        if (ref.defined()) fn(ref);
      }
    }
    for (const TensorRef& ref : op.results) {
      if (ref.defined()) fn(ref);
    }
  }
}

at::Tensor Random(int64_t elements, c10::ScalarType dtype) {
  if (c10::isFloatingType(dtype)) return at::randn({elements}, c10::kDouble).to(dtype);
  return at::randint(0, dtype == c10::kBool ? 2 : 7, {elements}, c10::kLong).to(dtype);
}

}  // namespace

std::vector<std::string> HeaderWords(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  const std::string prefix = "// " + name + ":";
  std::vector<std::string> values;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(prefix, 0) != 0) continue;
    std::istringstream words(line.substr(prefix.size()));
    for (std::string word; words >> word;) values.push_back(word);
    break;
  }
  return values;
}

absl::StatusOr<TraceCase> ReadTraceCase(const std::string& text) {
  auto trace = codegen::ParseTrace(text);
  if (!trace.ok()) return trace.status();
  TraceCase test;
  test.trace = *std::move(trace);
  for (const std::string& word : HeaderWords(text, "SCALARS")) test.scalars.push_back(std::strtod(word.c_str(), nullptr));
  for (const std::string& word : HeaderWords(text, "OFFSETS")) test.offsets.push_back(std::strtoll(word.c_str(), nullptr, 10));
  while (test.scalars.size() < static_cast<size_t>(test.trace.num_scalars)) {
    test.scalars.push_back(0.75 + static_cast<double>(test.scalars.size()));
  }
  const size_t given = test.offsets.size();
  while (test.offsets.size() < static_cast<size_t>(test.trace.num_offsets)) {
    test.offsets.push_back(1 + static_cast<int64_t>(test.offsets.size()));
  }
  for (const codegen::TraceOp& op : test.trace.ops) {
    for (const codegen::TraceArg& arg : op.args) {
      for (const codegen::TensorRef& ref : arg.tensors) {
        if (ref.offset != 0 && static_cast<size_t>(ref.offset_slot) >= given)
          test.offsets[static_cast<size_t>(ref.offset_slot)] = ref.offset;
      }
    }
  }
  return test;
}

std::string PrintTraceCase(const TraceCase& test) {
  std::string text;
  std::vector<std::string> scalars;
  for (const double scalar : test.scalars) scalars.push_back(codegen::ConstText(scalar));
  if (!scalars.empty()) absl::StrAppend(&text, "// SCALARS: ", absl::StrJoin(scalars, " "), "\n");
  if (!test.offsets.empty()) absl::StrAppend(&text, "// OFFSETS: ", absl::StrJoin(test.offsets, " "), "\n");
  return text + codegen::PrintTrace(test.trace);
}

TraceMemory::TraceMemory(const TraceCase& test, uint64_t seed) : test_(test) {
  const size_t count = test.trace.storages.size();
  dtypes_.resize(count, c10::kByte);
  std::vector<int64_t> elements(count, 0);
  std::vector<bool> seen(count, false);
  ForEachRef(test.trace, [&](const TensorRef& ref) {
    if (!seen[ref.storage]) dtypes_[ref.storage] = ref.dtype;
    seen[ref.storage] = true;
    int64_t last = ref.offset_slot < 0 ? 0 : test.offsets[ref.offset_slot];
    for (size_t d = 0; d < ref.sizes.size(); ++d) last += (ref.sizes[d] - 1) * ref.strides[d];
    const auto size = static_cast<int64_t>(c10::elementSize(ref.dtype)), own = static_cast<int64_t>(c10::elementSize(dtypes_[ref.storage]));
    elements[ref.storage] = std::max(elements[ref.storage], ref.numel() == 0 ? 0 : ((last + 1) * size + own - 1) / own);
  });
  at::manual_seed(seed);
  for (size_t i = 0; i < count; ++i) inputs_.push_back(test.trace.storages[i].is_input ? Random(elements[i], dtypes_[i]) : at::Tensor());
}

std::vector<at::Tensor> TraceMemory::Run(runtime::Program* program, std::string* error) const {
  const size_t count = inputs_.size();
  std::vector<at::Tensor> memory;
  std::vector<c10::StorageImpl*> storages(count, nullptr);
  std::vector<at::DataPtr> outputs(count);
  for (size_t i = 0; i < count; ++i) {
    memory.push_back(inputs_[i].defined() ? inputs_[i].clone() : at::Tensor());
    if (inputs_[i].defined()) storages[i] = memory[i].storage().unsafeGetStorageImpl();
  }
  const std::vector<uint64_t> scalars = ScalarBits();
  const runtime::RunResult result = program->Run({storages, scalars, test_.offsets, absl::MakeSpan(outputs)});
  if (result.error != nullptr) *error = absl::StrCat(result.failed_op, " threw ", runtime::ExceptionMessage(result.error));
  for (size_t i = 0; i < count; ++i) {
    const auto& storage = test_.trace.storages[i];
    if (storage.is_input || !storage.live_out) continue;
    if (outputs[i].get() == nullptr && storage.nbytes > 0) {
      if (error->empty()) *error = absl::StrCat("storage %", i, " was left without memory");
      continue;
    }
    const auto elements = storage.nbytes / static_cast<int64_t>(c10::elementSize(dtypes_[i]));
    memory[i] = at::from_blob(outputs[i].get(), {elements}, at::TensorOptions(dtypes_[i])).clone();
  }
  return memory;
}

std::vector<uint64_t> TraceMemory::ScalarBits() const {
  std::vector<uint64_t> bits(static_cast<size_t>(test_.trace.num_scalars));
  for (const auto& op : test_.trace.ops) {
    for (const auto& arg : op.args) {
      if (arg.kind != codegen::TraceArg::Kind::kScalar) continue;
      const double value = test_.scalars[static_cast<size_t>(arg.slot)];
      if (arg.scalar_type == c10::kDouble) {
        std::memcpy(&bits[static_cast<size_t>(arg.slot)], &value, sizeof(value));
      } else {
        bits[static_cast<size_t>(arg.slot)] = static_cast<uint64_t>(static_cast<int64_t>(value));
      }
    }
  }
  return bits;
}

}  // namespace lazuli::tools
