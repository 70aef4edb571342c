#include "codegen/pipeline.h"

#include <ATen/Context.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "codegen/graph_builder.h"
#include "codegen/passes/attention.h"
#include "codegen/passes/column_sums.h"
#include "codegen/passes/convolution_layout.h"
#include "codegen/passes/cse.h"
#include "codegen/passes/dce.h"
#include "codegen/passes/epilogue.h"
#include "codegen/passes/fold.h"
#include "codegen/passes/fuse.h"
#include "codegen/passes/inline_broadcasts.h"
#include "codegen/passes/pad_products.h"
#include "codegen/passes/place.h"
#include "codegen/passes/plan.h"
#include "codegen/passes/pool_offsets.h"
#include "codegen/passes/recorded_apart.h"
#include "codegen/passes/relayout.h"
#include "codegen/passes/rematerialize.h"
#include "codegen/passes/reuse.h"
#include "codegen/passes/reverse_scans.h"
#include "codegen/passes/slice_gradients.h"
#include "codegen/passes/sum_parts.h"
#include "codegen/passes/windows.h"
#include "runtime/cublas_lt.h"
#include "runtime/cuda_driver.h"
#include "runtime/dump.h"
#include "runtime/executor.h"
#include "runtime/log.h"

namespace lazuli::codegen {
namespace {

using runtime::LogCategory;

struct Pass {
  std::string name;
  std::function<absl::StatusOr<Graph>(Graph)> run;
};

// `options` for `trace`: with the architecture of the GPU that it is on, if code can be generated for that; ATen runs its operators
// otherwise.
PipelineOptions ForDevicesOf(const Trace& trace, const PipelineOptions& options) {
  PipelineOptions result = options;
  if (!options.target.cuda_arch.empty()) return result;
  const auto on_gpu = [](const TraceOp& op) { return !op.device.is_cpu(); };
  const auto op = std::find_if(trace.ops.begin(), trace.ops.end(), on_gpu);
  if (op == trace.ops.end()) return result;
  const absl::StatusOr<runtime::CudaDeviceInfo> gpu = runtime::GetCudaDeviceInfo(op->device.index());
  const absl::Status nvrtc = runtime::GetNvrtc().status();
  if (gpu.ok() && nvrtc.ok()) {
    result.target.cuda_arch = gpu->arch;
    result.epilogues = options.epilogues && runtime::GetCublasLt().ok();
  } else {
    const absl::Status& missing = gpu.ok() ? nvrtc : gpu.status();
    runtime::LogOnce(absl::StrCat("no kernels for ", op->device.str(), ", ATen runs what is on it: ", missing.message()));
  }
  return result;
}

// LibTorch has flash attention from sm_80 on, and prefers cuDNN's from sm_90 on. Programs can forbid either.
AttentionOptions AttentionOptionsFor(const PipelineOptions& options) {
  AttentionOptions result;
  result.cpu = options.backend != "aten" && options.target.precision != "strict";
  int version = 0;
  if (!result.cpu || !absl::SimpleAtoi(absl::StripPrefix(options.target.cuda_arch, "sm_"), &version)) return result;
  result.gpu = version >= 80 && at::globalContext().userEnabledFlashSDP();
  result.cudnn = result.gpu && version >= 90 && at::globalContext().userEnabledCuDNNSDP();
  return result;
}

// Precision strict and deterministic algorithms keep the order in which ATen's convolutions add up.
ConvolutionLayoutOptions ConvolutionLayoutFor(const PipelineOptions& options) {
  ConvolutionLayoutOptions result;
  const at::Context& context = at::globalContext();
  if (options.backend == "aten" || options.target.precision == "strict" || context.deterministicAlgorithms()) return result;
  result.cpu = at::Context::hasMKLDNN() && context.userEnabledMkldnn();
  result.halves = !options.target.cuda_arch.empty() && context.userEnabledCuDNN() && !context.deterministicCuDNN();
  result.floats = result.halves && context.allowTF32CuDNN(at::Float32Op::CONV);
  return result;
}

// Precision strict keeps the order in which products of these sizes add up.
PadProductsOptions PadProductsFor(const PipelineOptions& options) {
  PadProductsOptions result;
  result.halves = !options.target.cuda_arch.empty() && options.backend != "aten" && options.target.precision != "strict";
  const auto precision = at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL);
  result.floats = result.halves && precision == at::Float32Precision::TF32;
  return result;
}

// What every graph goes through before anything is decided about kernels.
std::vector<Pass> SimplifyingPasses() { return {{"fold", FoldCopies}, {"dce", EliminateDeadCode}, {"cse", EliminateCommonSubexpressions}}; }

using TraceChange = std::function<std::optional<Trace>(const Trace&)>;

// The graph of what was `recorded`, after `changes` to that. Which results had better be made by others depends on what is fused: if there
// may be some, that is tried first.
absl::StatusOr<Graph> Build(const Trace& recorded, const std::vector<TraceChange>& changes, BuildOptions build, const FuseOptions& fuse) {
  std::optional<Trace> changed;
  const auto trace_now = [&]() -> const Trace& { return changed.has_value() ? *changed : recorded; };
  for (const TraceChange& change : changes) {
    std::optional<Trace> next = change(trace_now());
    if (next.has_value()) changed = std::move(next);
  }
  const Trace& trace = trace_now();
  auto graph = BuildGraph(trace, build);
  if (!graph.ok() || !MayPlace(*graph)) return graph;
  auto fused = *graph;
  for (const Pass& pass : SimplifyingPasses()) {
    auto result = pass.run(std::move(fused));
    if (!result.ok()) return result.status();
    fused = *std::move(result);
  }
  auto groups = Fuse(std::move(fused), fuse);
  if (!groups.ok()) return groups.status();
  build.placed_ops = OpsToPlace(*groups, recorded.ops.size());
  return build.placed_ops.empty() ? std::move(graph) : BuildGraph(trace, build);
}

std::vector<Pass> PassesOf(const Trace& trace, const PipelineOptions& options) {
  BuildOptions build;
  build.use_rows = options.backend != "aten";
  build.rows_of_ops = options.compiled_ops;
  build.gpu_kernels = !options.target.cuda_arch.empty();
  FuseOptions fuse;
  fuse.enabled = build.use_rows;
  if (build.gpu_kernels) fuse.max_nodes = 256;  // What crosses from kernel to kernel costs more beside what they compute.
  std::vector<Pass> passes = SimplifyingPasses();
  std::vector<TraceChange> changes;
  if (build.use_rows) {
    changes = {Relayout, JoinReverseScans, JoinSliceGradients,
               [pad = PadProductsFor(options)](const Trace& before) { return PadProducts(before, pad); }};
    if (build.gpu_kernels) {
      changes.emplace_back(SumInParts);
      changes.emplace_back(UsePoolOffsets);
    }
  }
  passes.insert(passes.begin(), {"graph", [&trace, changes, build, fuse](Graph) { return Build(trace, changes, build, fuse); }});
  passes.push_back({"windows", ComputeWindows});
  const std::string& precision = options.target.precision;
  const ConvolutionLayoutOptions layout = ConvolutionLayoutFor(options);
  passes.push_back({"conv_layout", [layout](Graph graph) { return ChooseConvolutionLayout(std::move(graph), layout); }});
  const AttentionOptions attention = AttentionOptionsFor(options);
  passes.push_back({"attention", [attention](Graph graph) { return FuseAttention(std::move(graph), attention); }});
  passes.push_back({"remat", Rematerialize});
  passes.push_back({"fuse", [fuse](Graph graph) { return Fuse(std::move(graph), fuse); }});
  passes.push_back({"column_sums", PlaceColumnSums});
  const bool epilogues = options.epilogues && build.use_rows && build.gpu_kernels && precision != "strict";
  passes.push_back({"epilogue", [epilogues, fast = precision == "fast"](Graph graph) {
                      return epilogues ? FuseEpilogues(std::move(graph), fast) : std::move(graph);
                    }});
  passes.push_back({"inline", [fuse](Graph graph) { return InlineBroadcasts(std::move(graph), fuse); }});
  passes.push_back({"reuse", [graphs = options.cudagraphs](Graph graph) { return ReuseMemory(std::move(graph), graphs); }});
  return passes;
}

// Adds the time from here to the end of the scope to `report`.
class PassTimer {
 public:
  PassTimer(std::string name, CompileReport* report) : name_(std::move(name)), report_(report), start_(std::chrono::steady_clock::now()) {}
  ~PassTimer() {
    const auto elapsed = std::chrono::steady_clock::now() - start_;
    report_->pass_ns.emplace_back(std::move(name_), std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count());
  }
  PassTimer(const PassTimer&) = delete;
  PassTimer& operator=(const PassTimer&) = delete;

