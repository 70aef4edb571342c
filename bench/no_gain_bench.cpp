// What Lazuli costs where there is nothing to win: programs without anything to fuse, or that read every value at once. Each row runs the
// same statements eagerly and in the mode, in turn, and prints the ratio of the medians (1.00: as fast as eager).
//
// usage: no_gain_bench [--seconds S] [--json FILE]
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench_util.h"

namespace lazuli::bench {
namespace {

struct Case {
  const char* name;
  int repeat;  // Runs per sample: tiny programs need many.
  std::function<void()> run;
};

std::vector<Case> Cases() {
  const at::Tensor big = at::randn({768, 768}), tiny = at::ones({4, 4}), vector = at::ones({64}), wide = at::randn({1 << 20});
  const at::Tensor mask = at::rand({1024}).gt(0.5), keys = at::rand({4096}), scalar = at::ones({});
  return {
      {"one large matrix product, read", 1, [=] { at::mm(big, big).data_ptr<float>(); }},
      {"four large matrix products, read", 1, [=] { big.mm(big).mm(big).mm(big).mm(big).data_ptr<float>(); }},
      {"large matrix product, then sync()", 1,
       [=] {
         const at::Tensor y = at::mm(big, big);
         sync();
       }},
      {"tiny sum().item()", 200, [=] { tiny.sum().item<float>(); }},
      {"tiny mul, item() of one element", 200, [=] { tiny.mul(2)[0][0].item<float>(); }},
      {"five tiny ops, item() after each", 50,
       [=] {
         at::Tensor x = scalar;
         for (int i = 0; i < 5; ++i) {
           x = x.mul(0.5);
           x.item<float>();
         }
       }},
      {"tiny mul, add, sum, item()", 200, [=] { tiny.mul(tiny).add(tiny).sum().item<float>(); }},
      {"one tiny op, read", 200, [=] { vector.add(vector).data_ptr<float>(); }},
      {"one tiny in-place op, read", 200, [=] { vector.mul_(1.0).data_ptr<float>(); }},
      {"one op over 4 MB, read", 1, [=] { wide.mul(wide).data_ptr<float>(); }},
      {"one sum over 4 MB, item()", 1, [=] { wide.sum().item<float>(); }},
      {"views and item() of settled tensors", 200,
       [=] {
         keys.view({64, 64}).select(0, 3).narrow(0, 1, 5)[2].item<float>();
       }},
      {"nonzero of a settled mask", 50, [=] { mask.nonzero(); }},
      {"nonzero of a fresh mask", 50, [=] { keys.gt(0.5).nonzero(); }},
      {"masked_select of a fresh product", 50, [=] { keys.mul(2).masked_select(keys.gt(0.5)); }},
      {"sort and read", 5, [=] { std::get<0>(keys.sort()).data_ptr<float>(); }},
      {"unique of a fresh product", 5, [=] { std::get<0>(at::_unique(keys.mul(64).floor())); }},
      {"random numbers alone", 100, [=] { at::rand({64}); }},
      {"fill and read", 200, [=] { at::zeros({64}).data_ptr<float>(); }},
  };
}

struct Row {
  const char* name;
  double eager_us, lazy_us, low, high;
};

double SecondsOf(const Case& one) {
  const Stopwatch watch;
  for (int i = 0; i < one.repeat; ++i) one.run();
  return watch.seconds() / one.repeat;
}

Row Measure(const Case& one, double seconds) {
  Samples eager, lazy, ratio;
  const auto run_lazy = [&one] {
    const DeviceMode mode;
    return SecondsOf(one);
  };
  for (int i = 0; i < 5; ++i) {
    SecondsOf(one);
    run_lazy();
  }
  const Stopwatch total;
  for (int i = 0; i < 7 || total.seconds() < seconds; ++i) {
    const double e = SecondsOf(one), l = run_lazy();
    eager.Add(e);
    lazy.Add(l);
    ratio.Add(l / e);
  }
  return {one.name, 1e6 * eager.median(), 1e6 * lazy.median(), ratio.quantile(0.25), ratio.quantile(0.75)};
}

int Main(int argc, char** argv) {
  double seconds = 1;
  const char* json = nullptr;
  for (int i = 1; i < argc; ++i) {
    if (i + 1 < argc && std::strcmp(argv[i], "--seconds") == 0) {
      seconds = std::atof(argv[++i]);
    } else if (i + 1 < argc && std::strcmp(argv[i], "--json") == 0) {
      json = argv[++i];
    } else {
      std::fprintf(stderr, "usage: no_gain_bench [--seconds S] [--json FILE]\n");
      return 2;
    }
  }
  const at::NoGradGuard no_grad;
  std::printf("| program | eager us | lazuli us | ratio | quartiles |\n|---|---|---|---|---|\n");
  std::FILE* out = json != nullptr ? std::fopen(json, "w") : nullptr;
  if (out != nullptr) std::fprintf(out, "[");
  bool first = true;
  for (const Case& one : Cases()) {
    const Row row = Measure(one, seconds);
    std::printf("| %s | %.2f | %.2f | %.2f | %.2f-%.2f |\n", row.name, row.eager_us, row.lazy_us, row.lazy_us / row.eager_us, row.low,
                row.high);
    std::fflush(stdout);
    if (out == nullptr) continue;
    std::fprintf(out, "%s\n{\"program\": \"%s\", \"eager_us\": %.4g, \"lazuli_us\": %.4g, \"ratio_low\": %.4g, \"ratio_high\": %.4g}",
                 first ? "" : ",", row.name, row.eager_us, row.lazy_us, row.low, row.high);
    first = false;
  }
  if (out != nullptr) {
    std::fprintf(out, "\n]\n");
    std::fclose(out);
  }
  return 0;
}

}  // namespace
}  // namespace lazuli::bench

int main(int argc, char** argv) { return lazuli::bench::Main(argc, argv); }
