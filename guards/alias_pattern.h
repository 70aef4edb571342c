// Which operands of a trace share their memory, and where that is chance.
//
// A program is compiled for one pattern: storages are numbered as they come, so that a tensor which is used twice has one number. Of a list
// drawn at random (a replay buffer's) the pattern differs from round to round. What is only read may as well be several storages that
// happen to be one: with a number for each mention, all patterns become one trace.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "codegen/ir/trace_log.h"

namespace lazuli::guards {

struct SeparatedLog {
  codegen::TraceLog log;
  std::vector<int32_t> storages;  // By number in `log`: the number in the original.
};

// `log`, which must be complete, with a number of its own for each mention of an input that no operator writes, and a run-time offset where
// any mention of its storage or in its list has one: which window is the one at 0 is chance, too. Nothing when it is that already, or would
// have too many storages.
std::optional<SeparatedLog> SeparateReads(const codegen::TraceLog& log);

}  // namespace lazuli::guards
