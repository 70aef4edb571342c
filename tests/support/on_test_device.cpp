// Part of the suites that run on a GPU too: LAZULI_TEST_DEVICE says where. Every test is skipped where there is no such device.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

class OnDevice : public ::testing::Environment {
 public:
  OnDevice() {
    const char* name = std::getenv("LAZULI_TEST_DEVICE");
    if (name == nullptr) return;
    name_ = name;
    unsetenv("LAZULI_TEST_DEVICE");  // Lazuli refuses LAZULI_ names that it does not know.
    // Or else cuBLAS and cuDNN's recurrent layers may add up in another order each time. Read when they start.
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  }

  void SetUp() override {
    if (name_.empty()) return;
    const std::string problem = UseTestDevice(name_);
    if (!problem.empty()) GTEST_SKIP() << "no test device: " << problem;
  }

 private:
  std::string name_;
};

[[maybe_unused]] const auto* const on_device = ::testing::AddGlobalTestEnvironment(new OnDevice);

}  // namespace
}  // namespace lazuli::testing
