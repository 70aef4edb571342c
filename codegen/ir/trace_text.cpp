// Traces as text, for dumps and golden tests. ParseTrace(PrintTrace(t)) is t, field by field.
//
//   trace      = [ "trace" "scalars=" INT "offsets=" INT ] { storage } { op }       one a line; blank lines and "//" lines are skipped
//   storage    = "storage" ID ":" ( "input" | "fresh" ) [ INT "bytes" ] DEVICE [ "live" ] [ "mutated" ]     numbered from %0 on
//   op         = [ tensor { "," tensor } "=" ] NAME "(" [ arg { "," arg } ] ")" [ "default" DTYPE ]     NAME: "aten::add.Tensor"
//   arg        = [ WORD "=" ] ( tensor | list | slot | const )                       WORD: the schema's name of the argument
//   tensor     = "undef" | ID DTYPE sizes [ strides ] [ "+o" INT [ "@" INT ] ] [ "number" ]
//   sizes      = "[" [ INT { "," INT } ] "]"
//   strides    = "(" [ INT { "," INT } ] ")"             left out when contiguous
//   list       = "{" [ tensor { "," tensor } ] "}"       Tensor[] and Tensor?[]
//   slot       = "#" INT ":" DTYPE                       a run-time scalar
//   const      = "none" | "true" | "false" | INT | DOUBLE | "complex(" DOUBLE "," DOUBLE ")" | STRING | "device(" DEVICE ")"
//              | "[" ints "]" | "double[" doubles "]" | "bool[" bools "]"
//   ID         = "%" INT
//
// "+o3" is offset slot 3, "+o3@64" one that is known to hold 64, "number" marks a wrapped number. A DOUBLE has a point, an exponent, or is
// inf or nan; a NaN of other bits than the usual one is "nan:" and its bits in hexadecimal. STRING is in double quotes with C escapes.
// DEVICE is LibTorch's ("cpu", "cuda:1").
#include "codegen/ir/trace_text.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace lazuli::codegen {
namespace {

struct TypeName {
  c10::ScalarType type;
  const char* name;
};
constexpr TypeName kTypeNames[] = {
    {c10::ScalarType::Float, "f32"},       {c10::ScalarType::Double, "f64"},       {c10::ScalarType::Half, "f16"},
    {c10::ScalarType::BFloat16, "bf16"},   {c10::ScalarType::Long, "i64"},         {c10::ScalarType::Int, "i32"},
    {c10::ScalarType::Short, "i16"},       {c10::ScalarType::Char, "i8"},          {c10::ScalarType::Byte, "u8"},
    {c10::ScalarType::Bool, "bool"},       {c10::ScalarType::ComplexFloat, "c64"}, {c10::ScalarType::ComplexDouble, "c128"},
    {c10::ScalarType::ComplexHalf, "c32"},
};

// The shortest decimal that reads back the same, always with a point or an exponent.
std::string DoubleText(double value) {
  if (std::isnan(value)) {
    uint64_t bits, usual_bits;
    const double usual = std::numeric_limits<double>::quiet_NaN();
    std::memcpy(&bits, &value, sizeof(bits));
    std::memcpy(&usual_bits, &usual, sizeof(bits));
    return bits == usual_bits ? "nan" : absl::StrFormat("nan:%x", bits);
  }
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text;
  for (int digits = 6; digits <= 17; ++digits) {
    text = absl::StrFormat("%.*g", digits, value);
    if (std::strtod(text.c_str(), nullptr) == value) break;
  }
  if (text.find_first_of(".e") == std::string::npos) absl::StrAppend(&text, ".0");
  return text;
}

template <class List, class Fn>
std::string ListText(const char* open, const List& list, const char* close, const Fn& text_of, const char* comma = ",") {
  std::string text = open;
  const char* separator = "";
  for (const auto& item : list) {
    absl::StrAppend(&text, separator, text_of(item));
    separator = comma;
  }
  return absl::StrCat(text, close);
}

std::string IntText(int64_t value) { return absl::StrCat(value); }
std::string BoolText(bool value) { return value ? "true" : "false"; }

std::string ArgText(const TraceArg& arg) {
  switch (arg.kind) {
    case TraceArg::Kind::kTensor:
      return TensorText(arg.tensors[0]);
    case TraceArg::Kind::kTensorList:
      return ListText("{", arg.tensors, "}", TensorText, ", ");
    case TraceArg::Kind::kScalar:
      return absl::StrCat("#", arg.slot, ":", ScalarTypeText(arg.scalar_type));
    case TraceArg::Kind::kConst:
      break;
  }
  return ConstText(arg.value);
}

std::string StorageText(size_t id, const TraceStorage& storage) {
  std::string text = absl::StrCat("storage %", id, ": ", storage.is_input ? "input" : "fresh");
  if (!storage.is_input || storage.nbytes != 0) absl::StrAppend(&text, " ", storage.nbytes, " bytes");
  absl::StrAppend(&text, " ", storage.device.str());
  if (storage.live_out) absl::StrAppend(&text, " live");
  if (storage.mutated) absl::StrAppend(&text, " mutated");
  return text;
}

bool ReadHeader(TextReader* reader, Trace* trace) {
  int64_t scalars = 0, offsets = 0;
  if (!reader->Expect("scalars=") || !reader->ReadInt(&scalars) || !reader->Expect("offsets=") || !reader->ReadInt(&offsets)) return false;
  trace->num_scalars = static_cast<int32_t>(scalars);
  trace->num_offsets = static_cast<int32_t>(offsets);
  return reader->ExpectEnd();
}

bool ReadStorage(TextReader* reader, Trace* trace) {
  const auto next = static_cast<StorageId>(trace->storages.size());
  StorageId id = kNoStorage;
  if (!reader->ReadStorageId(&id)) return false;
  if (id != next) return reader->Reject(absl::StrCat("storages are numbered in order, this one is %", next));
  TraceStorage storage;
  if (!reader->Expect(":")) return false;
  storage.is_input = reader->Accept("input");
  if (!storage.is_input && !reader->Accept("fresh")) return reader->Fail("'input' or 'fresh'");
  if (reader->AtInt() && (!reader->ReadInt(&storage.nbytes) || !reader->Expect("bytes"))) return false;
  if (!reader->ReadDevice(&storage.device)) return false;
  storage.live_out = reader->Accept("live");
  storage.mutated = reader->Accept("mutated");
  trace->storages.push_back(storage);
  return reader->ExpectEnd();
}

// Whether every number in `op` names something that `trace` has.
bool CheckNumbers(const Trace& trace, const TraceOp& op, TextReader* reader) {
  const auto check = [&](const TensorRef& ref) {
    if (!ref.defined()) return true;
    if (ref.storage >= static_cast<StorageId>(trace.storages.size())) return reader->Reject(absl::StrCat("no storage %", ref.storage));
    if (ref.offset_slot >= trace.num_offsets) return reader->Reject(absl::StrCat("no offset o", ref.offset_slot));
    return true;
  };
  for (const TensorRef& ref : op.results) {
    if (!check(ref)) return false;
  }
  for (const TraceArg& arg : op.args) {
    if (arg.slot >= trace.num_scalars) return reader->Reject(absl::StrCat("no scalar #", arg.slot));
    for (const TensorRef& ref : arg.tensors) {
      if (!check(ref)) return false;
    }
  }
  return true;
}

bool ReadOp(TextReader* reader, Trace* trace) {
  TraceOp op;
  if (reader->AtTensor()) {
    do {
      op.results.emplace_back();
      if (!reader->ReadTensor(&op.results.back())) return false;
    } while (reader->Accept(","));
    if (!reader->Expect("=")) return false;
  }
  if (!reader->ReadCall(&op) || !reader->ExpectEnd()) return false;
  const size_t num_results = op.info->returns_mutated_self ? 0 : static_cast<size_t>(op.info->num_returns);
  if (op.results.size() != num_results) {
    return reader->Reject(absl::StrCat(op.info->name, " has ", num_results, " results, not ", op.results.size()));
  }
  if (!CheckNumbers(*trace, op, reader)) return false;
  op.index = static_cast<int32_t>(trace->ops.size());
  op.device = DeviceOf(op, trace->storages);
  trace->ops.push_back(std::move(op));
  return true;
}

}  // namespace

