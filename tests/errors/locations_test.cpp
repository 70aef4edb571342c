// LAZULI_STACKS: an error that shows at a cut says which operator failed and where the program called it.
#include <c10/util/Exception.h>

#include "tests/support/same_as_eager.h"

// The program: frames of namespace lazuli are never taken for it.
namespace program {

constexpr int kLine = __LINE__ + 1;
__attribute__((noinline)) torch::Tensor LookUp(const torch::Tensor& table) { return table.index_select(0, torch::arange(2, 6)); }

}  // namespace program

namespace lazuli::testing {
namespace {

class LocationsTest : public BackendTest {
 protected:
  // A lookup past the end of its table, which nobody notices before it runs; returns the error of the cut.
  static std::string ErrorOfCut() {
    const torch::Tensor found = program::LookUp(torch::ones({4, 3}) * 2 + 1);
    try {
      lazuli::sync();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "no error";
  }
};

TEST_P(LocationsTest, ErrorNamesOperatorFileAndLine) {
  const lazuli::DeviceMode mode(options().stacks(true));
  for (int i = 0; i < 3; ++i) {  // Observed or compiled, found, predicted.
    const std::string error = ErrorOfCut();
    EXPECT_NE(error.find("index out of range in self"), std::string::npos) << error;
    EXPECT_NE(error.find("while running aten::index_select"), std::string::npos) << error;
    const bool has_line = error.find("called at locations_test.cpp:" + std::to_string(program::kLine)) != std::string::npos;
    const bool has_function = error.find("called at program::LookUp") != std::string::npos;  // Without debug information.
    EXPECT_TRUE(has_line || has_function) << error;
  }
}

TEST_P(LocationsTest, WithoutStacksTheErrorIsEagersAlone) {
  std::string eager;
  try {
    program::LookUp(torch::ones({4, 3}));
  } catch (const c10::Error& error) {
    eager = error.what_without_backtrace();
  }
  const lazuli::DeviceMode mode(options());
  EXPECT_EQ(ErrorOfCut(), eager);
}

LAZULI_FOR_EACH_BACKEND(LocationsTest);

}  // namespace
}  // namespace lazuli::testing
