// Guards: the conditions under which a compiled program may run a trace, one clause per compared word of the trace log.
//
// A clause carries the position of its word and what it means, so Check and Describe read the same data. All clauses of a log
// together say exactly what Matches() says with two memcmp calls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codegen/ir/trace_log.h"

namespace lazuli::guards {

struct Guard {
  enum class Kind : uint8_t {
    kOp,       // Which operator.
    kOperand,  // Dtype, rank, storage, offset pattern, wrapped number of a tensor argument.
    kSize,
    kStride,
    kOffset,        // Of a window over what the trace makes.
    kSizeArgument,  // A number of an argument that holds sizes.
    kArgument,      // Any other word of a non-tensor argument.
    kLiveOut,       // Which results can still be seen.
  };
  Kind kind;
  int32_t op = 0;   // Index of the operator in the trace.
  int32_t arg = 0;  // Argument index.
  // For kSize, kStride and kSizeArgument: the index. For kOffset: 0. For kArgument, 0: its tagged word, n: its nth value. For kLiveOut:
  // first storage covered.
  int32_t dim = 0;
  uint32_t position = 0;  // In `shapes` for kSize, kStride, kOffset and kSizeArgument, else in `code`.
  codegen::Word expected = 0;

  bool OnShapes() const { return kind == Kind::kSize || kind == Kind::kStride || kind == Kind::kOffset || kind == Kind::kSizeArgument; }
  // For a guard on shapes. What its word is: "size of input 0 of op 17 aten::mm at index 0"; and that it is not what it should be.
  std::string Subject(const codegen::TraceLog& log) const;
  std::string MismatchText(const codegen::TraceLog& log, const std::string& expected, int64_t actual) const;
  // Whether `log` has the expected word at the guard's position.
  bool Check(const codegen::TraceLog& log) const;
  // "input 0 of op 17 aten::mm size mismatch at index 0. expected 64, actual 48".
  std::string Describe(const codegen::TraceLog& expected_log, const codegen::TraceLog& actual_log) const;
  // "size of input 0 of op 17 aten::mm at index 0 == 64", for LAZULI_LOGS=guards.
  std::string Text(const codegen::TraceLog& log) const;
};

// Every clause of a complete log, in the order in which the trace was recorded.
std::vector<Guard> BuildGuards(const codegen::TraceLog& log);

// A tensor operand of a log: its `ndim` sizes stand at `position` in TraceLog::shapes, as many strides after them.
struct Operand {
  uint32_t storage = 0;
  bool first_use = false;  // First mention of an input storage.
  uint32_t position = 0;
  uint32_t ndim = 0;
};
std::vector<Operand> OperandsOf(const codegen::TraceLog& log);

// Whether `words` from `begin` on are the same in `want`, which may go on.
inline bool ContinuesAs(const std::vector<codegen::Word>& words, const std::vector<codegen::Word>& want, size_t begin) {
  if (words.size() > want.size()) return false;
  // Of what was just recorded a handful of words: a loop beats a call.
  codegen::Word difference = 0;
  for (size_t i = begin; i < words.size(); ++i) difference |= words[i] ^ want[i];
  return difference == 0;
}

// All clauses at once.
bool Matches(const codegen::TraceLog& expected, const codegen::TraceLog& actual);

// The last words of a complete log's code: a bit for each of its storages, whether it is visible after the trace.
inline size_t LiveOutWords(const codegen::TraceLog& log) { return (static_cast<size_t>(log.num_storages) + 63) / 64; }

// Whether they match but for storages that only `expected` says are visible after the trace: its program makes all that `actual` asks for.
bool MatchesButForDead(const codegen::TraceLog& expected, const codegen::TraceLog& actual);

// The first clause of `expected` that `actual` fails; none when they match.
std::optional<Guard> FirstFailure(const codegen::TraceLog& expected, const codegen::TraceLog& actual);

}  // namespace lazuli::guards
