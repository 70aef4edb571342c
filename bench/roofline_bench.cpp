// How near fused kernels come to the memory's bandwidth. Each row's bytes are those that its kernel must read and write once (compulsory
// traffic); their rate is compared with that of a copy of an array of the same size on the same threads, counted as bytes read and written.
// The copy and the row take turns; its way is the fastest of memcpy and stores past the caches.
//
// usage: roofline_bench [--mb MB] [--seconds S] [--threads N,N,...] [--rows NAME] [--json FILE]
//   --mb       megabytes of one array, more than caches hold; default 64
//   --threads  default 1 and all
//   --rows     only those whose name has this in it
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <immintrin.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench_util.h"

namespace lazuli::bench {
namespace {

constexpr int64_t kWidth = 1024;  // Of a row.
constexpr int64_t kMinTurns = 15;

struct Row {
  std::string name;
  double target;  // Of the copy's bandwidth.
  int64_t bytes;
  std::function<at::Tensor()> run;  // What it returns and writes is `bytes` large, with what it reads.
};

int64_t BytesOf(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

// Rows of `kWidth` floats that take `array_bytes`.
at::Tensor Matrix(int64_t array_bytes) { return at::randn({array_bytes / (4 * kWidth), kWidth}); }

std::vector<Row> PointwiseRows(int64_t array_bytes) {
  const at::Tensor x = Matrix(array_bytes), y = Matrix(array_bytes), bias = at::randn({kWidth});
  const auto chain = [=] {
    const at::Tensor gelu = x * 0.5 * (1 + at::tanh(0.79788456 * (x + 0.044715 * x * x * x)));
    const at::Tensor gated = at::sigmoid(y) * gelu + at::exp(-y * y);
    return at::where(gated > 0, gated, 0.01 * gated) - x;
  };
  return {
      {"x + y", 0.85, BytesOf({x, y, x}), [=] { return x + y; }},
      {"x.add_(y)", 0.85, BytesOf({x, y, x}), [=] { return x.add_(y); }},
      {"bias, gelu", 0.85, BytesOf({x, bias, x}), [=] { return at::gelu(x + bias); }},
      {"chain of 20 operators", 0.70, BytesOf({x, y, x}), chain},
  };
}

std::vector<Row> NormRows(int64_t array_bytes) {
  const at::Tensor x = Matrix(array_bytes), r = Matrix(array_bytes), weight = at::randn({kWidth}), bias = at::randn({kWidth});
  const at::Tensor images = at::randn({array_bytes / (4 * 64 * 56 * 56), 64, 56, 56}), scale = at::rand({64}), shift = at::randn({64});
  const at::Tensor mean = at::randn({64}), variance = at::rand({64}) + 0.5;
  return {
      {"layer norm", 0.85, BytesOf({x, x}), [=] { return at::layer_norm(x, {kWidth}, weight, bias); }},
      {"residual, layer norm", 0.85, BytesOf({x, r, x}), [=] { return at::layer_norm(x + r, {kWidth}, weight, bias); }},
      {"softmax of rows", 0.85, BytesOf({x, x}), [=] { return at::softmax(x, -1); }},
      {"batch norm, inference", 0.85, BytesOf({images, images}),
       [=] { return at::batch_norm(images, scale, shift, mean, variance, false, 0.1, 1e-5, false); }},
  };
}

std::vector<Row> ReductionRows(int64_t array_bytes) {
  const at::Tensor x = Matrix(array_bytes);
  return {
      {"sum of rows", 0.85, BytesOf({x}), [=] { return x.sum(1); }},
      {"sum of columns", 0.85, BytesOf({x}), [=] { return x.sum(0); }},
      {"sum", 0.85, BytesOf({x}), [=] { return x.sum(); }},
  };
}

std::vector<Row> OptimizerRows(int64_t array_bytes) {
  const at::Tensor p = Matrix(array_bytes), g = Matrix(array_bytes), m = at::zeros_like(p), v = at::zeros_like(p);
  const auto adamw = [=] {
    p.mul_(1 - 1e-5);
    m.lerp_(g, 0.1);
    v.mul_(0.999).addcmul_(g, g, 0.001);
    return p.addcdiv_(m, v.sqrt().div_(0.7).add_(1e-8), -1e-4);
  };
  const auto momentum = [=] { return p.add_(m.mul_(0.9).add_(g), -1e-4); };
  return {
      {"AdamW, one parameter", 0.85, BytesOf({p, g, m, v, p, m, v}), adamw},
      {"SGD with momentum, one parameter", 0.85, BytesOf({p, g, m, p, m}), momentum},
  };
}

using RowMaker = std::vector<Row> (*)(int64_t array_bytes);
constexpr RowMaker kMakers[] = {PointwiseRows, NormRows, ReductionRows, OptimizerRows};

// Stores past the caches, whole lines where vectors are that wide; `kAhead` bytes ahead memory is asked for, 0: left to the hardware.
template <int kAhead>
__attribute__((target("avx512f"))) void Stream512(float* to, const float* from, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) {
    if (kAhead > 0) _mm_prefetch(reinterpret_cast<const char*>(from + i) + kAhead, _MM_HINT_T0);
    _mm512_stream_ps(to + i, _mm512_loadu_ps(from + i));
  }
  _mm_sfence();
}

template <int kAhead>
__attribute__((target("avx"))) void Stream256(float* to, const float* from, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) {
    if (kAhead > 0) _mm_prefetch(reinterpret_cast<const char*>(from + i) + kAhead, _MM_HINT_T0);
    _mm256_stream_ps(to + i, _mm256_loadu_ps(from + i));
    _mm256_stream_ps(to + i + 8, _mm256_loadu_ps(from + i + 8));
  }
  _mm_sfence();
}

void CopyLines(float* to, const float* from, int64_t count) { std::memcpy(to, from, static_cast<size_t>(count) * 4); }

// A copy of one array, on all threads.
class Copy {
 public:
  explicit Copy(int64_t array_bytes) : from_(Matrix(array_bytes)), to_(Matrix(array_bytes)) {
    ways_ = {CopyLines};
    if (__builtin_cpu_supports("avx")) ways_.insert(ways_.end(), {Stream256<0>, Stream256<2048>});
    if (__builtin_cpu_supports("avx512f")) ways_.insert(ways_.end(), {Stream512<0>, Stream512<2048>});
  }

