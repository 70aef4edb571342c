#include "guards/shape_marks.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "guards/guard.h"

namespace lazuli::guards {
namespace {

using codegen::OutputMeta;
using codegen::SizeMark;
using codegen::TraceLog;
using runtime::Product;

// A number, and what it is made of.
struct Term {
  int64_t value = 1;
  Product product;

  Term operator*(const Term& other) const {
    Term term{value * other.value, product};
    term.product.coefficient *= other.product.coefficient;
    for (const int32_t symbol : other.product.symbols) term.product.symbols.push_back(symbol);
    std::sort(term.product.symbols.begin(), term.product.symbols.end());
    return term;
  }
};

Term Constant(int64_t value) { return {value, {value, {}}}; }

class Guesser {
 public:
  explicit Guesser(const TraceLog& log) : log_(log), numbers_(NumbersOf(log)), operands_(OperandsOf(log)) {
    for (const Operand& operand : operands_) {
      if (operand.first_use) inputs_.insert(operand.storage);
    }
  }

  std::optional<DynamicShapes> Run(std::string* why_not) {
    std::set<uint32_t> marked;
    for (const SizeMark& mark : log_.marks) {
      if (mark.dynamic) marked.insert(mark.position);
    }
    const std::set<uint32_t> free = StoragesOf(marked);
    FindFixed(marked, free);
    MakeSymbols();
    if (terms_.empty()) {
      *why_not = "each marked size is 0 or 1, or equals a size that is not marked";
      return std::nullopt;
    }
    for (const Operand& window : operands_) {
      if (inputs_.count(window.storage) == 0 || free.count(window.storage) != 0) Explain(window.position, static_cast<int>(window.ndim));
    }
    for (const Guard& guard : BuildGuards(log_)) {
      if (guard.kind == Guard::Kind::kSizeArgument) Set(guard.position, Exactly(numbers_[guard.position]));
      if (guard.kind == Guard::Kind::kOffset) Set(guard.position, Size(numbers_[guard.position]));
    }
    ExplainResults();
    for (auto& [position, product] : products_) explanation_.derived.push_back({position, std::move(product)});
    auto shapes = DynamicShapes::Make(log_, numbers_, std::move(explanation_), why_not);
    if (shapes.has_value() && !shapes->Match(numbers_).has_value()) shapes.reset();
    return shapes;
  }

 private:
  // Inputs with a marked size.
  std::set<uint32_t> StoragesOf(const std::set<uint32_t>& marked) const {
    std::set<uint32_t> storages;
    for (const Operand& window : operands_) {
      if (HasMark(window, marked)) storages.insert(window.storage);
    }
    return storages;
  }

  static bool HasMark(const Operand& window, const std::set<uint32_t>& marked) {
    const auto first = marked.lower_bound(window.position);
    return first != marked.end() && *first < window.position + window.ndim;
  }

  // Sizes that are not marked: of inputs without marks, and beside marked ones.
  void FindFixed(const std::set<uint32_t>& marked, const std::set<uint32_t>& free) {
    for (const Operand& window : operands_) {
      if (inputs_.count(window.storage) == 0 || (free.count(window.storage) != 0 && !HasMark(window, marked))) continue;
      for (uint32_t p = window.position; p < window.position + window.ndim; ++p) {
        if (marked.count(p) == 0) fixed_.insert(numbers_[p]);
      }
    }
  }

  // One for each value: equal sizes are taken for the same.
  void MakeSymbols() {
    for (const SizeMark& mark : log_.marks) {
      const int64_t value = numbers_[mark.position];
      if (!mark.dynamic || value < 2 || fixed_.count(value) != 0) continue;
      const auto known = std::find_if(terms_.begin(), terms_.end(), [&](const Term& term) { return term.value == value; });
      const auto symbol = static_cast<size_t>(known - terms_.begin());
      if (known == terms_.end()) {
        terms_.push_back({value, {1, {static_cast<int32_t>(symbol)}}});
        explanation_.symbols.push_back({mark.position, true, value, mark.least, mark.most});
      }
      ShapeExplanation::Symbol& range = explanation_.symbols[symbol];
      range.least = std::max(range.least, mark.least);
      range.most = std::min(range.most, mark.most);
    }
  }

