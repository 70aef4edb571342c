#include "codegen/products/packed_convolution.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/intrusive_ptr.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "codegen/products/content_hash.h"
#include "codegen/products/direct_calls.h"
#include "runtime/counters.h"

namespace lazuli::codegen {
namespace {

using runtime::Counters;

// The arguments of aten::convolution.
enum Argument { kX, kWeight, kBias, kStride, kPadding, kDilation, kTransposed, kOutputPadding, kGroups };

// Below, reordering takes no time.
constexpr int64_t kFewestElements = 4096;
// Runs that see the same weights before these are packed, and runs between two looks at weights that change.
constexpr int64_t kRunsUnchanged = 2;
constexpr int64_t kLongestWait = 1024;

using Owner = c10::intrusive_ptr<c10::StorageImpl>;
using OptionalOperator = std::optional<c10::OperatorHandle>;

struct Library {
  OptionalOperator reorder = c10::Dispatcher::singleton().findSchema({"mkldnn::_reorder_convolution_weight", ""});
  OptionalOperator convolve = c10::Dispatcher::singleton().findSchema({"mkldnn::_convolution_pointwise", ""});

  static const Library& Get() {
    static const auto* const library = new Library;
    return *library;
  }
  bool exists() const { return reorder.has_value() && convolve.has_value() && at::globalContext().userEnabledMkldnn(); }
};

at::Tensor CallOf(const c10::OperatorHandle& op, torch::jit::Stack stack) {
  op.callBoxed(&stack);
  return std::move(stack[0]).toTensor();
}

// What decides the order in which the library wants weights.
std::vector<int64_t> FormOf(const torch::jit::Stack& arguments) {
  std::vector<int64_t> form;
  const auto append = [&](c10::IntArrayRef numbers) { form.insert(form.end(), numbers.begin(), numbers.end()); };
  append(arguments[kX].toTensor().sizes());
  append(arguments[kWeight].toTensor().sizes());
  append(arguments[kWeight].toTensor().strides());
  for (const int list : {kStride, kPadding, kDilation}) append(arguments[list].toIntVector());
  form.push_back(arguments[kGroups].toInt());
  return form;
}

ContentHash HashOf(const at::Tensor& weight) { return HashContent(weight.const_data_ptr(), static_cast<int64_t>(weight.nbytes())); }

// Weights in the library's order. Lets go of them when they are of no use any more, whoever still refers to it.
class PackedWeight {
 public:
  PackedWeight(c10::StorageImpl* owner, std::vector<int64_t> form, const ContentHash& content, at::Tensor packed)
      : owner_(Owner::reclaim_copy(owner)), form_(std::move(form)), content_(content), packed_(std::move(packed)) {
    Counters::Get().packed_weight_bytes.Add(bytes());
  }
  ~PackedWeight() { Drop(); }

  const ContentHash& content() const { return content_; }
  const std::vector<int64_t>& form() const { return form_; }
  bool OwnerLives() const { return !owner_.expired(); }

  // Undefined once dropped.
  at::Tensor packed() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return packed_;
  }

  void Drop() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!packed_.defined()) return;
    Counters::Get().packed_weight_bytes.Add(-bytes());
    packed_.reset();
  }

 private:
  int64_t bytes() const { return packed_.numel() * static_cast<int64_t>(packed_.element_size()); }

  c10::weak_intrusive_ptr<c10::StorageImpl> owner_;  // Of the weights themselves.
  std::vector<int64_t> form_;
  ContentHash content_;
  mutable std::mutex mutex_;
  at::Tensor packed_;
};

// All packed weights of the process, by the address of the weights: never two of one.
class WeightStore {
 public:
  static WeightStore& Get() {
    static auto* const weights = new WeightStore;
    return *weights;
  }

  // Null where another program keeps them in another order.
  std::shared_ptr<PackedWeight> Pack(const torch::jit::Stack& arguments, c10::StorageImpl* owner, const ContentHash& content) {
    const at::Tensor& weight = arguments[kWeight].toTensor();
    std::lock_guard<std::mutex> lock(mutex_);
    Sweep();
    std::weak_ptr<PackedWeight>& place = by_address_[weight.const_data_ptr()];
    if (const std::shared_ptr<PackedWeight> known = place.lock()) {
      if (known->content() != content) {
        known->Drop();
      } else if (known->packed().defined()) {
        return known->form() == FormOf(arguments) ? known : nullptr;
      }
    }
    at::Tensor packed = CallOf(*Library::Get().reorder, {weight, arguments[kPadding], arguments[kStride], arguments[kDilation],
                                                         arguments[kGroups], arguments[kX].toTensor().sizes().vec()});
    if (!packed.is_mkldnn()) return nullptr;
    auto made = std::make_shared<PackedWeight>(owner, FormOf(arguments), content, std::move(packed));
    place = made;
    Counters::Get().weights_packed.Add();
    return made;
  }

