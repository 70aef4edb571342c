// Products on GPUs whose rows are no multiple of 16 bytes. Needs none.
#include "codegen/passes/pad_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/support/gpu_graph.h"

namespace lazuli::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The trace that `text` says, padded; "" where nothing is.
std::string Padded(const std::string& text, bool floats = false) {
  const auto trace = codegen::ParseTrace(text);
  EXPECT_TRUE(trace.ok()) << trace.status();
  const auto padded = codegen::PadProducts(*trace, {/*halves=*/true, floats});
  return padded.has_value() ? codegen::PrintTrace(*padded) : "";
}

// A product of 4096 x 768 and the transpose of N x 768.
std::string Product(const std::string& columns, const std::string& type = "bf16", const std::string& device = "cuda:0") {
  const char* const text = R"(trace scalars=0 offsets=0
storage %0: input cuda:0
storage %1: input cuda:0
storage %2: fresh BYTES bytes cuda:0 live
%2 T[4096,N] = aten::mm(%0 T[4096,768], %1 T[768,N](1,768))
)";
  const int size = type == "f32" ? 4 : 2;
  return absl::StrReplaceAll(
      text,
      {{"N", columns}, {"T[", absl::StrCat(type, "[")}, {"BYTES", absl::StrCat(4096 * std::stol(columns) * size)}, {"cuda:0", device}});
}

TEST(PadProducts, PadsRowsAndCutsTheResult) {
  const std::string padded = Padded(Product("1001"));
  EXPECT_THAT(padded, HasSubstr("bf16[1008,768] = aten::constant_pad_nd(%1 bf16[1001,768], pad=[0,0,0,7], value=0)"));
  EXPECT_THAT(padded, HasSubstr("bf16[4096,1008] = aten::mm(%0 bf16[4096,768], %3 bf16[768,1008](1,768))"));
  EXPECT_THAT(padded, HasSubstr("%2 bf16[4096,1001] = aten::clone(%4 bf16[4096,1001](1008,1), memory_format=none)"));
  EXPECT_THAT(Padded(Product("1001", "f16")), HasSubstr("[4096,1008]"));
}

TEST(PadProducts, LeavesWhatHasWholeRowsOrIsSmallOrOnTheCpu) {
  EXPECT_EQ(Padded(Product("1008")), "");
  EXPECT_EQ(Padded(Product("17")), "");
  EXPECT_EQ(Padded(Product("1001", "bf16", "cpu")), "");
}

TEST(PadProducts, PadsFloatsToFourWhereTheyAreTf32) {
  EXPECT_EQ(Padded(Product("1001", "f32")), "");
  EXPECT_THAT(Padded(Product("1001", "f32"), /*floats=*/true), HasSubstr("f32[4096,1004]"));
  EXPECT_EQ(Padded(Product("1004", "f32"), /*floats=*/true), "");
}

TEST(PadProducts, ABiasHasAsManyColumns) {
  const std::string text = absl::StrReplaceAll(Product("1001"), {{"aten::mm(", "aten::addmm(%3 bf16[1001], "},
                                                                 {"](1,768))", "](1,768), beta=1, alpha=1)"},
                                                                 {"live\n", "live\nstorage %3: input cuda:0\n"}});
  const std::string padded = Padded(text);
  EXPECT_THAT(padded, HasSubstr("bf16[1008] = aten::constant_pad_nd(%3 bf16[1001], pad=[0,7], value=0)"));
  EXPECT_THAT(padded, HasSubstr("aten::addmm(%4 bf16[1008], "));
}

// The gradient of 1023 of each 1024 rows of logits, of which products make two others.
constexpr char kBackward[] = R"(trace scalars=0 offsets=0
storage %0: input cuda:0
storage %1: input cuda:0
storage %2: input cuda:0
storage %3: fresh 12300288 bytes cuda:0
storage %4: fresh 12312312 bytes cuda:0
storage %5: fresh 1537536 bytes cuda:0 live
storage %6: fresh 9437184 bytes cuda:0 live
%3 bf16[6,1023,1001] = aten::relu(%0 bf16[6,1023,1001])
%4 bf16[6,1024,1001] = aten::slice_backward(%3 bf16[6,1023,1001], input_sizes=[6,1024,1001], dim=1, start=0, end=-1, step=1)
%5 bf16[1001,768] = aten::mm(%4 bf16[1001,6144](1,1001), %1 bf16[6144,768])
%6 bf16[6144,768] = aten::mm(%4 bf16[6144,1001], %2 bf16[1001,768])
)";

