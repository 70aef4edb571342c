#include "tracer/shape_inference.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/enum_tag.h>
#include <c10/util/irange.h>

#include <algorithm>

#include "codegen/lower.h"
#include "runtime/mode_keys.h"
#include "tracer/lazy_tensor.h"
#include "tracer/meta_kernels.h"
#include "tracer/recorder.h"
#include "tracer/shape_function_table.h"

namespace lazuli::tracer {
namespace {

at::Tensor ToMeta(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  at::Tensor meta = at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  return meta;
}

c10::IValue ToMeta(const c10::IValue& value) {
  if (value.isTensor()) return ToMeta(value.toTensor());
  if (value.isDevice()) return c10::Device(c10::kMeta);
  if (value.isTensorList()) {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(ToMeta(tensor));
    return tensors;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList()) {
      tensors.push_back(tensor.has_value() ? std::optional<at::Tensor>(ToMeta(*tensor)) : std::nullopt);
    }
    return tensors;
  }
  return value;
}

codegen::OutputMeta MetaOf(const at::Tensor& tensor) {
  codegen::OutputMeta meta;
  meta.defined = tensor.defined();
  if (!meta.defined) return meta;
  meta.dtype = tensor.scalar_type();
  meta.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  meta.strides.assign(tensor.strides().begin(), tensor.strides().end());
  int64_t last = 0;
  for (size_t d = 0; d < meta.sizes.size(); ++d) last += (meta.sizes[d] - 1) * meta.strides[d];
  meta.nbytes = tensor.numel() == 0 ? 0 : (last + 1) * static_cast<int64_t>(tensor.element_size());
  return meta;
}

codegen::OutputMeta MetaOf(int64_t number) {
  codegen::OutputMeta meta;
  meta.defined = false;
  meta.is_number = true;
  meta.sizes.push_back(number);
  return meta;
}

// Several elements share a place (empty_strided with a stride of 0): no memory of a result's own.
bool OverlapsItself(const at::Tensor& tensor) { return tensor.defined() && at::has_internal_overlap(tensor) == at::MemOverlap::Yes; }

bool SharesStorage(const c10::IValue& arg, const c10::StorageImpl* storage) {
  if (arg.isTensor()) return StorageOf(arg.toTensor()) == storage;
  if (!arg.isTensorList()) return false;
  for (const at::Tensor& tensor : arg.toTensorVector()) {
    if (StorageOf(tensor) == storage) return true;
  }
  return false;
}

// Calls `visit` with each defined tensor among `args`, those in lists too, and the argument's position.
template <class Visit>
void ForEachTensor(c10::ArrayRef<c10::IValue> args, const Visit& visit) {
  const auto visit_if = [&](const at::Tensor& tensor, size_t i) {
    if (tensor.defined()) visit(tensor, i);
  };
  for (const auto i : c10::irange(args.size())) {
    if (args[i].isTensor()) {
      visit_if(args[i].toTensor(), i);
    } else if (args[i].isTensorList()) {
      for (const at::Tensor& tensor : args[i].toTensorVector()) visit_if(tensor, i);
    } else if (args[i].isOptionalTensorList()) {
      for (const std::optional<at::Tensor> tensor : args[i].toOptionalTensorList()) visit_if(tensor.value_or(at::Tensor()), i);
    }
  }
}

// Kernels that are not loops over elements choose layouts of their own for images in unusual ones, and sizes for operands without elements,
// where Meta kernels do not follow them.
bool IsOrdinary(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args) {
  constexpr int64_t kImageDims = 4;
  if (info.handle.hasTag(at::Tag::pointwise) || codegen::IsLoopOverElements(info.name)) return true;
  bool ordinary = true;
  ForEachTensor(args, [&](const at::Tensor& tensor, size_t) {
    if (tensor.numel() == 0 || (tensor.dim() >= kImageDims && !HasDefaultStrides(tensor))) ordinary = false;
  });
  return ordinary;
}

// The CPU casts operands to the common dtype before it chooses a result's layout, and so gives those with gaps another one; meta tensors
// are not cast.
bool CastsLooseOperands(c10::ArrayRef<c10::IValue> args) {
  bool loose = false, mixed = false;
  std::optional<c10::ScalarType> dtype;
  ForEachTensor(args, [&](const at::Tensor& tensor, size_t) {
    if (tensor.dim() == 0) return;
    mixed = mixed || (dtype.has_value() && *dtype != tensor.scalar_type());
    dtype = tensor.scalar_type();
    loose = loose || (tensor.dim() > 1 && !tensor.is_non_overlapping_and_dense());
  });
  return loose && mixed;
}

bool HasElements(c10::ArrayRef<c10::IValue> args) {
  bool has_elements = true;
  ForEachTensor(args, [&](const at::Tensor& tensor, size_t) { has_elements = has_elements && tensor.numel() != 0; });
  return has_elements;
}

// Types that have kernels of their own almost everywhere, or take part in type promotion.
bool IsPlainDtype(c10::ScalarType dtype) { return codegen::TypeBit(dtype) != 0; }

// Whether `tensor`, in argument `i`, holds positions, classes or a mask rather than numbers to compute with.
bool HoldsPlaces(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args, size_t i, const at::Tensor& tensor) {
  const std::string& name = info.schema().arguments()[i].name();
  if (tensor.scalar_type() == at::kBool) return name == "mask" || args[i].isOptionalTensorList();
  // Losses take classes of no other type.
  if (name == "target") return tensor.scalar_type() == at::kLong;
  return IsIndex(tensor) && name.find("ind") != std::string::npos;
}

// The dtypes that an operator computes with, as bits.
uint64_t OperandDtypes(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args) {
  uint64_t dtypes = 0;
  ForEachTensor(args, [&](const at::Tensor& tensor, size_t i) {
    const bool counts = !tensor.unsafeGetTensorImpl()->is_wrapped_number() && !HoldsPlaces(info, args, i, tensor);
    if (counts) dtypes |= uint64_t{1} << static_cast<int>(tensor.scalar_type());
  });
  return dtypes;
}

template <class Predicate>
bool AllDtypes(uint64_t dtypes, const Predicate& predicate) {
  for (int type = 0; type < static_cast<int>(c10::ScalarType::NumOptions); ++type) {
    if ((dtypes >> type & 1) != 0 && !predicate(static_cast<c10::ScalarType>(type))) return false;
  }
  return true;
}

constexpr uint64_t BitOf(c10::ScalarType dtype) { return uint64_t{1} << static_cast<int>(dtype); }

uint64_t ResultDtypes(const codegen::OutputMetas& outputs) {
  uint64_t dtypes = 0;
  for (const auto& meta : outputs) {
    if (meta.defined) dtypes |= BitOf(meta.dtype);
  }
  return dtypes;
}

// Whether the caller chose the results' dtype: kernels do not convert between all of them.
bool ConvertsDtype(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args) {
  for (const auto i : c10::irange(args.size())) {
    if (info.schema().arguments()[i].name() == "dtype" && !args[i].isNone()) return true;
  }
  return false;
}

// What may choose another kernel among the arguments: words ("amax"), flags, and which operand has which dtype.
uint64_t FlagsOf(c10::ArrayRef<c10::IValue> args) {
  codegen::Word flags = 0;
  for (const auto i : c10::irange(args.size())) {
    const at::Tensor tensor = args[i].isTensor() ? args[i].toTensor() : at::Tensor();
    const bool has_dtype = tensor.defined() && !tensor.unsafeGetTensorImpl()->is_wrapped_number();
    if (has_dtype) flags = flags * 67 + static_cast<codegen::Word>(tensor.scalar_type());
    if (args[i].isBool()) flags = flags * 2 + (args[i].toBool() ? 1 : 0);
    if (args[i].isString()) flags = codegen::HashWords(&flags, 1, std::hash<std::string_view>()(args[i].toStringView()));
  }
  return flags;
}

// Apart from every key of RememberShapes that begins with an operator.
std::vector<codegen::Word> DtypesKey(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args, uint64_t results, c10::Device device) {
  const auto type = static_cast<uint64_t>(device.type());
  constexpr uint64_t kOfDtypes = uint64_t{1} << 40;
  return {codegen::MakeWord(codegen::Tag::kLiveOut, static_cast<uint64_t>(info.id) | type << 32 | kOfDtypes), OperandDtypes(info, args),
          results, FlagsOf(args)};
}

// What may make a kernel another one: which flags are set, which numbers are not 0, and which operands are there. A bit for each argument.
uint64_t ChoicesOf(c10::ArrayRef<c10::IValue> args) {
  uint64_t choices = 0;
  for (const auto i : c10::irange(std::min<size_t>(args.size(), 64))) {
    const c10::IValue& arg = args[i];
    const bool chosen =
        (arg.isBool() && arg.toBool()) || (arg.isDouble() && arg.toDouble() != 0) || (arg.isTensor() && arg.toTensor().defined());
    if (chosen) choices |= uint64_t{1} << i;
  }
  return choices;
}

// Apart from DtypesKey's by its first word.
std::vector<codegen::Word> ForetoldKey(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args, c10::Device device) {
  std::vector<codegen::Word> key{codegen::MakeWord(codegen::Tag::kLiveOut, static_cast<uint64_t>(info.id)), OperandDtypes(info, args),
                                 static_cast<codegen::Word>(device.type()), ChoicesOf(args)};
  // Modes, reductions, dimensions: ints that are no sizes, nor numbers to compute with.
  const auto& schema = info.schema().arguments();
  for (const auto i : c10::irange(args.size())) {
    const bool is_number = schema[i].type()->kind() == c10::TypeKind::NumberType && !info.static_scalars;
    if (args[i].isInt() && !is_number && (info.size_args >> i & 1) == 0) key.push_back(static_cast<codegen::Word>(args[i].toInt()));
  }
  return key;
}

// Whether all devices' kernels give the results one layout, as far as it is known. Shape functions follow the CPU's.
bool IsSameOnAllDevices(const codegen::OpInfo& info) {
  if (info.handle.hasTag(at::Tag::pointwise) || info.returns_mutated_self || info.is_factory) return true;
  return info.name == "aten::clone" || info.name == "aten::_to_copy";
}

// Whether an operand that the schema does not leave out is undefined: a gradient that there is none of. Kernels answer that in ways of
// their own, often with undefined results, which shape functions do not know of.
bool LacksOperand(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args) {
  const auto& schema = info.schema().arguments();
  const bool is_attention = info.name.rfind("aten::_scaled_dot_product_", 0) == 0;
  for (size_t i = 0; i < args.size(); ++i) {
    // Attention without a bias, over sequences of one length.
    const std::string& name = schema[i].name();
    if (is_attention && (name == "attn_bias" || name == "cum_seq_q" || name == "cum_seq_k")) continue;
    if (args[i].isTensor() && !args[i].toTensor().defined() && schema[i].type()->kind() == c10::TypeKind::TensorType) return true;
  }
  return false;
}

// Whether addmm's `self` can be added to the product, which its Meta function does not ask.
bool FitsProduct(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args) {
  if (info.name.rfind("aten::addmm", 0) != 0) return true;
  const at::Tensor a = TensorArg(args[1]), b = TensorArg(args[2]);
  return a.dim() == 2 && b.dim() == 2 && at::is_expandable_to(TensorArg(args[0]).sizes(), {a.size(0), b.size(1)});
}

// Whether `info`, an in-place operator, may write its functional form's `result` to `self`. Pointwise operators cast, by ATen's rule.
bool FitsInPlace(const codegen::OpInfo& info, const at::Tensor& self, const at::Tensor& result) {
  if (!self.sizes().equals(result.sizes()) || OverlapsItself(self)) return false;
  if (self.scalar_type() == result.scalar_type()) return true;
  return codegen::IsLoopOverElements(info.name) && c10::canCast(result.scalar_type(), self.scalar_type());
}

}  // namespace

