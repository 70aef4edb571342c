#include "codegen/ir/op_info.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "codegen/ir/grad_mode.h"
#include "codegen/ir/replaced_kernels.h"

namespace lazuli::codegen {
namespace {

// Facts that schemas leave out. Everything else about an op follows from its schema and tags.
struct HiddenMutation {
  const char* name;
  uint64_t args;
};
constexpr HiddenMutation kHiddenMutations[] = {
    {"aten::native_batch_norm", 0b11000},  // running_mean, running_var
    {"aten::cudnn_batch_norm", 0b11000},      {"aten::miopen_batch_norm", 0b11000},
    {"aten::batch_norm_update_stats", 0b110}, {"aten::rrelu_with_noise", 0b10},
};

// Its kernel looks at the grad mode to decide what it computes.
constexpr const char* kReadsGradMode = "aten::mkldnn_rnn_layer";

// Ops that replace or grow a tensor's memory, or read its address: never recorded.
bool ChangesStorage(const std::string& base) {
  static const auto* names = new absl::flat_hash_set<std::string>{"aten::resize_",
                                                                  "aten::resize_as_",
                                                                  "aten::set_",
                                                                  "aten::_resize_output_",
                                                                  "aten::resize_as_sparse_",
                                                                  "aten::is_set_to",
                                                                  "aten::record_stream",
                                                                  "aten::set_data",
                                                                  "aten::set",
                                                                  "aten::_lazy_clone",
                                                                  "aten::_has_same_storage_numel",
                                                                  "aten::_test_autograd_multiple_dispatch_view"};
  return names->contains(base);
}

// Ops whose `Scalar` arguments decide the shape of the result or which formula ATen picks.
bool ScalarsAreStatic(const std::string& base) {
  static const auto* names = new absl::flat_hash_set<std::string>{"aten::pow",
                                                                  "aten::pow_",
                                                                  "aten::float_power",
                                                                  "aten::arange",
                                                                  "aten::range",
                                                                  "aten::linspace",
                                                                  "aten::logspace",
                                                                  "aten::linalg_vector_norm",
                                                                  "aten::norm",
                                                                  "aten::_cdist_forward",
                                                                  "aten::_pdist_forward",
                                                                  "aten::renorm",
                                                                  "aten::upsample_nearest2d_backward",
                                                                  "aten::upsample_bilinear2d",
                                                                  "aten::upsample_bilinear2d_backward",
                                                                  "aten::dist",
                                                                  "aten::var",
                                                                  "aten::std",
                                                                  "aten::var_mean",
                                                                  "aten::std_mean",
                                                                  "aten::_upsample_nearest_exact1d"};
  return names->contains(base);
}

// Answers from sizes, dtypes and flags.
bool ReadsMetadataOnly(const std::string& base) {
  static const auto* names = new absl::flat_hash_set<std::string>{
      "aten::_fused_sdp_choice", "aten::is_same_size", "aten::_has_same_storage_numel", "aten::sym_size",
      "aten::sym_stride",        "aten::sym_numel",    "aten::sym_storage_offset"};
  return names->contains(base);
}

// Results have memory but no values yet.
bool IsAllocation(const std::string& base) {
  static const auto* names = new absl::flat_hash_set<std::string>{"aten::empty",     "aten::empty_strided",     "aten::empty_like",
                                                                  "aten::new_empty", "aten::new_empty_strided", "aten::empty_permuted"};
  return names->contains(base);
}

// Registered as composite though its kernel belongs to one backend: it would touch the memory that meta tensors do not have.
bool IsBackendSpecific(const std::string& base) {
  for (const char* part :
       {"mkldnn", "cudnn", "miopen", "onednn", "convolution", "conv_", "sparse", "quantize", "nested", "_lstm", "_gru", "_rnn", "fused"}) {
    if (base.find(part) != std::string::npos) return true;
  }
  return false;
}

// In-place operators that are not structured have generated Meta kernels that check nothing, which their composite functional forms call.
// What is structured has a Meta kernel in its functional form.
bool ChecksNothing(const c10::OperatorHandle& handle) {
  const c10::OperatorName& name = handle.operator_name();
  const bool in_place = name.name.back() == '_';
  const std::string base = in_place ? name.name.substr(0, name.name.size() - 1) : name.name;
  const auto functional = c10::Dispatcher::singleton().findSchema({base, name.overload_name});
  return (in_place || c10::Dispatcher::singleton().findSchema({base + "_", name.overload_name}).has_value()) &&
         !(functional.has_value() && functional->hasKernelForDispatchKey(c10::DispatchKey::Meta));
}

// Results keep the storage offset of their operand, and what lies before it.
bool KeepsOffset(const std::string& base) {
  static const auto* names = new absl::flat_hash_set<std::string>{"aten::copy",
                                                                  "aten::_new_zeros_with_same_feature_meta",
                                                                  "aten::slice_scatter",
                                                                  "aten::select_scatter",
                                                                  "aten::diagonal_scatter",
                                                                  "aten::as_strided_scatter"};
  return names->contains(base);
}

// Their schemas lack the tag that says so.
bool HasUntaggedDynamicShape(const std::string& base) { return base == "aten::_unique" || base == "aten::_pack_padded_sequence"; }

bool IsTensorType(const c10::TypePtr& type) { return type->kind() == c10::TypeKind::TensorType; }

// Whether the type is of `kind`, or a list or an optional of such.
bool Holds(const c10::Type& type, c10::TypeKind kind) {
  if (type.kind() == kind) return true;
  const auto inner = type.containedTypes();
  return std::any_of(inner.begin(), inner.end(), [&](const c10::TypePtr& contained) { return Holds(*contained, kind); });
}

// Argument types that have canonical bytes.
bool IsEncodable(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::GeneratorType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
      return true;
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::ListType:
      return IsEncodable(type->containedTypes()[0]);
    default:
      return false;
  }
}

void ReadArguments(const c10::FunctionSchema& schema, OpInfo* info, bool* encodable) {
  const auto& args = schema.arguments();
  info->num_args = static_cast<int>(args.size());
  info->is_factory = true;
  *encodable = info->num_args <= 64;
  for (int i = 0; i < info->num_args && i < 64; ++i) {
    const auto& arg = args[i];
    const bool is_written = arg.alias_info() != nullptr && arg.alias_info()->isWrite();
    if (is_written) info->mutated_args |= uint64_t{1} << i;
    if (is_written && arg.type()->kind() == c10::TypeKind::ListType) info->writes_lists = true;
    if (arg.is_out()) info->is_out = true;
    if (Holds(*arg.type(), c10::TypeKind::TensorType)) info->is_factory = false;
    if (IsTensorType(arg.type())) info->tensor_args |= uint64_t{1} << i;
    if (Holds(*arg.real_type(), c10::TypeKind::SymIntType)) info->size_args |= uint64_t{1} << i;
    if (arg.name() == "dropout_p" && arg.type()->kind() == c10::TypeKind::FloatType) info->dropout_arg = i;
    if (arg.name() == "pin_memory") info->pin_memory_arg = i;
    if (arg.name() == "alpha" || arg.name() == "beta") info->factor_args |= uint64_t{1} << i;
    if (arg.name() == "value" && schema.name().rfind("aten::masked_fill", 0) == 0) info->hiding_args |= uint64_t{1} << i;
    if (arg.type()->kind() == c10::TypeKind::GeneratorType ||
        (arg.type()->kind() == c10::TypeKind::OptionalType && arg.type()->containedTypes()[0]->kind() == c10::TypeKind::GeneratorType)) {
      info->is_random = true;
    }
    *encodable = *encodable && IsEncodable(arg.type());
  }
}

void ReadReturns(const c10::FunctionSchema& schema, OpInfo* info, bool* encodable) {
  const auto& returns = schema.returns();
  info->num_returns = static_cast<int>(returns.size());
  bool has_tensor = returns.empty();
  for (const auto& ret : returns) {
    const bool is_int = ret.type()->kind() == c10::TypeKind::IntType || ret.type()->kind() == c10::TypeKind::SymIntType;
    if (!IsTensorType(ret.type()) && !is_int) *encodable = false;
    has_tensor = has_tensor || IsTensorType(ret.type());
    if (ret.alias_info() == nullptr) continue;
    if (ret.alias_info()->isWrite()) {
      info->returns_mutated_self = true;
    } else {
      info->is_view = true;
    }
  }
  if (info->returns_mutated_self && (info->num_returns != 1 || (info->mutated_args & 1) == 0)) *encodable = false;
  if (!has_tensor || (info->num_returns == 0 && info->mutated_args == 0)) *encodable = false;
}

bool ReturnsNumbers(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& ret) { return !IsTensorType(ret.type()); });
}

