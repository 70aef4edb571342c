// Symbols: sizes that a program leaves open, so that one program serves all of them.
//
// In a trace, a graph or a kernel with symbols, each symbol is written as a prime number that divides none of its other numbers. Passes
// copy sizes and strides, multiply them, divide them without remainder and compare them; so whatever they compute is a constant times a
// product of such primes, and by unique factorization that product can be read back (Decode). Two numbers are equal exactly when they
// are equal for all values of the symbols. Nothing has to be added to a pass for it to work with symbols, but two things it must not do:
// keep a sum of sizes, or take the magnitude of one for a fact rather than for a guess (Hint).
#pragma once

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace lazuli::runtime {

// A constant times symbols.
struct Product {
  int64_t coefficient = 1;
  c10::SmallVector<int32_t, 4> symbols;  // Indices, ascending, repeated for powers.

  bool IsConstant() const { return symbols.empty(); }
  // 0 stands for a number that may be any.
  static Product Any() { return {0, {}}; }
  bool is_any() const { return coefficient == 0; }
  // `values`: one for each symbol of the table.
  int64_t Evaluate(const int64_t* values) const {
    int64_t product = coefficient;
    for (const int32_t symbol : symbols) product *= values[symbol];
    return product;
  }
  bool operator==(const Product& other) const { return coefficient == other.coefficient && symbols == other.symbols; }
  // "64*s0*s1".
  std::string Text() const;
};

// The offset of a window, in elements, where it is a sum.
struct OffsetSum {
  int32_t slot = -1;           // A run-time offset (RunArgs::offsets); -1: none.
  std::vector<int64_t> terms;  // Numbers added to it, which may hold symbols.
  bool operator==(const OffsetSum& other) const { return slot == other.slot && terms == other.terms; }
};

class SymbolTable {
 public:
  static constexpr int kMaxSymbols = 48;

  // A table of symbols with these hints, whose primes divide none of `constants`. Empty when there are too many symbols.
  static SymbolTable Make(const std::vector<int64_t>& hints, absl::Span<const int64_t> constants);

  bool empty() const { return primes_.empty(); }
  int size() const { return static_cast<int>(primes_.size()); }
  // How symbol `index` is written.
  int64_t prime(int index) const { return primes_[static_cast<size_t>(index)]; }
  // A value that it had: what costs are estimated with.
  int64_t hint(int index) const { return hints_[static_cast<size_t>(index)]; }

  // Whether `number` depends on a symbol.
  bool IsSymbolic(int64_t number) const;
  bool HasSymbol(absl::Span<const int64_t> numbers) const {
    return std::any_of(numbers.begin(), numbers.end(), [this](int64_t number) { return IsSymbolic(number); });
  }
  Product Decode(int64_t number) const;
  int64_t Encode(const Product& product) const;
  void SetHint(int index, int64_t hint) { hints_[static_cast<size_t>(index)] = hint; }
  // What `number` was when the hints were taken.
  int64_t Hint(int64_t number) const { return empty() ? number : Decode(number).Evaluate(hints_.data()); }
  // "64*s0", or the number itself.
  std::string Text(int64_t number) const;

 private:
  std::vector<int64_t> primes_;
  std::vector<int64_t> hints_;
};

}  // namespace lazuli::runtime
