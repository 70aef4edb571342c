// Random traces with views, in-place writes through them, reductions and library calls, on both backends against eager.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "codegen/pipeline.h"
#include "tests/support/eager_trace.h"

namespace lazuli::codegen {
namespace {

using lazuli::testing::EagerTrace;

class TraceFuzzer {
 public:
  explicit TraceFuzzer(uint64_t seed) : random_(seed) {
    at::manual_seed(seed);
    for (int i = 0; i < 4; ++i) pool_.push_back(trace_.Input(at::randn(Shape())));
  }

  EagerTrace& Make(int ops) {
    for (int i = 0; i < ops; ++i) Step();
    for (const at::Tensor& tensor : made_) {
      if (Chance(3)) trace_.Keep(tensor);
    }
    if (!made_.empty()) trace_.Keep(made_.back());
    return trace_;
  }

 private:
  int Pick(int count) { return static_cast<int>(random_() % count); }
  bool Chance(int in) { return Pick(in) == 0; }

  std::vector<int64_t> Shape() {
    static const std::vector<std::vector<int64_t>> kShapes = {{6, 8}, {8}, {6, 1}, {4, 6, 8}, {8, 6}, {24, 8}, {1, 8}, {6}};
    return kShapes[Pick(static_cast<int>(kShapes.size()))];
  }

  // A tensor of the pool, often through a view.
  at::Tensor Operand() {
    at::Tensor t = pool_[Pick(static_cast<int>(pool_.size()))];
    for (int i = Pick(3); i > 0; --i) t = View(t);
    return t;
  }

  at::Tensor View(const at::Tensor& t) {
    if (t.dim() == 0) return t;
    const int64_t dim = Pick(static_cast<int>(t.dim()));
    switch (Pick(5)) {
      case 0:
        return t.transpose(0, dim);
      case 1:
        return t.size(dim) > 2 ? t.slice(dim, Pick(2), t.size(dim) - Pick(2)) : t;
      case 2:
        return t.dim() > 1 ? t.select(dim, Pick(static_cast<int>(t.size(dim)))) : t;
      case 3:
        return t.is_contiguous() && t.numel() % 2 == 0 ? t.view({2, t.numel() / 2}) : t;
      default:
        return t.unsqueeze(dim);
    }
  }

  static bool Broadcasts(const at::Tensor& a, const at::Tensor& b, bool into_a) {
    for (int64_t d = 1; d <= std::max(a.dim(), b.dim()); ++d) {
      const int64_t x = d <= a.dim() ? a.size(-d) : 1, y = d <= b.dim() ? b.size(-d) : 1;
      if (x != y && y != 1 && (into_a || x != 1)) return false;
      if (into_a && d > a.dim()) return false;
    }
    return true;
  }

  // An operand that broadcasts with `t` and, for in-place ops, does not partly overlap it.
  at::Tensor Partner(const at::Tensor& t, bool into) {
    for (int i = 0; i < 20; ++i) {
      const at::Tensor other = Operand();
      if (into && other.storage().unsafeGetStorageImpl() == t.storage().unsafeGetStorageImpl()) continue;
      if (Broadcasts(t, other, into) && (into || at::infer_size(t.sizes(), other.sizes()).size() <= 4)) return other;
    }
    return into ? at::Tensor() : t;
  }

  void Add(at::Tensor t) {
    pool_.push_back(t);
    made_.push_back(t);
  }

