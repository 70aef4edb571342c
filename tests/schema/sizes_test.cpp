// Operators called with one size after another: how many of them must run eagerly to learn their results' shapes, each time.

#include <ATen/ExpandUtils.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <set>

#include "codegen/ir/op_info.h"
#include "lazuli/lazuli.h"
#include "tests/support/schema_call.h"
#include "tests/support/schema_ops.h"
#include "tests/support/schema_runner.h"
#include "tests/support/schema_sizes.h"
#include "tests/support/silent_warnings.h"

namespace lazuli::testing {
namespace {

constexpr int kSizes = 5;
constexpr int kMinSeries = 4000;
constexpr size_t kMaxStale = 5;

// Operators without a shape function, which are observed for each size.
// clang-format off
const std::set<std::string> kObserved = {
    // Backends' own, under names that programs have no reason to call; aten::convolution stands for them.
    "aten::_convolution",
    "aten::_grid_sampler_2d_cpu_fallback",
    "aten::_nnpack_spatial_convolution",
    "aten::_slow_conv2d_backward.output_mask",
    "aten::_slow_conv2d_forward",
    "aten::mkldnn_rnn_layer_backward",
    "aten::slow_conv3d_forward",
    "aten::slow_conv_dilated2d",
    "aten::slow_conv_dilated3d",
    "aten::slow_conv_transpose3d",
    // They write all parameters, whose sizes stay, and have no results: only their kernels check.
    "aten::_amp_foreach_non_finite_check_and_unscale_",
    "aten::_fused_adagrad_",
    "aten::_fused_adagrad_.tensor_lr",
    "aten::_fused_adam_",
    "aten::_fused_adam_.tensor_lr",
    "aten::_fused_adamw_",
    "aten::_fused_adamw_.tensor_lr",
    "aten::_fused_sgd_",
    "aten::_fused_sgd_.tensor_lr",
    // Quantized inference.
    "aten::_add_relu.Scalar",
    "aten::_add_relu.Tensor",
    "aten::_add_relu_.Scalar",
    "aten::_add_relu_.Tensor",
    "aten::_fused_moving_avg_obs_fq_helper",
    "aten::_fused_moving_avg_obs_fq_helper_functional",
    "aten::_int_mm",
    "aten::_weight_int8pack_mm",
    // Fused layers of inference, and batch norm as graphs have it.
    "aten::_batch_norm_no_update",
    "aten::_batch_norm_with_update",
    "aten::_masked_softmax",
    "aten::_masked_softmax_backward",
    "aten::_native_batch_norm_legit.no_stats",
    "aten::_native_multi_head_attention",
    "aten::_transformer_encoder_layer_fwd",
    "aten::batch_norm_update_stats",
    // Complex results, and transforms along other dimensions than the last.
    "aten::_conj_copy",
    "aten::_conj_physical",
    "aten::conj_physical_",
    "aten::_fft_c2c",
    "aten::_fft_c2r",
    "aten::_linalg_eigvals",
    "aten::linalg_eig",
    "aten::mul.Tensor",
    // A mask as index, with values for its places.
    "aten::_index_put_impl_",
    // In-place composite operators, and others whose kernels reach past the dispatcher.
    "aten::bitwise_left_shift_.Tensor_Scalar",
    "aten::bitwise_right_shift_.Tensor_Scalar",
    "aten::div_.Scalar_mode",
    "aten::ldexp_",
    "aten::linalg_pinv.atol_rtol_tensor",
    "aten::mvlgamma",
    "aten::mvlgamma_",
    "aten::resize",
    "aten::resize_as",
    "aten::xlogy_.Scalar_Other",
    // Rare.
    "aten::_aminmax",
    "aten::_aminmax.dim",
    "aten::_compute_linear_combination",
    "aten::_cummax_helper",
    "aten::_cummin_helper",
    "aten::_dirichlet_grad",
    "aten::_histogramdd_from_bin_cts",
    "aten::_histogramdd_from_bin_tensors",
    "aten::_segment_reduce_backward",
    "aten::_stack",
    "aten::_standard_gamma_grad",
    "aten::_test_functorch_fallback",
    "aten::bucketize.Scalar",
    "aten::searchsorted.Scalar",
    "aten::glu_jvp",
    "aten::histogram.bin_ct",
    "aten::histogram.bins_tensor",
    "aten::isin.Scalar_Tensor",
    "aten::linalg__powsum",
    "aten::nonzero_static",
    "aten::ormqr",
    "aten::remainder.Scalar_Tensor",
    "aten::segment_reduce",
};
// clang-format on

// And those in a Python process, which are composite.
const std::set<std::string> kObservedInPython = {"aten::_chunk_cat", "aten::_grouped_mm", "aten::_trilinear", "aten::polygamma_"};

using Counts = std::map<std::string, int64_t>;

// Operators that ran eagerly since `before` though they can be recorded: observed.
std::set<std::string> RanEagerly(const Stats& before, const Stats& after) {
  std::set<std::string> names;
  const auto add = [&names](const Counts& begin, const Counts& end) {
    for (const auto& [name, count] : end) {
      const auto it = begin.find(name);
      const codegen::OpInfo* info = codegen::FindOpInfo(name);
      if (it != begin.end() && it->second == count) continue;
      if (info != nullptr && info->recordable) names.insert(name);
    }
  };
  add(before.eager_fallbacks, after.eager_fallbacks);
  add(before.eager_uncut, after.eager_uncut);
  return names;
}

struct Seen {
  int series = 0;
  std::set<std::string> observed;  // Not only at the first size.
};

using CallFunction = CallOutcome (*)(const CallPlan&, const std::vector<torch::Tensor>&, int);

// What one call observes.
std::set<std::string> RanEagerly(const CallPlan& plan, CallFunction call) {
  const auto storages = MakeStorages(plan, 0);
  const Stats before = lazuli::stats();
  {
    const lazuli::DeviceMode mode(Options().backend("aten").step_aside(false).accumulated_recompile_limit(1));
    call(plan, storages, 0);
  }
  const Stats after = lazuli::stats();
  return after.observations == before.observations ? std::set<std::string>() : RanEagerly(before, after);
}

void RunSeries(const SizeSeries& series, CallFunction call, Seen* seen) {
  ++seen->series;
  // The first size also tells which dtypes the kernels take.
  RanEagerly(series[0], call);
  for (size_t i = 1; i < series.size(); ++i) {
    std::set<std::string> names = RanEagerly(series[i], call);
    if (names.empty()) continue;
    // What cannot be recorded runs eagerly again, at the same size.
    const Stats before = lazuli::stats();
    RanEagerly(series[i], call);
    for (const std::string& again : RanEagerly(before, lazuli::stats())) names.erase(again);
    for (const std::string& name : names) {
      const bool is_new = seen->observed.insert(name).second;
      if (is_new && kObserved.count(name) == 0) std::cout << "  " << name << " is observed for each size, in " << series[i].text << "\n";
    }
  }
}

void ExpectInferred(bool in_python) {
  lazuli::reset();
  ::testing::internal::CaptureStderr();  // Past the limit, which keeps this fast, each site says so.
  Seen seen;
  int with_gradients = 0;
  for (const c10::OperatorHandle& op : CpuOperators("")) {
    if (!ReasonUntested(op).empty()) continue;
    for (const SizeSeries& series : PlanSizes(op, kSizes)) {
      RunSeries(series, &Call, &seen);
      if (op.schema().is_mutable()) continue;
      const CallPlan& last = series.back();
      if (!CallBackward(last, MakeStorages(last, 0), 0).has_gradients) continue;
      RunSeries(series, &CallBackward, &seen);
      ++with_gradients;
    }
  }
  ::testing::internal::GetCapturedStderr();
  std::cout << "sizes: " << seen.series << " series of calls, " << with_gradients << " of them with gradients; observed for each size:";
  for (const std::string& name : seen.observed) std::cout << " " << name;
  std::cout << "\n";
  EXPECT_GE(seen.series, kMinSeries);
  for (const std::string& name : seen.observed) {
    EXPECT_TRUE(kObserved.count(name) != 0 || (in_python && kObservedInPython.count(name) != 0)) << name << " needs a shape function";
  }
  EXPECT_GE(seen.observed.size() + kMaxStale, kObserved.size()) << "operators are listed that are observed no more";
}

// As Python does: a function in place of operators' kernels for meta tensors, but for those that make tensors, copies and views; here one
// that must not be called.
class PythonMetaKernels {
 public:
  PythonMetaKernels() : library_(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__) {
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      const auto op = c10::Dispatcher::singleton().findOp(name);
      const bool has_meta = op.has_value() && name.name.rfind("aten::", 0) == 0 && op->hasSchema() && HasMetaKernel(*op);
      if (!has_meta) continue;
      library_.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&Fail>().debug("registered at meta.py:1"));
    }
  }

