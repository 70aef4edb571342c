// Programs most of whose traces are new, or pieces, are timed with and without being recorded.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <random>

#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

constexpr char kVerdict[] = "many traces have no program or are pieces: recording takes ";

class RecordingTrialProgramsTest : public BackendTest {
 protected:
  // The gradients of a layer over sequences of random lengths, packed.
  class Packed {
   public:
    Packed() : lstm_(torch::nn::LSTMOptions(3, 4)) {}

    Tensors Step(int64_t seed) {
      std::mt19937 random(static_cast<uint32_t>(seed));
      std::vector<int64_t> lengths(6);
      for (int64_t& length : lengths) length = 1 + static_cast<int64_t>(random() % 9);
      std::sort(lengths.rbegin(), lengths.rend());
      const auto x = torch::sin(torch::arange(lengths[0] * 6 * 3, torch::kFloat) + static_cast<float>(seed)).reshape({lengths[0], 6, 3});
      const auto packed = torch::nn::utils::rnn::pack_padded_sequence(x, torch::tensor(lengths));
      lstm_->zero_grad();
      const auto loss = std::get<0>(lstm_->forward_with_packed_input(packed)).data().square().sum();
      loss.backward();
      Tensors results{loss.detach()};
      for (const auto& parameter : lstm_->parameters()) results.push_back(parameter.grad().clone());
      return results;
    }

   private:
    torch::nn::LSTM lstm_;
  };
};

TEST_P(RecordingTrialProgramsTest, PackedSequences) {
  constexpr int64_t kRounds = 3000, kAfter = 30;
  Packed packed;
  const LogFile log;
  const lazuli::Options in_background = options().async(true).logs("perf_hints").log_file(log.path());
  int64_t last = kRounds;
  for (int64_t round = 0; round < last; ++round) {
    Tensors expected, got;
    const bool compares = round % 16 == 0 || last != kRounds;
    if (compares) expected = packed.Step(round);
    {
      const lazuli::DeviceMode mode(in_background);
      got = packed.Step(round);
    }
    if (compares) ExpectSame(expected, got, exact(), "round " + std::to_string(round));
    if (last == kRounds && round % 16 == 0 && log.text().find(kVerdict) != std::string::npos) last = round + kAfter;
  }
  EXPECT_THAT(log.text(), ::testing::HasSubstr(kVerdict));
}

// Waiting for compiles, what is computed depends on no clock.
TEST_P(RecordingTrialProgramsTest, NoneWhereCompilesAreWaitedFor) {
  Packed packed;
  const LogFile log;
  const lazuli::DeviceMode mode(options().logs("perf_hints").log_file(log.path()));
  for (int64_t round = 0; round < 300; ++round) packed.Step(round);
  EXPECT_THAT(log.text(), ::testing::Not(::testing::HasSubstr(kVerdict)));
}

LAZULI_FOR_EACH_BACKEND(RecordingTrialProgramsTest);

}  // namespace
}  // namespace lazuli::testing
