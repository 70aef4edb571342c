// Which functions of products become part of them on GPUs, what the graph then is, and the operators that they become.
#include "codegen/passes/epilogue.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "codegen/products/product_activation.h"
#include "tests/support/gpu_graph.h"

namespace lazuli::codegen {
namespace {

using ::testing::ElementsAre;

// By group, what it does: names joined by "+", of kernels in brackets, a copy into memory being "update".
std::vector<std::string> Groups(const std::string& text, const std::string& precision = "eager") {
  const Graph graph = lazuli::testing::ReadableGpuGraph(text, "epilogue", precision);
  std::vector<std::string> groups;
  for (const Group& group : graph.groups) {
    std::string names;
    for (const NodeId n : group.nodes) {
      const OpInfo* info = graph.nodes[n].op.info;
      absl::StrAppend(&names, names.empty() ? "" : "+", info != nullptr ? info->name.substr(info->name.find(':') + 2) : "update");
    }
    groups.push_back(group.is_kernel() ? absl::StrCat("[", names, "]") : names);
  }
  return groups;
}

// Rows x depth times depth x cols, with a bias, and then `rest`, after a line that says what outlives the trace ("live %4") and what
// another product reads ("read %4"). Storages from 3 on are for the product and what is made of it.
std::string Linear(const std::string& rest, int64_t rows = 16, int64_t depth = 64, int64_t cols = 32, const std::string& type = "bf16",
                   const std::string& device = "cuda:0") {
  const int64_t bytes = rows * cols * (type == "bf16" ? 2 : 4);
  std::string text = "trace scalars=1 offsets=0\n";
  for (const int i : {0, 1, 2}) absl::StrAppend(&text, "storage %", i, ": input $D\n");
  std::string readers, results;
  for (const int i : {3, 4, 5}) {
    const std::string id = absl::StrCat("%", i);
    const bool is_live = absl::StrContains(rest, "live " + id), is_read = absl::StrContains(rest, "read " + id);
    absl::StrAppend(&text, "storage ", id, ": fresh ", bytes, " bytes $D", is_live ? " live" : "", "\n");
    absl::StrAppend(&results, "storage %", i + 3, ": fresh ", bytes / cols * rows, " bytes $D", is_read ? " live" : "", "\n");
    if (is_read) absl::StrAppend(&readers, "%", i + 3, " $T[$R,$R] = aten::mm(", id, " $T[$R,$C], ", id, " $T[$C,$R](1,$C))\n");
  }
  text += results;
  absl::StrAppend(&text, "%3 $T[$R,$C] = aten::addmm(%0 $T[$C], %1 $T[$R,$K], %2 $T[$K,$C](1,$K), beta=1, alpha=1)\n",
                  rest.substr(rest.find('\n') + 1), readers);
  return absl::StrReplaceAll(
      text, {{"$D", device}, {"$T", type}, {"$R", absl::StrCat(rows)}, {"$K", absl::StrCat(depth)}, {"$C", absl::StrCat(cols)}});
}

constexpr const char* kRelu = "read %4\n%4 $T[$R,$C] = aten::relu(%3 $T[$R,$C])\n";
constexpr const char* kGelu = "read %4\n%4 $T[$R,$C] = aten::gelu(%3 $T[$R,$C], approximate=\"tanh\")\n";

TEST(EpilogueTest, AnActivationBecomesPartOfItsProduct) {
  EXPECT_THAT(Groups(Linear(kRelu)), ElementsAre("_product_activation", "mm"));
  EXPECT_THAT(Groups(Linear(kRelu, 16, 64, 32, "f32")), ElementsAre("_product_activation", "mm"));
  EXPECT_THAT(Groups(Linear(kGelu), "fast"), ElementsAre("_product_activation", "mm"));
}

TEST(EpilogueTest, InPlaceAndThroughAView) {
  EXPECT_THAT(Groups(Linear("read %3\naten::relu_(%3 $T[$R,$C])\n")), ElementsAre("_product_activation", "mm"));
  EXPECT_THAT(Groups(Linear("read %4\n%4 $T[2,8,$C] = aten::relu(%3 $T[2,8,$C])\n")), ElementsAre("_product_activation", "mm"));
}

TEST(EpilogueTest, AProductOfItsOwnHasNoBias) {
  constexpr const char* kProduct = R"(
trace scalars=0 offsets=0
storage %0: input cuda:0
storage %1: input cuda:0
storage %2: fresh 1024 bytes cuda:0
storage %3: fresh 1024 bytes cuda:0
storage %4: fresh 512 bytes cuda:0 live
%2 f16[16,32] = aten::mm(%0 f16[16,64], %1 f16[64,32])
%3 f16[16,32] = aten::relu(%2 f16[16,32])
%4 f16[16,16] = aten::mm(%3 f16[16,32], %3 f16[32,16](1,32))
)";
  EXPECT_THAT(Groups(kProduct), ElementsAre("_product_activation", "mm"));
}

// What somebody else reads is stored, too, where that is worth it.
TEST(EpilogueTest, TheProductIsKeptForOthers) {
  EXPECT_THAT(Groups(Linear("read %3 read %4\n" + std::string(kGelu).substr(8)), "fast"),
              ElementsAre("_product_activation.keep", "mm", "mm"));
  EXPECT_THAT(Groups(Linear("read %3 read %4\n" + std::string(kRelu).substr(8))), ElementsAre("addmm", "[relu]", "mm", "mm"));
}

TEST(EpilogueTest, NotWhereItWouldBeSlowOrAnotherFunction) {
  const auto stays = ElementsAre("addmm", ::testing::MatchesRegex("\\[.*\\]"), "mm");
  EXPECT_THAT(Groups(Linear(kGelu, 16, 64, 32, "f32"), "fast"), stays) << "GELU of floats";
  EXPECT_THAT(Groups(Linear(kGelu, 16, 64, 28), "fast"), stays) << "rows that are no whole vectors";
  EXPECT_THAT(Groups(Linear(kGelu, 16, 60, 32), "fast"), stays);
  EXPECT_THAT(Groups(Linear(kRelu, 16, 2048, 32)), stays) << "long sums";
  EXPECT_THAT(Groups(Linear(absl::StrReplaceAll(kGelu, {{"tanh", "none"}})), "fast"), stays) << "GELU by erf";
  EXPECT_THAT(Groups(Linear(absl::StrReplaceAll(kRelu, {{"relu", "sigmoid"}}))), stays);
  EXPECT_THAT(Groups(Linear(kRelu), "strict"), stays);
  EXPECT_THAT(Groups(Linear(kGelu)), stays) << "not to the last digits";
  EXPECT_THAT(Groups(absl::StrReplaceAll(Linear(kRelu), {{"beta=1", "beta=#0:f64"}})), stays) << "a factor of the bias";
  EXPECT_THAT(Groups(absl::StrReplaceAll(Linear(kRelu), {{"%0 bf16[32]", "%0 bf16[16,32]"}})), stays) << "a number for each element";
  EXPECT_THAT(Groups(Linear("read %4\n%4 $T[$C,$R] = aten::relu(%3 $T[$C,$R](1,$C))\n")), stays) << "another order";
  EXPECT_THAT(Groups(Linear(std::string("read %4\n%4 $T[8,$C] = aten::relu(%3 $T[8,$C])\n"))), stays) << "some rows";
}

// A kernel that does something else, too, has the function for nothing.
TEST(EpilogueTest, NotWhereAKernelIsLeft) {
  EXPECT_THAT(Groups(Linear("read %5\n%4 $T[$R,$C] = aten::relu(%3 $T[$R,$C])\n%5 $T[$R,$C] = aten::mul.Tensor(%4 $T[$R,$C], %4 "
                            "$T[$R,$C])\n")),
              ElementsAre("addmm", "[relu+mul.Tensor]", "mm"));
}

// What outlives the trace has another address in each run.
TEST(EpilogueTest, NotWhatLeavesTheTrace) {
  EXPECT_THAT(Groups(Linear("live %4 read %4\n%4 $T[$R,$C] = aten::relu(%3 $T[$R,$C])\n")), ElementsAre("addmm", "[relu]", "mm"));
}

TEST(EpilogueTest, NotOnTheCpu) { EXPECT_THAT(Groups(Linear(kRelu, 16, 64, 32, "f32", "cpu")), ElementsAre("addmm", "[relu]", "mm")); }

class ProductActivationTest : public ::testing::TestWithParam<bool> {
 protected:
  using Stack = torch::jit::Stack;
  static Stack Call(const std::string& name, Stack stack) {
    FindOpInfo(name)->handle.callBoxed(&stack);
    return stack;
  }
};

// Each operator and its out-variant, with a bias (the parameter) and without, are the two operators one after the other.
TEST_P(ProductActivationTest, IsTheTwoOperators) {
  const at::Tensor x = at::randn({5, 6}), y = at::randn({6, 4}), bias = at::randn({4});
  const at::Tensor product = GetParam() ? at::addmm(bias, x, y) : at::mm(x, y);
  const c10::IValue given = GetParam() ? c10::IValue(bias) : c10::IValue();
  for (const std::string name : {"relu", "gelu"}) {
    const at::Tensor expected = name == "relu" ? at::relu(product) : at::gelu(product, "tanh");
    EXPECT_TRUE(Call("lazuli::_product_activation", {given, x, y, name})[0].toTensor().equal(expected));
    const at::Tensor out = at::empty_like(product), input = at::empty_like(product);
    Call("lazuli::_product_activation.out", {given, x, y, name, out});
    EXPECT_TRUE(out.equal(expected));
    const Stack kept = Call("lazuli::_product_activation.keep", {given, x, y, name});
    EXPECT_TRUE(kept[0].toTensor().equal(expected));
    EXPECT_TRUE(kept[1].toTensor().equal(product));
    out.zero_();
    Call("lazuli::_product_activation.keep_out", {given, x, y, name, out, input});
    EXPECT_TRUE(out.equal(expected));
    EXPECT_TRUE(input.equal(product));
  }
  EXPECT_THROW(Call("lazuli::_product_activation", {given, x, y, "tanh"}), c10::Error);
}

INSTANTIATE_TEST_SUITE_P(WithBias, ProductActivationTest, ::testing::Bool());

}  // namespace
}  // namespace lazuli::codegen
