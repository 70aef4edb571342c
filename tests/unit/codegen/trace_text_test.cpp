// The text form of traces: everything a trace can hold survives it, and what is wrong in a text is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "codegen/ir/trace.h"

namespace lazuli::codegen {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

uint64_t BitsOf(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

bool SameConst(const c10::IValue& a, const c10::IValue& b) {
  if (a.tagKind() != b.tagKind()) return false;
  if (a.isDouble()) return BitsOf(a.toDouble()) == BitsOf(b.toDouble());
  if (a.isComplexDouble()) {
    const auto x = a.toComplexDouble(), y = b.toComplexDouble();
    return BitsOf(x.real()) == BitsOf(y.real()) && BitsOf(x.imag()) == BitsOf(y.imag());
  }
  if (a.isDoubleList()) {
    const auto x = a.toDoubleVector(), y = b.toDoubleVector();
    return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0);
  }
  if (a.isDevice()) return a.toDevice() == b.toDevice();
  return a == b;
}

void ExpectSameOp(const TraceOp& a, const TraceOp& b) {
  EXPECT_EQ(a.info, b.info);
  EXPECT_EQ(a.results, b.results);
  EXPECT_EQ(a.default_dtype, b.default_dtype);
  ASSERT_EQ(a.args.size(), b.args.size());
  for (size_t i = 0; i < a.args.size(); ++i) {
    EXPECT_EQ(a.args[i].kind, b.args[i].kind);
    EXPECT_EQ(a.args[i].scalar_type, b.args[i].scalar_type);
    EXPECT_EQ(a.args[i].slot, b.args[i].slot);
    EXPECT_EQ(a.args[i].tensors, b.args[i].tensors);
    EXPECT_TRUE(SameConst(a.args[i].value, b.args[i].value)) << "argument " << i;
  }
}

void ExpectSame(const Trace& a, const Trace& b) {
  EXPECT_EQ(a.num_scalars, b.num_scalars);
  EXPECT_EQ(a.num_offsets, b.num_offsets);
  ASSERT_EQ(a.storages.size(), b.storages.size());
  for (size_t i = 0; i < a.storages.size(); ++i) {
    EXPECT_EQ(a.storages[i].is_input, b.storages[i].is_input);
    EXPECT_EQ(a.storages[i].live_out, b.storages[i].live_out);
    EXPECT_EQ(a.storages[i].mutated, b.storages[i].mutated);
    EXPECT_EQ(a.storages[i].nbytes, b.storages[i].nbytes);
    EXPECT_EQ(a.storages[i].device, b.storages[i].device);
  }
  ASSERT_EQ(a.ops.size(), b.ops.size());
  for (size_t i = 0; i < a.ops.size(); ++i) ExpectSameOp(a.ops[i], b.ops[i]);
}

// Traces of every kind of item, with no regard to what the operators would make of them.
class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  Trace Run() {
    trace_.num_scalars = Below(5);
    trace_.num_offsets = Below(4);
    for (int i = 1 + Below(6); i > 0; --i) AddStorage();
    for (int i = Below(8); i > 0; --i) AddOp();
    return trace_;
  }

 private:
  int Below(int limit) { return static_cast<int>(random_() % static_cast<uint32_t>(limit)); }

