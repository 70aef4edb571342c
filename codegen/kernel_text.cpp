// Grammar, one item a line; `;` starts a comment:
//   kernel [4096, 768] reduce 1 scalars 2
//   b0: Float [768, 1] written
//   %0 = load.Float b0
//   %1 = const.Float 0x3fe0000000000000 ; 0.5
//   %2 = mul.Float %0, %1
//   %3 = store.Float b0, %2
// A nonzero imm of another instruction comes first, as `#1`.
// Const takes the raw 64 bits in hexadecimal for Float and Double, decimal otherwise; Scalar takes `s1`, Index `d0`.
// With symbols the header has their hints, `symbols [64, 512]`, and a size, a stride or Size's imm may be `s0`, `64*s0*s1`. At its end may
// be the operators whose indices are checked, `checks aten::gather, aten::index_add`.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "codegen/kernel_ir.h"

namespace lazuli::codegen {
namespace {

constexpr c10::ScalarType kTypes[] = {
    c10::ScalarType::Float, c10::ScalarType::Double, c10::ScalarType::Long, c10::ScalarType::Int,      c10::ScalarType::Short,
    c10::ScalarType::Char,  c10::ScalarType::Byte,   c10::ScalarType::Bool, c10::ScalarType::BFloat16, c10::ScalarType::Half,
};

bool ParseType(absl::string_view name, c10::ScalarType* type) {
  for (c10::ScalarType candidate : kTypes) {
    if (name == c10::toString(candidate)) {
      *type = candidate;
      return true;
    }
  }
  return false;
}

bool ParseOp(absl::string_view name, KOp* op) {
  for (int i = 0; i < kNumKOps; ++i) {
    if (name == KOpName(static_cast<KOp>(i))) {
      *op = static_cast<KOp>(i);
      return true;
    }
  }
  return false;
}

bool IsFloating(c10::ScalarType type) { return type == c10::ScalarType::Float || type == c10::ScalarType::Double; }

void AppendList(const KernelIR& kernel, const c10::DimVector& values, std::string* out) {
  out->push_back('[');
  for (size_t i = 0; i < values.size(); ++i) absl::StrAppend(out, i == 0 ? "" : ", ", kernel.symbols.Text(values[i]));
  out->push_back(']');
}

std::string ImmText(const KernelIR& kernel, const KInst& inst) {
  if (HasBuffer(inst.op)) return absl::StrCat("b", inst.imm);
  switch (inst.op) {
    case KOp::kScalar:
      return absl::StrCat("s", inst.imm);
    case KOp::kIndex:
      return absl::StrCat("d", inst.imm);
    case KOp::kSize:
      return kernel.symbols.Text(inst.imm);
    case KOp::kConst:
      return IsFloating(inst.type) ? absl::StrFormat("0x%016x", static_cast<uint64_t>(inst.imm)) : absl::StrCat(inst.imm);
    default:
      return inst.imm != 0 ? absl::StrCat("#", inst.imm) : "";
  }
}

// Reads one line from left to right; every method returns false when the text does not match.
class LineReader {
 public:
  explicit LineReader(absl::string_view line) : text_(line) {}

  bool Literal(absl::string_view literal) {
    SkipSpaces();
    return absl::ConsumePrefix(&text_, literal);
  }

  bool Int(int64_t* value) {
    SkipSpaces();
    size_t length = text_.empty() || text_[0] != '-' ? 0 : 1;
    while (length < text_.size() && text_[length] >= '0' && text_[length] <= '9') ++length;
    if (!absl::SimpleAtoi(text_.substr(0, length), value)) return false;
    text_.remove_prefix(length);
    return true;
  }

  bool Hex(int64_t* value) {
    SkipSpaces();
    size_t length = 0;
    while (length < text_.size() && std::isxdigit(static_cast<unsigned char>(text_[length]))) ++length;
    if (length == 0 || length > 16) return false;
    *value = static_cast<int64_t>(std::strtoull(std::string(text_.substr(0, length)).c_str(), nullptr, 16));
    text_.remove_prefix(length);
    return true;
  }

