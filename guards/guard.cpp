#include "guards/guard.h"

#include <c10/core/ScalarType.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/kernel_settings.h"

namespace lazuli::guards {
namespace {

using codegen::OpInfo;
using codegen::OpInfoById;
using codegen::PayloadOf;
using codegen::Tag;
using codegen::TagOf;
using codegen::TensorWord;
using codegen::TraceLog;
using codegen::Word;

class Builder {
 public:
  explicit Builder(const TraceLog& log) : log_(log) {}

  std::vector<Guard> Run() {
    for (size_t op = 0; op < log_.ops.size(); ++op) {
      op_ = static_cast<int32_t>(op);
      arg_ = 0;
      const OpInfo& info = OpInfoById(log_.ops[op].op_id);
      Add(Guard::Kind::kOp);
      for (; arg_ < info.num_args; ++arg_) AddItem();
    }
    op_ = static_cast<int32_t>(log_.ops.size());
    Add(Guard::Kind::kOp);
    for (int32_t storage = 0; code_ < log_.code.size(); storage += 64) {
      Add(Guard::Kind::kLiveOut);
      guards_.back().dim = storage;
    }
    return std::move(guards_);
  }

 private:
  void Add(Guard::Kind kind) {
    const auto position = static_cast<uint32_t>(code_++);
    guards_.push_back({kind, op_, arg_, 0, position, log_.code[position]});
  }

  void AddItem() {
    const Word word = log_.code[code_];
    switch (TagOf(word)) {
      case Tag::kTensor:
        AddTensor(word);
        return;
      case Tag::kTensorList:
        Add(Guard::Kind::kOperand);
        for (uint64_t i = 0; i < PayloadOf(word); ++i) AddItem();
        return;
      case Tag::kSizes:
        Add(Guard::Kind::kArgument);
        for (uint64_t i = 0; i < (PayloadOf(word) == 0 ? 1 : PayloadOf(word) - 1); ++i) {
          AddShape(Guard::Kind::kSizeArgument, static_cast<int>(i));
        }
        return;
      default:
        Add(Guard::Kind::kArgument);
        for (size_t extra = 1; extra <= ExtraWords(word); ++extra) {
          Add(Guard::Kind::kArgument);
          guards_.back().dim = static_cast<int32_t>(extra);
        }
    }
  }

  void AddTensor(Word word) {
    Add(Guard::Kind::kOperand);
    const TensorWord tensor = TensorWord::Unpack(word);
    for (const auto kind : {Guard::Kind::kSize, Guard::Kind::kStride}) {
      for (int dim = 0; dim < tensor.ndim; ++dim) AddShape(kind, dim);
    }
    if (tensor.known_offset) AddShape(Guard::Kind::kOffset, 0);
  }

  void AddShape(Guard::Kind kind, int dim) {
    const auto position = static_cast<uint32_t>(shape_++);
    guards_.push_back({kind, op_, arg_, dim, position, log_.shapes[position]});
  }

  static size_t ExtraWords(Word word) {
    switch (TagOf(word)) {
      case Tag::kInt:
      case Tag::kDouble:
        return 1;
      case Tag::kScalarConst:
        return static_cast<c10::ScalarType>(PayloadOf(word)) == c10::ScalarType::ComplexDouble ? 2 : 1;
      case Tag::kIntList:
      case Tag::kDoubleList:
      case Tag::kBoolList:
        return PayloadOf(word);
      case Tag::kString:
        return (PayloadOf(word) + sizeof(Word) - 1) / sizeof(Word);
      default:
        return 0;
    }
  }

