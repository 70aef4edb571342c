// Which calls of an operator are compared.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "tests/support/schema_args.h"
#include "tests/support/schema_call.h"
#include "tests/support/schema_ops.h"

namespace lazuli::testing {
namespace {

using Texts = std::map<std::string, std::string>;

constexpr torch::ScalarType kDtypes[] = {torch::kFloat, torch::kDouble,       torch::kLong, torch::kBFloat16, torch::kFloat, torch::kHalf,
                                         torch::kBool,  torch::kComplexFloat, torch::kInt,  torch::kDouble,   torch::kByte};
constexpr uint64_t kNumDtypes = sizeof(kDtypes) / sizeof(kDtypes[0]);
constexpr int64_t kBatches[] = {2, 1, 3, 0, 5};
constexpr Memory kMemories[] = {Memory::kContiguous, Memory::kTransposed,  Memory::kSliced,     Memory::kChannelsLast, Memory::kExpanded,
                                Memory::kStrided,    Memory::kOverlapping, Memory::kTransposed, Memory::kSliced,       Memory::kContiguous};
constexpr uint64_t kNumListedMemories = sizeof(kMemories) / sizeof(kMemories[0]);
constexpr int kCasesWithoutRow = 8;

Texts ParseRow(const std::string& row) {
  Texts texts;
  for (const std::string& item : Split(row, ' ')) {
    const size_t equals = item.find('=');
    if (equals != std::string::npos) texts[item.substr(0, equals)] = item.substr(equals + 1);
  }
  return texts;
}

// LibTorch takes elements that overlap for dense ones here, and reads past them: what comes out differs from run to run, eagerly, too.
bool ReadsPastOverlaps(const std::string& name) { return name.rfind("aten::_slow_conv2d_backward", 0) == 0; }

// The first case of a row is the plain one; the others take the next dtype, shape and layout each.
CasePoint PointOf(const std::string& name, uint64_t seed, int number, bool has_row) {
  const uint64_t hash = HashOf(name, seed);
  const uint64_t step = hash + static_cast<uint64_t>(number);
  CasePoint point;
  point.number = number;
  point.seed = HashOf(name, seed * 1000 + static_cast<uint64_t>(number));
  if (number == 0) return point;
  point.dtype = kDtypes[(hash / 7 + static_cast<uint64_t>(number)) % kNumDtypes];
  point.shape = static_cast<Shape>((hash / 5 + static_cast<uint64_t>(number)) % kNumShapes);
  point.memory = kMemories[(hash / 3 + static_cast<uint64_t>(number)) % kNumListedMemories];
  if (point.memory == Memory::kOverlapping && ReadsPastOverlaps(name)) point.memory = Memory::kContiguous;
  point.batch = kBatches[step % (sizeof(kBatches) / sizeof(kBatches[0]))];
  point.special = point.seed % 3 == 0;
  // What a row has sizes for is mostly made for floats.
  if (has_row && point.seed % 2 == 0) point.dtype = point.seed % 4 == 0 ? torch::kDouble : torch::kFloat;
  return point;
}

std::string Describe(const CallPlan& plan, const std::string& args) {
  constexpr const char* kMemoryNames[] = {"contiguous", "transposed", "sliced", "channels_last", "expanded", "strided", "overlapping"};
  constexpr const char* kShapeNames[] = {"odd", "scalar", "empty", "one", "large", "vector", "square", "cube", "image", "volume"};
  std::ostringstream text;
  text << FullName(plan.op) << " case " << plan.point.number << " " << c10::toString(plan.point.dtype) << " "
       << kShapeNames[static_cast<int>(plan.point.shape)] << " " << kMemoryNames[static_cast<int>(plan.point.memory)]
       << " N=" << plan.point.batch << (plan.point.special ? " special" : "") << " (" << args << ")";
  return text.str();
}

// What the row says, unless this overload has the argument in another type.
ArgPlan PlanArgument(const c10::FunctionSchema& schema, const c10::Argument& arg, const Texts& texts, const CasePoint& point,
                     std::string* described) {
  const auto describe = [&](const std::string& text) { *described += (described->empty() ? "" : " ") + arg.name() + "=" + text; };
  const auto it = texts.find(arg.name());
  const bool is_name = TakesNames(schema) && arg.real_type()->str().find("str") != std::string::npos;
  if (it != texts.end() && (!is_name || it->second.find("dimname") != std::string::npos || it->second == "none")) {
    try {
      ArgPlan plan = ParseArgument(arg, it->second, point);
      describe(it->second);
      return plan;
    } catch (const std::invalid_argument&) {
    }
  }
  const std::string text = DefaultText(schema, arg, point);
  describe(text);
  if (text != "default") return ParseArgument(arg, text, point);
  ArgPlan plan;
  plan.values.push_back(*arg.default_value());
  return plan;
}

bool SameKind(const TensorPlan& a, const TensorPlan& b) {
  return a.defined && b.defined && a.dtype == b.dtype && a.sizes == b.sizes && a.fill == b.fill && a.limit == b.limit &&
         a.literals.empty() && b.literals.empty();
}

// Which tensors are pending, share memory or have names.
void Vary(CallPlan* plan) {
  const uint64_t bits = plan->point.seed >> 8;
  const bool is_plain = bits % 4 == 0, alternate = bits % 4 == 1, share = plan->point.number > 0 && (bits >> 2) % 6 == 0;
  const bool named = TakesNames(plan->op.schema());
  int number = 0;
  TensorPlan first;
  first.defined = false;
  for (size_t i = 0; i < plan->args.size(); ++i) {
    const bool is_out = plan->op.schema().arguments()[i].is_out();
    for (TensorPlan& tensor : plan->args[i].tensors) {
      tensor.pending = !is_plain && !(alternate && number % 2 == 1);
      tensor.named = named && !is_out;
      if (share && SameKind(first, tensor)) tensor.same_as = 0;
      if (number++ == 0) first = tensor;
    }
  }
}

// The overload of the same name with the same arguments but for the results.
std::optional<c10::OperatorHandle> FunctionalSibling(const c10::OperatorHandle& op) {
  static const auto* by_name = [] {
    auto* map = new std::map<std::string, std::vector<c10::OperatorHandle>>;
    for (const c10::OperatorHandle& each : CpuOperators("")) (*map)[each.operator_name().name].push_back(each);
    return map;
  }();
  const auto key = [](const c10::OperatorHandle& each) {
    std::string text;
    for (const c10::Argument& arg : each.schema().arguments()) {
      if (!arg.is_out()) text += arg.name() + ":" + arg.real_type()->str() + ",";
    }
    return text;
  };
  std::string base = op.operator_name().name;
  for (const std::string& end : {"_out", "_outf"}) {
    if (base.size() > end.size() && base.compare(base.size() - end.size(), end.size(), end) == 0) base.resize(base.size() - end.size());
  }
  const auto it = by_name->find(base);
  if (it == by_name->end()) return std::nullopt;
  for (const c10::OperatorHandle& each : it->second) {
    const auto& args = each.schema().arguments();
    const bool has_out = std::any_of(args.begin(), args.end(), [](const c10::Argument& arg) { return arg.is_out(); });
    if (!has_out && !each.schema().is_mutable() && key(each) == key(op)) return each;
  }
  return std::nullopt;
}

// Of sizes and dtypes of a result; empty, right or right and strided, by the case.
TensorPlan PlanOut(const torch::Tensor& result, const CasePoint& point) {
  TensorPlan plan;
  plan.dtype = result.scalar_type();
  plan.sizes = point.number % 3 == 1 ? std::vector<int64_t>{0} : result.sizes().vec();
  const bool overlaps = point.memory == Memory::kExpanded || point.memory == Memory::kOverlapping;
  LayOut(&plan, point.number % 3 == 0 || overlaps ? Memory::kContiguous : point.memory);
  return plan;
}

// Results of the functional sibling, or none where it throws.
std::vector<std::vector<torch::Tensor>> ResultsOf(const c10::OperatorHandle& op, const CallPlan& plan) {
  std::vector<std::vector<torch::Tensor>> results;
  try {
    torch::jit::Stack stack = MakeStack(plan, MakeStorages(plan, 0), 0);
    op.callBoxed(stack);
    for (const c10::IValue& value : stack) {
      if (value.isTensor() && value.toTensor().defined()) {
        results.push_back({value.toTensor()});
      } else {
        results.push_back(value.isTensorList() ? value.toTensorVector() : std::vector<torch::Tensor>());
      }
    }
  } catch (const std::exception&) {
    results.clear();
  }
  return results;
}

torch::ScalarType GuessDtype(const c10::Argument& arg, const CasePoint& point) {
  const std::string& name = arg.name();
  const bool index = name.find("indices") != std::string::npos || name.find("min_ind") != std::string::npos || name == "max_values";
  return index ? torch::kLong : point.dtype;
}

void PlanOuts(const Texts& texts, CallPlan* plan) {
  const auto& args = plan->op.schema().arguments();
  std::vector<std::vector<torch::Tensor>> results;
  const auto sibling = FunctionalSibling(plan->op);
  if (sibling.has_value()) {
    CallPlan functional{*sibling, plan->text, plan->point, {}};
    for (size_t i = 0; i < args.size(); ++i) {
      if (!args[i].is_out()) functional.args.push_back(plan->args[i]);
    }
    results = ResultsOf(*sibling, functional);
  }
  size_t out = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i].is_out()) continue;
    ArgPlan& arg = plan->args[i];
    const bool is_list = arg.kind == ArgPlan::Kind::kTensorList;
    if (texts.count(args[i].name()) != 0) {
      // The row says what it is.
    } else if (out < results.size() && !results[out].empty()) {
      arg.tensors.clear();
      for (const torch::Tensor& result : results[out]) arg.tensors.push_back(PlanOut(result, plan->point));
    } else if (!is_list) {
      const torch::Tensor none = torch::empty({0}, GuessDtype(args[i], plan->point));
      arg.tensors = {PlanOut(none, plan->point)};
    }
    ++out;
  }
}