  void AddStorage() {
    TraceStorage storage;
    storage.is_input = Below(2) == 0;
    storage.live_out = Below(2) == 0;
    storage.mutated = Below(2) == 0;
    if (Below(2) == 0) storage.nbytes = Below(1 << 20);
    if (Below(4) == 0) storage.device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(Below(3) - 1));
    trace_.storages.push_back(storage);
  }

  TensorRef MakeTensor(bool may_be_undefined) {
    TensorRef ref;
    if (may_be_undefined && Below(4) == 0) return ref;
    constexpr c10::ScalarType kTypes[] = {c10::kFloat,
                                          c10::kDouble,
                                          c10::kHalf,
                                          c10::kBFloat16,
                                          c10::kLong,
                                          c10::kInt,
                                          c10::kShort,
                                          c10::kChar,
                                          c10::kByte,
                                          c10::kBool,
                                          c10::kComplexFloat,
                                          c10::kComplexDouble,
                                          c10::ScalarType::Float8_e5m2};
    ref.storage = Below(static_cast<int>(trace_.storages.size()));
    ref.dtype = kTypes[Below(13)];
    const bool contiguous = Below(2) == 0;
    int64_t stride = 1;
    for (int d = Below(5); d > 0; --d) ref.sizes.push_back(Below(6));
    ref.strides.resize(ref.sizes.size());
    for (size_t d = ref.sizes.size(); d-- > 0;) {
      ref.strides[d] = contiguous ? stride : Below(40);
      stride *= std::max<int64_t>(ref.sizes[d], 1);
    }
    if (trace_.num_offsets > 0 && Below(2) == 0) ref.SetOffset(Below(trace_.num_offsets), Below(2) == 0 ? 1 + Below(100) : 0);
    ref.wrapped_number = Below(5) == 0;
    return ref;
  }

  double MakeDouble() {
    constexpr double kValues[] = {0.0,
                                  -0.0,
                                  1.0,
                                  -3.0,
                                  0.1,
                                  1e-5,
                                  1e300,
                                  5e-324,
                                  2.0 / 3.0,
                                  std::numeric_limits<double>::infinity(),
                                  -std::numeric_limits<double>::infinity(),
                                  std::numeric_limits<double>::quiet_NaN()};
    const int kind = Below(14);
    if (kind < 12) return kValues[kind];
    // Any bits at all, other NaNs included.
    uint64_t bits = (static_cast<uint64_t>(random_()) << 32 | random_()) | (kind == 12 ? 0x7FF0000000000001ull : 0);
    double value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }

  int64_t MakeInt() { return Below(3) == 0 ? static_cast<int64_t>(static_cast<uint64_t>(random_()) << 32 | random_()) : Below(20) - 5; }

  c10::IValue MakeConst() {
    switch (Below(10)) {
      case 0:
        return c10::IValue();
      case 1:
        return Below(2) == 0;
      case 2:
        return MakeInt();
      case 3:
        return MakeDouble();
      case 4:
        return c10::complex<double>(MakeDouble(), 1.5);
      case 5: {
        std::vector<int64_t> list(Below(4));
        for (auto& item : list) item = MakeInt();
        return list;
      }
      case 6: {
        std::vector<double> list(Below(4));
        for (auto& item : list) item = MakeDouble();
        return list;
      }
      case 7: {
        c10::List<bool> list;
        for (int i = Below(4); i > 0; --i) list.push_back(Below(2) == 0);
        return list;
      }
      case 8: {
        std::string text;
        for (int i = Below(8); i > 0; --i) text.push_back(static_cast<char>(Below(256)));
        return text;
      }
      default:
        return c10::Device(Below(2) == 0 ? c10::kCPU : c10::kCUDA, static_cast<c10::DeviceIndex>(Below(2) - 1));
    }
  }

  TraceArg MakeArg() {
    TraceArg arg;
    arg.kind = static_cast<TraceArg::Kind>(Below(4));
    if (arg.kind == TraceArg::Kind::kScalar && trace_.num_scalars == 0) arg.kind = TraceArg::Kind::kConst;
    switch (arg.kind) {
      case TraceArg::Kind::kTensor:
        arg.tensors.push_back(MakeTensor(true));
        break;
      case TraceArg::Kind::kTensorList:
        for (int i = Below(4); i > 0; --i) arg.tensors.push_back(MakeTensor(true));
        break;
      case TraceArg::Kind::kScalar: {
        constexpr c10::ScalarType kTypes[] = {c10::kDouble, c10::kLong, c10::kBool};
        arg.slot = Below(trace_.num_scalars);
        arg.scalar_type = kTypes[Below(3)];
        break;
      }
      case TraceArg::Kind::kConst:
        arg.value = MakeConst();
        break;
    }
    return arg;
  }

  void AddOp() {
    constexpr const char* kNames[] = {
        "aten::add.Tensor",           "aten::add_.Tensor", "aten::relu", "aten::native_layer_norm", "aten::index.Tensor", "aten::_to_copy",
        "aten::convolution_backward", "aten::cat",         "aten::gelu", "aten::sum.dim_IntList"};
    TraceOp op;
    if (Below(4) == 0) op.default_dtype = Below(2) == 0 ? c10::kDouble : c10::kBFloat16;
    op.info = FindOpInfo(kNames[Below(10)]);
    for (int i = 0; i < op.info->num_args; ++i) op.args.push_back(MakeArg());
    if (!op.info->returns_mutated_self) {
      for (int i = 0; i < op.info->num_returns; ++i) op.results.push_back(MakeTensor(true));
    }
    trace_.ops.push_back(std::move(op));
  }

  std::mt19937 random_;
  Trace trace_;
};

