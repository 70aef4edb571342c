// The numbers of a trace with symbols, ready to be followed while such a trace is recorded: operands are checked against the symbols seen
// so far, and results' metadata is computed from them, where that is known to be right.
//
// A trace's explanation (shape_policy.h) is a guess from a few examples. A wrong one about operands shows as soon as they are recorded;
// one about results would not, if nobody inferred them. So an operator's results are computed only if its shape inference agreed with the
// explanation for sizes that no program has and in which no coincidence is likely: small and large primes, in several orders (a minimum,
// a rounding or an order of strides would show). The results of other operators are inferred as ever, and checked.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "codegen/ir/trace_log.h"
#include "guards/shape_policy.h"

namespace lazuli::guards {

// Metadata of the results of an operator called with `args`, tensors as meta tensors; nothing when it is not known or they do not fit.
using ShapeInference = std::optional<codegen::OutputMetas> (*)(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args,
                                                               c10::Device device);

class ShapePlan {
 public:
  // For traces with the code of `log`, a complete one. `infer` may be called on any thread.
  ShapePlan(const codegen::TraceLog& log, const DynamicShapes& shapes, ShapeInference infer);

  // Whether the results of operator `op` follow from the symbols, where none is less than what was tested.
  bool IsProved(size_t op) const { return proved_[op]; }

  // With so many words of shapes recorded, every symbol has been seen.
  size_t AllSeenAt() const { return all_seen_at_; }

 private:
  friend class ShapeCursor;

  // Values for the symbols, one for each `round`, as unlike each other and what programs have as can be.
  static constexpr int kRounds = 5;
  std::vector<int64_t> TestValues(int round) const;
  // The least that they may have.
  std::vector<int64_t> LeastValues() const;
  size_t AllSeenIn(size_t num_shapes) const;
  // Takes out of `proved` what does not follow where the symbols have these values.
  void Prove(const DynamicShapes& shapes, const codegen::TraceLog& log, const std::vector<int64_t>& values, ShapeInference infer,
             std::vector<bool>* proved) const;

  std::vector<ShapeExplanation::Symbol> symbols_;
  std::vector<runtime::Product> terms_;           // Distinct ones; symbol i alone is term i.
  std::vector<std::vector<int32_t>> terms_with_;  // By symbol.
  std::vector<int32_t> term_at_;                  // By position; -1: a constant, in numbers_.
  std::vector<int64_t> numbers_;                  // By position.
  size_t all_seen_at_ = 0;
  std::vector<uint32_t> results_at_;  // By operator: the position of its results' numbers.
  std::vector<bool> proved_;
  // Between the least that it may have and the least that was tested a size may be where the results follow in another way: of min(n, 3)
  // only 2 says that it is not 3.
  std::vector<int64_t> least_tested_;  // By symbol.
  std::vector<bool> proved_below_;     // There, too.
};

// Follows one trace. The recorder's lock guards it.
class ShapeCursor {
 public:
  bool active() const { return plan_ != nullptr; }

  // The trace has the numbers of `log` in its first `num_ops` operators and `num_shapes` words, where the symbols of `plan` are `symbols`,
  // and may have others from here on. False, and not active, where that cannot be followed.
  bool Start(std::shared_ptr<const ShapePlan> plan, const codegen::TraceLog& log, size_t num_ops, size_t num_shapes,
             absl::Span<const int64_t> symbols);
  void Stop() { plan_ = nullptr; }
  // The number of operators at Start().
  size_t first_op() const { return first_op_; }

  // Whether the words of `shapes` from `begin` on are as explained.
  bool Take(const std::vector<codegen::Word>& shapes, size_t begin);
  // Whether `metas`, inferred for operator `op`, are.
  bool TakeResults(size_t op, const codegen::OutputMetas& metas);

  // The metadata of the results of operator `op`, which are `like` but for their numbers; valid until the next call. Null when it has to be
  // inferred.
  const codegen::OutputMetas* Results(size_t op, const codegen::OutputMetas& like);
  // The same of an operator for which that was not null: later sizes, less than what was tested, may have made it so.
  const codegen::OutputMetas& ResultsAgain(size_t op, const codegen::OutputMetas& like);

  // A value for each symbol, if all were seen; else empty.
  absl::Span<const int64_t> Symbols() const;

 private:
  bool TakeNumber(size_t position, int64_t number);
  bool Assign(int32_t symbol, int64_t value);
  // Finds the value of a term from its symbols', or that of its last symbol from the term's. False where they contradict each other.
  bool Solve(int32_t term);
  // Makes results_ the results of operator `op`. Whether all of their numbers are known.
  bool Evaluate(size_t op, const codegen::OutputMetas& like);
  // The symbols at `position` have the values of the trace that was followed until now.
  bool Pin(size_t position, absl::Span<const int64_t> symbols);

  std::shared_ptr<const ShapePlan> plan_;
  size_t first_op_ = 0;
  std::vector<int64_t> values_;  // By term; 0: not known yet.
  bool below_tested_ = false;    // One of them is less than what was tested.
  codegen::OutputMetas results_;
};

}  // namespace lazuli::guards