  // Drops what is packed of weights that are no more.
  void DropDead() {
    std::lock_guard<std::mutex> lock(mutex_);
    Sweep();
  }

 private:
  void Sweep() {
    for (auto it = by_address_.begin(); it != by_address_.end();) {
      const std::shared_ptr<PackedWeight> weight = it->second.lock();
      const bool dead = weight == nullptr || !weight->OwnerLives();
      if (dead && weight != nullptr) weight->Drop();
      if (dead) {
        by_address_.erase(it++);
      } else {
        ++it;
      }
    }
  }

  std::mutex mutex_;
  absl::flat_hash_map<const void*, std::weak_ptr<PackedWeight>> by_address_;
};

class PackedConvolution : public runtime::KeptCall {
 public:
  at::Tensor Run(const torch::jit::Stack& arguments, c10::StorageImpl* owner) override {
    if (!Suits(arguments)) return {};
    if (kept_ != nullptr) return RunKept(arguments);
    if (--wait_ >= 0) return {};
    const ContentHash content = HashOf(arguments[kWeight].toTensor());
    WeightStore::Get().DropDead();
    if (runs_unchanged_ > 0 && content != content_) {
      Wait();
    } else if (++runs_unchanged_ > kRunsUnchanged) {
      kept_ = WeightStore::Get().Pack(arguments, owner, content);
      if (kept_ == nullptr) wait_ = kLongestWait;
    }
    content_ = content;
    return {};
  }

 private:
  // Of images whose channels come last: with others, the library's result would have another layout.
  static bool Suits(const torch::jit::Stack& arguments) {
    const at::Tensor& x = arguments[kX].toTensor();
    const at::Tensor& weight = arguments[kWeight].toTensor();
    return Library::Get().exists() && !MayRound(at::Float32Op::CONV) && !arguments[kTransposed].toBool() && x.dim() == 4 && x.numel() > 0 &&
           weight.numel() >= kFewestElements && weight.is_non_overlapping_and_dense() && x.size(1) > 1 &&
           HasDenseRows(x.sizes(), x.strides());
  }

  at::Tensor RunKept(const torch::jit::Stack& arguments) {
    const at::Tensor packed = kept_->packed();
    if (!packed.defined() || kept_->form() != FormOf(arguments) || kept_->content() != HashOf(arguments[kWeight].toTensor())) {
      if (packed.defined()) kept_->Drop();
      kept_.reset();
      Wait();
      return {};
    }
    Counters::Get().packed_weight_calls.Add();
    return CallOf(*Library::Get().convolve,
                  {arguments[kX], packed, arguments[kBias], arguments[kPadding], arguments[kStride], arguments[kDilation],
                   arguments[kGroups], std::string("none"), c10::List<std::optional<at::Scalar>>(), std::string()});
  }

  // Weights that change, as in training, are looked at ever more rarely.
  void Wait() {
    runs_unchanged_ = 0;
    longest_ = std::min(2 * longest_, kLongestWait);
    wait_ = longest_;
  }

  std::shared_ptr<PackedWeight> kept_;
  ContentHash content_ = {};  // At the last look.
  int64_t runs_unchanged_ = 0;
  int64_t wait_ = 0;     // Runs before the next look.
  int64_t longest_ = 1;  // The last wait.
};

}  // namespace

std::shared_ptr<runtime::KeptCall> FindPackedCall(const Node& node, const Graph& graph, int* weight_argument) {
  if (node.op.info->name != "aten::convolution") return nullptr;
  const TensorRef& x = node.op.args[kX].tensors[0];
  const TensorRef& weight = node.op.args[kWeight].tensors[0];
  if (x.dtype != c10::kFloat || weight.dtype != c10::kFloat || x.sizes.size() != 4 || IsWritten(weight, graph)) return nullptr;
  *weight_argument = kWeight;
  return std::make_shared<PackedConvolution>();
}

}  // namespace lazuli::codegen
