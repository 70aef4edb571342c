// Symbols before a second size was seen: for sizes that the program marked, or for all of its data with LAZULI_DYNAMIC=1.
//
// From one set of sizes it cannot be known which other numbers follow from a marked one; they are guessed: a size of the same value, a
// product of such sizes, and the strides and bytes that go with them. Sizes of tensors without marks (weights) stay what they are, and so
// does a marked size that equals one of theirs, until a second size tells them apart. As always all numbers are checked on each use: a
// wrong guess costs one more compilation.
#pragma once

#include <optional>
#include <string>

#include "codegen/ir/trace_log.h"
#include "guards/shape_policy.h"

namespace lazuli::guards {

// The symbols that the marks of `log` make; nothing when there are none, and then `why_not` says why.
std::optional<DynamicShapes> GuessFromMarks(const codegen::TraceLog& log, std::string* why_not);

}  // namespace lazuli::guards