  const TraceLog& log_;
  std::vector<Guard> guards_;
  size_t code_ = 0;
  size_t shape_ = 0;
  int32_t op_ = 0;
  int32_t arg_ = 0;
};

std::string OpAt(Word word) {
  if (TagOf(word) != Tag::kOp) return "end of trace";
  const runtime::DeviceCode device = codegen::OpDeviceOf(word);
  const std::string& name = OpInfoById(codegen::OpIdOf(word)).name;
  const c10::ScalarType default_dtype = codegen::DefaultDtypeOf(word);
  const std::string settings = runtime::KernelSettings::TextOf(codegen::SettingsOf(word));
  return absl::StrCat(name, device == runtime::kCpuCode ? "" : absl::StrCat(" on ", runtime::DeviceOf(device).str()),
                      default_dtype == c10::kFloat ? "" : absl::StrCat(", default dtype ", c10::toString(default_dtype)),
                      settings.empty() ? "" : absl::StrCat(", under ", settings));
}

std::string OpName(const TraceLog& log, int32_t op) { return absl::StrCat("op ", op, " ", OpInfoById(log.ops[op].op_id).name); }

std::string ArgName(const TraceLog& log, const Guard& guard) {
  return OpInfoById(log.ops[guard.op].op_id).schema().arguments()[guard.arg].name();
}

// For a guard on shapes.
std::string NumberName(const Guard& guard, const TraceLog& log) {
  switch (guard.kind) {
    case Guard::Kind::kSize:
      return "size";
    case Guard::Kind::kStride:
      return "stride";
    case Guard::Kind::kOffset:
      return "offset";
    default:
      return absl::StrCat("'", ArgName(log, guard), "'");
  }
}

std::string IndexText(const Guard& guard) { return guard.kind == Guard::Kind::kOffset ? "" : absl::StrCat(" at index ", guard.dim); }

std::string OperandText(Word word) {
  if (TagOf(word) == Tag::kTensorList) return absl::StrCat("a list of ", PayloadOf(word), " tensors");
  if (TagOf(word) != Tag::kTensor) return TagOf(word) == Tag::kScalarSlot ? "a number" : "no tensor";
  const TensorWord tensor = TensorWord::Unpack(word);
  return absl::StrCat(c10::toString(tensor.dtype), " rank ", tensor.ndim, tensor.wrapped_number ? " number" : "", " storage ",
                      tensor.storage, tensor.slot_plus_one != 0 ? absl::StrCat(" offset #", tensor.slot_plus_one - 1) : "");
}

bool IsListOfSizes(Word word) { return TagOf(word) == Tag::kSizes && PayloadOf(word) != 0; }

bool IsList(Tag tag) { return tag == Tag::kIntList || tag == Tag::kDoubleList || tag == Tag::kBoolList; }

std::string NumberText(bool is_double, Word word) {
  if (!is_double) return absl::StrCat(static_cast<int64_t>(word));
  double value;
  std::memcpy(&value, &word, sizeof(value));
  return absl::StrCat(value);
}

// What the tagged word of an argument says.
std::string TagText(Word word) {
  switch (TagOf(word)) {
    case Tag::kNone:
      return "none";
    case Tag::kUndefined:
      return "no tensor";
    case Tag::kBool:
      return PayloadOf(word) != 0 ? "true" : "false";
    case Tag::kScalarSlot:  // A run-time value.
      return absl::StrCat("any ", c10::toString(static_cast<c10::ScalarType>(PayloadOf(word) & 255)), " number");
    case Tag::kScalarConst:  // Part of the formula: alpha and beta of 0 or 1, exponents.
      return absl::StrCat("a fixed ", c10::toString(static_cast<c10::ScalarType>(PayloadOf(word) & 255)), " number");
    case Tag::kString:
      return absl::StrCat("a string of length ", PayloadOf(word));
    case Tag::kSizes:
      return IsListOfSizes(word) ? absl::StrCat("a list of length ", PayloadOf(word) - 1) : "a number";
    case Tag::kTensor:
    case Tag::kTensorList:
      return "a tensor";
    default:
      return IsList(TagOf(word)) ? absl::StrCat("a list of length ", PayloadOf(word)) : "a number";
  }
}

std::string DescribeArgument(const Guard& guard, const TraceLog& expected_log, const std::string& where, Word actual) {
  const std::string text = absl::StrCat(where, " value of '", ArgName(expected_log, guard), "' mismatch");
  if (guard.dim == 0) return absl::StrCat(text, ". expected ", TagText(guard.expected), ", actual ", TagText(actual));
  const Word head = expected_log.code[guard.position - guard.dim];
  const Tag tag = TagOf(head);
  if (tag == Tag::kString) return text;
  const auto number_type = static_cast<c10::ScalarType>(PayloadOf(head));
  const bool is_double =
      tag == Tag::kDouble || tag == Tag::kDoubleList ||
      (tag == Tag::kScalarConst && (number_type == c10::ScalarType::Double || number_type == c10::ScalarType::ComplexDouble));
  return absl::StrCat(text, IsList(tag) ? absl::StrCat(" at index ", guard.dim - 1) : "", ". expected ",
                      NumberText(is_double, guard.expected), ", actual ", NumberText(is_double, actual));
}

std::string DescribeOperand(const Guard& guard, const std::string& where, Word actual) {
  const bool tensors = TagOf(guard.expected) == Tag::kTensor && TagOf(actual) == Tag::kTensor;
  if (tensors) {
    const TensorWord want = TensorWord::Unpack(guard.expected);
    const TensorWord got = TensorWord::Unpack(actual);
    if (want.dtype != got.dtype) {
      return absl::StrCat(where, " dtype mismatch. expected ", c10::toString(want.dtype), ", actual ", c10::toString(got.dtype));
    }
    if (want.ndim != got.ndim) return absl::StrCat(where, " rank mismatch. expected ", want.ndim, ", actual ", got.ndim);
    if (want.device != got.device) {
      return absl::StrCat(where, " device mismatch. expected ", runtime::DeviceOf(want.device).str(), ", actual ",
                          runtime::DeviceOf(got.device).str());
    }
    if (want.storage != got.storage)
      return absl::StrCat(where, " aliasing mismatch. expected storage ", want.storage, ", actual storage ", got.storage);
    if (want.slot_plus_one != got.slot_plus_one) return absl::StrCat(where, " storage offset pattern mismatch");
  }
  return absl::StrCat(where, " mismatch. expected ", OperandText(guard.expected), ", actual ", OperandText(actual));
}

std::string DescribeLiveOut(const Guard& guard, Word actual) {
  const Word difference = guard.expected ^ actual;
  const int bit = difference == 0 ? 0 : __builtin_ctzll(difference);
  const bool expected_live = (guard.expected >> bit & 1) != 0;
  return absl::StrCat("storage ", guard.dim + bit, " visibility after the trace mismatch. expected ", expected_live ? "visible" : "dead",
                      ", actual ", expected_live ? "dead" : "visible");
}

}  // namespace

bool Guard::Check(const TraceLog& log) const {
  const auto& words = OnShapes() ? log.shapes : log.code;
  return position < words.size() && words[position] == expected;
}

std::string Guard::Describe(const TraceLog& expected_log, const TraceLog& actual_log) const {
  const auto& words = OnShapes() ? actual_log.shapes : actual_log.code;
  const Word actual = position < words.size() ? words[position] : Word{0};
  const std::string where =
      kind == Kind::kOp || kind == Kind::kLiveOut ? "" : absl::StrCat("input ", arg, " of ", OpName(expected_log, op));
  switch (kind) {
    case Kind::kOp:
      if (OpAt(expected) == OpAt(actual)) return absl::StrCat("op ", op, " mismatch. expected a trace of another length");
      return absl::StrCat("op ", op, " mismatch. expected ", OpAt(expected), ", actual ", OpAt(actual));
    case Kind::kOperand:
      return DescribeOperand(*this, where, actual);
    case Kind::kSize:
    case Kind::kStride:
    case Kind::kOffset:
    case Kind::kSizeArgument:
      return MismatchText(expected_log, absl::StrCat(static_cast<int64_t>(expected)), static_cast<int64_t>(actual));
    case Kind::kArgument:
      return DescribeArgument(*this, expected_log, where, actual);
    case Kind::kLiveOut:
      return DescribeLiveOut(*this, actual);
  }
  return "";
}

std::string Guard::Subject(const TraceLog& log) const {
  const std::string owner = kind == Kind::kSizeArgument ? "" : absl::StrCat("input ", arg, " of ");
  return absl::StrCat(NumberName(*this, log), " of ", owner, OpName(log, op), IndexText(*this));
}

std::string Guard::MismatchText(const TraceLog& log, const std::string& expected_text, int64_t actual) const {
  return absl::StrCat("input ", arg, " of ", OpName(log, op), kind == Kind::kSizeArgument ? " value of " : " ", NumberName(*this, log),
                      " mismatch", IndexText(*this), ". expected ", expected_text, ", actual ", actual);
}

std::string Guard::Text(const TraceLog& log) const {
  switch (kind) {
    case Kind::kOp:
      return absl::StrCat("op ", op, " == ", OpAt(expected));
    case Kind::kOperand:
      return absl::StrCat("input ", arg, " of ", OpName(log, op), " == ", OperandText(expected));
    case Kind::kSize:
    case Kind::kStride:
    case Kind::kOffset:
    case Kind::kSizeArgument:
      return absl::StrCat(Subject(log), " == ", static_cast<int64_t>(expected));
    case Kind::kArgument:
      return absl::StrCat("'", ArgName(log, *this), "' of ", OpName(log, op), " word == ", absl::Hex(expected));
    case Kind::kLiveOut:
      return absl::StrCat("visible storages from ", dim, " == 0x", absl::Hex(expected));
  }
  return "";
}

std::vector<Guard> BuildGuards(const TraceLog& log) { return Builder(log).Run(); }

std::vector<Operand> OperandsOf(const TraceLog& log) {
  std::vector<Operand> operands;
  uint32_t next = 0;
  for (const Guard& guard : BuildGuards(log)) {
    if (guard.kind == Guard::Kind::kOperand && TagOf(guard.expected) == Tag::kTensor) {
      const TensorWord word = TensorWord::Unpack(guard.expected);
      operands.push_back({word.storage, word.first_use, next, word.ndim});
    }
    if (guard.OnShapes()) next = guard.position + 1;
  }
  return operands;
}

bool Matches(const TraceLog& expected, const TraceLog& actual) {
  return expected.code == actual.code && expected.shapes == actual.shapes;  // memcmp, but for empty ones.
}

bool MatchesButForDead(const TraceLog& expected, const TraceLog& actual) {
  if (expected.code.size() != actual.code.size() || expected.shapes != actual.shapes) return false;
  const auto bits = static_cast<std::ptrdiff_t>(LiveOutWords(actual));
  const auto end = actual.code.end() - bits;
  if (!std::equal(actual.code.begin(), end, expected.code.begin())) return false;
  return std::equal(end, actual.code.end(), expected.code.end() - bits, [](Word now, Word then) { return (now & ~then) == 0; });
}

std::optional<Guard> FirstFailure(const TraceLog& expected, const TraceLog& actual) {
  for (const Guard& guard : BuildGuards(expected)) {
    if (!guard.Check(actual)) return guard;
  }
  return std::nullopt;
}

}  // namespace lazuli::guards