c10::Device DeviceOf(const TraceOp& op, const std::vector<TraceStorage>& storages) {
  const auto device_of = [&](const std::vector<TensorRef>& refs) {
    for (const TensorRef& ref : refs) {
      if (ref.defined() && !storages[ref.storage].device.is_cpu()) return storages[ref.storage].device;
    }
    return c10::Device(c10::kCPU);
  };
  c10::Device device = device_of(op.results);
  for (size_t i = 0; i < op.args.size() && device.is_cpu(); ++i) device = device_of(op.args[i].tensors);
  return device;
}

const TensorRef* CopiedBy(const TraceOp& op) {
  if ((op.info->name != "aten::clone" && op.info->name != "aten::_to_copy") || op.results.size() != 1) return nullptr;
  return op.args[0].tensors.empty() ? nullptr : &op.args[0].tensors[0];
}

std::string ScalarTypeText(c10::ScalarType type) {
  for (const TypeName& entry : kTypeNames) {
    if (entry.type == type) return entry.name;
  }
  return c10::toString(type);
}

bool ScalarTypeByName(const std::string& name, c10::ScalarType* type) {
  for (int8_t i = 0; i < static_cast<int8_t>(c10::ScalarType::NumOptions); ++i) {
    if (ScalarTypeText(static_cast<c10::ScalarType>(i)) == name) {
      *type = static_cast<c10::ScalarType>(i);
      return true;
    }
  }
  return false;
}