 private:
  std::string name_;
  CompileReport* report_;
  std::chrono::steady_clock::time_point start_;
};

// The graph that `pass` left, under a log category of torch.compile's.
void LogGraph(const std::string& pass, int64_t serial, const Graph& graph) {
  const LogCategory category = pass == "fuse" ? LogCategory::kFusion : LogCategory::kGraphCode;
  if ((pass != "remat" && pass != "fuse") || !runtime::LogEnabled(category)) return;
  runtime::Log(category, absl::StrCat(pass == "fuse" ? "Fusion groups" : "Graph", " of trace #", serial, "\n", PrintGraph(graph)));
}

// Runs passes one after another, up to `last`, verifying and dumping what each leaves.
absl::StatusOr<Graph> Run(const Trace& trace, const PipelineOptions& options, std::string_view last, CompileReport* report) {
  Graph graph;
  for (const Pass& pass : PassesOf(trace, options)) {
    const PassTimer timer(pass.name, report);
    auto result = pass.run(std::move(graph));
    if (!result.ok()) return result.status();
    if (auto status = VerifyGraph(*result); !status.ok()) {
      return absl::InternalError(absl::StrCat("after pass ", pass.name, ": ", status.message()));
    }
    graph = *std::move(result);
    if (runtime::DumpEnabled(pass.name)) runtime::WriteDump(pass.name, options.serial, PrintGraph(graph));
    LogGraph(pass.name, options.serial, graph);
    if (pass.name == last) break;
  }
  return graph;
}

}  // namespace

