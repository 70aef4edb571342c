// What a trace's text becomes for a GPU, none of which is needed.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "codegen/ir/trace_text.h"
#include "codegen/lower_group.h"
#include "codegen/pipeline.h"

namespace lazuli::testing {

// The graph of the trace that `text` says, up to and with the pass of that name, where kernels on GPUs are for `cuda_arch`.
inline absl::StatusOr<codegen::Graph> GpuGraph(const std::string& text, const char* pass = "fuse", const std::string& cuda_arch = "sm_90",
                                               const std::string& precision = "eager") {
  const auto trace = codegen::ParseTrace(text);
  if (!trace.ok()) return trace.status();
  codegen::PipelineOptions options;
  options.target.cuda_arch = cuda_arch;
  options.target.precision = precision;
  return codegen::RunPasses(*trace, options, pass);
}

// The same, where it can be made: its text reads back as it.
inline codegen::Graph ReadableGpuGraph(const std::string& text, const char* pass, const std::string& precision = "eager") {
  auto graph = GpuGraph(text, pass, "sm_90", precision);
  EXPECT_TRUE(graph.ok()) << graph.status();
  const auto parsed = codegen::ParseGraph(codegen::PrintGraph(*graph));
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(codegen::PrintGraph(*parsed), codegen::PrintGraph(*graph));
  return *std::move(graph);
}

// The kernel of that graph's first group.
inline absl::StatusOr<codegen::LoweredGroup> LowerFirstGroup(const std::string& text) {
  const auto graph = GpuGraph(text);
  if (!graph.ok()) return graph.status();
  if (!graph->groups.at(0).is_kernel()) return absl::FailedPreconditionError("the first group is no kernel");
  return codegen::LowerGroup(*graph, graph->groups[0], codegen::ValuesInMemory(*graph));
}

}  // namespace lazuli::testing
