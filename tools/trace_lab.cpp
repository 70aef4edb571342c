#include "tools/trace_lab.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "codegen/emit_aten.h"
#include "runtime/cpu_features.h"
#include "runtime/options.h"

namespace lazuli::tools {
namespace {

using codegen::StorageId;
using codegen::TensorRef;
using codegen::Trace;
using codegen::TraceOp;

codegen::PipelineOptions PipelineOf(const LabOptions& options, const std::vector<bool>& compiled) {
  codegen::PipelineOptions pipeline;
  pipeline.backend = options.backend;
  pipeline.target = options.target;
  pipeline.compiled_ops = compiled;
  return pipeline;
}

std::vector<bool> MaskOf(const std::vector<size_t>& ops, size_t count) {
  std::vector<bool> mask(count, false);
  for (const size_t op : ops) mask[op] = true;
  return mask;
}

template <class OpT, class Fn>
void ForEachOperand(OpT& op, const Fn& fn) {
  for (auto& arg : op.args) {
    for (auto& ref : arg.tensors) {
      if (ref.defined()) fn(ref);
    }
  }
}

// The smallest subset of `ops` that still differs, such that no single one can be left out: delta debugging.
std::vector<size_t> Reduce(std::vector<size_t> ops, const std::function<bool(const std::vector<size_t>&)>& differs) {
  for (size_t chunk = std::max<size_t>(1, ops.size() / 2);; chunk = std::max<size_t>(1, chunk / 2)) {
    bool smaller = false;
    for (size_t begin = 0; begin < ops.size() && ops.size() > 1;) {
      std::vector<size_t> rest(ops.begin(), ops.begin() + static_cast<std::ptrdiff_t>(begin));
      rest.insert(rest.end(), ops.begin() + static_cast<std::ptrdiff_t>(std::min(ops.size(), begin + chunk)), ops.end());
      if (!rest.empty() && differs(rest)) {
        ops = std::move(rest);
        smaller = true;
      } else {
        begin += chunk;
      }
    }
    if (chunk == 1 && !smaller) return ops;
  }
}

// The ops of each kernel of the trace, in order.
std::vector<std::vector<size_t>> Groups(const Trace& trace) {
  std::vector<std::vector<size_t>> groups;
  const auto graph = codegen::RunPasses(trace, {}, "fuse");
  if (!graph.ok()) return groups;
  for (const codegen::Group& group : graph->groups) {
    if (!group.is_kernel()) continue;
    std::vector<size_t> ops;
    for (const codegen::NodeId n : group.nodes) {
      if (graph->nodes[n].op.index >= 0) ops.push_back(static_cast<size_t>(graph->nodes[n].op.index));
    }
    std::sort(ops.begin(), ops.end());
    ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
    if (!ops.empty()) groups.push_back(std::move(ops));
  }
  return groups;
}

// Leaves out storages that no op mentions and numbers the rest anew; says again which inputs are written.
void DropUnusedStorages(Trace* trace) {
  std::vector<StorageId> number(trace->storages.size(), codegen::kNoStorage);
  std::vector<bool> written(trace->storages.size(), false);
  for (const TraceOp& op : trace->ops) {
    ForEachOperand(op, [&](const TensorRef& ref) { number[ref.storage] = 0; });
    for (const TensorRef& ref : op.results) {
      if (ref.defined()) number[ref.storage] = 0;
    }
    for (size_t i = 0; i < op.args.size(); ++i) {
      if ((op.info->mutated_args >> i & 1) == 0) continue;
      for (const TensorRef& ref : op.args[i].tensors) {
        if (ref.defined()) written[ref.storage] = true;
      }
    }
  }
  std::vector<codegen::TraceStorage> storages;
  for (size_t s = 0; s < number.size(); ++s) {
    if (number[s] == codegen::kNoStorage) continue;
    number[s] = static_cast<StorageId>(storages.size());
    storages.push_back(trace->storages[s]);
    storages.back().mutated = storages.back().is_input && written[s];
  }
  trace->storages = std::move(storages);
  for (TraceOp& op : trace->ops) {
    ForEachOperand(op, [&](TensorRef& ref) { ref.storage = number[ref.storage]; });
    for (TensorRef& ref : op.results) {
      if (ref.defined()) ref.storage = number[ref.storage];
    }
  }
}

}  // namespace

LabOptions DefaultLabOptions() {
  LabOptions options;
  options.target.isa = runtime::IsaName(runtime::WidestIsa());
  options.target.precision = "eager";
  return options;
}

Comparison CompareWithReplay(const TraceCase& test, const LabOptions& options, const std::vector<bool>& compiled) {
  Comparison comparison;
  const TraceMemory memory(test, options.seed);
  const auto expected = memory.Run(codegen::MakeReplay(test.trace).get(), &comparison.error);
  if (!comparison.error.empty()) return comparison;
  auto program = codegen::Compile(test.trace, PipelineOf(options, compiled), nullptr);
  if (!program.ok()) {
    comparison.difference = absl::StrCat("could not be compiled: ", std::string(program.status().message()));
    return comparison;
  }
  // Twice: a program must not depend on what its last run left behind.
  for (int run = 0; run < 2 && comparison.difference.empty(); ++run) {
    std::string error;
    const auto actual = memory.Run(program->get(), &error);
    if (!error.empty()) {
      comparison.difference = error;
      return comparison;
    }
    comparison.largest.clear();
    for (size_t s = 0; s < expected.size(); ++s) {
      if (!expected[s].defined()) continue;
      comparison.largest.push_back(absl::StrCat("%", s, ": largest difference ", codegen::LargestDifference(expected[s], actual[s])));
      const auto difference = codegen::FirstValueDifference(expected[s], actual[s], options.tolerance);
      if (difference.has_value() && comparison.difference.empty())
        comparison.difference = absl::StrCat("storage %", s, ", ", difference->text);
    }
  }
  return comparison;
}

std::vector<size_t> Bisect(const TraceCase& test, const Differs& differs) {
  const size_t count = test.trace.ops.size();
  const auto differs_with = [&](const std::vector<size_t>& ops) { return differs(test, MaskOf(ops, count)); };
  std::vector<size_t> suspects(count);
  for (size_t i = 0; i < count; ++i) suspects[i] = i;
  if (count == 0 || !differs_with(suspects)) return {};
  for (const auto& group : Groups(test.trace)) {
    if (!differs_with(group)) continue;
    suspects = group;
    break;
  }
  return Reduce(std::move(suspects), differs_with);
}

std::optional<TraceCase> WithoutOp(const TraceCase& test, size_t index) {
  TraceCase smaller = test;
  Trace& trace = smaller.trace;
  const TraceOp removed = trace.ops[index];
  trace.ops.erase(trace.ops.begin() + static_cast<std::ptrdiff_t>(index));
  for (size_t i = 0; i < trace.ops.size(); ++i) trace.ops[i].index = static_cast<int32_t>(i);
  for (const TensorRef& ref : removed.results) {
    if (!ref.defined()) continue;
    auto& storage = trace.storages[ref.storage];
    storage.is_input = true;
    storage.live_out = false;
    storage.nbytes = 0;
  }
  ForEachOperand(removed, [&](const TensorRef& ref) {
    auto& storage = trace.storages[ref.storage];
    if (!storage.is_input) storage.live_out = true;
  });
  DropUnusedStorages(&trace);
  const bool visible = std::any_of(trace.storages.begin(), trace.storages.end(), [](const auto& s) { return s.live_out || s.mutated; });
  if (!visible) return std::nullopt;
  return smaller;
}

TraceCase Minimise(TraceCase test, const Differs& differs) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (size_t i = test.trace.ops.size(); i-- > 0;) {
      auto candidate = WithoutOp(test, i);
      if (!candidate.has_value() || !differs(*candidate, {})) continue;
      test = *std::move(candidate);
      smaller = true;
    }
  }
  return test;
}

}  // namespace lazuli::tools
