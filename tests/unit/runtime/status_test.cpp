#include "runtime/status.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

namespace lazuli::runtime {
namespace {

absl::Status Fail(bool fail) { return fail ? absl::NotFoundError("nothing") : absl::OkStatus(); }

absl::StatusOr<std::unique_ptr<int>> Make(bool fail) {
  LAZULI_RETURN_IF_ERROR(Fail(fail));
  return std::make_unique<int>(5);
}

absl::StatusOr<int> Twice(bool fail) {
  LAZULI_ASSIGN_OR_RETURN(std::unique_ptr<int> first, Make(false));
  LAZULI_ASSIGN_OR_RETURN(const std::unique_ptr<int> second, Make(fail));
  return *first + *second;
}

TEST(StatusTest, MacrosPassOnErrorsAndValues) {
  EXPECT_EQ(*Twice(false), 10);
  EXPECT_EQ(Twice(true).status(), absl::NotFoundError("nothing"));
}

TEST(StatusTest, AnnotateKeepsTheCode) {
  EXPECT_EQ(Annotate(absl::NotFoundError("nothing"), "while looking"), absl::NotFoundError("while looking: nothing"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "while looking").ok());
}

template <typename Throw>
std::string MessageOf(Throw body) {
  try {
    body();
  } catch (...) {
    return ExceptionMessage(std::current_exception());
  }
  return "nothing thrown";
}

TEST(StatusTest, MessagesOfExceptions) {
  EXPECT_EQ(MessageOf([] { throw std::runtime_error("plain"); }), "plain");
  EXPECT_EQ(MessageOf([] { throw 7; }), "unknown exception");
  const std::string message = MessageOf([] { TORCH_CHECK(false, "bad shape"); });
  EXPECT_EQ(message.rfind("bad shape", 0), 0u) << message;
  EXPECT_EQ(message.find("frame #"), std::string::npos) << message;
}

TEST(StatusTest, FromException) {
  EXPECT_EQ(StatusFromException(std::make_exception_ptr(std::runtime_error("plain"))), absl::InternalError("plain"));
}

}  // namespace
}  // namespace lazuli::runtime