  // `value` as a product of at most three symbols; else constant.
  Term Exactly(int64_t value) const {
    if (value < 2 || fixed_.count(value) != 0) return Constant(value);
    for (const Term& a : terms_) {
      if (a.value == value) return a;
    }
    for (const Term& a : terms_) {
      for (const Term& b : terms_) {
        if (a.value * b.value == value) return a * b;
        for (const Term& c : terms_) {
          if (a.value * b.value * c.value == value) return a * b * c;
        }
      }
    }
    return Constant(value);
  }

  // As Exactly, or a multiple of a symbol that is not so small that most numbers are.
  Term Size(int64_t value) const {
    constexpr int64_t kSmall = 8;
    Term term = Exactly(value);
    if (!term.product.IsConstant() || fixed_.count(value) != 0 || value == 0) return term;
    const Term* largest = nullptr;
    for (const Term& symbol : terms_) {
      if (symbol.value > kSmall && value % symbol.value == 0 && (largest == nullptr || symbol.value > largest->value)) largest = &symbol;
    }
    return largest == nullptr ? term : *largest * Constant(value / largest->value);
  }

  void Set(uint32_t position, const Term& term) {
    if (!term.product.IsConstant()) products_[position] = term.product;
  }

  // `ndim` sizes at `position`, and their strides. Returns the number of elements.
  Term Explain(uint32_t position, int ndim) {
    Term numel;
    std::vector<Term> sizes;
    for (int d = 0; d < ndim; ++d) {
      sizes.push_back(Size(numbers_[position + static_cast<uint32_t>(d)]));
      Set(position + static_cast<uint32_t>(d), sizes.back());
      numel = numel * sizes.back();
    }
    const auto stride_at = [&](int d) { return position + static_cast<uint32_t>(ndim + d); };
    std::vector<int> inner_first(static_cast<size_t>(ndim));
    std::iota(inner_first.rbegin(), inner_first.rend(), 0);
    std::stable_sort(inner_first.begin(), inner_first.end(), [&](int a, int b) { return numbers_[stride_at(a)] < numbers_[stride_at(b)]; });
    Term next;  // The stride of a dimension right outside of those so far.
    for (const int d : inner_first) {
      const int64_t value = numbers_[stride_at(d)];
      const Term stride = value == next.value ? next : Size(value);
      Set(stride_at(d), stride);
      if (value != 0) next = stride * sizes[static_cast<size_t>(d)];
    }
    return numel;
  }

  void ExplainResults() {
    auto position = static_cast<uint32_t>(log_.shapes.size());
    for (const TraceLog::Op& op : log_.ops) {
      if (op.outputs == nullptr) continue;
      for (const OutputMeta& meta : *op.outputs) {
        const Term numel = Explain(position, static_cast<int>(meta.sizes.size()));
        position += static_cast<uint32_t>(meta.sizes.size() + meta.strides.size());
        const Term bytes = numel * Constant(static_cast<int64_t>(c10::elementSize(meta.dtype)));
        Set(position, bytes.value == meta.nbytes ? bytes : Size(meta.nbytes));
        ++position;
      }
    }
  }

  const TraceLog& log_;
  const std::vector<int64_t> numbers_;
  const std::vector<Operand> operands_;
  std::set<uint32_t> inputs_;
  std::set<int64_t> fixed_;
  std::vector<Term> terms_;  // By symbol.
  std::map<uint32_t, Product> products_;
  ShapeExplanation explanation_;
};

}  // namespace

std::optional<DynamicShapes> GuessFromMarks(const TraceLog& log, std::string* why_not) { return Guesser(log).Run(why_not); }

}  // namespace lazuli::guards
