#include "codegen/products/flash_calls.h"

#include <gtest/gtest.h>

namespace lazuli::codegen {
namespace {

TEST(FlashCallsTest, APlanPaysOnceSizesCameOftenEnough) {
  const int64_t sizes[] = {8, 12, 1024, 1024, 64, 1, 0}, others[] = {8, 12, 1025, 1025, 64, 1, 0};
  constexpr double kMultiplications = 8e12;  // 16 ms that cuDNN would have spared, of 40 that a plan takes.
  for (int call = 0; call < 3; ++call) EXPECT_FALSE(PlanPays(sizes, kMultiplications)) << call;
  EXPECT_TRUE(PlanPays(sizes, kMultiplications));
  EXPECT_TRUE(PlanPays(sizes, 1));
  EXPECT_FALSE(PlanPays(others, kMultiplications));
}

TEST(FlashCallsTest, SmallAttentionNeedsNoPlanForLong) {
  const int64_t sizes[] = {1, 12, 1, 100, 64, 0, 0};
  for (int call = 0; call < 10000; ++call) ASSERT_FALSE(PlanPays(sizes, 2.0 * 12 * 100 * 64)) << call;
}

// Whether there is a call for attention of so many rows, or for its gradient, which operator `name` computes.
bool HasFlashCall(const char* name, int64_t batch, int64_t queries, int64_t keys, const runtime::SymbolTable& symbols) {
  const OpInfo* const info = FindOpInfo(name);
  if (info == nullptr) return false;
  TensorRef query, key;
  query.sizes = {batch, 4, queries, 64};
  key.sizes = {batch, 4, keys, 64};
  Node node;
  node.op.info = info;
  node.op.args.resize(16);
  for (TraceArg& arg : node.op.args) arg.tensors = {key};
  node.op.args[info->name.find("backward") == std::string::npos ? 0 : 1].tensors = {query};
  Graph graph;
  graph.symbols = symbols;
  return FindFlashCall(node, *info, graph) != nullptr;
}

TEST(FlashCallsTest, OnlyForCudnnWhereSizesAreSymbols) {
  const auto symbols = runtime::SymbolTable::Make({24}, {});
  const int64_t s = symbols.prime(0);
  for (const char* name : {"aten::_scaled_dot_product_cudnn_attention", "aten::_scaled_dot_product_cudnn_attention_backward"}) {
    EXPECT_FALSE(HasFlashCall(name, 2, 24, 24, {})) << name;
    EXPECT_FALSE(HasFlashCall(name, 2, 24, 24, symbols)) << name;
    EXPECT_TRUE(HasFlashCall(name, 2, s, s, symbols)) << name;
    EXPECT_TRUE(HasFlashCall(name, 2, 1, s, symbols)) << name;
    EXPECT_TRUE(HasFlashCall(name, s, 24, 24, symbols)) << name;
  }
  EXPECT_FALSE(HasFlashCall("aten::_scaled_dot_product_flash_attention", 2, s, s, symbols));
  EXPECT_FALSE(HasFlashCall("aten::_scaled_dot_product_efficient_attention", 2, s, s, symbols));
}

}  // namespace
}  // namespace lazuli::codegen
