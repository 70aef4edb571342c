// Random programs over tensors: made by trying statements eagerly, run eagerly or in a mode, printed as C++-like text.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/tensor_diff.h"

namespace lazuli::testing {

// What a program may hold, since results are compared bit for bit only where the design promises that.
enum class FuzzFlavour {
  kExact,   // IEEE operations, comparisons, casts, integers, writes: no elementary functions, no float sums.
  kSmooth,  // Elementary functions, sums, matrix products and gradients, but nothing that jumps when its operand is a rounding error off.
};

// One statement: `vN = op(operands, ints, number)`. Statement N defines variable N.
struct FuzzStatement {
  int op = 0;                 // Index into the table of ops.
  std::vector<int> operands;  // Variables.
  std::vector<int64_t> ints;
  double number = 0;
  torch::ScalarType dtype = torch::kFloat;
};

struct FuzzProgram {
  uint64_t seed = 0;
  FuzzFlavour flavour = FuzzFlavour::kExact;
  std::vector<FuzzStatement> statements;
  std::vector<bool> dropped;  // By statement; set while shrinking. What uses a dropped variable is dropped too.
};

// The program of `seed`; about `length` statements, none of which throws in eager mode.
FuzzProgram MakeFuzzProgram(uint64_t seed, FuzzFlavour flavour, int length);

// Runs it on inputs of `round`. Returns every variable still alive, in order, undefined ones included.
Tensors RunFuzzProgram(const FuzzProgram& program, int round);

// The sizes above 1 that inputs have.
std::vector<int64_t> InputSizes(const FuzzProgram& program);

// A copy whose inputs have size `size + step` wherever they had `size`. May throw in eager mode.
FuzzProgram WithSize(const FuzzProgram& program, int64_t size, int64_t step);

// A copy without statement `index` and what depends on it.
FuzzProgram WithoutStatement(const FuzzProgram& program, size_t index);

int NumStatements(const FuzzProgram& program);

// The statements as C++, one a line, over `round`.
std::string FuzzProgramText(const FuzzProgram& program);

// A whole C++ file that compares the program with eager, round by round; its main() returns the number of differing tensors.
std::string FuzzProgramSource(const FuzzProgram& program, const std::string& backend);

}  // namespace lazuli::testing
