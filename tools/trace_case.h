// A trace that can be run by itself: with values for its run-time numbers, and random memory for its inputs.
//
//   // SCALARS: 0.5 3             optional: values of the run-time scalars; 0.75, 1.75, ... otherwise
//   // OFFSETS: 5                 optional: values of the offset slots; 1, 2, ... otherwise
//   trace ...
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/ir/trace.h"
#include "runtime/program.h"

namespace lazuli::tools {

struct TraceCase {
  codegen::Trace trace;
  std::vector<double> scalars;
  std::vector<int64_t> offsets;
};

absl::StatusOr<TraceCase> ReadTraceCase(const std::string& text);

// The file that reads back as `test`.
std::string PrintTraceCase(const TraceCase& test);

// The words after "// NAME:", of the first line that starts so.
std::vector<std::string> HeaderWords(const std::string& text, const std::string& name);

// Random content for a case's inputs, and what programs make of it.
class TraceMemory {
 public:
  TraceMemory(const TraceCase& test, uint64_t seed);

  // What each visible storage holds after a run on copies of the inputs: flat, in the dtype in which the trace first mentions it; undefined
  // for the others. A failure is put into `error`.
  std::vector<at::Tensor> Run(runtime::Program* program, std::string* error) const;

  // An input as runs find it.
  const at::Tensor& input(codegen::StorageId storage) const { return inputs_[storage]; }

 private:
  std::vector<uint64_t> ScalarBits() const;

  const TraceCase& test_;
  std::vector<c10::ScalarType> dtypes_;
  std::vector<at::Tensor> inputs_;
};

}  // namespace lazuli::tools