// By `function`, or when it is null by the operator's kernel for meta tensors.
static std::optional<codegen::OutputMetas> InferBy(const ShapeFunction* function, const codegen::OpInfo& info,
                                                   c10::ArrayRef<c10::IValue> args) {
  if (info.handle.hasTag(at::Tag::pointwise) && !KnowsDtypes(info.name) && CastsLooseOperands(args)) return std::nullopt;
  if (function == nullptr && (!info.has_meta || !IsOrdinary(info, args))) return std::nullopt;
  const runtime::AtenScope scope;
  torch::jit::Stack stack;
  for (const c10::IValue& arg : args) stack.push_back(ToMeta(arg));
  try {
    if (function == nullptr) {
      if (!CallMetaKernel(info.handle, &stack)) return std::nullopt;
    } else {
      const at::Tensor self = stack[0].isTensor() ? stack[0].toTensor() : at::Tensor();
      const std::vector<at::Tensor> results = (*function)(stack);
      if (results.empty() || (info.returns_mutated_self && !FitsInPlace(info, self, results[0]))) return std::nullopt;
      stack.assign(results.begin(), results.end());
    }
  } catch (const std::exception&) {
    return std::nullopt;
  }
  codegen::OutputMetas outputs;
  if (info.returns_mutated_self) return outputs;
  const auto& returns = info.schema().returns();
  TORCH_INTERNAL_ASSERT(stack.size() == returns.size(), info.name, " has ", returns.size(), " results, foretold are ", stack.size());
  for (const auto i : c10::irange(stack.size())) {
    const c10::IValue& result = stack[i];
    if (result.isInt() || returns[i].type()->kind() == c10::TypeKind::IntType) {
      outputs.push_back(MetaOf(result.isInt() ? result.toInt() : result.toTensor().size(0)));
      continue;
    }
    const at::Tensor& tensor = result.toTensor();
    // Nothing from something (isin) is a place holder.
    const bool is_stub = function == nullptr && tensor.defined() && tensor.numel() == 0 && !info.is_factory && HasElements(args);
    if (OverlapsItself(tensor) || is_stub || tensor.is_conj() || tensor.is_neg()) return std::nullopt;
    outputs.push_back(MetaOf(tensor));
    outputs.back().on_cpu = function != nullptr && tensor.defined() && tensor.is_cpu();
  }
  return outputs;
}

