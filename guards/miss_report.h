// Why a trace was compiled again, in torch.compile's words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "guards/program_cache.h"
#include "runtime/history.h"

namespace lazuli::guards {

// Trace `serial`, its site, and one line per variant of the site that was not this trace, with its first failing guard. `verbose` lists
// every variant, otherwise the nearest one.
std::string DescribeMiss(const Site& site, const codegen::TraceLog& log, int64_t serial, int64_t limit, std::string_view location,
                         bool verbose);

// The guard that the nearest variant failed, in its parts; empty when no variant is left to compare with.
runtime::RecompileReason NearestFailure(const Site& site, const codegen::TraceLog& log);

// "aten::mul.Tensor, aten::add.Tensor, ...": what a trace starts with.
std::string FirstOps(const codegen::TraceLog& log);

}  // namespace lazuli::guards
