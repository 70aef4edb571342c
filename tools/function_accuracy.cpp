#include "tools/function_accuracy.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace lazuli::tools {
namespace {

using codegen::KOp;

constexpr int64_t kBlock = 1 << 16;
constexpr uint64_t kPatterns = uint64_t{1} << 32;

double UlpOf(double value) {
  const float rounded = std::fabs(static_cast<float>(value));
  if (std::isinf(rounded)) return std::ldexp(1.0, 104);
  return static_cast<double>(std::nextafter(rounded, std::numeric_limits<float>::infinity())) - rounded;
}

// A kernel that applies `op` to kBlock floats.
codegen::KernelIR KernelOf(KOp op) {
  codegen::KernelIR kernel;
  kernel.sizes = {kBlock};
  kernel.buffers = {{c10::kFloat, {1}, false}, {c10::kFloat, {1}, true}};
  const auto add = [&](KOp inst_op, int32_t in, int64_t imm) {
    codegen::KInst inst;
    inst.op = inst_op;
    inst.in[0] = in;
    inst.imm = imm;
    kernel.insts.push_back(inst);
  };
  add(KOp::kLoad, -1, 0);
  add(op, 0, 0);
  add(KOp::kStore, 1, 1);
  return kernel;
}

}  // namespace

const std::vector<MeasuredFunction>& MeasuredFunctions() {
  constexpr float kAll = std::numeric_limits<float>::infinity();
  static const auto* functions = new std::vector<MeasuredFunction>{
      {"exp", KOp::kExp, std::exp, 1, kAll},
      {"expm1", KOp::kExpm1, std::expm1, 1, kAll},
      {"exp2", KOp::kExp2, std::exp2, 1, kAll},
      {"log", KOp::kLog, std::log, 1, kAll},
      {"log1p", KOp::kLog1p, std::log1p, 1, kAll},
      {"log2", KOp::kLog2, std::log2, 1, kAll},
      {"log10", KOp::kLog10, std::log10, 1, kAll},
      {"tanh", KOp::kTanh, std::tanh, 1, kAll},
      {"erf", KOp::kErf, std::erf, 1, kAll},
      {"sqrt", KOp::kSqrt, std::sqrt, 0.5, kAll},
      {"tan", KOp::kTan, std::tan, 1, kAll},
      {"asin", KOp::kAsin, std::asin, 1, kAll},
      {"acos", KOp::kAcos, std::acos, 1, kAll},
      {"atan", KOp::kAtan, std::atan, 1, kAll},
      {"asinh", KOp::kAsinh, std::asinh, 1, kAll},
      // SLEEF's, as ATen has them inside other operators. Some overflow early.
      {"sinh", KOp::kSinh, std::sinh, 1, 88.5f},
      {"cosh", KOp::kCosh, std::cosh, 1, 88.5f},
      {"acosh", KOp::kAcosh, std::acosh, 1, 1.8e19f},
      {"atanh", KOp::kAtanh, std::atanh, 1.01, kAll},
      {"sin", KOp::kSin, std::sin, 3.5, kAll},
      {"cos", KOp::kCos, std::cos, 3.5, kAll},
      {"erfc", KOp::kErfc, std::erfc, 1.5, kAll},
  };
  return *functions;
}

double UlpsBetween(float got, double expected) {
  constexpr double kWrong = std::numeric_limits<double>::infinity();
  if (std::isnan(expected) || std::isnan(got)) return std::isnan(expected) && std::isnan(got) ? 0 : kWrong;
  // What rounds to infinity, or lies within 1 ulp of it, may be infinity.
  if (std::isinf(got)) return std::fabs(expected) > 3.4028234e38 && std::signbit(got) == std::signbit(expected) ? 0 : kWrong;
  if (std::isinf(expected)) return kWrong;
  if (expected == 0 && (got != 0 || std::signbit(got) != std::signbit(expected))) return kWrong;
  return std::fabs(got - expected) / UlpOf(expected);
}

absl::StatusOr<Accuracy> MeasureAccuracy(const MeasuredFunction& function, const codegen::KernelTarget& target, uint64_t step) {
  const auto kernel = codegen::CompileKernel(KernelOf(function.op), target, nullptr);
  if (!kernel.ok()) return kernel.status();
  std::vector<float> in(kBlock), out(kBlock);
  void* buffers[] = {in.data(), out.data()};
  Accuracy accuracy;
  for (uint64_t bits = 0; bits < kPatterns;) {
    int64_t n = 0;
    for (; n < kBlock && bits < kPatterns; ++n, bits += step) {
      const auto pattern = static_cast<uint32_t>(bits);
      std::memcpy(&in[n], &pattern, sizeof(float));
    }
    (*kernel)->Run(buffers, nullptr);
    for (int64_t i = 0; i < n; ++i) {
      if (std::fabs(in[i]) > function.most) continue;
      const double error = UlpsBetween(out[i], function.reference(in[i]));
      ++accuracy.measured;
      if (error <= accuracy.worst) continue;
      accuracy.worst = error;
      accuracy.worst_at = in[i];
    }
  }
  return accuracy;
}

}  // namespace lazuli::tools
