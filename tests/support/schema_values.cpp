// Values and memory layouts of the tensors of a call.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/schema_case.h"

namespace lazuli::testing {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

double DrawSpecial(Random* random) {
  constexpr double kSpecial[] = {0.0,  -0.0,  std::numeric_limits<double>::infinity(),  -std::numeric_limits<double>::infinity(),
                                 1e30, -1e30, std::numeric_limits<double>::quiet_NaN(), 1e-39};
  return kSpecial[random->Next() % 8];
}

double Draw(const TensorPlan& plan, Random* random) {
  const bool integral = !c10::isFloatingType(plan.dtype) && !c10::isComplexType(plan.dtype);
  switch (plan.fill) {
    case Fill::kPositive:
      return integral ? static_cast<double>(1 + random->Next() % 5) : 0.1 + random->Unit() * 3;
    case Fill::kUnit:
      return integral ? static_cast<double>(random->Next() % 2) : 0.05 + random->Unit() * 0.9;
    case Fill::kIndex:
      return static_cast<double>(random->Next() % static_cast<uint64_t>(std::max<int64_t>(plan.limit, 1)));
    case Fill::kZeros:
      return 0;
    case Fill::kOnes:
      return 1;
    default:
      if (plan.special && !integral && random->Next() % 8 == 0) return DrawSpecial(random);
      if (!integral) return (random->Unit() - 0.5) * 6;
      if (plan.dtype == torch::kBool) return static_cast<double>(random->Next() % 2);
      return static_cast<double>(random->Next() % 11) - (c10::isSignedType(plan.dtype) ? 5 : 0);
  }
}

torch::Tensor FlatValues(const TensorPlan& plan, Random* random) {
  const bool is_complex = c10::isComplexType(plan.dtype);
  const int64_t numbers = plan.elements * (is_complex ? 2 : 1);
  torch::Tensor values = torch::empty({numbers}, torch::kDouble);
  double* data = values.data_ptr<double>();
  for (int64_t i = 0; i < numbers; ++i) data[i] = Draw(plan, random);
  if (plan.fill == Fill::kSorted) std::sort(data, data + numbers);
  if (plan.fill == Fill::kCount) {
    for (int64_t i = 0; i < numbers; ++i) data[i] = static_cast<double>(i % plan.limit);
  }
  if (plan.fill == Fill::kLiteral) {
    for (int64_t i = 0; i < numbers; ++i) data[i] = plan.literals[static_cast<size_t>(i) % plan.literals.size()];
  }
  if (is_complex) values = torch::view_as_complex(values.view({plan.elements, 2}));
  return values.to(plan.dtype);
}

// Matrices with a property, written over the random ones.
void Structure(const TensorPlan& plan, const torch::Tensor& flat) {
  torch::Tensor window = flat.as_strided(plan.sizes, plan.strides, plan.offset);
  const bool is_complex = c10::isComplexType(plan.dtype);
  const torch::Tensor wide = window.to(is_complex ? torch::kComplexDouble : torch::kDouble);
  const torch::Tensor eye = torch::eye(plan.sizes.back(), wide.options());
  torch::Tensor made;
  if (plan.fill == Fill::kSpd) made = wide.matmul(wide.mH()) + eye * 4;
  if (plan.fill == Fill::kSymmetric) made = (wide + wide.mH()) * 0.5;
  if (plan.fill == Fill::kLower) made = wide.tril() + eye * 7;
  window.copy_(made);
}

int64_t ExtentOf(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  int64_t extent = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return 0;
    extent += (sizes[d] - 1) * strides[d];
  }
  return extent;
}

// Strides of dense memory in which the dimensions of `order` follow each other, outermost first; `padded` elements more in the innermost.
std::vector<int64_t> StridesOf(const std::vector<int64_t>& sizes, const std::vector<size_t>& order, int64_t padded) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride *= std::max<int64_t>(sizes[order[i]], 1) + (i + 1 == order.size() ? padded : 0);
  }
  return strides;
}

std::vector<size_t> OrderOf(size_t dims, Memory memory) {
  std::vector<size_t> order(dims);
  for (size_t d = 0; d < dims; ++d) order[d] = d;
  if (memory == Memory::kTransposed && dims >= 2) std::swap(order[dims - 1], order[dims - 2]);
  if (memory == Memory::kChannelsLast && (dims == 4 || dims == 5)) {
    order.erase(order.begin() + 1);
    order.push_back(1);
  }
  return order;
}

}  // namespace

uint64_t HashOf(const std::string& text, uint64_t seed) {
  uint64_t hash = 1469598103934665603ull ^ (seed * 0x9e3779b97f4a7c15ull);
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return Random(hash).Next();
}

std::string FullName(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

void LayOut(TensorPlan* plan, Memory memory) {
  const size_t dims = plan->sizes.size();
  const bool sliced = memory == Memory::kSliced;
  plan->strides = StridesOf(plan->sizes, OrderOf(dims, memory), sliced ? 3 : 0);
  plan->offset = sliced ? 2 : 0;
  const bool structured = plan->fill == Fill::kSpd || plan->fill == Fill::kSymmetric || plan->fill == Fill::kLower;
  const bool loose = !structured && plan->fill != Fill::kSorted && plan->fill != Fill::kLiteral;
  if (memory == Memory::kStrided && plan->fill != Fill::kSorted && plan->fill != Fill::kLiteral) {
    for (int64_t& stride : plan->strides) stride *= 2;
    plan->offset = 1;
  }
  if (memory == Memory::kExpanded && loose && dims > 0) plan->strides[0] = 0;
  if (memory == Memory::kOverlapping && loose && dims >= 2) plan->strides[dims - 2] = 1;
  plan->elements = plan->offset + ExtentOf(plan->sizes, plan->strides) + (sliced ? 1 : 0);
}

std::vector<torch::Tensor> MakeStorages(const CallPlan& plan, int round) {
  std::vector<torch::Tensor> storages;
  Random random(plan.point.seed * 4 + static_cast<uint64_t>(round));
  for (const ArgPlan& arg : plan.args) {
    for (const TensorPlan& tensor : arg.tensors) {
      if (!tensor.defined || tensor.same_as >= 0) continue;
      storages.push_back(FlatValues(tensor, &random));
      const bool structured = tensor.fill == Fill::kSpd || tensor.fill == Fill::kSymmetric || tensor.fill == Fill::kLower;
      if (structured && !tensor.sizes.empty()) Structure(tensor, storages.back());
      // Whole contiguous memory is no window of anything.
      const bool whole =
          tensor.offset == 0 && tensor.strides == StridesOf(tensor.sizes, OrderOf(tensor.sizes.size(), Memory::kContiguous), 0);
      if (whole) storages.back() = storages.back().view(tensor.sizes).clone();
    }
  }
  return storages;
}

}  // namespace lazuli::testing
