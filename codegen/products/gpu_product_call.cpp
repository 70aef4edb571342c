#include "codegen/products/gpu_product_call.h"

#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codegen/kernel_store.h"
#include "codegen/products/lt_product.h"
#include "codegen/products/product_activation.h"
#include "codegen/race.h"
#include "runtime/counters.h"
#include "runtime/cublas_lt.h"
#include "runtime/device.h"
#include "runtime/gpu_timer.h"
#include "runtime/log.h"
#include "runtime/options.h"

namespace lazuli::codegen {
namespace {

using runtime::CublasLt;
using runtime::CublasLtResult;
using runtime::CudaStreamHandle;

constexpr double kProductSampleSeconds = 50e-6;
constexpr int kMostRepeats = 32;
constexpr int kBusyTimes = 2;  // GpuTimer::KeepBusy's, for each launch.
constexpr double kRefused = 3600;
constexpr double kHopelessAlgorithm = 1.3;  // What takes so much longer the first time is not timed further.

constexpr size_t kChosenAtOnce = 128, kMostProducts = 2048, kMostSeen = 4096;
constexpr int kTimesToBeChosen = 8;

// A product of so many multiplications takes a GPU about as long as the host takes to have LibTorch's library launch it.
constexpr double kSmallProduct = 1 << 28;

// Times algorithms on the product's own operands, whose result each of them writes.
class ProductTuner {
 public:
  ProductTuner(const LtProduct& lt_product, const GpuProduct& product, CudaStreamHandle stream, double budget)
      : lt_product_(lt_product), product_(product), stream_(stream), timer_(stream), budget_(budget) {}

  // The fastest of `proposed`. None: not one of them runs.
  std::optional<CublasLtResult> Choose(const std::vector<CublasLtResult>& proposed) {
    size_t best = 0;
    while (best < proposed.size() && Sample(proposed[best]) >= kRefused) ++best;
    if (best == proposed.size()) return std::nullopt;
    seconds_ = Sample(proposed[best]);
    if (seconds_ > 0) repeats_ = std::clamp(static_cast<int>(kProductSampleSeconds / seconds_), 1, kMostRepeats);
    if (repeats_ > 1) timer_.KeepBusy(repeats_ * kBusyTimes);
    size_t timed = best + 1;
    for (size_t i = best + 1; i < proposed.size() && HasTime(); ++i) {
      ++timed;
      Sample(proposed[i]);
      if (Sample(proposed[i]) > kHopelessAlgorithm * seconds_) continue;
      const double give_up = std::min(budget_, Elapsed() + budget_ / 8);
      const RaceResult race =
          Race([&] { return Sample(proposed[i]); }, [&] { return Sample(proposed[best]); }, [&] { return Elapsed() < give_up; });
      absl::StrAppendFormat(&report_, "\n  algorithm %d: %.1f us, algorithm %d %.1f us%s", i + 1, 1e6 * race.ours, best + 1,
                            1e6 * race.theirs, race.faster ? ", taken" : "");
      if (!race.faster) continue;
      best = i;
      seconds_ = race.ours;
    }
    runtime::Counters::Get().products_tuned.Add();
    runtime::Counters::Get().algorithms_timed.Add(static_cast<int64_t>(timed));
    if (runtime::LogEnabled(runtime::LogCategory::kAutotuning)) {
      runtime::Log(runtime::LogCategory::kAutotuning,
                   absl::StrCat("Product ", product_.shape.Text(), ": algorithm ", best + 1, " chosen of ", proposed.size(), report_));
    }
    return proposed[best];
  }

 private:
  using Clock = std::chrono::steady_clock;

  double Elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool HasTime() const { return Elapsed() + 2.0 * kMinTurns * repeats_ * seconds_ < budget_; }

  // Seconds of one run; kRefused for what the library refuses after all.
  double Sample(const CublasLtResult& algorithm) {
    bool ran = true;
    const absl::StatusOr<double> seconds = timer_.Time([&] {
      for (int i = 0; i < repeats_; ++i) ran &= lt_product_.Run(product_, algorithm, stream_);
    });
    return ran && seconds.ok() ? *seconds / repeats_ : kRefused;
  }

