// Views that the mode has not met: whoever asks for their memory past the dispatcher, or on a thread that records nothing, finds what eager
// mode would have there, and may write.
#include <functional>
#include <thread>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

struct Pair {
  torch::Tensor base, view;
};

Pair MakePair() {
  const torch::Tensor base = torch::arange(8, torch::kFloat);
  return {base, base.slice(0, 2, 6)};
}

// Where the mode does not see it.
using Unseen = std::function<void(const std::function<void()>&)>;

const Unseen kInEagerScope = [](const std::function<void()>& work) {
  const lazuli::EagerScope eager;
  work();
};
const Unseen kOnAnotherThread = [](const std::function<void()>& work) { TestThread(work).join(); };

class UnmetViewsTest : public BackendTest {
 protected:
  // `touch` is done to the view between reads and writes of its base that are recorded.
  void ExpectSeen(const Unseen& make, const std::function<float(const torch::Tensor&)>& touch) {
    lazuli::reset();  // Programs of an earlier one would serve.
    ExpectSameAsEager([&] {
      Pair pair;
      make([&pair] { pair = MakePair(); });
      const torch::Tensor doubled = pair.base * 2;
      const float first = touch(pair.view);
      const torch::Tensor sum = pair.base + doubled;
      pair.base.add_(1);
      const float second = touch(pair.view);
      pair.base.mul_(3);
      return Tensors{doubled, sum, pair.base, pair.view.clone(), torch::tensor({first, second})};
    });
  }
};

// Reads the first number and writes the second.
float TouchByPointer(const torch::Tensor& view) {
  auto* const numbers = view.data_ptr<float>();
  numbers[1] = numbers[0] * 10;
  return numbers[0];
}

float TouchByStorage(const torch::Tensor& view) {
  auto* const numbers = static_cast<float*>(view.storage().mutable_data()) + view.storage_offset();
  numbers[1] = numbers[0] * 10;
  return numbers[0];
}

float TouchByOperators(const torch::Tensor& view) {
  float first = 0;
  TestThread([&] {
    view.slice(0, 1, 2).copy_(view.slice(0, 0, 1) * 10);
    first = view[0].item<float>();
  }).join();
  return first;
}

TEST_P(UnmetViewsTest, MadeInAnEagerScope) {
  LAZULI_CPU_ONLY("the host reads memory");
  ExpectSeen(kInEagerScope, TouchByPointer);
  ExpectSeen(kInEagerScope, TouchByStorage);
}

TEST_P(UnmetViewsTest, MadeByAThreadWithoutAMode) {
  LAZULI_CPU_ONLY("the host reads memory");
  ExpectSeen(kOnAnotherThread, TouchByPointer);
}

TEST_P(UnmetViewsTest, UsedByAThreadWithoutAMode) {
  ExpectSeen(kInEagerScope, TouchByOperators);
  ExpectSeen(kOnAnotherThread, TouchByOperators);
}

TEST_P(UnmetViewsTest, MadeBeforeTheMode) {
  LAZULI_CPU_ONLY("the host reads memory");
  const Pair pair = MakePair();
  const StatsDelta delta;
  const lazuli::DeviceMode mode(options());
  const torch::Tensor doubled = pair.base * 2;
  EXPECT_EQ(TouchByPointer(pair.view), 2);
  EXPECT_EQ(delta.of(&Stats::traces), 1);
  pair.base.add_(1);
  EXPECT_EQ(TouchByPointer(pair.view), 3);
  EXPECT_EQ(delta.of(&Stats::traces), 2);
  EXPECT_EQ(doubled[3].item<float>(), 6);
  EXPECT_EQ(pair.base[3].item<float>(), 30);
}

// A view of other memory cuts nothing.
TEST_P(UnmetViewsTest, OfWhatIsNotInTheTrace) {
  LAZULI_CPU_ONLY("the host reads memory");
  const Pair pair = MakePair();
  const torch::Tensor other = torch::ones({4});
  const StatsDelta delta;
  const lazuli::DeviceMode mode(options());
  const torch::Tensor doubled = other * 2;
  EXPECT_EQ(TouchByPointer(pair.view), 2);
  EXPECT_EQ(delta.of(&Stats::traces), 0);
  EXPECT_EQ(doubled.sum().item<float>(), 8);
}

LAZULI_FOR_EACH_BACKEND(UnmetViewsTest);

}  // namespace
}  // namespace lazuli::testing