uint64_t NumberArguments(const c10::FunctionSchema& schema) {
  uint64_t numbers = 0;
  for (size_t i = 0; i < schema.arguments().size() && i < 64; ++i) {
    if (schema.arguments()[i].type()->kind() == c10::TypeKind::NumberType) numbers |= uint64_t{1} << i;
  }
  return numbers;
}

// FNV-1a, as G. Fowler, L. C. Noll and K.-P. Vo give it.
uint64_t HashOf(const std::string& name) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return hash;
}

// LibTorch's, or ours: known, and never deregistered.
bool IsKnown(const OpInfo& info) { return info.name.rfind("aten::", 0) == 0 || info.name.rfind("lazuli::", 0) == 0; }

OpInfo Describe(const c10::OperatorHandle& handle, int32_t id) {
  const auto& op_name = handle.operator_name();
  OpInfo info{handle, {}};
  info.id = id;
  info.name = c10::toString(op_name);
  info.name_hash = HashOf(info.name);
  if (!handle.hasSchema()) return info;
  if (IsKnown(info)) {
    info.schema_ptr = std::shared_ptr<const c10::FunctionSchema>(std::shared_ptr<void>(), &handle.schema());
  } else {
    info.schema_ptr = std::make_shared<const c10::FunctionSchema>(handle.schema());
    info.life = std::make_shared<runtime::OperatorLife>();
  }
  bool encodable = true;
  ReadArguments(handle.schema(), &info, &encodable);
  ReadReturns(handle.schema(), &info, &encodable);
  for (const auto& hidden : kHiddenMutations) {
    if (info.name == hidden.name) info.mutated_args |= hidden.args;
  }
  const bool seeded = handle.hasTag(at::Tag::nondeterministic_seeded);
  info.is_random = info.is_random || (seeded && info.dropout_arg < 0);
  // Gradients are told which were, whatever their tags say.
  info.draws_dropout = seeded && info.dropout_arg >= 0 && !handle.schema().argumentIndexWithName("philox_seed").has_value();
  info.data_dependent = handle.hasTag(at::Tag::dynamic_output_shape) || handle.hasTag(at::Tag::data_dependent_output) ||
                        HasUntaggedDynamicShape(op_name.name);
  if (info.name == "aten::index.Tensor" || info.name == "aten::_unsafe_index.Tensor") {
    info.data_dependent = false;
    info.rejects_masks = true;
  }
  const bool fills = op_name.name == "aten::full" || op_name.name == "aten::scalar_tensor";
  info.static_scalars = (info.is_factory && !fills) || ScalarsAreStatic(op_name.name);
  if (info.is_factory && !fills) info.size_args |= NumberArguments(handle.schema());
  info.reads_metadata_only = ReadsMetadataOnly(op_name.name);
  info.is_allocation = IsAllocation(op_name.name);
  // A composite kernel tells shapes only where the CPU runs the same one (native_layer_norm's differs in its statistics).
  const bool composite = handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
                         handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
  info.hides_pieces = op_name.name == "aten::convolution";
  info.has_meta = handle.hasKernelForDispatchKey(c10::DispatchKey::Meta) ||
                  (composite && !handle.hasKernelForDispatchKey(c10::DispatchKey::CPU) && !IsBackendSpecific(op_name.name));
  // Python registers Meta kernels for some that have none, and these do not look at the grad mode.
  info.has_meta = info.has_meta && !ChecksNothing(handle) && info.name != kReadsGradMode;
  // A program's own operator may be recorded if a Meta kernel tells its results, numbers aside, which follow from data; its first runs tell
  // what else it does.
  const bool is_known = info.life == nullptr ? !IsKernelReplaced(handle) : info.has_meta && !ReturnsNumbers(handle.schema());
  info.recordable = is_known && encodable && !info.is_out && !info.is_view && !info.is_random && !info.data_dependent &&
                    !handle.hasTag(at::Tag::inplace_view) && !ChangesStorage(op_name.name) && !KeepsOffset(op_name.name);
  return info;
}