  absl::string_view Word() {
    SkipSpaces();
    size_t length = 0;
    while (length < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[length])) || text_[length] == '_')) ++length;
    absl::string_view word = text_.substr(0, length);
    text_.remove_prefix(length);
    return word;
  }

  std::string Rest() {
    SkipSpaces();
    return std::string(std::exchange(text_, absl::string_view()));
  }

  // A number, which may be a product of symbols.
  bool Number(const runtime::SymbolTable& symbols, int64_t* value) {
    runtime::Product product;
    if (int64_t factor; !Literal("s") && Int(&factor)) {
      product.coefficient = factor;
    } else if (!Symbol(symbols, &product)) {
      return false;
    }
    while (Literal("*")) {
      if (!Literal("s") || !Symbol(symbols, &product)) return false;
    }
    *value = symbols.Encode(product);
    return true;
  }

  bool List(const runtime::SymbolTable& symbols, c10::DimVector* values) {
    if (!Literal("[")) return false;
    if (Literal("]")) return true;
    do {
      int64_t value;
      if (!Number(symbols, &value)) return false;
      values->push_back(value);
    } while (Literal(","));
    return Literal("]");
  }

  bool AtEnd() {
    SkipSpaces();
    return text_.empty();
  }

 private:
  void SkipSpaces() {
    while (!text_.empty() && text_[0] == ' ') text_.remove_prefix(1);
  }

  bool Symbol(const runtime::SymbolTable& symbols, runtime::Product* product) {
    int64_t index;
    if (!Int(&index) || index < 0 || index >= symbols.size()) return false;
    product->symbols.push_back(static_cast<int32_t>(index));
    return true;
  }

  absl::string_view text_;
};

// The symbols stand at the end of the header; their primes depend on every number in the text.
bool ParseSymbols(const std::string& text, KernelIR* kernel) {
  const size_t at = text.find("symbols [");
  if (at == std::string::npos) return true;
  std::vector<int64_t> numbers;
  for (absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" ,[]*\n"), absl::SkipEmpty())) {
    int64_t number;
    if (absl::SimpleAtoi(word, &number)) numbers.push_back(number);
  }
  c10::DimVector hints;
  LineReader reader(absl::string_view(text).substr(at));
  if (!reader.Literal("symbols") || !reader.List(runtime::SymbolTable(), &hints)) return false;
  kernel->symbols = runtime::SymbolTable::Make({hints.begin(), hints.end()}, numbers);
  return !kernel->symbols.empty();
}

bool ParseHeader(absl::string_view line, KernelIR* kernel) {
  LineReader reader(line);
  int64_t reduced = 0, scalars = 0;
  if (!reader.Literal("kernel") || !reader.List(kernel->symbols, &kernel->sizes)) return false;
  if (reader.Literal("reduce") && !reader.Int(&reduced)) return false;
  if (reader.Literal("scalars") && !reader.Int(&scalars)) return false;
  kernel->num_reduced = static_cast<int>(reduced);
  kernel->num_scalars = static_cast<int>(scalars);
  c10::DimVector hints;
  if (reader.Literal("symbols") && !reader.List(runtime::SymbolTable(), &hints)) return false;
  if (reader.Literal("checks")) kernel->checked = reader.Rest();
  return reader.AtEnd();
}

bool ParseBuffer(absl::string_view line, KernelIR* kernel) {
  LineReader reader(line);
  KBuffer buffer;
  int64_t number;
  if (!reader.Literal("b") || !reader.Int(&number) || number != static_cast<int64_t>(kernel->buffers.size())) return false;
  if (!reader.Literal(":") || !ParseType(reader.Word(), &buffer.dtype) || !reader.List(kernel->symbols, &buffer.strides)) return false;
  buffer.written = reader.Literal("written");
  if (reader.Literal("within") && !reader.Int(&buffer.within)) return false;
  kernel->buffers.push_back(std::move(buffer));
  return reader.AtEnd();
}

// Also tells whether there was one.
bool ParseImm(const runtime::SymbolTable& symbols, LineReader* reader, KInst* inst, bool* present) {
  *present = true;
  if (HasBuffer(inst->op)) return reader->Literal("b") && reader->Int(&inst->imm);
  switch (inst->op) {
    case KOp::kScalar:
      return reader->Literal("s") && reader->Int(&inst->imm);
    case KOp::kIndex:
      return reader->Literal("d") && reader->Int(&inst->imm);
    case KOp::kSize:
      return reader->Number(symbols, &inst->imm);
    case KOp::kConst:
      return IsFloating(inst->type) ? reader->Literal("0x") && reader->Hex(&inst->imm) : reader->Int(&inst->imm);
    default:
      *present = reader->Literal("#");
      return !*present || reader->Int(&inst->imm);
  }
}