  // Takes the fastest way.
  void Choose() {
    std::vector<Samples> samples(ways_.size());
    for (int turn = 0; turn < kMinTurns; ++turn) {
      for (size_t w = 0; w < ways_.size(); ++w) samples[w].Add(Seconds(ways_[w]));
    }
    for (size_t w = 0; w < ways_.size(); ++w) {
      if (samples[w].median() < samples[best_].median()) best_ = w;
    }
  }

  double Seconds() const { return Seconds(ways_[best_]); }
  int64_t bytes() const { return BytesOf({from_, to_}); }

 private:
  using Way = void (*)(float*, const float*, int64_t);

  double Seconds(Way way) const {
    constexpr int64_t kBlock = 16 << 10;  // Floats, a multiple of every vector.
    auto* to = to_.mutable_data_ptr<float>();
    const auto* from = from_.const_data_ptr<float>();
    const Stopwatch watch;
    at::parallel_for(0, from_.numel() / kBlock, 1,
                     [&](int64_t begin, int64_t end) { way(to + begin * kBlock, from + begin * kBlock, (end - begin) * kBlock); });
    return watch.seconds();
  }

  at::Tensor from_, to_;
  std::vector<Way> ways_;
  size_t best_ = 0;
};

struct Result {
  double row_gbs, copy_gbs, share, low, high;  // Bytes a second; of the copy's: median and quartiles.
  int64_t launches;                            // Kernels of one run.
};

Result Measure(const Row& row, const Copy& copy, double seconds) {
  const DeviceMode mode(Options().step_aside(false).async(false));
  const auto run = [&] {
    const Stopwatch watch;
    const at::Tensor result = row.run();
    sync();
    return watch.seconds();
  };
  for (int i = 0; i < 4; ++i) run();
  const Stats before = stats();
  Samples row_rate, copy_rate, share;
  const Stopwatch total;
  int64_t turns = 0;
  for (; turns < kMinTurns || total.seconds() < seconds; ++turns) {
    const double c = static_cast<double>(copy.bytes()) / copy.Seconds() / 1e9, r = static_cast<double>(row.bytes) / run() / 1e9;
    row_rate.Add(r);
    copy_rate.Add(c);
    share.Add(r / c);
  }
  const int64_t launches = stats().kernel_launches - before.kernel_launches;
  return {row_rate.median(), copy_rate.median(), share.median(), share.quantile(0.25), share.quantile(0.75), launches / turns};
}

struct Arguments {
  int64_t mb = 64;
  double seconds = 1;
  std::vector<int> threads;
  std::string rows;
  const char* json = nullptr;
};

bool Parse(int argc, char** argv, Arguments* out) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    char* value = argv[i + 1];
    if (flag == "--mb") {
      out->mb = std::max<int64_t>(1, std::atoll(value));
    } else if (flag == "--seconds") {
      out->seconds = std::atof(value);
    } else if (flag == "--threads") {
      for (char* next = std::strtok(value, ","); next != nullptr; next = std::strtok(nullptr, ",")) out->threads.push_back(std::atoi(next));
    } else if (flag == "--rows") {
      out->rows = value;
    } else if (flag == "--json") {
      out->json = value;
    } else {
      return false;
    }
  }
  for (const int count : out->threads) {
    if (count < 1) return false;
  }
  if (out->threads.empty()) {
    out->threads = {1};
    if (at::get_num_threads() > 1) out->threads.push_back(at::get_num_threads());
  }
  return argc % 2 == 1;
}

