#include "guards/shape_policy.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lazuli::guards {
namespace {

using codegen::OutputMeta;
using codegen::TraceLog;
using runtime::Product;
using runtime::SymbolTable;

constexpr int kMaxDegree = 3;

// Calls `fn(int64_t&)`, or on a constant log `fn(const int64_t&)`, for each number of a result.
template <class Meta, class Fn>
void ForEachNumber(Meta& meta, const Fn& fn) {
  for (auto& size : meta.sizes) fn(size);
  for (auto& stride : meta.strides) fn(stride);
  fn(meta.nbytes);
}

// What kind of number stands at each position.
enum class Role : uint8_t { kSize, kStride, kOffset, kArgument, kBytes };

std::vector<Role> RolesOf(const TraceLog& log, const std::vector<Guard>& guards) {
  std::vector<Role> roles(log.shapes.size(), Role::kArgument);
  for (const Guard& guard : guards) {
    if (guard.kind == Guard::Kind::kSize) roles[guard.position] = Role::kSize;
    if (guard.kind == Guard::Kind::kStride) roles[guard.position] = Role::kStride;
    if (guard.kind == Guard::Kind::kOffset) roles[guard.position] = Role::kOffset;
  }
  for (const auto& op : log.ops) {
    if (op.outputs == nullptr) continue;
    for (const OutputMeta& meta : *op.outputs) {
      roles.insert(roles.end(), meta.sizes.size(), Role::kSize);
      roles.insert(roles.end(), meta.strides.size(), Role::kStride);
      roles.push_back(Role::kBytes);
    }
  }
  return roles;
}

// Whole numbers among the arguments that are part of the code.
std::vector<int64_t> ConstantsInCode(const std::vector<Guard>& guards) {
  std::vector<int64_t> constants;
  for (const Guard& guard : guards) {
    if (guard.kind == Guard::Kind::kArgument && guard.dim > 0) constants.push_back(static_cast<int64_t>(guard.expected));
  }
  return constants;
}

// Numbers that have always been equal.
struct Class {
  std::vector<int64_t> values;  // By example.
  std::vector<uint32_t> positions;
  bool is_size = false;    // Also a size, a stride or bytes.
  bool is_offset = false;  // Only an offset.
  Product product;         // Of symbols.
};

// Finds for each class a product of the symbols so far, or makes it one. Offsets that are none may be any: no program counts on them.
class Explainer {
 public:
  explicit Explainer(size_t num_examples) : num_examples_(num_examples) {}

  void Explain(Class* target) {
    if (target->is_size || target->is_offset) {
      for (int degree = 1; degree <= kMaxDegree; ++degree) {
        std::vector<int32_t> factors;
        if (Search(target, degree, 0, std::vector<int64_t>(num_examples_, 1), &factors)) return;
      }
    }
    if (target->is_offset) {
      target->product = Product::Any();
    } else {
      MakeSymbol(target);
    }
  }

  void MakeSymbol(Class* target) {
    target->product = {1, {static_cast<int32_t>(symbols_.size())}};
    symbols_.push_back(target);
  }

  const std::vector<Class*>& symbols() const { return symbols_; }

 private:
  bool Search(Class* target, int degree, size_t first, const std::vector<int64_t>& product, std::vector<int32_t>* factors) {
    if (degree == 0) return Fits(target, product, *factors);
    for (size_t s = first; s < symbols_.size(); ++s) {
      if (!symbols_[s]->is_size) continue;
      std::vector<int64_t> next = product;
      for (size_t e = 0; e < num_examples_; ++e) next[e] *= symbols_[s]->values[e];
      if (target->values[0] % next[0] != 0) continue;
      factors->push_back(static_cast<int32_t>(s));
      if (Search(target, degree - 1, s, next, factors)) return true;
      factors->pop_back();
    }
    return false;
  }

  bool Fits(Class* target, const std::vector<int64_t>& product, const std::vector<int32_t>& factors) {
    const int64_t coefficient = target->values[0] / product[0];
    if (coefficient < 1) return false;
    for (size_t e = 0; e < num_examples_; ++e) {
      if (target->values[e] != coefficient * product[e]) return false;
    }
    target->product.coefficient = coefficient;
    target->product.symbols.assign(factors.begin(), factors.end());
    return true;
  }