std::optional<codegen::OutputMetas> InferShapes(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args, c10::Device device) {
  if (LacksOperand(info, args) || !FitsProduct(info, args) || IsLayoutUnknown(info.name, device)) return std::nullopt;
  const std::vector<codegen::Word> foretold = ForetoldKey(info, args, device);
  if (CannotBeObserved(foretold)) return std::nullopt;
  const bool trusted = device.is_cpu() || IsSameOnAllDevices(info) || RecallShapes(foretold) != nullptr;
  return InferBy(trusted ? FindShapeFunction(info.name, device) : nullptr, info, args);
}

// Pointwise operators in place do not say that they are.
static bool IsPointwise(const codegen::OpInfo& info) {
  if (info.handle.hasTag(at::Tag::pointwise) || !info.returns_mutated_self) return info.handle.hasTag(at::Tag::pointwise);
  const codegen::OpInfo* const functional = codegen::FindOpInfo(FunctionalName(info.name));
  return functional != nullptr && functional->handle.hasTag(at::Tag::pointwise);
}

bool TakesDtypes(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args, const codegen::OutputMetas& outputs, c10::Device device) {
  const uint64_t dtypes = OperandDtypes(info, args);
  const uint64_t results = ResultDtypes(outputs);
  if (AllDtypes(dtypes | results, IsPlainDtype)) {
    if (KnowsDtypes(info.name) || dtypes == 0) return true;
    const bool has_wide = (dtypes & (BitOf(at::kFloat) | BitOf(at::kDouble))) != 0;
    const bool is_one = (dtypes & (dtypes - 1)) == 0;
    const codegen::OpRow* row = codegen::FindRowByName(info.name);
    if (row != nullptr && row->types != 0 && !row->moves) {
      const auto computes = [row](auto dtype) { return (codegen::TypeBit(dtype) & row->types) != 0; };
      // A number may make the result another dtype than its tensors.
      const auto gives = [&](auto dtype) { return dtype == at::kBool || computes(dtype) || !IsPointwise(info); };
      if (AllDtypes(dtypes, computes) && AllDtypes(results, gives)) return true;
      // Pointwise operands are promoted to the wide one.
      if (has_wide && (row->types & codegen::kWide) != 0 && IsPointwise(info)) return true;
    } else if (is_one && !ConvertsDtype(info, args) && !IsPointwise(info)) {
      // GPUs have kernels of half a word for most that is common.
      if (has_wide || (dtypes == BitOf(at::kBFloat16) && !device.is_cpu() && info.handle.hasTag(at::Tag::core))) return true;
    }
  }
  return RecallShapes(DtypesKey(info, args, results, device)) != nullptr;
}