void Print(std::FILE* json, bool first, const Row& row, int threads, const Result& result) {
  std::printf("| %s | %d | %.1f | %.1f | %.2f (%.2f-%.2f) | %.2f | %lld |\n", row.name.c_str(), threads, result.row_gbs, result.copy_gbs,
              result.share, result.low, result.high, row.target, static_cast<long long>(result.launches));
  std::fflush(stdout);
  if (json == nullptr) return;
  std::fprintf(json,
               "%s\n{\"row\": \"%s\", \"threads\": %d, \"gb_s\": %.4g, \"copy_gb_s\": %.4g, \"share\": %.4g, \"share_low\": %.4g, "
               "\"share_high\": %.4g, \"target\": %.4g, \"kernels\": %lld}",
               first ? "" : ",", row.name.c_str(), threads, result.row_gbs, result.copy_gbs, result.share, result.low, result.high,
               row.target, static_cast<long long>(result.launches));
}

int Main(int argc, char** argv) {
  Arguments args;
  if (!Parse(argc, argv, &args)) {
    std::fprintf(stderr, "usage: roofline_bench [--mb MB] [--seconds S] [--threads N,N,...] [--rows NAME] [--json FILE]\n");
    return 2;
  }
  const at::NoGradGuard no_grad;
  const int64_t array_bytes = args.mb << 20;
  std::printf(
      "| kernel, arrays of %lld MiB | threads | GB/s | copy, GB/s | share, quartiles | target | kernels |\n|---|---|---|---|---|---|---|\n",
      static_cast<long long>(args.mb));
  std::FILE* json = args.json != nullptr ? std::fopen(args.json, "w") : nullptr;
  if (json != nullptr) std::fprintf(json, "[");
  bool first = true;
  Copy copy(array_bytes);
  for (const int threads : args.threads) {
    at::set_num_threads(threads);
    copy.Choose();
    for (const RowMaker make : kMakers) {
      for (const Row& row : make(array_bytes)) {
        if (row.name.find(args.rows) == std::string::npos) continue;
        Print(json, first, row, threads, Measure(row, copy, args.seconds));
        first = false;
      }
    }
  }
  if (json != nullptr) {
    std::fprintf(json, "\n]\n");
    std::fclose(json);
  }
  return 0;
}

}  // namespace
}  // namespace lazuli::bench

int main(int argc, char** argv) { return lazuli::bench::Main(argc, argv); }
