// One call of one operator of the dispatcher: what it is called with, as text and as tensors.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lazuli::testing {

// What the elements of a tensor are.
enum class Fill { kAny, kFinite, kPositive, kUnit, kIndex, kCount, kZeros, kOnes, kSorted, kSpd, kSymmetric, kLower, kLiteral };

// How a tensor lies in its storage.
enum class Memory { kContiguous, kTransposed, kSliced, kChannelsLast, kExpanded, kStrided, kOverlapping };
constexpr int kNumMemories = 7;

// The sizes of a tensor whose row does not say.
enum class Shape { kOdd, kScalar, kEmpty, kOne, kLarge, kVector, kSquare, kCube, kImage, kVolume };
constexpr int kNumShapes = 10;

// Which of the many ways to call an operator this is. Everything else follows from it.
struct CasePoint {
  torch::ScalarType dtype = torch::kFloat;
  Shape shape = Shape::kOdd;
  Memory memory = Memory::kContiguous;
  int64_t batch = 2;     // What N stands for.
  int number = 0;        // Of the case of its operator: chooses among alternatives.
  uint64_t seed = 0;     // Of values and of the bits below.
  bool special = false;  // Infinities, NaN and zeros of both signs among the values.
};

// A tensor argument: a window over a storage of its own, or over that of an earlier tensor of the call.
struct TensorPlan {
  bool defined = true;
  torch::ScalarType dtype = torch::kFloat;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  int64_t elements = 0;  // Of the storage.
  Fill fill = Fill::kFinite;
  int64_t limit = 1;             // Of indices.
  std::vector<double> literals;  // The elements themselves.
  bool special = false;
  bool pending = false;  // Made by an operator of the program.
  int same_as = -1;      // Number of the tensor that this one is.
  bool named = false;    // Its dimensions have names.
};

// One argument. `tensors` holds one plan, or one for each element of a list.
struct ArgPlan {
  enum class Kind { kTensor, kTensorList, kOptionalTensorList, kValue, kGenerator } kind = Kind::kValue;
  std::vector<TensorPlan> tensors;
  std::vector<c10::IValue> values;  // Of the rounds, one after another, again from the first.
  bool written = false;
};

struct CallPlan {
  c10::OperatorHandle op;
  std::string text;  // For messages.
  CasePoint point;
  std::vector<ArgPlan> args;
};

// "aten::add.Tensor".
std::string FullName(const c10::OperatorHandle& op);

// A number that depends on the name and the seed only.
uint64_t HashOf(const std::string& text, uint64_t seed = 0);

// Storages with the values of `round`, one for each tensor of the plan that has one, in the order of the arguments.
std::vector<torch::Tensor> MakeStorages(const CallPlan& plan, int round);

// Strides and storage of `plan` for its sizes. Falls back to contiguous memory where `memory` does not apply.
void LayOut(TensorPlan* plan, Memory memory);

}  // namespace lazuli::testing