TEST(TraceText, RandomTracesSurvive) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    const Trace trace = Generator(seed).Run();
    const std::string text = PrintTrace(trace);
    const auto parsed = ParseTrace(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status() << "\n" << text;
    ExpectSame(trace, *parsed);
    if (HasFailure()) FAIL() << text;
  }
}

constexpr char kExample[] = R"(trace scalars=1 offsets=1
storage %0: input cpu
storage %1: fresh 1024 bytes cpu live
%1 f32[16,16] = aten::add.Tensor(%0 f32[16,16](1,16)+o0, %0 f32[16,16], alpha=#0:f64)
aten::mul_.Tensor(%1 f32[16,16], %0 f32[] number)
)";

TEST(TraceText, PrintsWhatItParsed) {
  const auto trace = ParseTrace(kExample);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(PrintTrace(*trace), kExample);
  EXPECT_EQ(trace->ops[0].args[0].tensors[0].strides, (c10::DimVector{1, 16}));
  EXPECT_EQ(trace->ops[0].args[1].tensors[0].strides, (c10::DimVector{16, 1}));
  EXPECT_TRUE(trace->ops[1].args[1].tensors[0].wrapped_number);
}

TEST(TraceText, SkipsCommentsAndBlankLines) {
  const auto trace = ParseTrace("// RUN: fuse\n\n   // more\nstorage %0: input cpu   \n");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->storages.size(), 1u);
}

struct BadText {
  const char* line;
  const char* position;
  const char* message;
};

TEST(TraceText, ErrorsSayWhereAndWhat) {
  const BadText cases[] = {
      {"storge %1: input cpu", "column 1", "expected an operator, got 'storge %1: input cpu'"},
      {"storage %2: input cpu", "column 11", "numbered in order, this one is %1"},
      {"storage %1 input", "column 12", "expected ':', got 'input'"},
      {"storage %1: stale cpu", "column 13", "expected 'input' or 'fresh'"},
      {"storage %1: fresh 12 cpu", "column 22", "expected 'bytes'"},
      {"storage %1: input moon", "column", "'moon' is no device"},
      {"storage %1: input cpu alive", "column 23", "expected the end of the line, got 'alive'"},
      {"%0 f32[2] = aten::relu(%0 f32[2]", "column 33", "expected ')', got the end of the line"},
      {"%0 f33[2] = aten::relu(%0 f32[2])", "column 4", "expected a dtype, got 'f33[2]"},
      {"%0 f32[2](1,2) = aten::relu(%0 f32[2])", "column 15", "1 sizes, but 2 strides"},
      {"%0 f32[2,] = aten::relu(%0 f32[2])", "column 10", "expected a whole number"},
      {"%0 f32[2] = aten::relux(%0 f32[2])", "column 13", "expected an operator, got 'aten::relux"},
      {"aten::relu(%0 f32[2])", "column 22", "aten::relu has 1 results, not 0"},
      {"%0 f32[2] = aten::relu(%3 f32[2])", "column 34", "no storage %3"},
      {"%0 f32[2] = aten::relu(%0 f32[2]+o1)", "column 37", "no offset o1"},
      {"%0 f32[2] = aten::relu(%0 f32[2]+1)", "column 34", "expected 'o' and an offset's number"},
      {"%0 f32[2] = aten::add.Tensor(%0 f32[2], %0 f32[2], alpha=#1:f64)", "column 65", "no scalar #1"},
      {"%0 f32[2] = aten::add.Tensor(%0 f32[2], %0 f32[2], beta=1)", "column 52", "expected argument 'alpha'"},
      {"%0 f32[2] = aten::add.Tensor(%0 f32[2])", "column 39", "expected ','"},
      {"%0 f32[2] = aten::relu(%0 f32[2]) default f23", "column 43", "expected a dtype"},
      {"%0 f32[2] = aten::gelu(%0 f32[2], approximate=\"none)", "column", "without a closing quote"},
      {"%0 f32[2] = aten::gelu(%0 f32[2], approximate=maybe)", "column 47", "expected an argument, got 'maybe)'"},
  };
  for (const BadText& bad : cases) {
    const auto trace = ParseTrace(std::string("trace scalars=1 offsets=1\nstorage %0: input cpu\n") + bad.line);
    ASSERT_FALSE(trace.ok()) << bad.line;
    EXPECT_EQ(trace.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(trace.status().message()), AllOf(HasSubstr("line 3, "), HasSubstr(bad.position), HasSubstr(bad.message)))
        << bad.line;
  }
}

}  // namespace
}  // namespace lazuli::codegen
