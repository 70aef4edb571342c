// A trace as C++.

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/ir/trace_text.h"
#include "tools/reproducer.h"
#include "tools/trace_lab.h"

namespace lazuli::tools {
namespace {

using codegen::TensorRef;
using codegen::TraceArg;
using codegen::TraceOp;

std::string TypeText(c10::ScalarType type) { return absl::StrCat("torch::k", c10::toString(type)); }

std::string NumberText(double value) {
  if (std::isnan(value)) return "NAN";
  if (std::isinf(value)) return value > 0 ? "INFINITY" : "-INFINITY";
  return codegen::ConstText(value);
}

template <class List, class Fn>
std::string Braced(const List& list, const Fn& text_of) {
  std::vector<std::string> items;
  for (const auto& item : list) items.push_back(text_of(item));
  return absl::StrCat("{", absl::StrJoin(items, ", "), "}");
}

std::string IntsText(c10::IntArrayRef values) {
  return Braced(values, [](int64_t value) { return absl::StrCat(value); });
}

std::string ConstText(const c10::IValue& value) {
  if (value.isNone()) return "c10::IValue()";
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isInt()) return absl::StrCat("int64_t{", value.toInt(), "}");
  if (value.isDouble()) return NumberText(value.toDouble());
  if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    return absl::StrCat("c10::complex<double>(", NumberText(number.real()), ", ", NumberText(number.imag()), ")");
  }
  if (value.isIntList()) return absl::StrCat("std::vector<int64_t>", IntsText(value.toIntVector()));
  if (value.isDoubleList()) return absl::StrCat("std::vector<double>", Braced(value.toDoubleVector(), NumberText));
  if (value.isString()) return absl::StrCat("std::string(", codegen::ConstText(value), ")");
  if (value.isDevice()) return absl::StrCat("c10::Device(\"", value.toDevice().str(), "\")");
  std::vector<std::string> flags;
  for (const bool flag : value.toBoolList()) flags.emplace_back(flag ? "true" : "false");
  return absl::StrCat("c10::List<bool>({", absl::StrJoin(flags, ", "), "})");
}

class Emitter {
 public:
  Emitter(const TraceCase& test, const LabOptions& options) : test_(test), options_(options), memory_(test, options.seed) {}

  std::string Run() {
    const auto& storages = test_.trace.storages;
    std::string text;
    std::vector<std::string> results;
    for (size_t s = 0; s < storages.size(); ++s) {
      const auto id = static_cast<codegen::StorageId>(s);
      if (storages[s].is_input) {
        const at::Tensor& input = memory_.input(id);
        absl::StrAppend(&text, "  torch::Tensor s", s, " = FuzzInput({", input.numel(), "}, ", TypeText(input.scalar_type()), ", ",
                        options_.seed + 2 * s, " + round);\n");
      }
      if (storages[s].live_out || storages[s].mutated) results.push_back(absl::StrCat("s", s));
    }
    for (size_t i = 0; i < test_.trace.ops.size(); ++i) absl::StrAppend(&text, OpText(test_.trace.ops[i], i));
    return ReproducerSource(text, results, options_.backend);
  }

 private:
  std::string WindowText(const TensorRef& ref) const {
    if (!ref.defined()) return "torch::Tensor()";
    const int64_t offset = ref.offset_slot < 0 ? 0 : test_.offsets[static_cast<size_t>(ref.offset_slot)];
    return absl::StrCat("FuzzWindow(s", ref.storage, ", ", TypeText(ref.dtype), ", ", IntsText(ref.sizes), ", ", IntsText(ref.strides),
                        ", ", offset, ref.wrapped_number ? ", true" : "", ")");
  }

  std::string ScalarText(const TraceArg& arg, const c10::Type& type) const {
    const double value = test_.scalars[static_cast<size_t>(arg.slot)];
    const std::string number = arg.scalar_type == c10::kDouble ? NumberText(value)
                               : arg.scalar_type == c10::kBool ? (value != 0 ? "true" : "false")
                                                               : absl::StrCat("int64_t{", static_cast<int64_t>(value), "}");
    return type.str().rfind("Tensor", 0) == 0 ? absl::StrCat("FuzzNumber(", number, ")") : number;
  }

  std::string ArgText(const TraceArg& arg, const c10::Type& type) const {
    switch (arg.kind) {
      case TraceArg::Kind::kConst:
        return ConstText(arg.value);
      case TraceArg::Kind::kScalar:
        return ScalarText(arg, type);
      case TraceArg::Kind::kTensor:
        return WindowText(arg.tensors[0]);
      case TraceArg::Kind::kTensorList:
        break;
    }
    const bool optional = type.str().find('?') != std::string::npos;
    return absl::StrCat(optional ? "FuzzOptionals(" : "std::vector<torch::Tensor>(",
                        Braced(arg.tensors, [this](const TensorRef& ref) { return WindowText(ref); }), ")");
  }

  std::string OpText(const TraceOp& op, size_t index) const {
    const auto& arguments = op.info->schema().arguments();
    std::vector<std::string> args;
    for (size_t i = 0; i < op.args.size(); ++i) args.push_back(ArgText(op.args[i], *arguments[i].type()));
    std::string text = absl::StrCat("  const auto r", index, " = FuzzCall(\"", op.info->name, "\", {", absl::StrJoin(args, ", "), "});\n");
    for (size_t i = 0; i < op.results.size(); ++i) {
      if (op.results[i].defined()) absl::StrAppend(&text, "  torch::Tensor s", op.results[i].storage, " = r", index, "[", i, "];\n");
    }
    return text;
  }

  const TraceCase& test_;
  const LabOptions& options_;
  const TraceMemory memory_;
};

}  // namespace

std::string EmitProgram(const TraceCase& test, const LabOptions& options) { return Emitter(test, options).Run(); }

}  // namespace lazuli::tools