  const size_t num_examples_;
  std::vector<Class*> symbols_;
};

// Whether no size or stride that is 0 or 1 in one of them is something else in the other, and no size differs that is marked as static.
bool MayVaryTogether(const std::vector<int64_t>& a, const std::vector<int64_t>& b, const std::vector<Role>& roles,
                     const std::vector<codegen::SizeMark>& marks) {
  for (const codegen::SizeMark& mark : marks) {
    if (!mark.dynamic && a[mark.position] != b[mark.position]) return false;
  }
  for (size_t p = 0; p < roles.size(); ++p) {
    if (roles[p] != Role::kArgument && roles[p] != Role::kOffset && a[p] != b[p] && std::min(a[p], b[p]) < 2) return false;
  }
  return true;
}

// Classes of the numbers that changed, smaller ones first.
std::vector<Class> ClassesOf(const std::vector<const std::vector<int64_t>*>& examples, const std::vector<Role>& roles) {
  std::map<std::vector<int64_t>, Class> by_values;
  for (uint32_t p = 0; p < roles.size(); ++p) {
    std::vector<int64_t> values;
    for (const auto* example : examples) values.push_back((*example)[p]);
    if (std::all_of(values.begin(), values.end(), [&](int64_t value) { return value == values[0]; })) continue;
    Class& found = by_values[values];
    found.is_offset = roles[p] == Role::kOffset && (found.is_offset || found.positions.empty());
    found.values = std::move(values);
    found.positions.push_back(p);
    found.is_size |= roles[p] != Role::kArgument && roles[p] != Role::kOffset;
  }
  std::vector<Class> classes;
  for (auto& [values, found] : by_values) classes.push_back(std::move(found));
  return classes;  // A map's order: ascending by the first example.
}

// Offsets that have not changed, of windows like those whose offsets may be any: the same operand of the same operator, with the same
// strides. From the third trace on, they may be any, too: where a loop puts windows side by side, one moves now and the next one later.
std::vector<uint32_t> OffsetsLikeMovingOnes(const TraceLog& log, const std::vector<Guard>& guards, const std::vector<Class>& classes,
                                            size_t num_examples) {
  constexpr size_t kEnough = 3;
  std::set<uint32_t> changed, moving;
  for (const Class& found : classes) {
    changed.insert(found.positions.begin(), found.positions.end());
    if (found.is_offset && found.product.is_any()) moving.insert(found.positions.begin(), found.positions.end());
  }
  if (num_examples < kEnough || moving.empty()) return {};
  // Its operator and number, and then its strides, whose guards come before that of the offset.
  using Window = std::vector<codegen::Word>;
  std::map<uint32_t, Window> windows;
  std::vector<codegen::Word> strides;
  for (const Guard& guard : guards) {
    if (guard.kind == Guard::Kind::kOperand) strides.clear();
    if (guard.kind == Guard::Kind::kStride) strides.push_back(guard.expected);
    if (guard.kind != Guard::Kind::kOffset) continue;
    Window& window = windows[guard.position];
    window = {static_cast<codegen::Word>(log.ops[static_cast<size_t>(guard.op)].op_id), static_cast<codegen::Word>(guard.arg)};
    window.insert(window.end(), strides.begin(), strides.end());
  }
  std::set<Window> move;
  for (const uint32_t position : moving) move.insert(windows[position]);
  std::vector<uint32_t> like;
  for (const auto& [position, window] : windows) {
    if (changed.count(position) == 0 && move.count(window) > 0) like.push_back(position);
  }
  return like;
}

// Whether each window's number of elements, written with primes, stays far from overflow. A window's sizes stand side by side, and strides
// or bytes after them.
bool FitsWords(const std::vector<int64_t>& numbers, const std::vector<Role>& roles) {
  constexpr double kBitsToSpare = 8, kBits = 62;
  double bits = kBitsToSpare;
  for (size_t p = 0; p < roles.size(); ++p) {
    bits = roles[p] == Role::kSize ? bits + std::log2(std::max(2.0, static_cast<double>(numbers[p]))) : kBitsToSpare;
    if (bits >= kBits) return false;
  }
  return true;
}

// `log` with `numbers` in place of its own.
TraceLog WithNumbers(const TraceLog& log, const std::vector<int64_t>& numbers) {
  TraceLog changed = log;
  size_t next = 0;
  for (codegen::Word& word : changed.shapes) word = static_cast<codegen::Word>(numbers[next++]);
  for (auto& op : changed.ops) {
    if (op.outputs == nullptr) continue;
    codegen::OutputMetas metas = *op.outputs;
    for (OutputMeta& meta : metas) {
      ForEachNumber(meta, [&](int64_t& number) { number = numbers[next++]; });
    }
    op.outputs = std::make_shared<const codegen::OutputMetas>(std::move(metas));
  }
  return changed;
}

// The guard on the number at `position`; null for a result's metadata.
const Guard* GuardAt(const std::vector<Guard>& guards, uint32_t position) {
  const auto guard = std::find_if(guards.begin(), guards.end(), [&](const Guard& g) { return g.OnShapes() && g.position == position; });
  return guard == guards.end() ? nullptr : &*guard;
}

}  // namespace

