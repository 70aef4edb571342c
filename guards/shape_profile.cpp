#include "guards/shape_profile.h"

#include <torch/version.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "codegen/ir/op_info.h"
#include "runtime/hash128.h"

namespace lazuli::guards {
namespace {

using codegen::TraceLog;
using runtime::Product;

constexpr const char* kKind = "profile";
constexpr size_t kMaxStatic = 16, kMaxDynamic = 4;
constexpr const char* kStatic = "static ";
constexpr const char* kDynamic = "dynamic ";

template <class Number>
std::string HashOf(const std::vector<Number>& numbers) {
  static_assert(sizeof(Number) == 8);
  return runtime::HexOf(runtime::SipHash128({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)}, 1, 2));
}

// The same in every process: operators' numbers are replaced by hashes of their names.
std::string KeyOf(const TraceLog& log) {
  std::vector<codegen::Word> code = log.code;
  for (const TraceLog::Op& op : log.ops) {
    const int device = codegen::OpDeviceOf(code[op.code_begin]);
    const std::string& info = codegen::OpInfoById(op.op_id).name;
    const runtime::Hash128 name = runtime::SipHash128(device == runtime::kCpuCode ? info : absl::StrCat(info, " ", device), 1, 2);
    std::copy_n(name.data(), sizeof(codegen::Word), reinterpret_cast<uint8_t*>(&code[op.code_begin]));
  }
  return absl::StrCat("traces 2\nlibtorch ", TORCH_VERSION, "\n\n", log.ops.size(), " ops from ",
                      codegen::OpInfoById(log.ops[0].op_id).name, " ", HashOf(code));
}

std::string HashOfConstants(const std::vector<int64_t>& numbers, const ShapeExplanation& explanation) {
  std::vector<int64_t> constants;
  auto derived = explanation.derived.begin();
  for (uint32_t p = 0; p < numbers.size(); ++p) {
    if (derived != explanation.derived.end() && derived->position == p) {
      ++derived;
    } else {
      constants.push_back(numbers[p]);
    }
  }
  return HashOf(constants);
}

// One line: "HASH;COUNT;HINT POSITION IS_SIZE LEAST MOST,...;COEFFICIENT SYMBOL SYMBOL:POSITION POSITION,...", the hash of the constants
// and the count of all numbers, the symbols, and where each product stands. Positions count from the one before.
std::string Encode(const std::vector<int64_t>& numbers, const ShapeExplanation& explanation) {
  std::vector<std::string> symbols, products;
  for (const auto& symbol : explanation.symbols) {
    symbols.push_back(absl::StrCat(symbol.hint, " ", symbol.position, " ", symbol.is_size ? 1 : 0, " ", symbol.least, " ", symbol.most));
  }
  std::map<std::string, std::vector<uint32_t>> positions;
  for (const auto& number : explanation.derived) {
    const Product& product = number.product;
    positions[absl::StrCat(product.coefficient, product.IsConstant() ? "" : " ", absl::StrJoin(product.symbols, " "))].push_back(
        number.position);
  }
  for (auto& [product, list] : positions) {
    std::adjacent_difference(list.begin(), list.end(), list.begin());
    products.push_back(absl::StrCat(product, ":", absl::StrJoin(list, " ")));
  }
  return absl::StrCat(HashOfConstants(numbers, explanation), ";", numbers.size(), ";", absl::StrJoin(symbols, ","), ";",
                      absl::StrJoin(products, ","));
}

// Whole numbers of `text`, separated by spaces; false when something else is there.
bool ParseNumbers(std::string_view text, std::vector<int64_t>* numbers) {
  numbers->clear();
  for (const auto part : absl::StrSplit(absl::string_view(text.data(), text.size()), ' ')) {
    if (!absl::SimpleAtoi(part, &numbers->emplace_back())) return false;
  }
  return true;
}

bool ParseSymbol(std::string_view text, int64_t count, ShapeExplanation* explanation) {
  std::vector<int64_t> n;
  if (!ParseNumbers(text, &n) || n.size() != 5 || n[1] < 0 || n[1] >= count) return false;
  explanation->symbols.push_back({static_cast<uint32_t>(n[1]), n[2] != 0, n[0], n[3], n[4]});
  return true;
}

bool ParseProduct(std::string_view text, int64_t count, ShapeExplanation* explanation) {
  const std::vector<std::string> parts = absl::StrSplit(absl::string_view(text.data(), text.size()), ':');
  std::vector<int64_t> factors, steps;
  if (parts.size() != 2 || !ParseNumbers(parts[0], &factors) || !ParseNumbers(parts[1], &steps)) return false;
  Product product;
  product.coefficient = factors[0];
  for (size_t i = 1; i < factors.size(); ++i) {
    if (factors[i] < 0 || factors[i] >= static_cast<int64_t>(explanation->symbols.size())) return false;
    product.symbols.push_back(static_cast<int32_t>(factors[i]));
  }
  int64_t position = 0;
  for (const int64_t step : steps) {
    position += step;
    if (step < 0 || position >= count) return false;
    explanation->derived.push_back({static_cast<uint32_t>(position), product});
  }
  return true;
}

// Whether a number with symbols is a size that is marked as static.
bool HasStaticMark(const DynamicShapes& shapes, const std::vector<codegen::SizeMark>& marks) {
  return std::any_of(marks.begin(), marks.end(), [&](const codegen::SizeMark& mark) {
    return !mark.dynamic && shapes.symbols().IsSymbolic(shapes.numbers()[mark.position]);
  });
}

// What Encode wrote, if the constants are those of `numbers`.
std::optional<ShapeExplanation> Decode(const std::string& line, const std::vector<int64_t>& numbers) {
  const std::vector<std::string> parts = absl::StrSplit(line, ';');
  const auto count = static_cast<int64_t>(numbers.size());
  if (parts.size() != 4 || parts[1] != absl::StrCat(count)) return std::nullopt;
  ShapeExplanation explanation;
  for (const auto& text : absl::StrSplit(parts[2], ',')) {
    if (!ParseSymbol({text.data(), text.size()}, count, &explanation)) return std::nullopt;
  }
  for (const auto& text : absl::StrSplit(parts[3], ',')) {
    if (!ParseProduct({text.data(), text.size()}, count, &explanation)) return std::nullopt;
  }
  auto& derived = explanation.derived;
  std::sort(derived.begin(), derived.end(), [](const auto& a, const auto& b) { return a.position < b.position; });
  const auto twice = [](const auto& a, const auto& b) { return a.position == b.position; };
  if (std::adjacent_find(derived.begin(), derived.end(), twice) != derived.end()) return std::nullopt;
  if (HashOfConstants(numbers, explanation) != parts[0]) return std::nullopt;
  return explanation;
}

}  // namespace

