// Output metadata of operators, as meta tensors: what their CPU kernels allocate, and where GPUs' are known to differ, what those do. For
// structured operators ATen's own Meta functions, for others functions of ours.
//
// A shape function speaks only where it is sure that the operator succeeds on the metadata it sees and what layout comes out. Everything
// else (mixed dtypes, arguments that ATen rejects, unusual layouts) is observed.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <vector>

namespace lazuli::tracer {

// `args`: the operator's arguments, tensors as meta tensors. Returns its results (undefined where the operator returns none), or nothing
// when it does not know. May throw where shapes do not fit. A result that is a number is a tensor of so many elements; one that is a
// number in a tensor of the CPU's, though the operator runs on a GPU, is a tensor of the CPU's.
using ShapeFunction = std::function<std::vector<at::Tensor>(c10::ArrayRef<c10::IValue> args)>;

// The shape function of the operator with this name ("aten::where.self") and of `device`'s kernels; null when there is none. An in-place
// operator has that of its functional form.
const ShapeFunction* FindShapeFunction(const std::string& name, c10::Device device = c10::kCPU);

// Whether `device`'s kernels choose layouts in ways of their own, which the operator's Meta kernel does not know of either.
bool IsLayoutUnknown(const std::string& name, c10::Device device);

// The functional form of the in-place operator `name`: "aten::gcd" of "aten::gcd_". Empty for others, and where there is none.
const std::string& FunctionalName(const std::string& name);

// Whether the function that FindShapeFunction returns for `name` speaks only of dtypes that the operator's kernel takes: one of ours that
// knows, not ATen's.
bool KnowsDtypes(const std::string& name);

// The operators whose functions are ours; without in-place forms.
std::vector<std::string> OwnShapeFunctionNames();

}  // namespace lazuli::tracer