  const LtProduct& lt_product_;
  const GpuProduct& product_;
  const CudaStreamHandle stream_;
  runtime::GpuTimer timer_;
  const double budget_;  // Seconds.
  const Clock::time_point start_ = Clock::now();
  int repeats_ = 1;
  double seconds_ = 0;  // Of the best.
  std::string report_;
};

std::string AlgorithmText(const CublasLtResult& result) {
  std::string text;
  for (const uint64_t word : result.algorithm.data) absl::StrAppendFormat(&text, "%016x", word);
  return text;
}

std::optional<CublasLtResult> ParseAlgorithm(const std::string& text) {
  CublasLtResult result{};
  if (text.size() != 16 * std::size(result.algorithm.data)) return std::nullopt;
  for (size_t w = 0; w < std::size(result.algorithm.data); ++w) {
    if (!absl::SimpleHexAtoi(text.substr(16 * w, 16), &result.algorithm.data[w])) return std::nullopt;
  }
  return result;
}

// The products of one GPU, and the algorithms for them: LtChoice's.
class GpuProducts {
 public:
  // Those of the GPU with this index. Null where it has no cuBLASLt; the log says so once.
  static GpuProducts* Of(int device, LtChoice choice) {
    static auto* const mutex = new std::mutex;
    static auto* const all = new absl::flat_hash_map<std::pair<int, LtChoice>, std::unique_ptr<GpuProducts>>;
    std::lock_guard<std::mutex> lock(*mutex);
    auto [entry, is_new] = all->try_emplace(std::make_pair(device, choice));
    if (is_new) entry->second = Open(device, choice);
    return entry->second.get();
  }

  // False: the library that LibTorch calls is to do it.
  bool Run(const GpuProduct& product, const c10::Stream& stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto known = chosen_.find(product.shape);
    if (known == chosen_.end()) {
      if (!MayChoose(stream) || !IsWorthwhile(product.shape)) return false;
      known = chosen_.emplace(product.shape, Choose(product, runtime::HandleOf(stream))).first;
    }
    Chosen& chosen = known->second;
    return chosen.product != nullptr && chosen.product->Run(product, chosen.algorithm, runtime::HandleOf(stream));
  }

 private:
  struct Chosen {
    std::unique_ptr<LtProduct> product;  // Null: cuBLASLt proposes nothing.
    CublasLtResult algorithm{};
  };

  static std::unique_ptr<GpuProducts> Open(int device, LtChoice choice) {
    const absl::StatusOr<const CublasLt*> lt = runtime::GetCublasLt();
    const absl::StatusOr<runtime::CudaDeviceInfo> info = runtime::GetCudaDeviceInfo(device);
    std::unique_ptr<GpuProducts> products;
    if (lt.ok() && info.ok()) products.reset(new GpuProducts(**lt, info->arch, choice));
    if (products != nullptr && products->lt_.create(&products->handle_) == 0) return products;
    const absl::Status& missing = lt.ok() ? info.status() : lt.status();
    runtime::LogOnce(
        absl::StrCat("products on GPUs are LibTorch's calls: ", missing.ok() ? "cuBLASLt does not start" : std::string(missing.message())));
    return nullptr;
  }

  GpuProducts(const CublasLt& lt, const std::string& arch, LtChoice choice)
      : lt_(lt), choice_(choice), machine_(absl::StrCat("cublaslt ", lt.version(), " gpu ", arch)) {}

  // Nothing can be timed while a graph is captured, or where that is to take no time.
  bool MayChoose(const c10::Stream& stream) const {
    return choice_ == LtChoice::kFirst || (runtime::Active().autotune_ms > 0 && !runtime::IsCapturing(stream));
  }

  // Sizes that change have many shapes: beyond a number only those that keep coming are looked into, and beyond another no more.
  bool IsWorthwhile(const GpuProductShape& shape) {
    if (chosen_.size() < kChosenAtOnce) return true;
    if (chosen_.size() >= kMostProducts) return false;
    if (seen_.size() >= kMostSeen) seen_.clear();
    return ++seen_[shape] >= kTimesToBeChosen;
  }

  Chosen Choose(const GpuProduct& product, CudaStreamHandle stream) const {
    auto lt_product = std::make_unique<LtProduct>(lt_, handle_, product.shape);
    const std::optional<CublasLtResult> algorithm =
        choice_ == LtChoice::kFirst ? First(lt_product.get()) : Fastest(lt_product.get(), product, stream);
    if (!algorithm.has_value()) return {};
    return {std::move(lt_product), *algorithm};
  }

  static std::optional<CublasLtResult> First(LtProduct* lt_product) {
    const std::vector<CublasLtResult> proposed = lt_product->Propose();
    if (proposed.empty()) return std::nullopt;
    return proposed.front();
  }

  std::optional<CublasLtResult> Fastest(LtProduct* lt_product, const GpuProduct& product, CudaStreamHandle stream) const {
    runtime::DiskCache* const disk = runtime::DiskCache::Active();
    const std::string key = product.shape.Text();
    if (const std::optional<std::string> text = FindFastest(disk, machine_, key)) {
      std::optional<CublasLtResult> kept = ParseAlgorithm(*text);
      if (kept.has_value() && lt_product->Check(&*kept)) return kept;
    }
    const std::vector<CublasLtResult> proposed = lt_product->Propose();
    const double budget = 1e-3 * static_cast<double>(runtime::Active().autotune_ms);
    const std::optional<CublasLtResult> fastest = ProductTuner(*lt_product, product, stream, budget).Choose(proposed);
    if (fastest.has_value()) KeepFastest(disk, machine_, key, AlgorithmText(*fastest));
    return fastest;
  }