void RememberDtypes(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args, c10::ArrayRef<c10::IValue> results, c10::Device device) {
  static const auto* taken = new codegen::OutputMetasPtr(std::make_shared<const codegen::OutputMetas>());
  // Without elements kernels often do not ask.
  bool some = false;
  ForEachTensor(args, [&](const at::Tensor& tensor, size_t) { some = some || tensor.numel() != 0; });
  if (!some) return;
  uint64_t dtypes = 0;
  if (!info.returns_mutated_self) {
    ForEachTensor(results, [&](const at::Tensor& tensor, size_t) { dtypes |= BitOf(tensor.scalar_type()); });
  }
  RememberShapes(DtypesKey(info, args, dtypes, device), *taken);
}

std::optional<codegen::OutputMetas> Observe(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args,
                                            c10::ArrayRef<c10::IValue> results, c10::Device device) {
  codegen::OutputMetas outputs;
  if (info.returns_mutated_self) return outputs;
  for (const c10::IValue& result : results) {
    if (result.isInt()) {
      outputs.push_back(MetaOf(result.toInt()));
      continue;
    }
    if (!result.isTensor()) return std::nullopt;
    const at::Tensor& tensor = result.toTensor();
    if (tensor.defined()) {
      const auto& impl = *tensor.unsafeGetTensorImpl();
      const bool on_cpu = tensor.device().is_cpu() && tensor.dim() == 0;
      if ((tensor.device() != device && !on_cpu) || tensor.layout() != c10::kStrided || !IsPlainOrLazy(impl) ||
          tensor.storage_offset() != 0 || tensor.is_conj() || tensor.is_neg() || OverlapsItself(tensor)) {
        return std::nullopt;
      }
      for (const c10::IValue& arg : args) {
        if (SharesStorage(arg, StorageOf(tensor))) return std::nullopt;
      }
    }
    outputs.push_back(MetaOf(tensor));
    outputs.back().on_cpu = tensor.defined() && tensor.device() != device;
  }
  return outputs;
}

void NoteUnforeseen(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args, c10::Device device) {
  RememberShapes(ForetoldKey(info, args, device), nullptr);
}

void NoteForetold(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args, const codegen::OutputMetas& observed, c10::Device device) {
  const ShapeFunction* function = FindShapeFunction(info.name, device);
  if (device.is_cpu() || function == nullptr) return;
  const std::optional<codegen::OutputMetas> foretold = InferBy(function, info, args);
  static const auto* trusted = new codegen::OutputMetasPtr(std::make_shared<const codegen::OutputMetas>());
  if (foretold.has_value() && *foretold == observed) RememberShapes(ForetoldKey(info, args, device), *trusted);
}

}  // namespace lazuli::tracer
