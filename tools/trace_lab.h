// Finds out what of a trace is compiled wrong: runs it, narrows down the operators, makes it smaller.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "codegen/pipeline.h"
#include "codegen/value_diff.h"
#include "tools/trace_case.h"

namespace lazuli::tools {

struct LabOptions {
  uint64_t seed = 3;
  std::string backend = "llvm";
  codegen::KernelTarget target;
  codegen::Tolerance tolerance;  // Zero: bit for bit.
};

// The widest vector instructions of this machine, precision "eager".
LabOptions DefaultLabOptions();

struct Comparison {
  // Empty: the compiled program leaves the same as the operators one by one. Else the first storage that differs, or what failed.
  std::string difference;
  std::vector<std::string> largest;  // By visible storage: "%3: largest difference 0".
  std::string error;                 // What the operators threw when run one by one: nothing was compared.
};

// Runs `test` op by op and as options.backend compiles it, on the same random inputs. `compiled`: as PipelineOptions::compiled_ops.
Comparison CompareWithReplay(const TraceCase& test, const LabOptions& options, const std::vector<bool>& compiled = {});

// Whether a case shows the problem when only these of its ops (by place; empty: all) are compiled.
using Differs = std::function<bool(const TraceCase& test, const std::vector<bool>& compiled)>;

// The places of ops, as few as can be (none can be left out), that suffice to be compiled for the problem to show. Starts from the fusion
// group that shows it by itself, if there is one. Empty when the problem does not show at all.
std::vector<size_t> Bisect(const TraceCase& test, const Differs& differs);

// The case with ops removed for as long as the problem shows: what a removed op made becomes an input, what it read stays visible.
TraceCase Minimise(TraceCase test, const Differs& differs);

// The case without op `index`; none when nothing would be left to see.
std::optional<TraceCase> WithoutOp(const TraceCase& test, size_t index);

// A C++ file that runs the trace's operators in a mode and compares with eager.
std::string EmitProgram(const TraceCase& test, const LabOptions& options);

}  // namespace lazuli::tools