  const CublasLt& lt_;
  const LtChoice choice_;
  const std::string machine_;
  runtime::CublasLtHandle handle_ = nullptr;
  std::mutex mutex_;
  absl::flat_hash_map<GpuProductShape, Chosen> chosen_;
  absl::flat_hash_map<GpuProductShape, int> seen_;  // How often those came that were not worth it.
};

bool IsSmall(const GpuProductShape& shape) {
  return shape.k <= kShortSums &&
         static_cast<double>(shape.batch) * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k) <=
             kSmallProduct;
}

// LibTorch's call with a bias takes cuBLASLt's first guess, too, and asks for it each time.
bool IsFirstGuessAnyway(const GpuProductShape& shape) { return shape.has_bias && shape.m > 1 && shape.k > 1; }

// LibTorch's call has no epilogue; passes/epilogue.h saw to it that sums are short.
bool Suits(const GpuProductShape& shape) { return shape.epilogue != Epilogue::kNone || IsFirstGuessAnyway(shape) || IsSmall(shape); }

template <LtChoice choice>
bool Launch(const std::optional<GpuProduct>& product, const at::Tensor& out) {
  if (!product.has_value() || at::globalContext().deterministicAlgorithms()) return false;
  if (choice == LtChoice::kFirst && !Suits(product->shape)) return false;
  GpuProducts* const products = GpuProducts::Of(out.device().index(), choice);
  if (products == nullptr) return false;
  const c10::DeviceGuard guard(out.device());
  if (!products->Run(*product, runtime::CurrentStream(out.device()))) return false;
  runtime::Counters::Get().cublaslt_products.Add();
  return true;
}

// mm.out(self, mat2, out), bmm.out(self, mat2, out)
template <LtChoice choice>
bool MultiplyMatrices(const torch::jit::Stack& arguments, torch::jit::Stack* /*results*/) {
  const at::Tensor& out = arguments[2].toTensor();
  return Launch<choice>(DescribeGpuProduct(arguments[0].toTensor(), arguments[1].toTensor(), {}, out), out);
}

// addmm.out(self, mat1, mat2, beta, alpha, out)
template <LtChoice choice>
bool MultiplyAndAdd(const torch::jit::Stack& arguments, torch::jit::Stack* /*results*/) {
  const at::Tensor& out = arguments[5].toTensor();
  if (!IsUnitFactor(arguments[3]) || !IsUnitFactor(arguments[4])) return false;
  return Launch<choice>(DescribeGpuProduct(arguments[1].toTensor(), arguments[2].toTensor(), arguments[0].toTensor(), out), out);
}

Epilogue EpilogueOf(const c10::IValue& activation) {
  return ActivationNamed(activation.toStringRef()) == Activation::kRelu ? Epilogue::kRelu : Epilogue::kGelu;
}

at::Tensor BiasOf(const c10::IValue& bias) { return bias.isNone() ? at::Tensor() : bias.toTensor(); }

// _product_activation.out(bias, self, mat2, activation, out)
template <LtChoice choice>
bool Activate(const torch::jit::Stack& arguments, torch::jit::Stack* /*results*/) {
  const at::Tensor& out = arguments[4].toTensor();
  return Launch<choice>(
      DescribeGpuProduct(arguments[1].toTensor(), arguments[2].toTensor(), BiasOf(arguments[0]), out, EpilogueOf(arguments[3])), out);
}

// _product_activation.keep_out(bias, self, mat2, activation, out, input)
template <LtChoice choice>
bool ActivateAndKeep(const torch::jit::Stack& arguments, torch::jit::Stack* /*results*/) {
  const at::Tensor& out = arguments[4].toTensor();
  if (EpilogueOf(arguments[3]) != Epilogue::kGelu) return false;
  return Launch<choice>(DescribeGpuProduct(arguments[1].toTensor(), arguments[2].toTensor(), BiasOf(arguments[0]), out, Epilogue::kGeluAux,
                                           arguments[5].toTensor()),
                        out);
}

template <LtChoice choice>
runtime::DirectCall Find(const std::string& called) {
  if (called == "aten::mm.out" || called == "aten::bmm.out") return &MultiplyMatrices<choice>;
  if (called == "lazuli::_product_activation.out") return &Activate<choice>;
  if (called == "lazuli::_product_activation.keep_out") return &ActivateAndKeep<choice>;
  return called == "aten::addmm.out" ? &MultiplyAndAdd<choice> : nullptr;
}

}  // namespace

runtime::DirectCall FindGpuProductCall(const Node& node, const OpInfo& called, LtChoice choice) {
  if (node.op.device.is_cpu()) return nullptr;
  return choice == LtChoice::kFirst ? Find<LtChoice::kFirst>(called.name) : Find<LtChoice::kFastest>(called.name);
}

}  // namespace lazuli::codegen
