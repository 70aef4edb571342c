#include "codegen/pipeline.h"

#include "absl/strings/str_cat.h"
#include "codegen/graph_builder.h"
#include "codegen/passes/cse.h"
#include "codegen/passes/dce.h"
#include "codegen/passes/fold.h"
#include "codegen/passes/fuse.h"
#include "codegen/passes/plan.h"
#include "runtime/dump.h"
#include "runtime/executor.h"
#include "runtime/log.h"

namespace lazuli::codegen {
namespace {

// Runs passes one after another, verifying and dumping what each leaves.
class PassRunner {
 public:
  explicit PassRunner(int64_t serial) : serial_(serial) {}

  absl::Status Take(const char* name, absl::StatusOr<Graph> graph) {
    if (!graph.ok()) return graph.status();
    if (auto status = VerifyGraph(*graph); !status.ok()) {
      return absl::InternalError(absl::StrCat("after pass ", name, ": ", status.message()));
    }
    graph_ = *std::move(graph);
    if (runtime::DumpEnabled(name)) runtime::WriteDump(name, serial_, PrintGraph(graph_));
    return absl::OkStatus();
  }

  // The graph as it stands, under a log category of torch.compile's.
  void LogGraph(runtime::LogCategory category, const char* title) const {
    if (runtime::LogEnabled(category)) runtime::Log(category, absl::StrCat(title, " of trace #", serial_, "\n", PrintGraph(graph_)));
  }

  Graph& graph() { return graph_; }

 private:
  const int64_t serial_;
  Graph graph_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<runtime::Program>> Compile(const Trace& trace, const PipelineOptions& options, CompileReport* report) {
  CompileReport unused;
  if (report == nullptr) report = &unused;
  for (const TraceStorage& storage : trace.storages) {
    if (!storage.device.is_cpu()) return absl::UnimplementedError("only CPU tensors can be compiled");
  }
  const bool fused = options.backend != "aten";
  PassRunner passes(options.serial);
  BuildOptions build;
  build.use_rows = fused;
  if (auto status = passes.Take("graph", BuildGraph(trace, build)); !status.ok()) return status;
  if (auto status = passes.Take("fold", FoldCopies(std::move(passes.graph()))); !status.ok()) return status;
  if (auto status = passes.Take("dce", EliminateDeadCode(std::move(passes.graph()))); !status.ok()) return status;
  if (auto status = passes.Take("cse", EliminateCommonSubexpressions(std::move(passes.graph()))); !status.ok()) return status;
  passes.LogGraph(runtime::LogCategory::kGraphCode, "Graph");
  FuseOptions fuse;
  fuse.enabled = fused;
  if (auto status = passes.Take("fuse", Fuse(std::move(passes.graph()), fuse)); !status.ok()) return status;
  passes.LogGraph(runtime::LogCategory::kFusion, "Fusion groups");
  report->num_nodes = static_cast<int>(passes.graph().nodes.size());
  report->num_groups = static_cast<int>(passes.graph().groups.size());
  PlanReport plan;
  auto spec = PlanProgram(passes.graph(), options.target, options.serial, &plan);
  report->kernels_compiled = plan.kernels_compiled;
  report->kernel_cache_hits = plan.kernel_cache_hits;
  if (!spec.ok()) return spec.status();
  return runtime::MakeProgram(*std::move(spec));
}

}  // namespace lazuli::codegen
