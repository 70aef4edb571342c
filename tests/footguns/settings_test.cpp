// Settings that kernels read when they run: those of when an operator was called hold, whatever the program has set since.
#include <ATen/Context.h>
#include <xmmintrin.h>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

class SettingsTest : public BackendTest {
 protected:
  void TearDown() override {
    at::globalContext().setDeterministicAlgorithms(false, false);
    at::globalContext().setFloat32MatmulPrecision("highest");
    at::globalContext().setFlushDenormal(false);
    BackendTest::TearDown();
  }
};

TEST_P(SettingsTest, DenormalNumbersAreFlushedAsWhenCalled) {
  ExpectSameAsEager([] {
    const auto x = torch::full({100}, 1e-30F);
    Tensors all;
    for (int i = 0; i < 3; ++i) {
      at::globalContext().setFlushDenormal(true);
      all.push_back(x * 1e-10);
      at::globalContext().setFlushDenormal(false);
      all.push_back(x * 1e-10 * 2);
    }
    return all;
  });
  EXPECT_EQ(_mm_getcsr() & 0x8040u, 0u) << "the thread's own are back";
}

TEST_P(SettingsTest, OperatorsAreCheckedForDeterminismAsWhenCalled) {
  const DeviceMode mode(options());
  const auto index = OnTestDevice(torch::arange(10)), from = OnTestDevice(torch::ones({10}));
  for (int i = 0; i < 3; ++i) {
    const auto x = OnTestDevice(torch::zeros({10}));
    at::globalContext().setDeterministicAlgorithms(true, false);
    const auto put = [&] {
      x.put_(index, from);
      at::globalContext().setDeterministicAlgorithms(false, false);
      lazuli::sync();
    };
    EXPECT_THROW(put(), c10::Error);
    at::globalContext().setDeterministicAlgorithms(false, false);
    const auto y = OnTestDevice(torch::zeros({10}));
    y.put_(index, from);
    at::globalContext().setDeterministicAlgorithms(true, false);
    EXPECT_EQ(y.sum().item<float>(), 10);
    at::globalContext().setDeterministicAlgorithms(false, false);
  }
}

// Where they are called, however often, and whatever came before.
TEST_P(SettingsTest, OperatorsThatAreNotDeterministicThrowWhenCalled) {
  const DeviceMode mode(options());
  const auto index = OnTestDevice(torch::arange(10)), from = OnTestDevice(torch::ones({10}));
  for (int i = 0; i < 3; ++i) {
    auto x = OnTestDevice(torch::zeros({10}));
    x.put_(index, from);
    at::globalContext().setDeterministicAlgorithms(true, false);
    x = x * 2;
    EXPECT_THROW(x.put_(index, from), c10::Error);
    EXPECT_EQ((x + 1).sum().item<float>(), 30);
    at::globalContext().setDeterministicAlgorithms(false, false);
  }
  // Others are recorded once they are known not to.
  at::globalContext().setDeterministicAlgorithms(true, false);
  const auto step = [&] { return (OnTestDevice(torch::ones({10})).exp2() - 1).sum().item<float>(); };
  EXPECT_EQ(step(), 10);
  const StatsDelta delta;
  EXPECT_EQ(step(), 10);
  EXPECT_EQ(delta.of(&Stats::traces), 1);
}

// With deterministic algorithms on, memory that nothing has written holds NaNs.
TEST_P(SettingsTest, AllocationsAreFilledAsWhenCalled) {
  ExpectSameAsEager([] {
    Tensors all;
    for (int i = 0; i < 3; ++i) {
      at::globalContext().setDeterministicAlgorithms(true, false);
      const auto x = torch::empty({7}, TestDevice());
      const auto y = torch::empty_like(x) + 1;
      all.push_back(torch::empty_strided({2, 3}, {3, 1}, TestDevice()));
      at::globalContext().setDeterministicAlgorithms(false, false);
      all.push_back(x);
      all.push_back(y);
    }
    return all;
  });
}

// On the GPUs that have it, TF32 rounds the operands of products.
TEST_P(SettingsTest, ProductsAreAsPreciseAsWhenCalled) {
  torch::manual_seed(1);
  const auto a = OnTestDevice(torch::randn({96, 128})), b = OnTestDevice(torch::randn({128, 64}));
  ExpectSameAsEager([&] {
    Tensors all;
    for (int i = 0; i < 3; ++i) {
      at::globalContext().setFloat32MatmulPrecision("high");
      all.push_back(a.mm(b).relu());
      at::globalContext().setFloat32MatmulPrecision("highest");
      all.push_back(a.mm(b).relu());
    }
    return all;
  });
}

TEST_P(SettingsTest, ArePartOfAProgram) {
  const DeviceMode mode(options());
  const auto x = OnTestDevice(torch::rand({16, 16}));
  const auto run = [&x](bool deterministic) {
    at::globalContext().setDeterministicAlgorithms(deterministic, false);
    const auto y = x.mm(x) + 1;
    lazuli::sync();
  };
  for (int i = 0; i < 3; ++i) {
    run(false);
    run(true);
  }
  const StatsDelta delta;
  run(false);
  run(true);
  EXPECT_EQ(delta.of(&Stats::cache_hits), 2);
  EXPECT_EQ(delta.of(&Stats::cache_misses), 0);
}

TEST_P(SettingsTest, ATraceEndsWhereTheyChange) {
  const DeviceMode mode(options());
  const auto x = OnTestDevice(torch::rand({16, 16}));
  const StatsDelta delta;
  const auto y = x + 1;
  at::globalContext().setFloat32MatmulPrecision("high");
  const auto z = y * 2;
  EXPECT_EQ(delta.cuts("settings"), 1);
  at::globalContext().setFloat32MatmulPrecision("highest");
  lazuli::sync();
  EXPECT_EQ(at::globalContext().float32MatmulPrecision(), at::Float32MatmulPrecision::HIGHEST);
  EXPECT_EQ(delta.cuts("settings"), 1);
}

LAZULI_FOR_EACH_BACKEND(SettingsTest);

}  // namespace
}  // namespace lazuli::testing
