// Which sizes of a trace are specialised and which become symbols.
//
// Traces with the same code differ only in numbers: sizes, strides, arguments that hold sizes, and what follows from them, the metadata
// of results. Numbers that were the same each time the code was seen stay what they are. Of those that changed, each is explained by the
// others if possible: one that has always been a constant times a product of smaller ones is that product; one that is not becomes a
// symbol. Numbers that have always been equal are one. An explanation is a guess from a few examples, so that all of them are checked
// each time the code is seen again: a program with symbols runs only where every number is what it says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/ir/trace_log.h"
#include "guards/guard.h"
#include "runtime/symbols.h"

namespace lazuli::guards {

// The numbers of a complete log: `shapes`, then sizes, strides and bytes of each result.
std::vector<int64_t> NumbersOf(const codegen::TraceLog& log);

// Which numbers of a log are symbols, and which follow from them; all others are constants.
struct ShapeExplanation {
  struct Symbol {
    uint32_t position = 0;                                          // Where its value is read.
    bool is_size = true;                                            // At least 2; otherwise only an argument, of any value.
    int64_t hint = 0;                                               // A value that it had.
    int64_t least = 0, most = std::numeric_limits<int64_t>::max();  // What the program says it can be.
  };
  struct Derived {
    uint32_t position = 0;
    runtime::Product product;
  };
  std::vector<Symbol> symbols;
  std::vector<Derived> derived;  // Numbers with symbols, and offsets that may be any; ascending.
};

// The numbers of logs with one code, with symbols in place of what changes.
class DynamicShapes {
 public:
  // `numbers` are those of `log`, which are as `explanation` says. Nothing when there are too many symbols; `why_not` says so.
  static std::optional<DynamicShapes> Make(const codegen::TraceLog& log, const std::vector<int64_t>& numbers, ShapeExplanation explanation,
                                           std::string* why_not);

  // `log` and earlier `examples`, the numbers of logs with the same code. Sizes of 0 and 1 are always specialised: examples that have one
  // where `log` has another size do not count, and neither do those that differ in a size that `log` marks as static. Nothing when none is
  // left or no number changed; `why_not` says so.
  static std::optional<DynamicShapes> Infer(const codegen::TraceLog& log, const std::vector<std::vector<int64_t>>& examples,
                                            std::string* why_not);

  // The values of the symbols in a log with these numbers; nothing where they are not as expected.
  std::optional<std::vector<int64_t>> Match(const std::vector<int64_t>& numbers) const;

  // The first number of `log`, with the code of the examples, that is not as expected: "input 0 of op 3 aten::mm size mismatch at
  // index 1. expected 64*s0 = 3072, actual 3000". Empty when there is none.
  // `guard` (may be null) is then the guard on that number, if there is one.
  std::string Mismatch(const codegen::TraceLog& log, Guard* guard = nullptr) const;

  // `log`, with symbols in its numbers.
  codegen::TraceLog Encode(const codegen::TraceLog& log) const;
  // `log` as it would be with these values of the symbols.
  codegen::TraceLog At(const codegen::TraceLog& log, const std::vector<int64_t>& values) const;
  const runtime::SymbolTable& symbols() const { return symbols_; }
  const ShapeExplanation& explanation() const { return explanation_; }
  // Whether all numbers are known where the symbols are: none may be any.
  bool FollowFromSymbols() const {
    return std::none_of(explanation_.derived.begin(), explanation_.derived.end(),
                        [](const ShapeExplanation::Derived& derived) { return derived.product.is_any(); });
  }
  // Those of the log that it was made for, with symbols.
  const std::vector<int64_t>& numbers() const { return numbers_; }

  // A line for each symbol: "s0 = 32 for size of input 0 of op 3 aten::mm at index 1, was 64, 48". `origin` stands for the last words when
  // there are no examples.
  std::string Text(const codegen::TraceLog& log, const std::vector<std::vector<int64_t>>& examples, std::string_view origin) const;

 private:
  std::optional<std::vector<int64_t>> ReadSymbols(const std::vector<int64_t>& numbers) const;

  runtime::SymbolTable symbols_;
  ShapeExplanation explanation_;
  std::vector<int64_t> numbers_;  // With symbols.
  std::vector<uint32_t> constants_;
};

}  // namespace lazuli::guards
