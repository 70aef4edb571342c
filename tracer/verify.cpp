#include "tracer/verify.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/emit_aten.h"
#include "codegen/ir/trace_text.h"
#include "codegen/pipeline.h"
#include "codegen/value_diff.h"
#include "runtime/counters.h"
#include "runtime/dump.h"
#include "runtime/history.h"
#include "runtime/log.h"
#include "runtime/mode_keys.h"
#include "runtime/options.h"
#include "runtime/status.h"

namespace lazuli::tracer {
namespace {

using codegen::TensorRef;
using codegen::Trace;
using codegen::ValueDifference;

// Rounding errors grow along a trace.
constexpr double kWideTolerance = 4096;
constexpr double kHalfTolerance = 16;

struct Verified {
  std::mutex mutex;
  absl::flat_hash_map<int64_t, int64_t> runs;  // By serial.
};

Verified& GetVerified() {
  static auto* const verified = new Verified;
  return *verified;
}

bool TakeRun(int64_t serial) {
  const int64_t limit = runtime::Active().verify;
  if (limit == 0) return false;
  Verified& verified = GetVerified();
  std::lock_guard<std::mutex> lock(verified.mutex);
  return verified.runs[serial]++ < limit;
}

at::Tensor Flat(void* data, int64_t elements, c10::ScalarType dtype, c10::Device device) {
  return at::for_blob(data, {elements}).options(at::TensorOptions(dtype).device(device)).target_device(device).make_tensor();
}

c10::intrusive_ptr<c10::StorageImpl> CopyOf(c10::StorageImpl& storage) {
  const auto nbytes = static_cast<int64_t>(storage.nbytes());
  const runtime::AtenScope scope;
  const at::Tensor copy = nbytes == 0 ? at::empty({0}, at::TensorOptions(at::kByte).device(storage.device()))
                                      : Flat(storage._mutable_data_ptr_no_checks().get(), nbytes, at::kByte, storage.device()).clone();
  return c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(copy.storage().unsafeGetStorageImpl());
}

// The window through which an op of the trace writes a visible storage, and where.
struct Written {
  TensorRef window;
  size_t op;
  bool has_values = false;  // Some op has written some, after it was perhaps only allocated.
};

// Calls visit(window) for each one that `op` writes: its results, then arguments.
template <class Visit>
void VisitWritten(const codegen::TraceOp& op, const Visit& visit) {
  const auto visit_all = [&visit](const auto& refs) {
    for (const TensorRef& ref : refs) {
      if (ref.defined()) visit(ref);
    }
  };
  visit_all(op.results);
  for (size_t a = 0; a < op.args.size(); ++a) {
    if ((op.info->mutated_args >> a & 1) != 0) visit_all(op.args[a].tensors);
  }
}

// By storage: who makes a created one, or first writes an input.
std::vector<std::optional<Written>> Writers(const Trace& trace) {
  std::vector<std::optional<Written>> writers(trace.storages.size());
  for (size_t i = 0; i < trace.ops.size(); ++i) {
    VisitWritten(trace.ops[i], [&](const TensorRef& ref) {
      if (!writers[ref.storage].has_value()) writers[ref.storage] = Written{ref, i};
      writers[ref.storage]->has_values |= !trace.ops[i].info->is_allocation;
    });
  }
  return writers;
}

// By storage: the largest epsilon of what was computed on the way to its values. A double that was a float is no nearer than that.
std::vector<double> RoundedTo(const Trace& trace) {
  std::vector<double> epsilons(trace.storages.size(), 0);
  for (const codegen::TraceOp& op : trace.ops) {
    double largest = 0;
    for (const codegen::TraceArg& arg : op.args) {
      for (const TensorRef& ref : arg.tensors) largest = ref.defined() ? std::max(largest, epsilons[ref.storage]) : largest;
    }
    VisitWritten(op, [&](const TensorRef& ref) {
      epsilons[ref.storage] = std::max({epsilons[ref.storage], largest, codegen::EpsilonOf(ref.dtype)});
    });
  }
  return epsilons;
}

// Of values of `dtype` that were computed with `epsilon`.
codegen::Tolerance ToleranceOf(c10::ScalarType dtype, double epsilon, bool bit_exact) {
  if (bit_exact) return {};
  const bool half = epsilon >= codegen::EpsilonOf(c10::ScalarType::Half);
  const double tolerance = (half ? kHalfTolerance : kWideTolerance) * std::max(1.0, epsilon / codegen::EpsilonOf(dtype));
  return {tolerance, tolerance};
}

// The operators that run in one kernel with op `index`.
std::string KernelOf(const Trace& trace, size_t index) {
  codegen::PipelineOptions options;
  options.backend = runtime::BackendName(runtime::Active().backend);
  const auto graph = codegen::RunPasses(trace, options, "fuse");
  if (!graph.ok()) return std::string(graph.status().message());
  for (const codegen::Group& group : graph->groups) {
    bool found = false;
    std::vector<std::string> names;
    for (const codegen::NodeId n : group.nodes) {
      const codegen::TraceOp& op = graph->nodes[n].op;
      found = found || op.index == static_cast<int32_t>(index);
      if (op.info != nullptr) names.push_back(op.info->name);
    }
    if (found) return absl::StrCat(group.is_kernel() ? "" : "none, a call of ", absl::StrJoin(names, " + "));
  }
  return "none: folded away";
}

// The trace with this run's numbers, as tools read it.
std::string DumpText(const Trace& trace, const runtime::RunArgs& args) {
  std::string text;
  std::vector<bool> is_double(args.scalars.size(), false);
  for (const codegen::TraceOp& op : trace.ops) {
    for (const codegen::TraceArg& arg : op.args) {
      if (arg.kind == codegen::TraceArg::Kind::kScalar) is_double[arg.slot] = arg.scalar_type == c10::ScalarType::Double;
    }
  }
  if (!args.scalars.empty()) absl::StrAppend(&text, "// SCALARS:");
  for (size_t i = 0; i < args.scalars.size(); ++i) {
    double number;
    std::memcpy(&number, &args.scalars[i], sizeof(number));
    absl::StrAppend(&text, " ", is_double[i] ? codegen::ConstText(number) : absl::StrCat(static_cast<int64_t>(args.scalars[i])));
  }
  if (!args.scalars.empty()) text += "\n";
  if (!args.offsets.empty()) absl::StrAppend(&text, "// OFFSETS: ", absl::StrJoin(args.offsets, " "), "\n");
  return text + codegen::PrintTrace(trace);
}

void Report(const guards::CachedTrace& entry, const Trace& trace, const runtime::RunArgs& args, size_t op, const std::string& what) {
  runtime::Counters::Get().verify_mismatches.Add();
  const std::string& name = trace.ops[op].info->name;
  const std::string place = absl::StrCat("op ", op, " ", name);
  runtime::History::Get().Mismatch(entry.serial, name, absl::StrCat("trace #", entry.serial, ", ", place, ", ", what));
  const std::string path = runtime::WriteDumpFile("verify.trace", entry.serial, DumpText(trace, args));
  runtime::LogAlways(absl::StrCat("VERIFY: the program of trace #", entry.serial, " differs from its operators run one by one\n    ", place,
                                  ", ", what, "\n    kernel: ", KernelOf(trace, op), "\n    reproduce: lazuli-trace bisect ",
                                  path.empty() ? "(the trace could not be written)" : path));
}

}  // namespace

Verification::Verification(const guards::CachedTrace& entry, const runtime::RunArgs& args) : entry_(entry) {
  if (runtime::Active().verify == 0 || !entry.body->compiled || !TakeRun(entry.serial)) return;
  try {
    for (c10::StorageImpl* storage : args.storages) {
      inputs_.push_back(storage == nullptr ? c10::intrusive_ptr<c10::StorageImpl>() : CopyOf(*storage));
    }
    active_ = true;
  } catch (const std::exception& error) {
    runtime::LogOnce(absl::StrCat("LAZULI_VERIFY: no copy of the inputs of trace #", entry.serial, ": ", error.what()));
  }
}

void Verification::Check(const runtime::RunArgs& args, const runtime::RunResult& result) {
  if (!active_ || result.not_started) return;
  try {
    const runtime::AtenScope scope;
    Compare(args, result);
  } catch (...) {
    runtime::LogOnce(absl::StrCat("LAZULI_VERIFY: trace #", entry_.serial,
                                  " could not be compared: ", runtime::ExceptionMessage(std::current_exception())));
  }
}

void Verification::Compare(const runtime::RunArgs& args, const runtime::RunResult& result) {
  runtime::Counters::Get().verify_runs.Add();
  const Trace trace = codegen::DecodeTrace(entry_.log);
  std::vector<c10::StorageImpl*> storages;
  for (const auto& input : inputs_) storages.push_back(input.get());
  std::vector<at::DataPtr> outputs(storages.size());
  const auto replayed = codegen::MakeReplay(trace)->Run({storages, args.scalars, args.offsets, absl::MakeSpan(outputs)});
  if ((replayed.error == nullptr) != (result.error == nullptr)) {
    const auto& failed = replayed.error != nullptr ? replayed : result;
    const auto op = static_cast<size_t>(failed.failed_index < 0 ? 0 : failed.failed_index);
    Report(entry_, trace, args, op, absl::StrCat("only ", replayed.error != nullptr ? "the operator" : "the program", " throws"));
    return;
  }
  if (result.error != nullptr) return;
  std::optional<size_t> first_op;
  std::string what;
  const auto writers = Writers(trace);
  const std::vector<double> epsilons = RoundedTo(trace);
  for (size_t s = 0; s < writers.size(); ++s) {
    if (!writers[s].has_value() || !writers[s]->has_values || (first_op.has_value() && *first_op <= writers[s]->op)) continue;
    const auto& storage = trace.storages[s];
    if (!storage.is_input && !storage.live_out) continue;
    const c10::ScalarType dtype = writers[s]->window.dtype;
    const auto element = static_cast<int64_t>(c10::elementSize(dtype));
    const int64_t elements = storage.is_input ? static_cast<int64_t>(inputs_[s]->nbytes()) / element : writers[s]->window.numel();
    void* want = storage.is_input ? inputs_[s]->_mutable_data_ptr_no_checks().get() : outputs[s].get();
    void* got = storage.is_input ? args.storages[s]->_mutable_data_ptr_no_checks().get() : args.outputs[s].get();
    if (elements == 0 || want == nullptr || got == nullptr) continue;
    const auto flat = [&](void* data) { return Flat(data, elements, dtype, storage.device); };
    const auto tolerance = ToleranceOf(dtype, epsilons[s], entry_.body->program->bit_exact());
    const auto difference = codegen::FirstValueDifference(flat(want), flat(got), tolerance);
    if (!difference.has_value()) continue;
    first_op = writers[s]->op;
    what = absl::StrCat("storage %", s, ", ", difference->text);
  }
  if (first_op.has_value()) Report(entry_, trace, args, *first_op, what);
}

void ForgetVerified() {
  Verified& verified = GetVerified();
  std::lock_guard<std::mutex> lock(verified.mutex);
  verified.runs.clear();
}

}  // namespace lazuli::tracer
