#include "tests/support/fuzz_program.h"

#include <random>
#include <sstream>
#include <stdexcept>

#include "lazuli/lazuli.h"

namespace lazuli::testing {
namespace {

using torch::Tensor;
using Random = std::mt19937_64;

// What a statement works on.
struct Args {
  Tensor a, b, c;
  const FuzzStatement* statement;
  uint64_t value_seed;
  int64_t i(size_t k) const { return statement->ints[k]; }
  double f() const { return statement->number; }
};

// Fills in a statement's ints for an operand; throws when there is no valid choice.
using Choose = void (*)(const Tensor& a, Random* random, FuzzStatement* statement);

constexpr unsigned kExactOnly = 1;   // Jumps: not in smooth programs.
constexpr unsigned kSmoothOnly = 2;  // Rounds differently when compiled: not in exact programs.

struct FuzzOp {
  const char* text;  // $0..$2 operands, #0..#3 ints, % number, @ dtype.
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

Tensor MakeInput(const Args& args, bool requires_grad) {
  // Inputs are what a program finds: eager tensors, made before anything is recorded.
  const lazuli::EagerScope eager;
  const torch::NoGradGuard no_grad;
  Random random(args.value_seed);
  Tensor values = torch::empty(args.statement->ints, torch::kDouble);
  for (int64_t i = 0; i < values.numel(); ++i) values.data_ptr<double>()[i] = static_cast<double>(Draw(&random, -24, 24)) / 8;
  return values.to(args.statement->dtype).requires_grad_(requires_grad);
}

Tensor Bounded(const Tensor& x) { return x.is_floating_point() ? x.clamp(-64, 64) : x.remainder(64); }

Tensor Gradient(const Args& args) {
  const Tensor loss = (args.a * 0.5).sum();
  const Tensor gradient = torch::autograd::grad({loss}, {args.b}, {}, true, false, true)[0];
  if (!gradient.defined()) throw std::invalid_argument("no gradient");
  return gradient;
}

Tensor ReadSum(const Args& args) {
  // A sync in the middle of the program, whose value goes on.
  return args.a.detach() * 0 + args.a.detach().to(torch::kDouble).amax().item<double>();
}

Tensor ReadMemory(const Args& args) {
  if (args.a.numel() == 0 || !args.a.is_contiguous()) throw std::invalid_argument("nothing to read");
  (void)args.a.data_ptr();
  return args.a.detach().slice(0, 0, 1);
}

Tensor Expand(const Args& args) {
  std::vector<int64_t> sizes(static_cast<size_t>(args.a.dim()) + 1, -1);
  sizes[0] = args.i(0);
  return args.a.unsqueeze(0).expand(sizes);
}

#define LAZULI_FUZZ(text, arity, weight, flags, choose, expr)                        \
  {                                                                                  \
    text, arity, weight, flags, choose, [](const Args& s) -> Tensor { return expr; } \
  }

const std::vector<FuzzOp>& Ops() {
  static const auto* ops = new std::vector<FuzzOp>{
      LAZULI_FUZZ("input(#, @)", 0, 2, 0, ChooseInput, MakeInput(s, false)),
      LAZULI_FUZZ("parameter(#, @)", 0, 1, kSmoothOnly, ChooseInput, MakeInput(s, true)),
      // Elementwise.
      LAZULI_FUZZ("$0 + %", 1, 3, 0, ChooseNumber, s.a + s.f()),
      LAZULI_FUZZ("$0 * %", 1, 3, 0, ChooseNumber, s.a * s.f()),
      LAZULI_FUZZ("-$0", 1, 1, 0, NoChoice, s.a.neg()),
      LAZULI_FUZZ("$0 + $1", 2, 4, 0, NoChoice, s.a + s.b),
      LAZULI_FUZZ("$0 - $1", 2, 4, 0, NoChoice, s.a - s.b),
      LAZULI_FUZZ("bounded($0 * $1)", 2, 4, kExactOnly, NoChoice, Bounded(s.a * s.b)),
      LAZULI_FUZZ("tanh($0) * $1", 2, 4, kSmoothOnly, NoChoice, s.a.tanh() * s.b),
      LAZULI_FUZZ("sigmoid($0)", 1, 2, kSmoothOnly, NoChoice, s.a.sigmoid()),
      LAZULI_FUZZ("exp(tanh($0))", 1, 2, kSmoothOnly, NoChoice, s.a.tanh().exp()),
      LAZULI_FUZZ("sin($0)", 1, 1, kSmoothOnly, NoChoice, s.a.tanh().sin()),
      LAZULI_FUZZ("gelu($0)", 1, 1, kSmoothOnly, NoChoice, torch::gelu(s.a)),
      LAZULI_FUZZ("$0 / ($1 * $1 + 1)", 2, 2, kSmoothOnly, NoChoice, s.a / (s.b.tanh().square() + 1)),
      LAZULI_FUZZ("abs($0)", 1, 1, kExactOnly, NoChoice, s.a.abs()),
      LAZULI_FUZZ("relu($0)", 1, 2, kExactOnly, NoChoice, s.a.relu()),
      LAZULI_FUZZ("clamp($0, -2, 2)", 1, 1, kExactOnly, NoChoice, s.a.clamp(-2, 2)),
      LAZULI_FUZZ("floor($0 / 2)", 1, 1, kExactOnly, NoChoice, (s.a / 2).floor()),
      // Which of two zeros ATen returns depends on its loop, so their sign goes.
      LAZULI_FUZZ("(maximum($0, $1) + 0)", 2, 1, kExactOnly, NoChoice, torch::maximum(s.a, s.b) + 0),
      LAZULI_FUZZ("where($0 > $1, $0, $2)", 3, 2, kExactOnly, NoChoice, torch::where(s.a > s.b, s.a, s.c)),
      LAZULI_FUZZ("($0 <= $1)", 2, 1, kExactOnly, NoChoice, s.a <= s.b),
      LAZULI_FUZZ("$0.masked_fill($1 > 0, %)", 2, 1, kExactOnly, ChooseNumber, s.a.masked_fill(s.b > 0, s.f())),
      LAZULI_FUZZ("addcmul($0, $1, $2, 0.5)", 3, 1, kSmoothOnly, NoChoice, s.a.addcmul(s.b, s.c.tanh(), 0.5)),
      LAZULI_FUZZ("$0.to(@)", 1, 2, kExactOnly, ChooseDtype, s.a.clamp(-100, 100).to(s.statement->dtype)),
      // Over dimensions.
      LAZULI_FUZZ("$0.amax(#0)", 1, 2, kExactOnly, ChooseDim, s.a.amax(s.i(0))),
      LAZULI_FUZZ("$0.sum(#0, true)", 1, 2, kSmoothOnly, ChooseDim, s.a.sum(s.i(0), true)),
      LAZULI_FUZZ("$0.to(kLong).sum(#0)", 1, 1, kExactOnly, ChooseDim, s.a.clamp(-100, 100).to(torch::kLong).sum(s.i(0))),
      LAZULI_FUZZ("$0.mean()", 1, 1, kSmoothOnly, NoChoice, s.a.mean()),
      LAZULI_FUZZ("$0.softmax(#0)", 1, 2, kSmoothOnly, ChooseDim, s.a.softmax(s.i(0))),
      LAZULI_FUZZ("layer_norm($0)", 1, 1, kSmoothOnly, NoChoice, torch::layer_norm(s.a, {s.a.size(-1)}, {}, {}, 0.1)),
      LAZULI_FUZZ("$0.matmul($1)", 2, 2, kSmoothOnly, NoChoice, s.a.tanh().matmul(s.b.tanh())),
      LAZULI_FUZZ("cat({$0, $1}, #0)", 2, 2, 0, ChooseDim, torch::cat({s.a, s.b}, s.i(0))),
      LAZULI_FUZZ("stack({$0, $0 + 1}, #0)", 1, 1, 0, ChooseNewDim, torch::stack({s.a, s.a + 1}, s.i(0))),
      LAZULI_FUZZ("$0.index_select(#)", 1, 1, 0, ChooseRows, s.a.index_select(s.i(0), torch::tensor({s.i(1), s.i(2), s.i(3)}))),
      LAZULI_FUZZ("$0.clone()", 1, 1, 0, NoChoice, s.a.clone()),
      LAZULI_FUZZ("$0.contiguous()", 1, 1, 0, NoChoice, s.a.contiguous()),
      LAZULI_FUZZ("zeros_like($0)", 1, 1, 0, NoChoice, torch::zeros_like(s.a)),
      LAZULI_FUZZ("$0.flip(#0)", 1, 1, 0, ChooseDim, s.a.flip(s.i(0))),
      // Views.
      LAZULI_FUZZ("$0.transpose(#0, #1)", 1, 2, 0, ChooseTwoDims, s.a.transpose(s.i(0), s.i(1))),
      LAZULI_FUZZ("$0.select(#0, #1)", 1, 2, 0, ChooseElement, s.a.select(s.i(0), s.i(1))),
      LAZULI_FUZZ("$0.slice(#0, #1, #2, #3)", 1, 3, 0, ChooseSlice, s.a.slice(s.i(0), s.i(1), s.i(2), s.i(3))),
      LAZULI_FUZZ("$0.reshape(-1)", 1, 1, 0, NoChoice, s.a.reshape(-1)),
      LAZULI_FUZZ("$0.view(-1)", 1, 1, 0, NoChoice, s.a.view(-1)),
      LAZULI_FUZZ("$0.unsqueeze(#0)", 1, 1, 0, ChooseNewDim, s.a.unsqueeze(s.i(0))),
      LAZULI_FUZZ("$0.squeeze()", 1, 1, 0, NoChoice, s.a.squeeze()),
      LAZULI_FUZZ("expand($0, #0)", 1, 1, 0, ChooseExpand, Expand(s)),
      LAZULI_FUZZ("$0.diagonal()", 1, 1, 0, NoChoice, s.a.diagonal()),
      LAZULI_FUZZ("$0.detach()", 1, 1, 0, NoChoice, s.a.detach()),
      LAZULI_FUZZ("alias($0)", 1, 1, 0, NoChoice, s.a.alias()),
      // Writes.
      LAZULI_FUZZ("$0.add_(%)", 1, 2, 0, ChooseNumber, s.a.add_(s.f())),
      LAZULI_FUZZ("$0.mul_(%)", 1, 2, 0, ChooseNumber, s.a.mul_(s.f())),
      LAZULI_FUZZ("$0.add_($1)", 2, 3, 0, NoChoice, s.a.add_(s.b)),
      LAZULI_FUZZ("$0.sub_($1, 2)", 2, 2, 0, NoChoice, s.a.sub_(s.b, 2)),
      LAZULI_FUZZ("$0.copy_($1)", 2, 3, kExactOnly, NoChoice, s.a.copy_(s.b.clamp(-100, 100))),
      LAZULI_FUZZ("$0.copy_($1)", 2, 2, kSmoothOnly, NoChoice, s.a.copy_(s.b)),
      LAZULI_FUZZ("$0.fill_(%)", 1, 1, 0, ChooseNumber, s.a.fill_(s.f())),
      LAZULI_FUZZ("$0.zero_()", 1, 1, 0, NoChoice, s.a.zero_()),
      LAZULI_FUZZ("$0.clamp_(-3, 3)", 1, 2, kExactOnly, NoChoice, s.a.clamp_(-3, 3)),
      LAZULI_FUZZ("$0.masked_fill_($1 > 0, %)", 2, 1, kExactOnly, ChooseNumber, s.a.masked_fill_(s.b > 0, s.f())),
      LAZULI_FUZZ("$0.tanh_()", 1, 2, kSmoothOnly, NoChoice, s.a.tanh_()),
      LAZULI_FUZZ("$0.unsqueeze_(#0)", 1, 1, 0, ChooseNewDim, s.a.unsqueeze_(s.i(0))),
      // Syncs and gradients.
      LAZULI_FUZZ("$0 * 0 + $0.amax().item()", 1, 1, kExactOnly, NoChoice, ReadSum(s)),
      LAZULI_FUZZ("read($0.data_ptr())", 1, 1, 0, NoChoice, ReadMemory(s)),
      LAZULI_FUZZ("sync(), $0", 1, 1, 0, NoChoice, (lazuli::sync(), s.a)),
      LAZULI_FUZZ("grad($0.sum(), $1)", 2, 4, kSmoothOnly, NoChoice, Gradient(s)),
      LAZULI_FUZZ("drop($0)", 1, 2, 0, NoChoice, Tensor()),
  };
  return *ops;
}

const int kDrop = static_cast<int>(Ops().size()) - 1;

// Runs statement `index`; its operands are defined.
void RunStatement(const FuzzProgram& program, size_t index, int round, Tensors* variables) {
  const FuzzStatement& statement = program.statements[index];
  Args args{{}, {}, {}, &statement, program.seed * 1000003 + index * 2 + static_cast<uint64_t>(round % 2)};
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

std::string StatementText(const FuzzStatement& statement) {
  std::ostringstream text;
  const char* format = Ops()[statement.op].text;
  for (const char* c = format; *c != '\0'; ++c) {
    if (*c == '$') {
      text << "v" << statement.operands[static_cast<size_t>(*++c - '0')];
    } else if (*c == '#' && c[1] >= '0' && c[1] <= '3') {
      text << statement.ints[static_cast<size_t>(*++c - '0')];
    } else if (*c == '#') {
      text << "{";
      for (size_t k = 0; k < statement.ints.size(); ++k) text << (k == 0 ? "" : ", ") << statement.ints[k];
      text << "}";
    } else if (*c == '%') {
      text << statement.number;
    } else if (*c == '@') {
      text << "k" << c10::toString(statement.dtype);
    } else {
      text << *c;
    }
  }
  return text.str();
}

}  // namespace

FuzzProgram MakeFuzzProgram(uint64_t seed, FuzzFlavour flavour, int length) {
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
    if (!program.dropped[i]) text << "  auto v" << i << " = " << StatementText(program.statements[i]) << ";\n";
  }
  return text.str();
}

}  // namespace lazuli::testing
