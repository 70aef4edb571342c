#include "guards/shape_plan.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <exception>
#include <limits>

#include "codegen/emit_aten.h"
#include "runtime/mode_keys.h"

namespace lazuli::guards {
namespace {

using codegen::OutputMeta;
using codegen::OutputMetas;
using runtime::Product;

at::Tensor MetaWindow(const codegen::TensorRef& ref) {
  at::Tensor meta = at::detail::empty_strided_meta(ref.sizes, ref.strides, ref.dtype);
  if (ref.wrapped_number) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  return meta;
}

// Whether `op`, whose operands and results are written in `log`, has these results by its shape inference.
bool InfersThem(const codegen::TraceOp& op, const codegen::TraceLog& log, ShapeInference infer) {
  try {
    torch::jit::Stack args;
    codegen::PushTraceArgs(op, log.scalars.data(), &MetaWindow, &args);
    const std::optional<OutputMetas> inferred = infer(*op.info, args, op.device);
    const auto& outputs = log.ops[static_cast<size_t>(op.index)].outputs;
    return inferred.has_value() && outputs != nullptr && *inferred == *outputs;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

ShapePlan::ShapePlan(const codegen::TraceLog& log, const DynamicShapes& shapes, ShapeInference infer)
    : symbols_(shapes.explanation().symbols),
      terms_with_(symbols_.size()),
      term_at_(shapes.numbers().size(), -1),
      numbers_(shapes.numbers()) {
  for (size_t s = 0; s < symbols_.size(); ++s) {
    terms_.emplace_back();
    terms_.back().symbols.push_back(static_cast<int32_t>(s));
  }
  for (const auto& derived : shapes.explanation().derived) {
    const auto known = std::find(terms_.begin(), terms_.end(), derived.product);
    term_at_[derived.position] = static_cast<int32_t>(known - terms_.begin());
    if (known == terms_.end()) terms_.push_back(derived.product);
  }
  for (size_t t = 0; t < terms_.size(); ++t) {
    for (const int32_t symbol : terms_[t].symbols) {
      auto& with = terms_with_[static_cast<size_t>(symbol)];
      if (with.empty() || with.back() != static_cast<int32_t>(t)) with.push_back(static_cast<int32_t>(t));
    }
  }
  all_seen_at_ = AllSeenIn(log.shapes.size());
  auto at = static_cast<uint32_t>(log.shapes.size());
  for (const auto& op : log.ops) {
    results_at_.push_back(at);
    if (op.outputs == nullptr) continue;
    for (const OutputMeta& meta : *op.outputs) at += static_cast<uint32_t>(meta.sizes.size() + meta.strides.size() + 1);
  }
  results_at_.push_back(at);
  proved_.assign(log.ops.size(), infer != nullptr);
  proved_below_ = proved_;
  least_tested_.assign(symbols_.size(), std::numeric_limits<int64_t>::max());
  if (infer == nullptr) return;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<int64_t> values = TestValues(round);
    Prove(shapes, log, values, infer, &proved_);
    for (size_t s = 0; s < values.size(); ++s) least_tested_[s] = std::min(least_tested_[s], values[s]);
  }
  proved_below_ = proved_;
  Prove(shapes, log, LeastValues(), infer, &proved_below_);
}

size_t ShapePlan::AllSeenIn(size_t num_shapes) const {
  std::vector<bool> seen(symbols_.size(), false);
  size_t unseen = symbols_.size();
  for (size_t p = 0; p < num_shapes && unseen > 0; ++p) {
    if (term_at_[p] < 0) continue;
    for (const int32_t symbol : terms_[static_cast<size_t>(term_at_[p])].symbols) {
      if (seen[static_cast<size_t>(symbol)]) continue;
      seen[static_cast<size_t>(symbol)] = true;
      if (--unseen == 0) return p + 1;
    }
  }
  return unseen == 0 ? 0 : num_shapes;
}

std::vector<int64_t> ShapePlan::TestValues(int round) const {
  constexpr std::array<int64_t, 12> kSmall = {3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41};
  constexpr std::array<int64_t, 12> kLarge = {1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049, 1051, 1061, 1063, 1069};
  std::vector<int64_t> values;
  for (size_t s = 0; s < symbols_.size(); ++s) {
    const size_t up = s % kSmall.size(), down = kSmall.size() - 1 - up;
    const std::array<int64_t, kRounds> by_round = {kSmall[up], kSmall[down], kLarge[up], s % 2 == 0 ? kSmall[up] : kLarge[down],
                                                   s % 2 == 0 ? kLarge[up] : kSmall[down]};
    values.push_back(std::clamp(by_round[static_cast<size_t>(round)], symbols_[s].least, std::max(symbols_[s].least, symbols_[s].most)));
  }
  return values;
}

std::vector<int64_t> ShapePlan::LeastValues() const {
  std::vector<int64_t> values;
  for (const auto& symbol : symbols_) values.push_back(std::max<int64_t>(symbol.least, 2));
  return values;
}

void ShapePlan::Prove(const DynamicShapes& shapes, const codegen::TraceLog& log, const std::vector<int64_t>& values, ShapeInference infer,
                      std::vector<bool>* proved) const {
  const runtime::AtenScope scope;
  const codegen::TraceLog there = shapes.At(log, values);
  for (const codegen::TraceOp& op : codegen::DecodeTrace(there).ops) {
    const auto index = static_cast<size_t>(op.index);
    if ((*proved)[index]) (*proved)[index] = InfersThem(op, there, infer);
  }
}

bool ShapeCursor::Start(std::shared_ptr<const ShapePlan> plan, const codegen::TraceLog& log, size_t num_ops, size_t num_shapes,
                        absl::Span<const int64_t> symbols) {
  plan_ = std::move(plan);
  first_op_ = num_ops;
  values_.assign(plan_->terms_.size(), 0);
  below_tested_ = false;
  bool pinned = true;
  for (size_t p = 0; p < num_shapes; ++p) pinned = pinned && Pin(p, symbols);
  for (size_t p = log.shapes.size(); p < plan_->results_at_[num_ops]; ++p) pinned = pinned && Pin(p, symbols);
  if (!pinned) Stop();
  return pinned;
}

bool ShapeCursor::Pin(size_t position, absl::Span<const int64_t> symbols) {
  const int32_t term = plan_->term_at_[position];
  if (term < 0 || values_[static_cast<size_t>(term)] != 0) return true;
  const auto& product = plan_->terms_[static_cast<size_t>(term)].symbols;
  return std::all_of(product.begin(), product.end(), [&](int32_t symbol) { return Assign(symbol, symbols[static_cast<size_t>(symbol)]); });
}

bool ShapeCursor::Assign(int32_t symbol, int64_t value) {
  const auto& limits = plan_->symbols_[static_cast<size_t>(symbol)];
  if (value == 0 || (limits.is_size && (value < std::max<int64_t>(limits.least, 2) || value > limits.most))) return false;
  // The first terms are the symbols alone.
  values_[static_cast<size_t>(symbol)] = value;
  below_tested_ = below_tested_ || value < plan_->least_tested_[static_cast<size_t>(symbol)];
  const auto& with = plan_->terms_with_[static_cast<size_t>(symbol)];
  return std::all_of(with.begin(), with.end(), [this](int32_t term) { return Solve(term); });
}

bool ShapeCursor::Solve(int32_t t) {
  const Product& term = plan_->terms_[static_cast<size_t>(t)];
  int64_t& value = values_[static_cast<size_t>(t)];
  int32_t unknown = -1;
  int64_t rest = term.coefficient;
  for (const int32_t symbol : term.symbols) {
    const int64_t factor = values_[static_cast<size_t>(symbol)];
    if (factor != 0) {
      rest *= factor;
    } else if (unknown < 0) {
      unknown = symbol;
    } else {
      return true;  // Two of them: later.
    }
  }
  if (unknown >= 0) return value == 0 || (value % rest == 0 && Assign(unknown, value / rest));
  if (value == 0) value = rest;
  return value == rest;
}

bool ShapeCursor::TakeNumber(size_t position, int64_t number) {
  const int32_t term = plan_->term_at_[position];
  if (term < 0) return plan_->numbers_[position] == number;
  if (plan_->terms_[static_cast<size_t>(term)].is_any()) return true;
  int64_t& value = values_[static_cast<size_t>(term)];
  if (value != 0) return value == number;
  if (static_cast<size_t>(term) < plan_->symbols_.size()) return Assign(term, number);
  value = number;
  return number != 0 && Solve(term);
}

bool ShapeCursor::Take(const std::vector<codegen::Word>& shapes, size_t begin) {
  for (size_t p = begin; p < shapes.size(); ++p) {
    if (!TakeNumber(p, static_cast<int64_t>(shapes[p]))) return false;
  }
  return true;
}

bool ShapeCursor::TakeResults(size_t op, const OutputMetas& metas) {
  size_t position = plan_->results_at_[op], end = plan_->results_at_[op + 1];
  const auto take = [&](int64_t value) { return position < end && TakeNumber(position++, value); };
  for (const OutputMeta& meta : metas) {
    if (!std::all_of(meta.sizes.begin(), meta.sizes.end(), take) || !std::all_of(meta.strides.begin(), meta.strides.end(), take) ||
        !take(meta.nbytes)) {
      return false;
    }
  }
  return position == end;
}

const OutputMetas* ShapeCursor::Results(size_t op, const OutputMetas& like) {
  const bool proved = (below_tested_ ? plan_->proved_below_ : plan_->proved_)[op];
  return proved && Evaluate(op, like) ? &results_ : nullptr;
}

const OutputMetas& ShapeCursor::ResultsAgain(size_t op, const OutputMetas& like) {
  Evaluate(op, like);
  return results_;
}

bool ShapeCursor::Evaluate(size_t op, const OutputMetas& like) {
  size_t position = plan_->results_at_[op];
  bool known = true;
  const auto number = [&](int64_t& value) {
    const int32_t term = plan_->term_at_[position++];
    if (term < 0) return;
    value = values_[static_cast<size_t>(term)];
    known = known && value != 0;
  };
  results_ = like;
  for (OutputMeta& meta : results_) {
    std::for_each(meta.sizes.begin(), meta.sizes.end(), number);
    std::for_each(meta.strides.begin(), meta.strides.end(), number);
    number(meta.nbytes);
  }
  return known;
}

absl::Span<const int64_t> ShapeCursor::Symbols() const {
  const auto symbols = absl::MakeConstSpan(values_.data(), plan_->symbols_.size());
  return std::find(symbols.begin(), symbols.end(), 0) == symbols.end() ? symbols : absl::Span<const int64_t>();
}

}  // namespace lazuli::guards
