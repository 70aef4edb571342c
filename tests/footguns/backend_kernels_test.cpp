// Operators with a composite kernel and kernels of single devices (the CUDA ones of _foreach operators): eager's choice stands.
#include <torch/library.h>

#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

int calls_on_meta = 0;

// Stands for a device with a kernel of its own.
std::vector<torch::Tensor> NegOnMeta(at::TensorList tensors) {
  ++calls_on_meta;
  std::vector<torch::Tensor> results;
  for (const torch::Tensor& tensor : tensors) results.push_back(at::empty_like(tensor));
  return results;
}

class BackendKernelsTest : public BackendTest {};

TEST_P(BackendKernelsTest, ADevicesOwnKernelIsCalled) {
  const torch::Library library = [] {
    torch::Library made(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
    made.impl("_foreach_neg", &NegOnMeta);
    return made;
  }();
  const std::vector<torch::Tensor> meta = {torch::empty({2, 3}, torch::kMeta), torch::empty({4}, torch::kMeta)};
  calls_on_meta = 0;
  at::_foreach_neg(meta);
  ASSERT_EQ(calls_on_meta, 1);
  const lazuli::DeviceMode mode(options());
  EXPECT_EQ(at::_foreach_neg(meta).at(1).sizes(), torch::IntArrayRef({4}));
  EXPECT_EQ(calls_on_meta, 2);
}

TEST_P(BackendKernelsTest, OnTheCpuItsPiecesAreRecorded) {
  const std::vector<torch::Tensor> tensors = {torch::randn({2, 3}), torch::randn({4})};
  const lazuli::DeviceMode mode(options());
  const StatsDelta delta;
  const auto results = at::_foreach_neg(tensors);
  EXPECT_EQ(delta.of(&Stats::ops_recorded), 0);
  lazuli::sync();
  EXPECT_EQ(delta.of(&Stats::ops_recorded), 2);
  EXPECT_EQ(delta.of(&Stats::traces), 1);
  EXPECT_TRUE(results[1].equal(-tensors[1]));
}

LAZULI_FOR_EACH_BACKEND(BackendKernelsTest);

}  // namespace
}  // namespace lazuli::testing
