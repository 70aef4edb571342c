#include "runtime/symbols.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lazuli::runtime {
namespace {

// Above the small sizes that divide everything, small enough for a product of five to fit an int64_t beside a constant.
constexpr int64_t kFirstPrime = 521;

bool IsPrime(int64_t number) {
  for (int64_t factor = 2; factor * factor <= number; ++factor) {
    if (number % factor == 0) return false;
  }
  return true;
}

}  // namespace

std::string Product::Text() const {
  std::string text = coefficient != 1 || symbols.empty() ? absl::StrCat(coefficient) : "";
  for (const int32_t symbol : symbols) absl::StrAppend(&text, text.empty() ? "s" : "*s", symbol);
  return text;
}

SymbolTable SymbolTable::Make(const std::vector<int64_t>& hints, absl::Span<const int64_t> constants) {
  SymbolTable table;
  if (hints.size() > kMaxSymbols) return table;
  table.hints_ = hints;
  for (int64_t candidate = kFirstPrime; table.primes_.size() < hints.size(); ++candidate) {
    if (!IsPrime(candidate)) continue;
    const bool divides =
        std::any_of(constants.begin(), constants.end(), [&](int64_t number) { return number != 0 && number % candidate == 0; });
    if (!divides) table.primes_.push_back(candidate);
  }
  return table;
}

bool SymbolTable::IsSymbolic(int64_t number) const {
  return number != 0 && std::any_of(primes_.begin(), primes_.end(), [&](int64_t prime) { return number % prime == 0; });
}

Product SymbolTable::Decode(int64_t number) const {
  Product product;
  product.coefficient = number;
  for (size_t i = 0; number != 0 && i < primes_.size(); ++i) {
    for (; product.coefficient % primes_[i] == 0; product.coefficient /= primes_[i]) product.symbols.push_back(static_cast<int32_t>(i));
  }
  return product;
}

int64_t SymbolTable::Encode(const Product& product) const { return product.Evaluate(primes_.data()); }

std::string SymbolTable::Text(int64_t number) const { return empty() ? absl::StrCat(number) : Decode(number).Text(); }

}  // namespace lazuli::runtime