ShapeProfile::ShapeProfile(runtime::DiskCache* disk, const TraceLog& log) : disk_(disk) {
  if (disk == nullptr) return;
  key_ = KeyOf(log);
  const std::optional<std::string> blob = disk->Get(kKind, key_, runtime::DiskCache::Count::kNo);
  if (!blob.has_value()) return;
  for (const auto line : absl::StrSplit(*blob, '\n')) {
    if (absl::StartsWith(line, kStatic)) static_.emplace_back(absl::StripPrefix(line, kStatic));
    if (absl::StartsWith(line, kDynamic)) dynamic_.emplace_back(absl::StripPrefix(line, kDynamic));
  }
}

bool ShapeProfile::HasStatic(const TraceLog& log) {
  std::lock_guard<std::mutex> lock(mutex_);
  return !static_.empty() && std::find(static_.begin(), static_.end(), HashOf(NumbersOf(log))) != static_.end();
}

std::optional<DynamicShapes> ShapeProfile::FindDynamic(const TraceLog& log) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (dynamic_.empty()) return std::nullopt;
  const std::vector<int64_t> numbers = NumbersOf(log);
  for (auto line = dynamic_.rbegin(); line != dynamic_.rend(); ++line) {
    std::optional<ShapeExplanation> explanation = Decode(*line, numbers);
    if (!explanation.has_value()) continue;
    std::string why_not;
    std::optional<DynamicShapes> shapes = DynamicShapes::Make(log, numbers, *std::move(explanation), &why_not);
    if (shapes.has_value() && shapes->Match(numbers).has_value() && !HasStaticMark(*shapes, log.marks)) return shapes;
  }
  return std::nullopt;
}

void ShapeProfile::AddStatic(const TraceLog& log) {
  if (disk_ != nullptr) Add(HashOf(NumbersOf(log)), kMaxStatic, &static_);
}

void ShapeProfile::AddDynamic(const DynamicShapes& shapes) {
  if (disk_ != nullptr) Add(Encode(shapes.numbers(), shapes.explanation()), kMaxDynamic, &dynamic_);
}

void ShapeProfile::Add(std::string line, size_t most, std::vector<std::string>* lines) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (std::find(lines->begin(), lines->end(), line) != lines->end()) return;
  if (lines->size() == most) lines->erase(lines->begin());
  lines->push_back(std::move(line));
  std::string blob;
  for (const std::string& text : static_) absl::StrAppend(&blob, kStatic, text, "\n");
  for (const std::string& text : dynamic_) absl::StrAppend(&blob, kDynamic, text, "\n");
  disk_->Put(kKind, key_, blob, runtime::DiskCache::Count::kNo);
}

}  // namespace lazuli::guards
