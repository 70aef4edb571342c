#include "tracer/shape_functions.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MetaFunctions.h>
#include <ATen/Operators.h>
#include <ATen/core/List.h>
#include <ATen/core/boxing/KernelFunction.h>

#include "codegen/ir/op_info.h"
#include "tracer/shape_function_table.h"

namespace lazuli::tracer {
namespace {

// `function` is ATen's own Meta function of `Op`, called without the dispatcher.
template <class Op>
void AddMetaFunction(ShapeTable* table, typename Op::schema* function) {
  const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
  const auto kernel = c10::KernelFunction::makeFromUnboxedRuntimeFunction(function);
  table->emplace(codegen::GetOpInfo(handle).name, [handle, kernel](Args args) {
    torch::jit::Stack stack = args.vec();
    kernel.callBoxed(handle, c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
    Shapes results;
    for (const c10::IValue& result : stack) results.push_back(result.toTensor());
    return results;
  });
}

const ShapeTable& AtenTable() {
  static const auto* table = [] {
    auto* all = new ShapeTable;
#define LAZULI_META_OP(op, function) AddMetaFunction<at::_ops::op>(all, at::meta::function);
#include "tracer/meta_ops.def"
#undef LAZULI_META_OP
    return all;
  }();
  return *table;
}

const ShapeTable& OwnTable() {
  static const auto* table = [] {
    auto* all = new ShapeTable;
    AddBasicShapes(all);
    AddLayerShapes(all);
    return all;
  }();
  return *table;
}

// An in-place operator (aten::relu_, aten::floor_divide_.Tensor) has its functional form's.
const ShapeFunction* FindIn(const ShapeTable& table, const std::string& name) {
  auto it = table.find(name);
  if (it == table.end()) {
    const size_t end = std::min(name.find('.'), name.size());
    if (name[end - 1] == '_') it = table.find(name.substr(0, end - 1) + name.substr(end));
  }
  return it == table.end() ? nullptr : &it->second;
}

}  // namespace

const ShapeFunction* FindShapeFunction(const std::string& name) {
  const ShapeFunction* own = FindIn(OwnTable(), name);
  return own != nullptr ? own : FindIn(AtenTable(), name);
}

bool IsOwnShapeFunction(const std::string& name) { return FindIn(OwnTable(), name) != nullptr; }

std::vector<std::string> OwnShapeFunctionNames() {
  std::vector<std::string> names;
  for (const auto& row : OwnTable()) names.push_back(row.first);
  return names;
}

bool HaveOneFloatDtype(std::initializer_list<at::Tensor> tensors) {
  std::optional<at::ScalarType> dtype;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const at::ScalarType type = tensor.scalar_type();
    if (type != at::kFloat && type != at::kDouble && type != at::kBFloat16 && type != at::kHalf) return false;
    if (dtype.has_value() && *dtype != type) return false;
    dtype = type;
  }
  return dtype.has_value();
}

bool IsIndex(const at::Tensor& tensor) { return tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt; }

bool HasDefaultStrides(const at::Tensor& tensor) {
  int64_t stride = 1;
  for (int64_t d = tensor.dim() - 1; d >= 0; --d) {
    if (tensor.stride(d) != stride) return false;
    stride *= std::max<int64_t>(tensor.size(d), 1);
  }
  return true;
}

at::Tensor TensorArg(const c10::IValue& value) { return value.isNone() ? at::Tensor() : value.toTensor(); }

std::vector<int64_t> IntsArg(const c10::IValue& value) {
  if (value.isIntList()) return value.toIntVector();
  std::vector<int64_t> ints;
  for (const c10::SymInt& item : value.toSymIntVector()) ints.push_back(item.expect_int());
  return ints;
}

at::Tensor Fresh(at::IntArrayRef sizes, at::ScalarType dtype) { return at::detail::empty_meta(sizes, dtype); }

std::vector<bool> MaskArg(const c10::IValue& value) {
  std::vector<bool> mask;
  for (const bool flag : value.toBoolList()) mask.push_back(flag);
  return mask;
}

}  // namespace lazuli::tracer