std::vector<int64_t> NumbersOf(const TraceLog& log) {
  std::vector<int64_t> numbers;
  numbers.reserve(log.shapes.size() + 8 * log.ops.size());
  for (const codegen::Word word : log.shapes) numbers.push_back(static_cast<int64_t>(word));
  for (const auto& op : log.ops) {
    if (op.outputs == nullptr) continue;
    for (const OutputMeta& meta : *op.outputs) {
      ForEachNumber(meta, [&](const int64_t& number) { numbers.push_back(number); });
    }
  }
  return numbers;
}

std::optional<DynamicShapes> DynamicShapes::Infer(const TraceLog& log, const std::vector<std::vector<int64_t>>& examples,
                                                  std::string* why_not) {
  const std::vector<Guard> guards = BuildGuards(log);
  const std::vector<Role> roles = RolesOf(log, guards);
  const std::vector<int64_t> now = NumbersOf(log);
  std::vector<const std::vector<int64_t>*> all = {&now};
  for (const auto& example : examples) {
    if (example.size() != roles.size()) {
      *why_not = "results of another rank";
      return std::nullopt;
    }
    if (MayVaryTogether(now, example, roles, log.marks)) all.push_back(&example);
  }
  if (all.size() == 1) {
    *why_not = "a size that changed was 0 or 1, which are specialised, or is marked as static";
    return std::nullopt;
  }
  std::vector<Class> classes = ClassesOf(all, roles);
  if (classes.empty()) {
    *why_not = "no size changed";
    return std::nullopt;
  }
  Explainer explainer(all.size());
  for (Class& found : classes) explainer.Explain(&found);
  if (explainer.symbols().empty()) explainer.MakeSymbol(&classes[0]);  // Programs for several traces have some.

  ShapeExplanation explanation;
  for (const Class* found : explainer.symbols()) {
    ShapeExplanation::Symbol symbol;
    symbol.position = found->positions[0];
    symbol.is_size = found->is_size;
    symbol.hint = found->values[0];
    for (const codegen::SizeMark& mark : log.marks) {
      if (!mark.dynamic || std::find(found->positions.begin(), found->positions.end(), mark.position) == found->positions.end()) continue;
      symbol.least = std::max(symbol.least, mark.least);
      symbol.most = std::min(symbol.most, mark.most);
    }
    explanation.symbols.push_back(symbol);
  }
  for (const Class& found : classes) {
    for (const uint32_t position : found.positions) explanation.derived.push_back({position, found.product});
  }
  for (const uint32_t position : OffsetsLikeMovingOnes(log, guards, classes, all.size())) {
    explanation.derived.push_back({position, Product::Any()});
  }
  std::sort(explanation.derived.begin(), explanation.derived.end(), [](const auto& a, const auto& b) { return a.position < b.position; });
  return Make(log, now, std::move(explanation), why_not);
}

std::optional<DynamicShapes> DynamicShapes::Make(const TraceLog& log, const std::vector<int64_t>& numbers, ShapeExplanation explanation,
                                                 std::string* why_not) {
  const std::vector<Guard> guards = BuildGuards(log);
  DynamicShapes shapes;
  shapes.numbers_ = numbers;
  std::vector<int64_t> hints, values = ConstantsInCode(guards);
  for (const auto& symbol : explanation.symbols) hints.push_back(symbol.hint);
  auto derived = explanation.derived.begin();
  for (uint32_t p = 0; p < numbers.size(); ++p) {
    if (derived != explanation.derived.end() && derived->position == p) {
      values.push_back(derived++->product.coefficient);
    } else {
      values.push_back(numbers[p]);
      shapes.constants_.push_back(p);
    }
  }
  shapes.symbols_ = SymbolTable::Make(hints, values);
  if (shapes.symbols_.empty()) {
    *why_not = absl::StrCat("more than ", SymbolTable::kMaxSymbols, " sizes changed independently");
    return std::nullopt;
  }
  for (const auto& number : explanation.derived) shapes.numbers_[number.position] = shapes.symbols_.Encode(number.product);
  if (!FitsWords(shapes.numbers_, RolesOf(log, guards))) {
    *why_not = "too many sizes of one tensor changed";
    return std::nullopt;
  }
  shapes.explanation_ = std::move(explanation);
  return shapes;
}

