#include "runtime/symbols.h"

#include <gtest/gtest.h>

namespace lazuli::runtime {
namespace {

TEST(SymbolTable, ProductsReadBack) {
  const SymbolTable table = SymbolTable::Make({64, 48, 7}, {521, 2 * 523, 0, -1, 768});
  ASSERT_EQ(table.size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(table.prime(i), 521);
    EXPECT_NE(table.prime(i), 523);
  }
  Product product;
  product.coefficient = 12;
  product.symbols = {0, 1, 1};
  const int64_t number = table.Encode(product);
  EXPECT_TRUE(table.IsSymbolic(number));
  EXPECT_TRUE(table.Decode(number) == product);
  EXPECT_EQ(table.Text(number), "12*s0*s1*s1");
  EXPECT_EQ(table.Hint(number), 12 * 64 * 48 * 48);
  const int64_t values[] = {10, 3, 5};
  EXPECT_EQ(product.Evaluate(values), 12 * 10 * 3 * 3);
}

TEST(SymbolTable, ConstantsAreThemselves) {
  const SymbolTable table = SymbolTable::Make({64}, {521, 1042});
  for (const int64_t number : {int64_t{0}, int64_t{1}, int64_t{-3}, int64_t{521}, int64_t{1042}}) {
    EXPECT_FALSE(table.IsSymbolic(number)) << number;
    EXPECT_EQ(table.Text(number), std::to_string(number));
    EXPECT_EQ(table.Hint(number), number);
    EXPECT_TRUE(table.Decode(number).IsConstant());
  }
}

TEST(SymbolTable, WithoutSymbols) {
  const SymbolTable table;
  EXPECT_TRUE(table.empty());
  EXPECT_FALSE(table.IsSymbolic(521));
  EXPECT_EQ(table.Text(521), "521");
}

TEST(SymbolTable, TooManySymbolsMakeNone) {
  EXPECT_TRUE(SymbolTable::Make(std::vector<int64_t>(SymbolTable::kMaxSymbols + 1, 2), {}).empty());
  EXPECT_EQ(SymbolTable::Make(std::vector<int64_t>(SymbolTable::kMaxSymbols, 2), {}).size(), SymbolTable::kMaxSymbols);
}

}  // namespace
}  // namespace lazuli::runtime
