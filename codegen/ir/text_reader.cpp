#include <c10/util/Exception.h>

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "codegen/ir/trace_text.h"

namespace lazuli::codegen {
namespace {

bool IsWordChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

constexpr size_t kQuotedChars = 20;  // Of the text that an error shows.

}  // namespace

TextReader::TextReader(std::string line, int line_number) : line_(std::move(line)), line_number_(line_number) {}

absl::Status TextReader::status() const { return failed() ? absl::InvalidArgumentError(error_) : absl::OkStatus(); }

bool TextReader::Reject(const std::string& message) {
  if (!failed()) error_ = absl::StrCat("line ", line_number_, ", column ", at_ + 1, ": ", message);
  return false;
}

bool TextReader::Fail(const std::string& what) {
  const std::string rest = line_.substr(at_, kQuotedChars);
  return Reject(absl::StrCat("expected ", what, ", got ", rest.empty() ? "the end of the line" : absl::StrCat("'", rest, "'")));
}

void TextReader::SkipSpaces() {
  while (at_ < line_.size() && std::isspace(static_cast<unsigned char>(line_[at_])) != 0) ++at_;
}

bool TextReader::AtEnd() {
  SkipSpaces();
  return at_ == line_.size();
}

bool TextReader::AtInt() {
  SkipSpaces();
  return at_ < line_.size() && (std::isdigit(static_cast<unsigned char>(line_[at_])) != 0 || line_[at_] == '-');
}

bool TextReader::AtTensor() {
  SkipSpaces();
  return line_.compare(at_, 1, "%") == 0 ||
         (line_.compare(at_, 5, "undef") == 0 && (at_ + 5 == line_.size() || !IsWordChar(line_[at_ + 5])));
}

bool TextReader::ExpectEnd() { return !failed() && (AtEnd() || Fail("the end of the line")); }

bool TextReader::Accept(const std::string& token) {
  if (failed()) return false;
  SkipSpaces();
  if (line_.compare(at_, token.size(), token) != 0) return false;
  const size_t end = at_ + token.size();
  if (IsWordChar(token.back()) && end < line_.size() && IsWordChar(line_[end])) return false;
  at_ = end;
  return true;
}

bool TextReader::Expect(const std::string& token) { return Accept(token) || Fail(absl::StrCat("'", token, "'")); }

bool TextReader::ReadInt(int64_t* value) {
  if (failed()) return false;
  SkipSpaces();
  size_t end = at_;
  if (end < line_.size() && line_[end] == '-') ++end;
  while (end < line_.size() && std::isdigit(static_cast<unsigned char>(line_[end])) != 0) ++end;
  if (!absl::SimpleAtoi(line_.substr(at_, end - at_), value)) return Fail("a whole number");
  at_ = end;
  return true;
}

bool TextReader::ReadWord(const std::string& what, const std::string& extra, std::string* word) {
  if (failed()) return false;
  SkipSpaces();
  const size_t begin = at_;
  while (at_ < line_.size() && (IsWordChar(line_[at_]) || extra.find(line_[at_]) != std::string::npos)) ++at_;
  *word = line_.substr(begin, at_ - begin);
  return !word->empty() || Fail(what);
}

bool TextReader::ReadStorageId(StorageId* id) {
  int64_t number = 0;
  if (!Expect("%") || !ReadInt(&number)) return false;
  *id = static_cast<StorageId>(number);
  return number >= 0 || Reject("a storage's number cannot be negative");
}

bool TextReader::ReadIntsIn(const char* open, const char* close, c10::DimVector* values) {
  if (!Expect(open)) return false;
  if (Accept(close)) return true;
  do {
    int64_t value = 0;
    if (!ReadInt(&value)) return false;
    values->push_back(value);
  } while (Accept(","));
  return Expect(close);
}

bool TextReader::ReadScalarType(c10::ScalarType* type) {
  std::string name;
  const size_t begin = at_;
  if (!ReadWord("a dtype", "", &name)) return false;
  if (ScalarTypeByName(name, type)) return true;
  at_ = begin;
  SkipSpaces();
  return Fail("a dtype");
}

bool TextReader::ReadTensor(TensorRef* ref) {
  if (Accept("undef")) return true;
  if (!ReadStorageId(&ref->storage) || !ReadScalarType(&ref->dtype) || !ReadIntsIn("[", "]", &ref->sizes)) return false;
  SkipSpaces();
  if (line_.compare(at_, 1, "(") == 0) {
    if (!ReadIntsIn("(", ")", &ref->strides)) return false;
    if (ref->strides.size() != ref->sizes.size())
      return Reject(absl::StrCat(ref->sizes.size(), " sizes, but ", ref->strides.size(), " strides"));
  } else {
    ref->strides.resize(ref->sizes.size());
    int64_t stride = 1;
    for (size_t d = ref->sizes.size(); d-- > 0;) {
      ref->strides[d] = stride;
      stride *= ref->sizes[d] > 1 ? ref->sizes[d] : 1;
    }
  }
  // Not one token, since a word that goes on in digits is another word to Accept.
  if (Accept("+")) {
    if (line_.compare(at_, 1, "o") != 0) return Fail("'o' and an offset's number");
    ++at_;
    int64_t slot = 0;
    if (!ReadInt(&slot)) return false;
    ref->offset_slot = static_cast<int32_t>(slot);
    if (Accept("@") && !ReadInt(&ref->offset)) return false;
  }
  ref->wrapped_number = Accept("number");
  return true;
}

bool TextReader::ReadDevice(c10::Device* device) {
  std::string name;
  if (!ReadWord("a device", ":", &name)) return false;
  try {
    *device = c10::Device(name);
  } catch (const c10::Error&) {
    return Reject(absl::StrCat("'", name, "' is no device"));
  }
  return true;
}

bool TextReader::ReadDouble(double* value) {
  if (Accept("nan:")) {
    std::string digits;
    if (!ReadWord("the NaN's bits in hexadecimal", "", &digits)) return false;
    const uint64_t bits = std::strtoull(digits.c_str(), nullptr, 16);
    std::memcpy(value, &bits, sizeof(bits));
    return true;
  }
  std::string text;
  if (!ReadWord("a number", "+-.", &text)) return false;
  char* end = nullptr;
  *value = std::strtod(text.c_str(), &end);
  return *end == '\0' || Reject(absl::StrCat("'", text, "' is no number"));
}

// A word of digits is an int; anything else that starts like a number is a double.
bool TextReader::ReadNumber(c10::IValue* value) {
  SkipSpaces();
  size_t end = at_;
  while (end < line_.size() && (IsWordChar(line_[end]) || std::strchr("+-.:", line_[end]) != nullptr)) ++end;
  if (line_.find_first_not_of("-0123456789", at_) >= end) {
    int64_t number = 0;
    if (!ReadInt(&number)) return false;
    *value = number;
    return true;
  }
  double number = 0;
  if (!ReadDouble(&number)) return false;
  *value = number;
  return true;
}

bool TextReader::ReadString(std::string* text) {
  size_t end = at_;
  while (end < line_.size() && line_[end] != '"') end += line_[end] == '\\' ? 2 : 1;
  if (end >= line_.size()) return Reject("a string without a closing quote");
  if (!absl::CUnescape(line_.substr(at_, end - at_), text)) return Reject("a string with a bad escape");
  at_ = end + 1;
  return true;
}

bool TextReader::ReadDoubleList(c10::IValue* value) {
  std::vector<double> numbers;
  while (!Accept("]")) {
    if (!numbers.empty() && !Expect(",")) return false;
    numbers.emplace_back();
    if (!ReadDouble(&numbers.back())) return false;
  }
  *value = numbers;
  return true;
}

bool TextReader::ReadBoolList(c10::IValue* value) {
  c10::List<bool> flags;
  while (!Accept("]")) {
    if (!flags.empty() && !Expect(",")) return false;
    const bool flag = Accept("true");
    if (!flag && !Accept("false")) return Fail("'true' or 'false'");
    flags.push_back(flag);
  }
  *value = flags;
  return true;
}

bool TextReader::ReadConst(c10::IValue* value) {
  if (failed()) return false;
  SkipSpaces();
  if (Accept("none")) {
    *value = c10::IValue();
  } else if (Accept("true")) {
    *value = true;
  } else if (Accept("false")) {
    *value = false;
  } else if (Accept("complex(")) {
    double real = 0, imag = 0;
    if (!ReadDouble(&real) || !Expect(",") || !ReadDouble(&imag) || !Expect(")")) return false;
    *value = c10::complex<double>(real, imag);
  } else if (Accept("device(")) {
    c10::Device device(c10::kCPU);
    if (!ReadDevice(&device) || !Expect(")")) return false;
    *value = device;
  } else if (Accept("\"")) {
    std::string text;
    if (!ReadString(&text)) return false;
    *value = std::move(text);
  } else if (Accept("double[")) {
    return ReadDoubleList(value);
  } else if (Accept("bool[")) {
    return ReadBoolList(value);
  } else if (line_.compare(at_, 1, "[") == 0) {
    c10::DimVector ints;
    if (!ReadIntsIn("[", "]", &ints)) return false;
    *value = std::vector<int64_t>(ints.begin(), ints.end());
  } else if (AtInt() || line_.compare(at_, 3, "inf") == 0 || line_.compare(at_, 3, "nan") == 0) {
    return ReadNumber(value);
  } else {
    return Fail("an argument");
  }
  return true;
}

bool TextReader::ReadArg(TraceArg* arg) {
  if (Accept("#")) {
    int64_t slot = 0;
    arg->kind = TraceArg::Kind::kScalar;
    if (!ReadInt(&slot) || !Expect(":") || !ReadScalarType(&arg->scalar_type)) return false;
    arg->slot = static_cast<int32_t>(slot);
    return true;
  }
  if (AtTensor()) {
    arg->kind = TraceArg::Kind::kTensor;
    arg->tensors.emplace_back();
    return ReadTensor(&arg->tensors.back());
  }
  if (!Accept("{")) return ReadConst(&arg->value);
  arg->kind = TraceArg::Kind::kTensorList;
  while (!Accept("}")) {
    if (!arg->tensors.empty() && !Expect(",")) return false;
    arg->tensors.emplace_back();
    if (!ReadTensor(&arg->tensors.back())) return false;
  }
  return true;
}

bool TextReader::ReadArgName(const OpInfo& info, size_t index) {
  const std::string& name = info.schema().arguments()[index].name();
  SkipSpaces();
  size_t end = at_;
  while (end < line_.size() && IsWordChar(line_[end])) ++end;
  if (end == at_ || line_.compare(end, 1, "=") != 0) return true;
  if (line_.substr(at_, end - at_) != name) return Fail(absl::StrCat("argument '", name, "'"));
  at_ = end + 1;
  return true;
}

bool TextReader::ReadCall(TraceOp* op) {
  std::string name;
  if (failed()) return false;
  SkipSpaces();
  const size_t begin = at_;
  if (!ReadWord("an operator", ":.", &name)) return false;
  op->info = FindOpInfo(name);
  if (op->info == nullptr) {
    at_ = begin;
    return Fail("an operator");
  }
  if (!Expect("(")) return false;
  for (int i = 0; i < op->info->num_args; ++i) {
    TraceArg arg;
    if ((i > 0 && !Expect(",")) || !ReadArgName(*op->info, static_cast<size_t>(i)) || !ReadArg(&arg)) return false;
    op->args.push_back(std::move(arg));
  }
  if (!Expect(")")) return false;
  return !Accept("default") || ReadScalarType(&op->default_dtype);
}

}  // namespace lazuli::codegen
