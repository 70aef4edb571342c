#include "tests/support/fuzz_program.h"

#include <algorithm>
#include <cctype>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>

#include "tests/support/test_device.h"
#include "tools/reproducer.h"
#include "tools/reproducer_helpers.h"

namespace lazuli::testing {
namespace {

using torch::Tensor;
using Random = std::mt19937_64;

// What a statement works on. Its text is the expression below with these names replaced (StatementText).
struct Args {
  Tensor a, b, c;
  const FuzzStatement* statement;
  uint64_t value_seed;
  const std::vector<int64_t>& ints() const { return statement->ints; }
  int64_t i(size_t k) const { return statement->ints[k]; }
  double f() const { return statement->number; }
  torch::ScalarType dtype() const { return statement->dtype; }
  uint64_t seed() const { return value_seed; }
};

// Fills in a statement's ints for an operand; throws when there is no valid choice.
using Choose = void (*)(const Tensor& a, Random* random, FuzzStatement* statement);

constexpr unsigned kExactOnly = 1;   // Jumps: not in smooth programs.
constexpr unsigned kSmoothOnly = 2;  // Rounds differently when compiled: not in exact programs.

struct FuzzOp {
  const char* text;  // C++ over `s`, an Args.
  int arity;
  int weight;
  unsigned flags;
  Choose choose;
  Tensor (*run)(const Args& args);
};

int64_t Draw(Random* random, int64_t low, int64_t high) {
  if (high < low) throw std::invalid_argument("nothing to choose");
  return low + static_cast<int64_t>((*random)() % static_cast<uint64_t>(high - low + 1));
}

void NoChoice(const Tensor&, Random*, FuzzStatement*) {}

void ChooseNumber(const Tensor& a, Random* random, FuzzStatement* statement) {
  constexpr double kNumbers[] = {0.5, 2.0, -1.0, 3.0, 0.25, -1.5, 1.0, 0.0};
  statement->number = kNumbers[Draw(random, 0, 7)];
  if (!a.is_floating_point()) statement->number = static_cast<double>(Draw(random, -3, 3));
}

void ChooseDim(const Tensor& a, Random* random, FuzzStatement* statement) { statement->ints = {Draw(random, 0, a.dim() - 1)}; }

void ChooseNewDim(const Tensor& a, Random* random, FuzzStatement* statement) { statement->ints = {Draw(random, 0, a.dim())}; }

void ChooseTwoDims(const Tensor& a, Random* random, FuzzStatement* statement) {
  statement->ints = {Draw(random, 0, a.dim() - 1), Draw(random, 0, a.dim() - 1)};
}

void ChooseElement(const Tensor& a, Random* random, FuzzStatement* statement) {
  const int64_t dim = Draw(random, 0, a.dim() - 1);
  statement->ints = {dim, Draw(random, 0, a.size(dim) - 1)};
}

void ChooseSlice(const Tensor& a, Random* random, FuzzStatement* statement) {
  const int64_t dim = Draw(random, 0, a.dim() - 1), begin = Draw(random, 0, a.size(dim));
  statement->ints = {dim, begin, Draw(random, begin, a.size(dim)), Draw(random, 1, 2)};
}

void ChooseExpand(const Tensor& a, Random* random, FuzzStatement* statement) {
  if (a.dim() > 3) throw std::invalid_argument("large enough");
  statement->ints = {Draw(random, 1, 4)};
}

void ChooseDtype(const Tensor& a, Random* random, FuzzStatement* statement) {
  constexpr torch::ScalarType kTypes[] = {torch::kFloat, torch::kDouble, torch::kFloat, torch::kBFloat16,
                                          torch::kHalf,  torch::kLong,   torch::kInt};
  statement->dtype = kTypes[Draw(random, 0, 6)];
  if (a.requires_grad() && !c10::isFloatingType(statement->dtype)) throw std::invalid_argument("would end the gradient");
}

void ChooseRows(const Tensor& a, Random* random, FuzzStatement* statement) {
  ChooseDim(a, random, statement);
  for (int k = 0; k < 3; ++k) statement->ints.push_back(Draw(random, 0, a.size(statement->ints[0]) - 1));
}

void ChooseInput(const Tensor&, Random* random, FuzzStatement* statement) {
  static const std::vector<std::vector<int64_t>> kShapes = {{},        {1},    {3},      {4, 3},    {4, 1},   {3, 4},
                                                            {2, 4, 3}, {0, 3}, {16, 16}, {5, 1, 3}, {64, 33}, {4, 3}};
  statement->ints = kShapes[Draw(random, 0, static_cast<int64_t>(kShapes.size()) - 1)];
}

#define LAZULI_FUZZ(arity, weight, flags, choose, ...)                                              \
  {                                                                                                 \
#__VA_ARGS__, arity, weight, flags, choose, [](const Args& s) -> Tensor { return __VA_ARGS__; } \
  }

const std::vector<FuzzOp>& Ops() {
  static const auto* ops = new std::vector<FuzzOp>{
      LAZULI_FUZZ(0, 2, 0, ChooseInput, FuzzInput(s.ints(), s.dtype(), s.seed())),
      LAZULI_FUZZ(0, 1, kSmoothOnly, ChooseInput, FuzzInput(s.ints(), s.dtype(), s.seed()).requires_grad_()),
      // Elementwise.
      LAZULI_FUZZ(1, 3, 0, ChooseNumber, s.a + s.f()),
      LAZULI_FUZZ(1, 3, 0, ChooseNumber, s.a * s.f()),
      LAZULI_FUZZ(1, 1, 0, NoChoice, s.a.neg()),
      LAZULI_FUZZ(2, 4, 0, NoChoice, s.a + s.b),
      LAZULI_FUZZ(2, 4, 0, NoChoice, s.a - s.b),
      LAZULI_FUZZ(2, 4, kExactOnly, NoChoice, FuzzBounded(s.a * s.b)),
      LAZULI_FUZZ(2, 4, kSmoothOnly, NoChoice, s.a.tanh() * s.b),
      LAZULI_FUZZ(1, 2, kSmoothOnly, NoChoice, s.a.sigmoid()),
      LAZULI_FUZZ(1, 2, kSmoothOnly, NoChoice, s.a.tanh().exp()),
      LAZULI_FUZZ(1, 1, kSmoothOnly, NoChoice, s.a.tanh().sin()),
      LAZULI_FUZZ(1, 1, kSmoothOnly, NoChoice, torch::gelu(s.a)),
      LAZULI_FUZZ(2, 2, kSmoothOnly, NoChoice, s.a / (s.b.tanh().square() + 1)),
      LAZULI_FUZZ(1, 1, kExactOnly, NoChoice, s.a.abs()),
      LAZULI_FUZZ(1, 2, kExactOnly, NoChoice, s.a.relu()),
      LAZULI_FUZZ(1, 1, kExactOnly, NoChoice, s.a.clamp(-2, 2)),
      LAZULI_FUZZ(1, 1, kExactOnly, NoChoice, (s.a / 2).floor()),
      // Which of two zeros ATen returns depends on its loop, so their sign goes (amax too).
      LAZULI_FUZZ(2, 1, kExactOnly, NoChoice, torch::maximum(s.a, s.b) + 0),
      LAZULI_FUZZ(3, 2, kExactOnly, NoChoice, torch::where(s.a > s.b, s.a, s.c)),
      LAZULI_FUZZ(2, 1, kExactOnly, NoChoice, s.a <= s.b),
      LAZULI_FUZZ(2, 1, kExactOnly, ChooseNumber, s.a.masked_fill(s.b > 0, s.f())),
      LAZULI_FUZZ(3, 1, kSmoothOnly, NoChoice, s.a.addcmul(s.b, s.c.tanh(), 0.5)),
      LAZULI_FUZZ(1, 2, kExactOnly, ChooseDtype, s.a.clamp(-100, 100).to(s.dtype())),
      // Over dimensions.
      LAZULI_FUZZ(1, 2, kExactOnly, ChooseDim, s.a.amax(s.i(0)) + 0),
      LAZULI_FUZZ(1, 2, kSmoothOnly, ChooseDim, s.a.sum(s.i(0), true)),
      LAZULI_FUZZ(1, 1, kExactOnly, ChooseDim, s.a.clamp(-100, 100).to(torch::kLong).sum(s.i(0))),
      LAZULI_FUZZ(1, 1, kSmoothOnly, NoChoice, s.a.mean()),
      LAZULI_FUZZ(1, 2, kSmoothOnly, ChooseDim, s.a.softmax(s.i(0))),
      LAZULI_FUZZ(1, 1, kSmoothOnly, NoChoice, torch::layer_norm(s.a, {s.a.size(-1)}, {}, {}, 0.1)),
      LAZULI_FUZZ(2, 2, kSmoothOnly, NoChoice, s.a.tanh().matmul(s.b.tanh())),
      LAZULI_FUZZ(2, 2, 0, ChooseDim, torch::cat({s.a, s.b}, s.i(0))),
      LAZULI_FUZZ(1, 1, 0, ChooseNewDim, torch::stack({s.a, s.a + 1}, s.i(0))),
      LAZULI_FUZZ(2, 2, 0, ChooseDim, torch::cat({s.a * 2, s.b + 1, s.a}, s.i(0))),
      LAZULI_FUZZ(1, 1, 0, ChooseNumber, torch::constant_pad_nd(s.a, {1, 2}, s.f())),
      LAZULI_FUZZ(1, 1, 0, ChooseDim, s.a.roll(2, s.i(0))),
      LAZULI_FUZZ(1, 1, kExactOnly, ChooseRows,
                  s.a.index_copy(s.i(0), torch::tensor({s.i(1)}, s.a.device()), s.a.narrow(s.i(0), s.i(2), 1) + 1)),
      LAZULI_FUZZ(1, 1, kSmoothOnly, ChooseRows,
                  s.a.index_add(s.i(0), torch::tensor({s.i(1), s.i(1)}, s.a.device()),
                                torch::cat({s.a.narrow(s.i(0), s.i(2), 1), s.a.narrow(s.i(0), s.i(3), 1)}, s.i(0)))),
      LAZULI_FUZZ(1, 1, 0, ChooseRows, s.a.index_select(s.i(0), torch::tensor({s.i(1), s.i(2), s.i(3)}, s.a.device()))),
      LAZULI_FUZZ(1, 1, 0, ChooseRows, s.a.transpose(0, s.i(0)).index({torch::tensor({s.i(1), s.i(2) - s.a.size(s.i(0))}, s.a.device())})),
      LAZULI_FUZZ(1, 2, kExactOnly, ChooseRows, s.a.gather(s.i(0), s.a.clamp(0, s.i(1)).to(torch::kLong))),
      LAZULI_FUZZ(1, 1, 0, NoChoice, s.a.clone()),
      LAZULI_FUZZ(1, 1, 0, NoChoice, s.a.contiguous()),
      LAZULI_FUZZ(1, 1, 0, NoChoice, torch::zeros_like(s.a)),
      LAZULI_FUZZ(1, 1, 0, ChooseDim, s.a.flip(s.i(0))),
      // Views.
      LAZULI_FUZZ(1, 2, 0, ChooseTwoDims, s.a.transpose(s.i(0), s.i(1))),
      LAZULI_FUZZ(1, 2, 0, ChooseElement, s.a.select(s.i(0), s.i(1))),
      LAZULI_FUZZ(1, 3, 0, ChooseSlice, s.a.slice(s.i(0), s.i(1), s.i(2), s.i(3))),
      LAZULI_FUZZ(1, 1, 0, NoChoice, s.a.reshape(-1)),
      LAZULI_FUZZ(1, 1, 0, NoChoice, s.a.view(-1)),
      LAZULI_FUZZ(1, 1, 0, ChooseNewDim, s.a.unsqueeze(s.i(0))),
      LAZULI_FUZZ(1, 1, 0, NoChoice, s.a.squeeze()),
      LAZULI_FUZZ(1, 1, 0, ChooseExpand, FuzzExpand(s.a, s.i(0))),
      LAZULI_FUZZ(1, 1, 0, NoChoice, s.a.diagonal()),
      LAZULI_FUZZ(1, 1, 0, NoChoice, s.a.detach()),
      LAZULI_FUZZ(1, 1, 0, NoChoice, s.a.alias()),
      // Writes.
      LAZULI_FUZZ(1, 2, 0, ChooseNumber, s.a.add_(s.f())),
      LAZULI_FUZZ(1, 2, 0, ChooseNumber, s.a.mul_(s.f())),
      LAZULI_FUZZ(2, 3, 0, NoChoice, s.a.add_(s.b)),
      LAZULI_FUZZ(2, 2, 0, NoChoice, s.a.sub_(s.b, 2)),
      LAZULI_FUZZ(2, 3, kExactOnly, NoChoice, s.a.copy_(s.b.clamp(-100, 100))),
      LAZULI_FUZZ(2, 2, kSmoothOnly, NoChoice, s.a.copy_(s.b)),
      LAZULI_FUZZ(1, 1, 0, ChooseNumber, s.a.fill_(s.f())),
      LAZULI_FUZZ(1, 1, 0, NoChoice, s.a.zero_()),
      LAZULI_FUZZ(1, 2, kExactOnly, NoChoice, s.a.clamp_(-3, 3)),
      LAZULI_FUZZ(2, 1, kExactOnly, ChooseNumber, s.a.masked_fill_(s.b > 0, s.f())),
      LAZULI_FUZZ(1, 2, kSmoothOnly, NoChoice, s.a.tanh_()),
      LAZULI_FUZZ(1, 1, 0, ChooseNewDim, s.a.unsqueeze_(s.i(0))),
      // Syncs and gradients.
      LAZULI_FUZZ(1, 1, kExactOnly, NoChoice, FuzzReadMaximum(s.a)),
      LAZULI_FUZZ(1, 1, 0, NoChoice, FuzzReadMemory(s.a)),
      LAZULI_FUZZ(1, 1, 0, NoChoice, (lazuli::sync(), s.a)),
      LAZULI_FUZZ(2, 4, kSmoothOnly, NoChoice, FuzzGradient(s.a, s.b)),
      LAZULI_FUZZ(1, 2, 0, NoChoice, Tensor()),
  };
  return *ops;
}

const int kDrop = static_cast<int>(Ops().size()) - 1;

uint64_t ValueSeed(const FuzzProgram& program, size_t index, int round) {
  return program.seed * 1000003 + index * 2 + static_cast<uint64_t>(round % 2);
}

// Runs statement `index`; its operands are defined.
void RunStatement(const FuzzProgram& program, size_t index, int round, Tensors* variables) {
  const FuzzStatement& statement = program.statements[index];
  Args args{{}, {}, {}, &statement, ValueSeed(program, index, round)};
  Tensor* const operands[] = {&args.a, &args.b, &args.c};
  for (size_t k = 0; k < statement.operands.size(); ++k) {
    *operands[k] = (*variables)[statement.operands[k]];
    if (!operands[k]->defined()) throw std::invalid_argument("a dropped operand");
  }
  (*variables)[index] = Ops()[statement.op].run(args);
  if (statement.op == kDrop) (*variables)[statement.operands[0]] = Tensor();
}

int PickOp(FuzzFlavour flavour, Random* random) {
  const unsigned excluded = flavour == FuzzFlavour::kExact ? kSmoothOnly : kExactOnly;
  for (;;) {
    int64_t total = 0;
    for (const FuzzOp& op : Ops()) total += op.weight;
    int64_t pick = Draw(random, 0, total - 1);
    int index = 0;
    while (pick >= Ops()[index].weight) pick -= Ops()[index++].weight;
    if ((Ops()[index].flags & excluded) == 0) return index;
  }
}

// Appends a statement that works, or throws.
void TryStatement(FuzzProgram* program, Random* random, Tensors* variables) {
  FuzzStatement statement;
  const size_t index = program->statements.size();
  statement.op = index < 2 ? 0 : PickOp(program->flavour, random);
  const FuzzOp& op = Ops()[statement.op];
  constexpr torch::ScalarType kInputTypes[] = {torch::kFloat, torch::kFloat, torch::kDouble, torch::kBFloat16,
                                               torch::kHalf,  torch::kLong,  torch::kInt,    torch::kFloat};
  // A smooth program keeps to one dtype, so that one tolerance fits all of it.
  const torch::ScalarType smooth_type = program->seed % 4 < 2 ? torch::kFloat : torch::kDouble;
  statement.dtype = program->flavour == FuzzFlavour::kSmooth ? smooth_type : kInputTypes[Draw(random, 0, 7)];
  // Most operands are recent: long chains make the interesting traces.
  for (int k = 0; k < op.arity; ++k) {
    const auto last = static_cast<int64_t>(index) - 1;
    statement.operands.push_back(
        static_cast<int>(Draw(random, 0, 2) == 0 ? Draw(random, 0, last) : Draw(random, std::max<int64_t>(0, last - 5), last)));
  }
  const Tensor first = op.arity > 0 ? (*variables)[statement.operands[0]] : Tensor();
  if (op.arity > 0 && !first.defined()) throw std::invalid_argument("a dropped operand");
  op.choose(first, random, &statement);
  program->statements.push_back(statement);
  program->dropped.push_back(false);
  variables->emplace_back();
  try {
    RunStatement(*program, index, 0, variables);
    if ((*variables)[index].defined() && (*variables)[index].numel() > 20000) throw std::invalid_argument("too large");
  } catch (...) {
    program->statements.pop_back();
    program->dropped.pop_back();
    variables->pop_back();
    throw;
  }
}

std::string NumberText(double number) {
  std::ostringstream text;
  text << number;
  return text.str().find('.') == std::string::npos ? text.str() + ".0" : text.str();
}

// The value of `name`, one of Args' members without their arguments.
std::string ArgText(const FuzzProgram& program, size_t index, const std::string& name, size_t k) {
  const FuzzStatement& statement = program.statements[index];
  if (name == "i") return std::to_string(statement.ints[k]);
  if (name == "f") return NumberText(statement.number);
  if (name == "dtype") return std::string("torch::k") + c10::toString(statement.dtype);
  if (name == "seed") return std::to_string(ValueSeed(program, index, 0)) + " + round % 2";
  if (name == "ints") {
    std::string text = "{";
    for (const int64_t value : statement.ints) text += (text.size() == 1 ? "" : ", ") + std::to_string(value);
    return text + "}";
  }
  return "v" + std::to_string(statement.operands[static_cast<size_t>(name[0] - 'a')]);
}

std::string StatementText(const FuzzProgram& program, size_t index) {
  const std::string expression = Ops()[program.statements[index].op].text;
  std::string text;
  for (size_t at = 0; at < expression.size();) {
    // "s." is an Args only where no name ends in it.
    const bool is_arg = expression.compare(at, 2, "s.") == 0 && (at == 0 || (std::isalnum(expression[at - 1]) == 0));
    if (!is_arg) {
      text += expression[at++];
      continue;
    }
    size_t end = at + 2;
    while (std::isalnum(expression[end]) != 0) ++end;
    const std::string name = expression.substr(at + 2, end - at - 2);
    const bool is_call = name.size() > 1 || name == "i" || name == "f";
    const size_t k = name == "i" ? static_cast<size_t>(expression[end + 1] - '0') : 0;
    at = is_call ? expression.find(')', end) + 1 : end;
    text += ArgText(program, index, name, k);
  }
  return text;
}

}  // namespace

FuzzProgram MakeFuzzProgram(uint64_t seed, FuzzFlavour flavour, int length) {
  const CpuFactories on_cpu;  // The same program on each device, and none with a bad index, which would end a GPU's work.
  FuzzProgram program;
  program.seed = seed;
  program.flavour = flavour;
  Random random(seed * 2 + (flavour == FuzzFlavour::kExact ? 0 : 1));
  Tensors variables;
  for (int attempt = 0; attempt < length * 4 && static_cast<int>(program.statements.size()) < length; ++attempt) {
    try {
      TryStatement(&program, &random, &variables);
    } catch (const std::exception&) {
    }
  }
  return program;
}

Tensors RunFuzzProgram(const FuzzProgram& program, int round) {
  Tensors variables(program.statements.size());
  for (size_t i = 0; i < program.statements.size(); ++i) {
    if (!program.dropped[i]) RunStatement(program, i, round, &variables);
  }
  return variables;
}

std::vector<int64_t> InputSizes(const FuzzProgram& program) {
  std::set<int64_t> sizes;
  for (const FuzzStatement& statement : program.statements) {
    if (Ops()[statement.op].arity == 0) sizes.insert(statement.ints.begin(), statement.ints.end());
  }
  return {sizes.upper_bound(1), sizes.end()};
}

FuzzProgram WithSize(const FuzzProgram& program, int64_t size, int64_t step) {
  FuzzProgram resized = program;
  for (FuzzStatement& statement : resized.statements) {
    if (Ops()[statement.op].arity == 0) std::replace(statement.ints.begin(), statement.ints.end(), size, size + step);
  }
  return resized;
}

FuzzProgram WithoutStatement(const FuzzProgram& program, size_t index) {
  FuzzProgram smaller = program;
  smaller.dropped[index] = true;
  for (size_t i = index + 1; i < smaller.statements.size(); ++i) {
    for (const int operand : smaller.statements[i].operands) smaller.dropped[i] = smaller.dropped[i] || smaller.dropped[operand];
  }
  return smaller;
}

int NumStatements(const FuzzProgram& program) {
  int count = 0;
  for (const bool dropped : program.dropped) count += dropped ? 0 : 1;
  return count;
}

std::string FuzzProgramText(const FuzzProgram& program) {
  std::ostringstream text;
  for (size_t i = 0; i < program.statements.size(); ++i) {
    if (program.dropped[i]) continue;
    const FuzzStatement& statement = program.statements[i];
    text << "  torch::Tensor v" << i << " = " << StatementText(program, i) << ";";
    if (statement.op == kDrop) text << "  v" << statement.operands[0] << " = torch::Tensor();";
    text << "\n";
  }
  return text.str();
}

std::string FuzzProgramSource(const FuzzProgram& program, const std::string& backend) {
  std::vector<std::string> results;
  for (size_t i = 0; i < program.statements.size(); ++i) {
    if (!program.dropped[i]) results.push_back("v" + std::to_string(i));
  }
  return tools::ReproducerSource(FuzzProgramText(program), results, backend);
}

}  // namespace lazuli::testing
