// Checks a torch::nn module against eager, forward and backward, from a row of a table.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/tensor_diff.h"

namespace lazuli::testing {

// How one argument of `forward` is drawn from the global generator. Floating-point arguments require a gradient.
using Draw = std::function<torch::Tensor()>;
Draw Normal(std::vector<int64_t> sizes);
Draw Unit(std::vector<int64_t> sizes);  // Inside (0, 1).
Draw Index(int64_t end, std::vector<int64_t> sizes);
Draw Cycle(int64_t end, int64_t size);     // Every index, over and over, so that each comes equally often in every round.
Draw Sign(std::vector<int64_t> sizes);     // -1 or 1, without a gradient.
Draw Simplex(std::vector<int64_t> sizes);  // Positive, the last dimension sums to 1; without a gradient.
using Arguments = std::vector<Draw>;

struct ModuleUnderTest {
  std::shared_ptr<torch::nn::Module> module;
  std::function<Tensors(const Tensors&)> forward;
};

struct ModuleRow {
  std::string name;
  std::function<ModuleUnderTest()> make;  // May draw parameters from the global generator.
  std::vector<Arguments> shapes;          // Two, each run in every round.
  // Operators that cannot be recorded and cut a trace in every round; nothing else may.
  std::vector<std::string> fallbacks = {};
  std::vector<std::string> gpu_fallbacks = {};  // The same of a GPU, where these are more.
  friend std::ostream& operator<<(std::ostream& stream, const ModuleRow& row) { return stream << row.name; }
};

// One normal argument, of two shapes.
std::vector<Arguments> Shapes(std::vector<int64_t> first, std::vector<int64_t> second);

// The tensors that a `forward` returned, in order.
inline void Flatten(const torch::Tensor& result, Tensors* out) { out->push_back(result); }
inline void Flatten(const torch::nn::ASMoutput& result, Tensors* out) {
  out->push_back(result.output);
  out->push_back(torch::full({1}, result.loss));
}
template <class... Parts>
void Flatten(const std::tuple<Parts...>& result, Tensors* out) {
  std::apply([out](const auto&... parts) { (Flatten(parts, out), ...); }, result);
}

// A row whose module is what `make` returns (a holder), run as `forward(holder, arguments)`.
template <class Make, class Forward>
ModuleRow RowOf(std::string name, Make make, Forward forward, std::vector<Arguments> shapes, std::vector<std::string> fallbacks = {}) {
  return {std::move(name),
          [make, forward] {
            auto holder = make();
            return ModuleUnderTest{holder.ptr(), [holder, forward](const Tensors& arguments) mutable {
                                     Tensors results;
                                     Flatten(forward(holder, arguments), &results);
                                     return results;
                                   }};
          },
          std::move(shapes), std::move(fallbacks)};
}

// The same for modules whose `forward` takes `kArity` tensors.
template <int kArity = 1, class Make>
ModuleRow Row(std::string name, Make make, std::vector<Arguments> shapes, std::vector<std::string> fallbacks = {}) {
  const auto forward = [](auto& holder, const Tensors& arguments) {
    if constexpr (kArity == 1) {
      return holder->forward(arguments[0]);
    } else if constexpr (kArity == 2) {
      return holder->forward(arguments[0], arguments[1]);
    } else {
      return holder->forward(arguments[0], arguments[1], arguments[2]);
    }
  };
  return RowOf(std::move(name), make, forward, std::move(shapes), std::move(fallbacks));
}

// `row`, of a module that reads a number on the host, which is at hand where it is on the CPU.
inline ModuleRow ReadingNumbers(ModuleRow row) {
  row.gpu_fallbacks.emplace_back("aten::_local_scalar_dense");
  return row;
}

// Trains for some rounds with each shape, eagerly, and under both backends with the module made before the mode and inside it. Fails
// the test unless
// - outputs, gradients of arguments and parameters, buffers and the generator's next number are eager's: bit for bit with the aten
//   backend, within the dtype's tolerance otherwise;
// - traces were compiled, and from the second to last round on were all found in the cache, with no fallback but the row's.
// Prints the row's line of the table when LAZULI_TEST_TABLE=1.
void CheckModule(const ModuleRow& row);

// One line of the Markdown table that LAZULI_TEST_TABLE=1 prints at the end of the process.
struct TableLine {
  std::string name;
  bool forward_equal = false;  // Under the aten backend.
  bool backward_equal = false;
  double difference = 0;  // Under the llvm backend, largest, relative to the tensor's largest value.
  int64_t programs = 0;
  int64_t cache_hits = 0;
  std::map<std::string, int64_t> fallbacks;
};
void AddTableLine(const TableLine& line);

// The largest |eager - lazy| over the largest |eager| of any pair.
double RelativeDifference(const Tensors& eager, const Tensors& lazy);

// A test suite of a file's rows.
#define LAZULI_TEST_MODULES(Suite, rows)                              \
  class Suite : public ::testing::TestWithParam<ModuleRow> {};        \
  TEST_P(Suite, SameAsEager) { CheckModule(GetParam()); }             \
  INSTANTIATE_TEST_SUITE_P(Modules, Suite, ::testing::ValuesIn(rows), \
                           [](const ::testing::TestParamInfo<ModuleRow>& info) { return info.param.name; })

}  // namespace lazuli::testing
