#include "runtime/own_code.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>

namespace lazuli::runtime {
namespace {

constexpr int64_t kPage = 4096;

// A page of the program's constants.
alignas(kPage) extern const volatile uint8_t constants[kPage];
alignas(kPage) const volatile uint8_t constants[kPage] = {1, 2, 3};

TEST(OwnCodeTest, WhatRunsComesBackAndTheRestDoesNot) {
  const int64_t before = ReleaseOwnCode();
  const int64_t after = ReleaseOwnCode();
  EXPECT_GT(after, 0);
  EXPECT_LT(after, before);
  EXPECT_EQ(constants[1], 2);
}

TEST(OwnCodeTest, PagesThatWereWrittenStay) {
  auto* const page = const_cast<volatile uint8_t*>(&constants[0]);
  const auto protect = [&](int access) { return mprotect(const_cast<uint8_t*>(page), kPage, access); };
  ASSERT_EQ(protect(PROT_READ | PROT_WRITE), 0);
  page[1] = 7;
  ASSERT_EQ(protect(PROT_READ), 0);
  ReleaseOwnCode();
  EXPECT_EQ(constants[1], 7);
  EXPECT_EQ(constants[2], 3);
}

}  // namespace
}  // namespace lazuli::runtime
