#include <limits>
#include <random>
#include <set>
#include <utility>

#include "lazuli/lazuli.h"
#include "tests/support/differential.h"
#include "tests/support/test_device.h"
#include "tests/support/test_env.h"

namespace lazuli::testing {
namespace {

constexpr int kNumDtypes = static_cast<int>(sizeof(kTestDtypes) / sizeof(kTestDtypes[0]));

double DrawFloat(Domain domain, std::mt19937_64& random) {
  const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
  switch (domain) {
    case Domain::kAny: {
      constexpr double kSpecial[] = {0.0,
                                     -0.0,
                                     1.0,
                                     -1.0,
                                     std::numeric_limits<double>::infinity(),
                                     -std::numeric_limits<double>::infinity(),
                                     std::numeric_limits<double>::quiet_NaN(),
                                     1e30,
                                     -1e30,
                                     1e-39,
                                     0.5,
                                     65504.0};
      const uint64_t pick = random() % 96;
      return pick < 12 ? kSpecial[pick] : (unit - 0.5) * 8;
    }
    case Domain::kFinite:
      return (unit - 0.5) * 12;
    case Domain::kPositive:
      return 0.05 + unit * 8;
    case Domain::kUnit:
      return (unit - 0.5) * 1.9;
    case Domain::kNonZero:
      return (unit < 0.5 ? -1 : 1) * (0.2 + unit * 5);
    case Domain::kIndex:
      return static_cast<double>(random() % 7);
  }
  return 0;
}

int64_t DrawInteger(Domain domain, std::mt19937_64& random) {
  const auto draw = [&](int64_t low, int64_t high) { return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1)); };
  switch (domain) {
    case Domain::kAny:
      return draw(-100, 100);
    case Domain::kFinite:
      return draw(-6, 6);
    case Domain::kPositive:
      return draw(1, 9);
    case Domain::kUnit:
      return draw(0, 1);
    case Domain::kNonZero:
      return draw(0, 1) == 0 ? draw(-6, -1) : draw(1, 6);
    case Domain::kIndex:
      return draw(0, 6);
  }
  return 0;
}

torch::Tensor MakeValues(torch::IntArrayRef sizes, torch::ScalarType dtype, Domain domain, std::mt19937_64& random) {
  if (c10::isFloatingType(dtype)) {
    torch::Tensor values = torch::empty(sizes, torch::kDouble);
    for (int64_t i = 0; i < values.numel(); ++i) values.data_ptr<double>()[i] = DrawFloat(domain, random);
    return values.to(dtype);
  }
  torch::Tensor values = torch::empty(sizes, torch::kLong);
  for (int64_t i = 0; i < values.numel(); ++i) values.data_ptr<int64_t>()[i] = DrawInteger(domain, random);
  // Small negative numbers would become large ones, and bool needs both of its values.
  if (dtype == torch::kByte) values.abs_();
  if (dtype == torch::kBool)
    return domain == Domain::kNonZero || domain == Domain::kPositive ? torch::ones(sizes, dtype) : values.bitwise_and(1).to(dtype);
  return values.to(dtype);
}

torch::Tensor MakeInput(const CaseId& id, size_t operand, std::mt19937_64& random) {
  const auto make = [&](torch::IntArrayRef sizes) { return MakeValues(sizes, id.dtype, id.op->inputs[operand], random); };
  switch (id.shape) {
    case ShapeClass::kScalar:
      return make({});
    case ShapeClass::kEmpty:
      return make({4, 0});
    case ShapeClass::kOne:
      return make({1, 1});
    case ShapeClass::kOdd:
      return make({7, 13});
    case ShapeClass::kLarge:
      return make({64, 257});
    case ShapeClass::kTransposed:
      return operand == 1 && id.seed % 2 == 0 ? make({7, 13}) : make({13, 7}).t();
    case ShapeClass::kSliced:
      return make({9, 16}).slice(0, 1, 8).slice(1, 2, 15);
    case ShapeClass::kChannelsLast:
      return make({2, 3, 5, 4}).contiguous(torch::MemoryFormat::ChannelsLast);
    case ShapeClass::kExpanded:
      return operand == 0 ? make({7, 1}).expand({7, 13}) : make({13}).expand({7, 13});
    case ShapeClass::kBroadcast:
      return operand == 0 ? make({7, 13}) : operand == 1 ? make({13}) : make({7, 1});
  }
  return {};
}

uint64_t HashName(const std::string& name) {
  uint64_t hash = 1469598103934665603ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash >> 8;
}

}  // namespace

std::vector<CaseId> SelectCases(const std::vector<OpCase>& ops) {
  static const bool all = TakeFromEnv("LAZULI_TEST_FULL", 0) != 0;
  std::vector<CaseId> cases;
  for (const OpCase& op : ops) {
    const uint64_t hash = HashName(op.name);
    std::set<std::pair<int, int>> picked = {{0, static_cast<int>(ShapeClass::kOdd)}};
    for (int c = 0; c < kNumShapeClasses; ++c)
      picked.insert({c % 2 == 0 ? 0 : static_cast<int>((hash + static_cast<uint64_t>(c)) % kNumDtypes), c});
    for (int d = 0; d < kNumDtypes; ++d) picked.insert({d, static_cast<int>((hash + static_cast<uint64_t>(d) * 3) % kNumShapeClasses)});
    for (int d = 0; d < kNumDtypes; ++d) {
      for (int c = 0; c < kNumShapeClasses; ++c) {
        if (!all && picked.count({d, c}) == 0) continue;
        cases.push_back({&op, kTestDtypes[d], static_cast<ShapeClass>(c), hash + static_cast<uint64_t>(d * kNumShapeClasses + c)});
      }
    }
  }
  return cases;
}

Tensors MakeInputs(const CaseId& id, int round) {
  const CpuFactories on_cpu;  // Their numbers are written by hand.
  std::mt19937_64 random(id.seed * 2 + static_cast<uint64_t>(round));
  Tensors inputs;
  for (size_t i = 0; i < id.op->inputs.size(); ++i) inputs.push_back(MakeInput(id, i, random));
  return inputs;
}

torch::Tensor Constant(torch::IntArrayRef sizes, const torch::Tensor& like, double low, double high) {
  const lazuli::EagerScope eager;
  const torch::NoGradGuard no_grad;
  const CpuFactories on_cpu;
  std::mt19937_64 random(17);
  torch::Tensor values = torch::empty(sizes, torch::kDouble);
  for (int64_t i = 0; i < values.numel(); ++i)
    values.data_ptr<double>()[i] = low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
  return values.to(like.device(), like.scalar_type());
}

torch::Tensor Indices(torch::IntArrayRef sizes, int64_t limit) {
  const lazuli::EagerScope eager;
  std::mt19937_64 random(19);
  torch::Tensor values = torch::empty(sizes, torch::TensorOptions(torch::kLong).device(torch::kCPU));
  for (int64_t i = 0; i < values.numel(); ++i)
    values.data_ptr<int64_t>()[i] = static_cast<int64_t>(random() % static_cast<uint64_t>(std::max<int64_t>(limit, 1)));
  return OnTestDevice(values);
}

}  // namespace lazuli::testing