std::optional<std::vector<int64_t>> DynamicShapes::ReadSymbols(const std::vector<int64_t>& numbers) const {
  std::vector<int64_t> values;
  for (const auto& source : explanation_.symbols) {
    values.push_back(numbers[source.position]);
    if (source.is_size && (values.back() < std::max<int64_t>(source.least, 2) || values.back() > source.most)) return std::nullopt;
  }
  return values;
}

std::optional<std::vector<int64_t>> DynamicShapes::Match(const std::vector<int64_t>& numbers) const {
  if (numbers.size() != numbers_.size()) return std::nullopt;
  for (const uint32_t position : constants_) {
    if (numbers[position] != numbers_[position]) return std::nullopt;
  }
  std::optional<std::vector<int64_t>> values = ReadSymbols(numbers);
  if (!values.has_value()) return std::nullopt;
  for (const auto& derived : explanation_.derived) {
    if (!derived.product.is_any() && numbers[derived.position] != derived.product.Evaluate(values->data())) return std::nullopt;
  }
  return values;
}

std::string DynamicShapes::Mismatch(const TraceLog& log, Guard* failed) const {
  const std::vector<int64_t> numbers = NumbersOf(log);
  if (numbers.size() != numbers_.size()) return "a result of another rank";
  const std::vector<Guard> guards = BuildGuards(log);
  const auto text = [&](uint32_t position, const std::string& expected) {
    const Guard* const guard = GuardAt(guards, position);
    if (guard == nullptr) return absl::StrCat("metadata of a result mismatch. expected ", expected, ", actual ", numbers[position]);
    if (failed != nullptr) *failed = *guard;
    return guard->MismatchText(log, expected, numbers[position]);
  };
  for (const auto& source : explanation_.symbols) {
    const int64_t value = numbers[source.position];
    if (source.is_size && value < 2) return text(source.position, "2 or more, since 0 and 1 are specialised");
    if (source.is_size && value < source.least) return text(source.position, absl::StrCat(source.least, " or more, as it was marked"));
    if (source.is_size && value > source.most) return text(source.position, absl::StrCat(source.most, " or less, as it was marked"));
  }
  const std::vector<int64_t> values = *ReadSymbols(numbers);
  auto derived = explanation_.derived.begin();
  for (uint32_t p = 0; p < numbers.size(); ++p) {
    const bool is_derived = derived != explanation_.derived.end() && derived->position == p;
    const Product product = is_derived ? derived++->product : Product{numbers_[p], {}};
    const int64_t expected = product.Evaluate(values.data());
    if (numbers[p] == expected || (is_derived && product.is_any())) continue;
    return text(p, product.IsConstant() ? absl::StrCat(expected) : absl::StrCat(product.Text(), " = ", expected));
  }
  return "";
}

TraceLog DynamicShapes::Encode(const TraceLog& log) const { return WithNumbers(log, numbers_); }

TraceLog DynamicShapes::At(const TraceLog& log, const std::vector<int64_t>& values) const {
  std::vector<int64_t> numbers = numbers_;
  for (const auto& derived : explanation_.derived) numbers[derived.position] = derived.product.Evaluate(values.data());
  return WithNumbers(log, numbers);
}

std::string DynamicShapes::Text(const TraceLog& log, const std::vector<std::vector<int64_t>>& examples, std::string_view origin) const {
  std::string text;
  const std::vector<Guard> guards = BuildGuards(log);
  for (size_t s = 0; s < explanation_.symbols.size(); ++s) {
    const Guard* const guard = GuardAt(guards, explanation_.symbols[s].position);
    const std::string subject = guard == nullptr ? "metadata of a result" : guard->Subject(log);
    std::vector<int64_t> seen;
    for (const auto& example : examples) seen.push_back(example[explanation_.symbols[s].position]);
    absl::StrAppend(&text, "\n    s", s, " = ", symbols_.hint(static_cast<int>(s)), " for ", subject,
                    seen.empty() ? absl::StrCat(", ", std::string(origin)) : absl::StrCat(", was ", absl::StrJoin(seen, ", ")));
  }
  return text;
}

}  // namespace lazuli::guards