CallPlan PlanCall(const c10::OperatorHandle& op, const std::string& row, const CasePoint& point) {
  CallPlan plan{op, "", point, {}};
  const Texts texts = ParseRow(row);
  std::string described;
  bool has_out = false;
  for (const c10::Argument& arg : op.schema().arguments()) {
    has_out = has_out || arg.is_out();
    plan.args.push_back(PlanArgument(op.schema(), arg, texts, point, &described));
  }
  if (has_out) PlanOuts(texts, &plan);
  Vary(&plan);
  plan.text = Describe(plan, described);
  return plan;
}

}  // namespace

std::vector<CallPlan> PlanCalls(const c10::OperatorHandle& op, uint64_t seed) {
  const std::string name = FullName(op);
  std::vector<std::string> rows = RowsOf(op);
  const bool has_row = !rows.empty();
  if (rows.empty()) rows.emplace_back();
  const int cases = !has_row ? kCasesWithoutRow : rows.size() == 1 ? 5 : rows.size() == 2 ? 4 : 3;
  std::vector<CallPlan> plans;
  for (size_t row = 0; row < rows.size(); ++row) {
    for (int number = 0; number < cases; ++number)
      plans.push_back(PlanCall(op, rows[row], PointOf(name + std::to_string(row), seed, number, has_row)));
  }
  return plans;
}

}  // namespace lazuli::testing