// An operator that is registered again may be another one. Programs of the old one stay where they are: nothing has its number any more.
class Registry {
 public:
  const OpInfo& Get(const c10::OperatorHandle& handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto [it, inserted] = by_name_.try_emplace(handle.operator_name(), nullptr);
    if (inserted) {
      infos_.push_back(Describe(handle, static_cast<int32_t>(infos_.size())));
      it->second = &infos_.back();
    }
    return *it->second;
  }

  const OpInfo& ById(int32_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    return infos_.at(id);
  }

 private:
  class Forget : public c10::OpRegistrationListener {
   public:
    explicit Forget(Registry* registry) : registry_(registry) {}
    void onOperatorRegistered(const c10::OperatorHandle& op) override { registry_->Drop(op); }
    void onOperatorDeregistered(const c10::OperatorHandle& op) override { registry_->Drop(op); }

   private:
    Registry* registry_;
  };

  void Drop(const c10::OperatorHandle& handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = by_name_.find(handle.operator_name());
    if (it == by_name_.end()) return;
    if (it->second->life != nullptr) it->second->life->gone.store(true, std::memory_order_release);
    by_name_.erase(it);
  }

  struct NameHash {
    size_t operator()(const c10::OperatorName& name) const { return std::hash<c10::OperatorName>()(name); }
  };
  std::mutex mutex_;
  std::deque<OpInfo> infos_;
  absl::flat_hash_map<c10::OperatorName, const OpInfo*, NameHash> by_name_;
  // Last: it is told of all operators at once.
  c10::RegistrationHandleRAII listening_ = c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Forget>(this));
};

Registry& GetRegistry() {
  static auto* registry = new Registry;
  return *registry;
}

}  // namespace

bool ReadsGradMode(const OpInfo& info) {
  static const OpInfo* reader = FindOpInfo(kReadsGradMode);
  return &info == reader;
}

const OpInfo& GetOpInfo(const c10::OperatorHandle& handle) { return GetRegistry().Get(handle); }

const OpInfo& OpInfoById(int32_t id) { return GetRegistry().ById(id); }

const OpInfo* FindOpInfo(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string base = name.substr(0, dot);
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  const auto handle = c10::Dispatcher::singleton().findSchema({base, overload});
  return handle.has_value() ? &GetOpInfo(*handle) : nullptr;
}

}  // namespace lazuli::codegen