std::vector<std::string> PassNames() {
  std::vector<std::string> names;
  for (const Pass& pass : PassesOf({}, {})) names.push_back(pass.name);
  return names;
}

absl::StatusOr<Graph> RunPasses(const Trace& trace, const PipelineOptions& options, std::string_view stop_after) {
  const auto names = PassNames();
  if (std::find(names.begin(), names.end(), stop_after) == names.end()) {
    return absl::InvalidArgumentError(absl::StrCat("no pass '", std::string(stop_after), "'; passes: ", absl::StrJoin(names, ", ")));
  }
  CompileReport unused;
  return Run(trace, ForDevicesOf(trace, options), stop_after, &unused);
}

absl::StatusOr<std::unique_ptr<runtime::Program>> Compile(const Trace& trace, const PipelineOptions& given, CompileReport* report) {
  const PipelineOptions options = ForDevicesOf(trace, given);
  CompileReport unused;
  if (report == nullptr) report = &unused;
  auto graph = Run(trace, options, "", report);
  if (!graph.ok()) return graph.status();
  report->num_nodes = static_cast<int>(graph->nodes.size());
  report->num_groups = static_cast<int>(graph->groups.size());
  const PassTimer timer("plan", report);
  PlanReport plan;
  const bool direct_calls = options.backend != "aten" && options.target.precision != "strict";
  const PlanOptions how = {options.target, options.serial, direct_calls, options.pack_weights, !options.cudagraphs, KnownAtOf(trace)};
  auto spec = PlanProgram(*graph, how, &plan);
  report->kernels_compiled = plan.kernels_compiled;
  report->kernel_cache_hits = plan.kernel_cache_hits;
  if (!spec.ok()) return spec.status();
  for (const runtime::ArenaSpec& arena : spec->arenas) report->arena_bytes += arena.nbytes;
  return runtime::MakeProgram(*std::move(spec));
}

}  // namespace lazuli::codegen
