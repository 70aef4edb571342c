#include "tracer/shape_functions.h"

#include <ATen/CompositeExplicitAutogradFunctions.h>
#include <ATen/EmptyTensor.h>
#include <ATen/MetaFunctions.h>
#include <ATen/Operators.h>
#include <ATen/TensorIterator.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/List.h>
#include <ATen/core/boxing/KernelFunction.h>

#include <mutex>

#include "absl/container/node_hash_map.h"
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

// Those of ours that vouch for dtypes.
const ShapeTable& OwnTable() {
  static const auto* table = [] {
    auto* all = new ShapeTable;
    AddBasicShapes(all);
    AddLayerShapes(all);
    return all;
  }();
  return *table;
}

// Those of ours that know sizes only.
const ShapeTable& SizesTable() {
  static const auto* table = [] {
    auto* all = new ShapeTable;
    AddLossShapes(all);
    AddImageShapes(all);
    AddIndexShapes(all);
    AddLinalgShapes(all);
    AddPointwiseShapes(all);
    AddFactoryShapes(all);
    return all;
  }();
  return *table;
}

const ShapeTable& GpuTable() {
  static const auto* table = [] {
    auto* all = new ShapeTable;
    AddGpuShapes(all);
    AddGpuAttentionShapes(all);
    return all;
  }();
  return *table;
}

bool HaveSameArguments(const c10::FunctionSchema& a, const c10::FunctionSchema& b) {
  const auto& left = a.arguments();
  const auto& right = b.arguments();
  return left.size() == right.size() && std::equal(left.begin(), left.end(), right.begin(), [](const auto& l, const auto& r) {
           return l.name() == r.name() && *l.real_type() == *r.real_type();
         });
}

// The functional form of an in-place operator: aten::relu of aten::relu_, aten::pow.Tensor_Scalar of aten::pow_.Scalar. Empty for others.
std::string SearchFunctional(const std::string& name) {
  const size_t end = std::min(name.find('.'), name.size());
  const codegen::OpInfo* info = name[end - 1] == '_' ? codegen::FindOpInfo(name) : nullptr;
  if (info == nullptr) return "";
  for (const c10::OperatorName& other : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.compare(0, end - 1, other.name) != 0) continue;
    const auto handle = c10::Dispatcher::singleton().findSchema(other);
    if (handle.has_value() && HaveSameArguments(handle->schema(), info->schema())) return codegen::GetOpInfo(*handle).name;
  }
  return "";
}

const ShapeFunction* FindIn(const ShapeTable& table, const std::string& name) {
  auto it = table.find(name);
  if (it == table.end()) it = table.find(FunctionalName(name));
  return it == table.end() ? nullptr : &it->second;
}

}  // namespace

// SearchFunctional, once for each name.
const std::string& FunctionalName(const std::string& name) {
  static auto* mutex = new std::mutex;
  static auto* names = new absl::node_hash_map<std::string, std::string>;
  std::lock_guard<std::mutex> lock(*mutex);
  const auto it = names->find(name);
  return it != names->end() ? it->second : names->emplace(name, SearchFunctional(name)).first->second;
}

const ShapeFunction* FindShapeFunction(const std::string& name, c10::Device device) {
  if (!device.is_cpu()) {
    if (const ShapeFunction* function = FindIn(GpuTable(), name)) return *function ? function : nullptr;
  }
  for (const ShapeTable* table : {&OwnTable(), &SizesTable(), &AtenTable()}) {
    if (const ShapeFunction* function = FindIn(*table, name)) return function;
  }
  return nullptr;
}

bool IsLayoutUnknown(const std::string& name, c10::Device device) {
  const ShapeFunction* const function = device.is_cpu() ? nullptr : FindIn(GpuTable(), name);
  return function != nullptr && !*function;
}

bool KnowsDtypes(const std::string& name) { return FindIn(OwnTable(), name) != nullptr; }

std::vector<std::string> OwnShapeFunctionNames() {
  std::vector<std::string> names;
  for (const ShapeTable* table : {&OwnTable(), &SizesTable()}) {
    for (const auto& row : *table) names.push_back(row.first);
  }
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

at::Tensor PointwiseResult(std::initializer_list<at::Tensor> inputs, at::ScalarType dtype) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).declare_static_dtype_and_device(dtype, at::kMeta).add_owned_output(at::Tensor());
  for (const at::Tensor& input : inputs) config.add_owned_const_input(input);
  return config.build().output();
}

Shapes FloatUnaryShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!HaveOneFloatDtype({self})) return {};
  return {PointwiseResult({self}, self.scalar_type())};
}

Shapes FloatLikeShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!HaveOneFloatDtype({self})) return {};
  return {at::compositeexplicitautograd::empty_like(self)};
}

Shapes FloatBinaryShape(Args args) {
  const at::Tensor a = TensorArg(args[0]);
  const at::Tensor b = TensorArg(args[1]);
  if (!HaveOneFloatDtype({a, b}) || a.unsafeGetTensorImpl()->is_wrapped_number() || b.unsafeGetTensorImpl()->is_wrapped_number()) return {};
  return {PointwiseResult({a, b}, a.scalar_type())};
}

bool IsPlainFloat(const at::Tensor& tensor) { return HaveOneFloatDtype({tensor}) && tensor.numel() != 0 && HasDefaultStrides(tensor); }

std::optional<std::vector<int64_t>> ReducedSizes(const at::Tensor& self, const std::vector<int64_t>& dims, bool keep) {
  std::vector<bool> reduced(static_cast<size_t>(self.dim()), dims.empty());
  for (const int64_t dim : dims) {
    if (self.dim() == 0) return std::nullopt;
    const auto at = static_cast<size_t>(c10::maybe_wrap_dim(dim, self.dim()));
    if (reduced[at]) return std::nullopt;
    reduced[at] = true;
  }
  std::vector<int64_t> sizes;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (!reduced[static_cast<size_t>(d)]) {
      sizes.push_back(self.size(d));
    } else if (keep) {
      sizes.push_back(1);
    }
  }
  return sizes;
}

at::Tensor Fresh(at::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat format) {
  return at::detail::empty_meta(sizes, dtype, format);
}

bool AreAttentionHeads(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  if (!HaveOneFloatDtype({query, key, value}) || query.dim() != 4 || key.dim() != 4 || query.numel() == 0 || key.numel() == 0) return false;
  return query.size(0) == key.size(0) && query.size(1) % key.size(1) == 0 && query.size(3) == key.size(3) &&
         key.sizes().equals(value.sizes());
}

at::Tensor FreshHeads(const at::Tensor& heads) {
  return Fresh({heads.size(0), heads.size(2), heads.size(1), heads.size(3)}, heads.scalar_type()).transpose(1, 2);
}

at::Tensor NumberResult(int64_t number) { return Fresh({number}, at::kLong); }

std::optional<at::MemoryFormat> FormatOf(const at::Tensor& tensor) {
  const at::MemoryFormat format = tensor.suggest_memory_format();
  if (format == at::MemoryFormat::ChannelsLast3d) return std::nullopt;
  if (!Fresh(tensor.sizes(), tensor.scalar_type(), format).strides().equals(tensor.strides())) return std::nullopt;
  return format;
}

std::vector<bool> MaskArg(const c10::IValue& value) {
  std::vector<bool> mask;
  for (const bool flag : value.toBoolList()) mask.push_back(flag);
  return mask;
}

}  // namespace lazuli::tracer
