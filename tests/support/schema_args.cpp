#include "tests/support/schema_args.h"

#include <ATen/core/List.h>

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>

namespace lazuli::testing {
namespace {

using Kind = c10::TypeKind;

constexpr size_t kRounds = 3;

std::vector<int64_t> ShapeSizes(Shape shape) {
  switch (shape) {
    case Shape::kOdd:
      return {5, 7};
    case Shape::kScalar:
      return {};
    case Shape::kEmpty:
      return {4, 0};
    case Shape::kOne:
      return {1, 1};
    case Shape::kLarge:
      return {24, 70};
    case Shape::kVector:
      return {6};
    case Shape::kSquare:
      return {4, 4};
    case Shape::kCube:
      return {2, 4, 4};
    case Shape::kImage:
      return {2, 4, 6, 5};
    case Shape::kVolume:
      return {2, 4, 3, 6, 5};
  }
  return {};
}

torch::ScalarType RealOf(torch::ScalarType dtype) {
  if (dtype == torch::kComplexFloat) return torch::kFloat;
  if (dtype == torch::kComplexDouble) return torch::kDouble;
  return dtype;
}

struct KindRow {
  torch::ScalarType dtype;  // Undefined: the case's; QInt8: its real one.
  Fill fill;
};

KindRow RowOf(const std::string& kind) {
  constexpr auto kCase = torch::ScalarType::Undefined;
  static const auto* rows = new std::map<std::string, KindRow>{{"t", {kCase, Fill::kFinite}},
                                                               {"x", {kCase, Fill::kAny}},
                                                               {"p", {kCase, Fill::kPositive}},
                                                               {"u", {kCase, Fill::kUnit}},
                                                               {"z", {kCase, Fill::kZeros}},
                                                               {"o", {kCase, Fill::kOnes}},
                                                               {"s", {kCase, Fill::kSorted}},
                                                               {"spd", {kCase, Fill::kSpd}},
                                                               {"sym", {kCase, Fill::kSymmetric}},
                                                               {"low", {kCase, Fill::kLower}},
                                                               {"r", {torch::kQInt8, Fill::kFinite}},
                                                               {"f", {torch::kFloat, Fill::kFinite}},
                                                               {"P", {torch::kFloat, Fill::kPositive}},
                                                               {"d", {torch::kDouble, Fill::kFinite}},
                                                               {"l", {torch::kLong, Fill::kFinite}},
                                                               {"S", {torch::kLong, Fill::kSorted}},
                                                               {"V", {torch::kFloat, Fill::kSpd}},
                                                               {"c", {torch::kComplexFloat, Fill::kFinite}},
                                                               {"b", {torch::kBool, Fill::kFinite}},
                                                               {"i", {torch::kLong, Fill::kIndex}},
                                                               {"j", {torch::kInt, Fill::kIndex}},
                                                               {"e", {torch::kChar, Fill::kIndex}},
                                                               {"w", {torch::kLong, Fill::kPositive}},
                                                               {"q", {torch::kLong, Fill::kCount}},
                                                               {"y", {torch::kByte, Fill::kIndex}},
                                                               {"I", {kCase, Fill::kIndex}}};
  const auto it = rows->find(kind);
  if (it == rows->end()) throw std::invalid_argument("no such kind of tensor: " + kind);
  return it->second;
}

int64_t ParseInt(const std::string& text, const CasePoint& point) {
  if (text == "N") return point.batch;
  size_t end = 0;
  int64_t value = 0;
  try {
    value = std::stoll(text, &end);
  } catch (const std::exception&) {
    end = std::string::npos;
  }
  if (end != text.size()) throw std::invalid_argument("not an integer: " + text);
  return value;
}

std::vector<std::string> Items(const std::string& text) {
  return text.empty() || text == "()" ? std::vector<std::string>() : Split(text, ',');
}

std::vector<int64_t> ParseInts(const std::string& text, const CasePoint& point) {
  std::vector<int64_t> values;
  for (const std::string& item : Items(text)) values.push_back(ParseInt(item, point));
  return values;
}

TensorPlan ParseTensor(std::string text, const CasePoint& point) {
  TensorPlan plan;
  if (text == "none") {
    plan.defined = false;
    return plan;
  }
  if (text.empty()) throw std::invalid_argument("no tensor");
  Memory memory = point.memory;
  if (text[0] == '!') {
    memory = Memory::kContiguous;
    text = text.substr(1);
  }
  const size_t bracket = std::min(text.find_first_of("({"), text.size());
  std::string kind = text.substr(0, bracket);
  const size_t digit = kind.find_first_of("0123456789");
  if (digit != std::string::npos) plan.limit = std::stoll(kind.substr(digit));
  const KindRow row = RowOf(kind.substr(0, digit));
  plan.fill = row.fill;
  plan.dtype = row.dtype == torch::ScalarType::Undefined ? point.dtype : row.dtype == torch::kQInt8 ? RealOf(point.dtype) : row.dtype;
  plan.special = row.fill == Fill::kAny || (point.special && bracket == text.size());
  if (bracket == text.size()) {
    plan.sizes = ShapeSizes(point.shape);
  } else if (text[bracket] == '(') {
    plan.sizes = ParseInts(text.substr(bracket + 1, text.size() - bracket - 2), point);
  } else {
    for (const std::string& item : Items(text.substr(bracket + 1, text.size() - bracket - 2))) plan.literals.push_back(std::stod(item));
    plan.fill = Fill::kLiteral;
    plan.sizes = {static_cast<int64_t>(plan.literals.size())};
    memory = Memory::kContiguous;
  }
  LayOut(&plan, memory);
  return plan;
}

c10::Scalar ParseScalar(const std::string& text, const CasePoint& point) {
  if (text == "true" || text == "false") return c10::Scalar(text == "true");
  const size_t plus = text.find('+', 1);
  if (text.back() == 'j') return c10::Scalar(c10::complex<double>(std::stod(text.substr(0, plus)), std::stod(text.substr(plus + 1))));
  if (text.find_first_not_of("-0123456789N") == std::string::npos) return c10::Scalar(ParseInt(text, point));
  try {
    return c10::Scalar(std::stod(text));
  } catch (const std::exception&) {
    throw std::invalid_argument("not a number: " + text);
  }
}

int64_t ParseDtype(const std::string& text) {
  static const auto* names = new std::map<std::string, torch::ScalarType>{
      {"float", torch::kFloat}, {"double", torch::kDouble}, {"half", torch::kHalf}, {"bfloat", torch::kBFloat16},    {"long", torch::kLong},
      {"int", torch::kInt},     {"byte", torch::kByte},     {"bool", torch::kBool}, {"cfloat", torch::kComplexFloat}};
  const auto it = names->find(text);
  if (it == names->end()) throw std::invalid_argument("not a dtype: " + text);
  return static_cast<int64_t>(it->second);
}

int64_t ParseFormat(const std::string& text) {
  static const auto* names = new std::map<std::string, torch::MemoryFormat>{{"contiguous", torch::MemoryFormat::Contiguous},
                                                                            {"preserve", torch::MemoryFormat::Preserve},
                                                                            {"channels_last", torch::MemoryFormat::ChannelsLast}};
  const auto it = names->find(text);
  if (it == names->end()) throw std::invalid_argument("not a memory format: " + text);
  return static_cast<int64_t>(it->second);
}

bool ParseBool(const std::string& text) {
  if (text != "true" && text != "false") throw std::invalid_argument("not a bool: " + text);
  return text == "true";
}

c10::IValue ParseList(const c10::Type& item, const std::string& text, const CasePoint& point) {
  std::vector<double> doubles;
  c10::List<bool> bools;
  c10::List<c10::Scalar> scalars;
  c10::List<std::string> strings;
  switch (item.kind()) {
    case Kind::IntType:
    case Kind::SymIntType:
      return ParseInts(text, point);
    case Kind::FloatType:
      for (const std::string& part : Items(text)) doubles.push_back(ParseScalar(part, point).toDouble());
      return doubles;
    case Kind::BoolType:
      for (const std::string& part : Items(text)) bools.push_back(ParseBool(part));
      return bools;
    case Kind::NumberType:
      for (const std::string& part : Items(text)) scalars.push_back(ParseScalar(part, point));
      return scalars;
    case Kind::StringType:
      for (const std::string& part : Items(text)) strings.push_back(part);
      return strings;
    default:
      throw std::invalid_argument("no values of lists of " + item.str());
  }
}

c10::IValue ParseValue(const c10::Type& type, const std::string& text, const CasePoint& point) {
  if (type.kind() == Kind::OptionalType) return text == "none" ? c10::IValue() : ParseValue(*type.containedTypes()[0], text, point);
  switch (type.kind()) {
    case Kind::IntType:
    case Kind::SymIntType:
      return ParseInt(text, point);
    case Kind::FloatType:
      return ParseScalar(text, point).toDouble();
    case Kind::BoolType:
      return ParseBool(text);
    case Kind::NumberType:
      return ParseScalar(text, point);
    case Kind::StringType:
      return text == "''" ? std::string() : text;
    case Kind::ScalarTypeType:
      return ParseDtype(text);
    case Kind::MemoryFormatType:
      return ParseFormat(text);
    case Kind::LayoutType:
      return static_cast<int64_t>(torch::kStrided);
    case Kind::DeviceObjType:
      return torch::Device(torch::kCPU);
    case Kind::ListType:
      return ParseList(*type.containedTypes()[0], text, point);
    default:
      throw std::invalid_argument("no values of type " + type.str());
  }
}

bool IsOptional(const c10::Type& type) { return type.kind() == Kind::OptionalType; }

// The type inside of an optional one.
const c10::Type& Inner(const c10::Type& type) { return IsOptional(type) ? *type.containedTypes()[0] : type; }

}  // namespace

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (c == separator && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

ArgPlan ParseArgument(const c10::Argument& arg, const std::string& text, const CasePoint& point) {
  const std::vector<std::string> choices = Split(text, '|');
  const size_t choice = static_cast<size_t>(point.number);
  const std::string& chosen = choices[choice % choices.size()];
  const c10::Type& type = Inner(*arg.real_type());
  ArgPlan plan;
  plan.written = arg.alias_info() != nullptr && arg.alias_info()->isWrite();
  if (type.kind() == Kind::TensorType) {
    plan.kind = ArgPlan::Kind::kTensor;
    plan.tensors.push_back(ParseTensor(chosen, point));
  } else if (type.kind() == Kind::GeneratorType && chosen != "none") {
    plan.kind = ArgPlan::Kind::kGenerator;
  } else if (type.kind() == Kind::ListType && Inner(*type.containedTypes()[0]).kind() == Kind::TensorType && chosen != "none") {
    plan.kind = IsOptional(*type.containedTypes()[0]) ? ArgPlan::Kind::kOptionalTensorList : ArgPlan::Kind::kTensorList;
    if (chosen.front() != '[') throw std::invalid_argument("not a list of tensors: " + chosen);
    const std::string inside = chosen.substr(1, chosen.size() - 2);
    if (!inside.empty()) {
      for (const std::string& item : Split(inside, ';')) plan.tensors.push_back(ParseTensor(item, point));
    }
  } else if (type.kind() == Kind::NumberType || type.kind() == Kind::FloatType) {
    for (size_t round = 0; round < kRounds; ++round)
      plan.values.push_back(ParseValue(*arg.real_type(), choices[(choice + round) % choices.size()], point));
  } else {
    plan.values.push_back(ParseValue(*arg.real_type(), chosen, point));
  }
  return plan;
}

}  // namespace lazuli::testing