 private:
  static bool HasMetaKernel(const c10::OperatorHandle& op) {
    static const std::set<std::string> kept = {"aten::empty", "aten::empty_strided", "aten::resize_", "aten::set_",
                                               "aten::clone", "aten::copy_",         "aten::_to_copy"};
    const codegen::OpInfo* info = codegen::FindOpInfo(c10::toString(op.operator_name()));
    if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) || kept.count(op.schema().name()) != 0) return false;
    if (info == nullptr || info->is_view) return false;
    for (const auto key :
         {c10::DispatchKey::Meta, c10::DispatchKey::CompositeExplicitAutograd, c10::DispatchKey::CompositeExplicitAutogradNonFunctional}) {
      if (op.hasKernelForDispatchKey(key)) return true;
    }
    return false;
  }
  static void Fail(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    // ATen asks for the sizes of what it knows to be zeros itself.
    if (op.schema().name() == "aten::mul") {
      const torch::Tensor a = stack->front().toTensor(), b = stack->back().toTensor();
      *stack = {torch::empty(at::infer_size(a.sizes(), b.sizes()), a.options())};
      return;
    }
    ADD_FAILURE() << "a Python function would run for " << op.operator_name();
    throw std::runtime_error("a Python function");
  }

  torch::Library library_;
};

TEST(SizesTest, ShapesAreInferred) {
  if (IsFiltered()) GTEST_SKIP() << "of all operators";
  const SilentWarnings silent;
  ExpectInferred(/*in_python=*/false);
}

TEST(SizesTest, ShapesAreInferredWithoutPythonsFunctions) {
  if (IsFiltered()) GTEST_SKIP() << "of all operators";
  const SilentWarnings silent;
  const PythonMetaKernels kernels;
  ExpectInferred(/*in_python=*/true);
}

}  // namespace
}  // namespace lazuli::testing