bool ParseInst(absl::string_view line, KernelIR* kernel) {
  LineReader reader(line);
  KInst inst;
  int64_t number;
  if (!reader.Literal("%") || !reader.Int(&number) || number != static_cast<int64_t>(kernel->insts.size())) return false;
  if (!reader.Literal("=") || !ParseOp(reader.Word(), &inst.op)) return false;
  if (!reader.Literal(".") || !ParseType(reader.Word(), &inst.type)) return false;
  bool separator = false;
  if (!ParseImm(kernel->symbols, &reader, &inst, &separator)) return false;
  for (int k = 0; k < KOpArity(inst.op); ++k) {
    if ((k > 0 || separator) && !reader.Literal(",")) return false;
    int64_t operand;
    if (!reader.Literal("%") || !reader.Int(&operand)) return false;
    inst.in[k] = static_cast<int32_t>(operand);
  }
  kernel->insts.push_back(inst);
  return reader.AtEnd();
}

}  // namespace

std::string PrintKernel(const KernelIR& kernel) {
  std::string out = "kernel ";
  out.reserve(64 + 32 * (kernel.insts.size() + kernel.buffers.size()));
  AppendList(kernel, kernel.sizes, &out);
  if (kernel.num_reduced != 0) absl::StrAppend(&out, " reduce ", kernel.num_reduced);
  if (kernel.num_scalars != 0) absl::StrAppend(&out, " scalars ", kernel.num_scalars);
  if (!kernel.symbols.empty()) {
    absl::StrAppend(&out, " symbols [");
    for (int i = 0; i < kernel.symbols.size(); ++i) absl::StrAppend(&out, i == 0 ? "" : ", ", kernel.symbols.hint(i));
    out.push_back(']');
  }
  if (!kernel.checked.empty()) absl::StrAppend(&out, " checks ", kernel.checked);
  out.push_back('\n');
  for (size_t b = 0; b < kernel.buffers.size(); ++b) {
    const KBuffer& buffer = kernel.buffers[b];
    absl::StrAppend(&out, "b", b, ": ", c10::toString(buffer.dtype), " ");
    AppendList(kernel, buffer.strides, &out);
    absl::StrAppend(&out, buffer.written ? " written" : "", buffer.within != 0 ? absl::StrCat(" within ", buffer.within) : "", "\n");
  }
  for (size_t i = 0; i < kernel.insts.size(); ++i) {
    const KInst& inst = kernel.insts[i];
    absl::StrAppend(&out, "%", i, " = ", KOpName(inst.op), ".", c10::toString(inst.type));
    const char* separator = " ";
    if (std::string imm = ImmText(kernel, inst); !imm.empty()) {
      absl::StrAppend(&out, " ", imm);
      separator = ", ";
    }
    for (int k = 0; k < KOpArity(inst.op); ++k) {
      absl::StrAppend(&out, separator, "%", inst.in[k]);
      separator = ", ";
    }
    if (inst.op == KOp::kConst && IsFloating(inst.type)) {
      double value;
      std::memcpy(&value, &inst.imm, sizeof(value));
      absl::StrAppend(&out, " ; ", absl::StrFormat("%.9g", value));
    }
    out.push_back('\n');
  }
  return out;
}

absl::StatusOr<KernelIR> ParseKernel(const std::string& text) {
  KernelIR kernel;
  if (!ParseSymbols(text, &kernel)) return absl::InvalidArgumentError("kernel text: cannot parse the symbols");
  bool have_header = false;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find(';')));
    if (line.empty()) continue;
    bool ok = !have_header ? ParseHeader(line, &kernel) : line[0] == 'b' ? ParseBuffer(line, &kernel) : ParseInst(line, &kernel);
    if (!ok) return absl::InvalidArgumentError(absl::StrCat("kernel text, line ", number, ": cannot parse '", line, "'"));
    have_header = true;
  }
  if (!have_header) return absl::InvalidArgumentError("kernel text: empty");
  return kernel;
}

}  // namespace lazuli::codegen
