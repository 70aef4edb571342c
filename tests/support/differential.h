// Operators against eager: each op over dtypes and classes of shapes, inside a small program.
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/tensor_diff.h"

namespace lazuli::testing {

// What values an op's operands are drawn from, for floats and integers alike.
enum class Domain {
  kAny,       // Floats: mostly around one, with zeros of both signs, infinities, NaN, huge and tiny ones. Integers: -100..100.
  kFinite,    // About -6 to 6; integers -6..6.
  kPositive,  // 0.05 to 8; integers 1..9.
  kUnit,      // -0.95 to 0.95; integers 0 and 1.
  kNonZero,   // kFinite without what is close to zero.
  kIndex,     // 0..6 in every dtype.
};

// How close to eager a compiled op has to be. Whatever is left to ATen is equal whichever class it has; on a GPU with one exception, sums.
enum class Accuracy {
  kExact,       // Made of IEEE operations in eager's order: bit-equal.
  kExactOnCpu,  // So it is on the CPU. ATen's CUDA kernel rounds elsewhere (a reciprocal instead of a division, libdevice's rsqrt): there
                // 2 ulps.
  kContracted,  // So it is on the CPU. CUDA's compiler makes one rounding of a product and a sum of ATen's kernel, and the sum may cancel:
                // there as kComposite.
  kTranscendental,  // One elementary function: 4 ulps (2 for each side); 1 ulp in half and bfloat16, which round it once.
  kComposite,       // Several of them, with cancellation: 16 machine epsilons of the largest result; 2 in half and bfloat16. Also what
                    // eager itself rounds once in a vectorised loop and twice in a strided one (`alpha` in half precision).
  kReduction,  // Sums in another order: 64 machine epsilons of the largest result; 2 in half and bfloat16. On a GPU ATen's too: what it
               // adds up where indices say, and in gradients, comes in any order.
  kRace,       // On the CPU as kExact. On a GPU, eager itself may give this or that (several stores to one place): not compared there.
};

enum class ShapeClass { kScalar, kEmpty, kOne, kOdd, kLarge, kTransposed, kSliced, kChannelsLast, kExpanded, kBroadcast };
constexpr int kNumShapeClasses = 10;

constexpr torch::ScalarType kTestDtypes[] = {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kHalf,
                                             torch::kLong,  torch::kInt,    torch::kByte,     torch::kBool};

struct OpCase {
  std::string name;
  Accuracy accuracy = Accuracy::kExact;
  std::vector<Domain> inputs;                  // One an operand.
  std::function<Tensors(const Tensors&)> run;  // May write its operands; returns what it made.
};

// Which of `ops` x dtypes x shape classes run: all with LAZULI_TEST_FULL=1, otherwise a fixed subset with every op, every dtype of an op
// and every class of an op in it.
struct CaseId {
  const OpCase* op;
  torch::ScalarType dtype;
  ShapeClass shape;
  uint64_t seed;
};
std::vector<CaseId> SelectCases(const std::vector<OpCase>& ops);

// The operands of a case. `round` changes values only.
Tensors MakeInputs(const CaseId& id, int round);

// Runs every case eagerly and then in a mode on `backend` until it runs from compiled programs, and fails the test where values (within
// the class of accuracy on "llvm", bit for bit on "aten"), dtypes, sizes, strides, aliasing, written operands or error messages differ,
// or where what could be recorded did not run compiled. Prints a summary. On a GPU, a case that is an error on the CPU is left to the CPU:
// a bad index there ends the whole process's work.
void RunDifferential(const std::string& suite, const std::string& backend, const std::vector<OpCase>& ops);

// The same for gradients: of a weighted sum of the op's results in each operand, in float and double.
void RunGradients(const std::string& suite, const std::string& backend, const std::vector<OpCase>& ops);

// A constant for use inside an op: the same values whatever the mode, made eagerly, where `like` is.
torch::Tensor Constant(torch::IntArrayRef sizes, const torch::Tensor& like, double low = -1, double high = 1);
torch::Tensor Indices(torch::IntArrayRef sizes, int64_t limit);

// At the end of a file with suites over backends.
#define LAZULI_BOTH_BACKENDS(Suite)                                            \
  INSTANTIATE_TEST_SUITE_P(Backends, Suite, ::testing::Values("aten", "llvm"), \
                           [](const ::testing::TestParamInfo<std::string>& info) { return info.param; })

// The members of a tuple of tensors.
template <class... T>
Tensors All(const std::tuple<T...>& tuple) {
  return std::apply([](const auto&... member) { return Tensors{member...}; }, tuple);
}

// Rows of op tables. x, y, z are the operands.
#define LAZULI_UNARY(name, domain, accuracy, ...)                                  \
  OpCase {                                                                         \
    name, Accuracy::accuracy, {Domain::domain}, [](const Tensors& in) -> Tensors { \
      auto x = in[0];                                                              \
      return {__VA_ARGS__};                                                        \
    }                                                                              \
  }
#define LAZULI_BINARY(name, domain_x, domain_y, accuracy, ...)                                         \
  OpCase {                                                                                             \
    name, Accuracy::accuracy, {Domain::domain_x, Domain::domain_y}, [](const Tensors& in) -> Tensors { \
      auto x = in[0], y = in[1];                                                                       \
      return {__VA_ARGS__};                                                                            \
    }                                                                                                  \
  }
#define LAZULI_TERNARY(name, domain_x, domain_y, domain_z, accuracy, ...)                                                \
  OpCase {                                                                                                               \
    name, Accuracy::accuracy, {Domain::domain_x, Domain::domain_y, Domain::domain_z}, [](const Tensors& in) -> Tensors { \
      auto x = in[0], y = in[1], z = in[2];                                                                              \
      return {__VA_ARGS__};                                                                                              \
    }                                                                                                                    \
  }

}  // namespace lazuli::testing