TEST(PadProducts, BothProductsOfASlicesGradientShareOne) {
  const std::string padded = Padded(kBackward);
  EXPECT_THAT(padded, HasSubstr("bf16[6,1024,1008] = aten::constant_pad_nd(%3 bf16[6,1023,1001], pad=[0,7,0,1,0,0], value=0)"));
  EXPECT_THAT(padded, HasSubstr("bf16[1008,768] = aten::mm(%7 bf16[1008,6144](1,1008), %1 bf16[6144,768])"));
  EXPECT_THAT(padded, HasSubstr("aten::clone(%8 bf16[1001,768], memory_format=none)"));
  EXPECT_THAT(padded, HasSubstr("%6 bf16[6144,768] = aten::mm(%7 bf16[6144,1008], %9 bf16[1008,768])")) << "sums that are longer by zeros";
  const std::string graph = codegen::PrintGraph(ReadableGpuGraph(kBackward, "fuse"));
  EXPECT_THAT(graph, HasSubstr("update family 1")) << "the kernel of relu writes where they read";
  EXPECT_THAT(graph, Not(HasSubstr("slice_backward")));
}

TEST(PadProducts, ASlicesGradientThatGoesOnAsASumIsPaddedAsTheSum) {
  const std::string sum = absl::StrReplaceAll(
      kBackward, {{"%5 bf16[1001,768]", "aten::add_.Tensor(%4 bf16[6144,1001], %4 bf16[6144,1001], alpha=1)\n%5 bf16[1001,768]"}});
  const std::string padded = Padded(sum);
  EXPECT_THAT(padded, HasSubstr("aten::constant_pad_nd(%4 bf16[6144,1001], pad=[0,7,0,0], value=0)"));
  EXPECT_THAT(padded, Not(HasSubstr("aten::constant_pad_nd(%3 ")));
}

TEST(PadProducts, AnOperandThatIsWrittenBetweenIsPaddedAgain) {
  std::string text = Product("1001");
  text = absl::StrReplaceAll(text, {{"live\n", "live\nstorage %3: fresh 8200192 bytes cuda:0 live\n"}});
  text += "aten::relu_(%1 bf16[1001,768])\n%3 bf16[4096,1001] = aten::mm(%0 bf16[4096,768], %1 bf16[768,1001](1,768))\n";
  const std::string padded = Padded(text);
  EXPECT_THAT(padded, HasSubstr("%4 bf16[1008,768] = aten::constant_pad_nd(%1 bf16[1001,768]"));
  EXPECT_THAT(padded, HasSubstr("%6 bf16[1008,768] = aten::constant_pad_nd(%1 bf16[1001,768]"));
}

// The same with a number of rows that changes, in a trace whose numbers a symbol may not be mistaken for.
TEST(PadProducts, WidthsThatWouldReadAsASymbolStay) {
  auto trace = codegen::ParseTrace(absl::StrReplaceAll(Product("1001"), {{"4096", "5210"}}));
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_TRUE(codegen::PadProducts(*trace, {true, false}).has_value());
  trace->symbols = runtime::SymbolTable::Make({10}, {});
  const int64_t symbol = trace->symbols.prime(0);
  for (codegen::TensorRef* ref : {&trace->ops[0].args[0].tensors[0], &trace->ops[0].results[0]}) ref->sizes[0] = 4096 * symbol;
  EXPECT_TRUE(codegen::PadProducts(*trace, {true, false}).has_value()) << "a multiple of eight that is none";
  const int64_t width = 8 * symbol - 3;
  trace->ops[0].args[1].tensors[0].sizes[1] = width;
  trace->ops[0].results[0].sizes[1] = trace->ops[0].results[0].strides[0] = width;
  EXPECT_FALSE(codegen::PadProducts(*trace, {true, false}).has_value());
}

}  // namespace
}  // namespace lazuli::testing
