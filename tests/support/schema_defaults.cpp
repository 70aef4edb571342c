// Arguments by schema type and name, where no row says better.
#include <map>
#include <stdexcept>

#include "tests/support/schema_args.h"

namespace lazuli::testing {
namespace {

using Kind = c10::TypeKind;

// By name; used only where the type can hold it.
const std::map<std::string, std::string>& TextsByName() {
  static const auto* texts = new std::map<std::string, std::string>{
      {"dim", "0|-1"},
      {"dims", "0|-1"},
      {"dim0", "0"},
      {"dim1", "-1|0"},
      {"dim2", "1|-1"},
      {"axis0", "0"},
      {"axis1", "-1"},
      {"diagonal", "0|1|-1"},
      {"offset", "0|1|-1"},
      {"eps", "1e-05"},
      {"p", "0.5|0.25|0.75"},
      {"train", "true|false"},
      {"training", "true|false"},
      {"reduction", "1|0|2"},
      {"end", "5|3"},
      {"start", "1|0|2"},
      {"step", "1|2"},
      {"steps", "5|1|0"},
      {"n", "4|1|0"},
      {"m", "3|5"},
      {"window_length", "7|1|0"},
      {"size", "3,4|2,0|()|5"},
      {"repeats", "2,1,3|1,2"},
      {"decimals", "1|0|-1"},
      {"generator", "none|new"},
      {"low", "0|-3"},
      {"high", "10|4"},
      {"from", "0|-2"},
      {"to", "9|5"},
      {"std", "1.5|0.5"},
      {"mean", "0.5|0"},
      {"lambda", "0.7|1.5"},
      {"lambd", "0.5|1"},
      {"sigma", "1|2"},
      {"value", "2|0.5|-1.5"},
      {"threshold", "0.5|1"},
      {"negval", "0.1"},
      {"slope", "0.2"},
      {"delta", "1|0.5"},
      {"beta", "0.5|1|2"},
      {"alpha", "2|1|0.5"},
      {"keepdim", "false|true"},
      {"dtype", "float|double|long"},
      {"approximate", "none|tanh"},
      {"rounding_mode", "floor|trunc"},
      {"memory_format", "contiguous|preserve|channels_last"},
  };
  return *texts;
}

std::string TextOfType(const c10::Type& type) {
  switch (type.kind()) {
    case Kind::TensorType:
      return "t";
    case Kind::NumberType:
      return "2|0.5|-1.5|3|1|0";
    case Kind::IntType:
    case Kind::SymIntType:
      return "1|0|2";
    case Kind::FloatType:
      return "0.5|1.5|2";
    case Kind::BoolType:
      return "false|true";
    case Kind::ScalarTypeType:
      return "float|double|long";
    case Kind::MemoryFormatType:
      return "contiguous|preserve|channels_last";
    case Kind::LayoutType:
    case Kind::DeviceObjType:
      return "cpu";
    case Kind::GeneratorType:
      return "new";
    case Kind::StringType:
      return "sum|mean|none";
    case Kind::OptionalType:
      return "none|" + TextOfType(*type.containedTypes()[0]);
    case Kind::ListType: {
      const c10::Type& item = *type.containedTypes()[0];
      if (item.kind() == Kind::TensorType) return "[t;t]|[t;t;t]";
      if (item.kind() == Kind::OptionalType) return "[t;t]|[t;none]";
      if (item.kind() == Kind::BoolType) return "true,true,true|true,false,true";
      if (item.kind() == Kind::FloatType) return "0.5,1.5";
      if (item.kind() == Kind::NumberType) return "2,3|0.5,1.5";
      return "0,1|1|0";
    }
    default:
      throw std::invalid_argument("no values of type " + type.str());
  }
}

// "none" or what the schema says, where that can be written as text here.
bool KeepsDefault(const c10::Argument& arg, const CasePoint& point) {
  if (!arg.default_value().has_value()) return false;
  const Kind kind = arg.real_type()->kind();
  const bool free = kind == Kind::BoolType || kind == Kind::NumberType || kind == Kind::FloatType || TextsByName().count(arg.name()) != 0;
  return point.number % 3 == 0 || !free;
}

}  // namespace

bool TakesNames(const c10::FunctionSchema& schema) {
  return schema.overload_name().find("name") != std::string::npos || schema.name().find("align_") != std::string::npos;
}

std::string DefaultText(const c10::FunctionSchema& schema, const c10::Argument& arg, const CasePoint& point) {
  const c10::Type& type = *arg.real_type();
  if (TakesNames(schema) && type.str().find("str") != std::string::npos) return arg.name() == "dim2" ? "dimname::N1" : "dimname::N0";
  if (KeepsDefault(arg, point)) return "default";
  const auto it = TextsByName().find(arg.name());
  if (it != TextsByName().end() && type.str().find("Tensor") == std::string::npos) {
    try {
      ParseArgument(arg, it->second, point);
      return it->second;
    } catch (const std::invalid_argument&) {
    }
  }
  return TextOfType(type);
}

}  // namespace lazuli::testing