  void Step() {
    const at::Tensor a = Operand();
    switch (Pick(14)) {
      case 12:
        if (a.dim() == 0) return;
        return Add(trace_.Op1("aten::stack", {c10::List<at::Tensor>({a, a, Alike(a)}), Pick(static_cast<int>(a.dim()) + 1)}));
      case 13:
        if (a.dim() == 0) return;
        return Add(trace_.Op1("aten::cat", {c10::List<at::Tensor>({Alike(a), a}), Pick(static_cast<int>(a.dim()))}));
      case 0:
        return Add(trace_.Op1("aten::add.Tensor", {a, Partner(a, false), 0.5}));
      case 1:
        return Add(trace_.Op1("aten::maximum", {a, Partner(a, false)}));
      case 2:
        return Add(trace_.Op1("aten::tanh", {a}));
      case 3:
        return Add(trace_.Op1("aten::sigmoid", {trace_.Op1("aten::mul.Tensor", {a, 0.5})}));
      case 4:
        return InPlace(a);
      case 5:
        return InPlace(a);
      case 6:
        if (a.dim() == 0) return;
        return Add(trace_.Op1("aten::mean.dim", {a, std::vector<int64_t>{Pick(static_cast<int>(a.dim()))}, Chance(2)}));
      case 7:
        if (a.dim() == 0) return;
        return Add(trace_.Op1("aten::_softmax", {a, Pick(static_cast<int>(a.dim())), false}));
      case 8:
        return Add(trace_.Op1("aten::clone", {a, 0}));
      case 9:
        if (a.dim() != 2 || a.size(0) > 30) return;
        return Add(trace_.Op1("aten::tanh", {trace_.Op1("aten::mm", {a, a.t()})}));
      case 10:
        if (a.dim() == 0) return;
        return Add(trace_.Op1("aten::amax", {a, std::vector<int64_t>{Pick(static_cast<int>(a.dim()))}, Chance(2)}));
      default:
        if (a.dim() == 0) return;
        return Add(trace_.Op1("aten::flip", {a, std::vector<int64_t>{0}}));
    }
  }

  // Another operand of these sizes, if there is one.
  at::Tensor Alike(const at::Tensor& t) {
    for (int i = 0; i < 20; ++i) {
      const at::Tensor other = Operand();
      if (other.sizes() == t.sizes()) return other;
    }
    return t;
  }

  void InPlace(const at::Tensor& a) {
    const at::Tensor other = Partner(a, true);
    switch (Pick(6)) {
      case 0:
        trace_.Op("aten::fill_.Scalar", {a, 0.25});
        break;
      case 1:
        trace_.Op("aten::mul_.Tensor", {a, 0.75});
        break;
      case 2:
        if (other.defined()) trace_.Op("aten::copy_", {a, other, false});
        break;
      case 3:
        if (other.defined()) trace_.Op("aten::lerp_.Scalar", {a, other.expand(a.sizes()), 0.25});
        break;
      case 4:
        if (a.dim() == 1) trace_.Op("aten::index_fill_.int_Scalar", {a, 0, trace_index(), 0.5});
        break;
      default:
        trace_.Op("aten::tanh_", {a});
    }
  }

  at::Tensor trace_index() {
    if (!index_.defined()) index_ = trace_.Input(at::zeros({1}, at::kLong));
    return index_;
  }

  std::mt19937_64 random_;
  EagerTrace trace_;
  std::vector<at::Tensor> pool_, made_;
  at::Tensor index_;
};

TEST(PipelineFuzzTest, RandomTracesMatchEager) {
  const char* env = std::getenv("LAZULI_FUZZ_SEEDS");
  const uint64_t count = env != nullptr ? std::strtoull(env, nullptr, 10) : 40;
  const char* first = std::getenv("LAZULI_FUZZ_FIRST");
  const uint64_t begin = first != nullptr ? std::strtoull(first, nullptr, 10) : 1;
  for (uint64_t seed = begin; seed < begin + count && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TraceFuzzer fuzzer(seed);
    EagerTrace& trace = fuzzer.Make(8 + static_cast<int>(seed % 40));
    for (const char* backend : {"aten", "llvm"}) {
      SCOPED_TRACE(backend);
      PipelineOptions options;
      options.backend = backend;
      options.target = {"avx512", "eager"};
      auto program = Compile(trace.trace(), options, nullptr);
      ASSERT_TRUE(program.ok()) << program.status();
      const bool exact = std::string(backend) == "aten";
      trace.ExpectMatches(**program, exact ? 0 : 1e-4, exact ? 0 : 1e-4);
    }
    if (::testing::Test::HasFailure()) std::printf("%s\n", PrintTrace(trace.trace()).c_str());
  }
}

}  // namespace
}  // namespace lazuli::codegen