std::string TensorText(const TensorRef& ref) {
  if (!ref.defined()) return "undef";
  std::string text = absl::StrCat("%", ref.storage, " ", ScalarTypeText(ref.dtype), ListText("[", ref.sizes, "]", IntText));
  if (!ref.is_contiguous()) absl::StrAppend(&text, ListText("(", ref.strides, ")", IntText));
  if (ref.offset_slot >= 0) absl::StrAppend(&text, "+o", ref.offset_slot);
  if (ref.offset != 0) absl::StrAppend(&text, "@", ref.offset);
  if (ref.wrapped_number) absl::StrAppend(&text, " number");
  return text;
}

std::string ConstText(const c10::IValue& value) {
  if (value.isNone()) return "none";
  if (value.isBool()) return BoolText(value.toBool());
  if (value.isInt()) return IntText(value.toInt());
  if (value.isDouble()) return DoubleText(value.toDouble());
  if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    return absl::StrCat("complex(", DoubleText(number.real()), ",", DoubleText(number.imag()), ")");
  }
  if (value.isString()) return absl::StrCat("\"", absl::CEscape(value.toStringRef()), "\"");
  if (value.isDevice()) return absl::StrCat("device(", value.toDevice().str(), ")");
  if (value.isIntList()) return ListText("[", value.toIntVector(), "]", IntText);
  if (value.isDoubleList()) return ListText("double[", value.toDoubleVector(), "]", DoubleText);
  TORCH_INTERNAL_ASSERT(value.isBoolList(), "a trace holds a constant of kind ", value.tagKind());
  std::vector<bool> flags;
  for (const bool flag : value.toBoolList()) flags.push_back(flag);
  return ListText("bool[", flags, "]", BoolText);
}

std::string CallText(const TraceOp& op) {
  const auto& arguments = op.info->schema().arguments();
  std::string text = absl::StrCat(op.info->name, "(");
  for (size_t i = 0; i < op.args.size(); ++i) {
    const TraceArg& arg = op.args[i];
    const bool named = arg.kind == TraceArg::Kind::kConst || arg.kind == TraceArg::Kind::kScalar;
    absl::StrAppend(&text, i == 0 ? "" : ", ", named ? absl::StrCat(arguments[i].name(), "=") : "", ArgText(arg));
  }
  absl::StrAppend(&text, ")");
  if (op.default_dtype != c10::ScalarType::Float) absl::StrAppend(&text, " default ", ScalarTypeText(op.default_dtype));
  return text;
}

std::string PrintTrace(const Trace& trace) {
  std::string text = absl::StrCat("trace scalars=", trace.num_scalars, " offsets=", trace.num_offsets, "\n");
  for (size_t i = 0; i < trace.storages.size(); ++i) absl::StrAppend(&text, StorageText(i, trace.storages[i]), "\n");
  for (const TraceOp& op : trace.ops) {
    if (!op.results.empty()) absl::StrAppend(&text, ListText("", op.results, "", TensorText, ", "), " = ");
    absl::StrAppend(&text, CallText(op), "\n");
  }
  return text;
}

absl::StatusOr<Trace> ParseTrace(const std::string& text) {
  Trace trace;
  int line_number = 0;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (const std::string& line : lines) {
    TextReader reader(line, ++line_number);
    if (reader.AtEnd() || reader.Accept("//")) continue;
    if (reader.Accept("trace")) {
      ReadHeader(&reader, &trace);
    } else if (reader.Accept("storage")) {
      ReadStorage(&reader, &trace);
    } else {
      ReadOp(&reader, &trace);
    }
    if (reader.failed()) return reader.status();
  }
  return trace;
}

}  // namespace lazuli::codegen
