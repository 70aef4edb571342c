#include "tests/support/kernel_check.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <algorithm>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "runtime/cpu_features.h"
#include "tests/support/kernel_reference.h"

namespace lazuli::testing {
namespace {

using c10::ScalarType;
using codegen::KBuffer;
using codegen::KernelIR;

constexpr int64_t kGuardBytes = 256;

int64_t Extent(const KernelIR& kernel, const KBuffer& buffer) {
  int64_t last = 0;
  for (size_t d = 0; d < kernel.sizes.size(); ++d) {
    if (buffer.strides[d] == 0) continue;
    if (kernel.sizes[d] == 0) return 0;
    last += (kernel.sizes[d] - 1) * buffer.strides[d];
  }
  const auto is_gathered = [&](const codegen::KInst& inst) {
    return (inst.op == codegen::KOp::kGather || codegen::IsScatter(inst.op)) && &kernel.buffers[inst.imm] == &buffer;
  };
  const bool gathered = std::any_of(kernel.insts.begin(), kernel.insts.end(), is_gathered);
  return last + 1 + (gathered ? kGatherReach : 0);
}

double RandomFloating(std::mt19937_64& random, const CheckOptions& options) {
  static const double kSpecials[] = {std::numeric_limits<double>::quiet_NaN(),
                                     std::numeric_limits<double>::infinity(),
                                     -std::numeric_limits<double>::infinity(),
                                     0.0,
                                     -0.0,
                                     1e-41,
                                     -3e-42,
                                     3e38,
                                     -2.5e38,
                                     2147483648.0,
                                     -9.5e18,
                                     1.0,
                                     -1.0,
                                     0.5,
                                     2.5,
                                     -1.5};
  if (options.specials && random() % 8 == 0) return kSpecials[random() % (sizeof(kSpecials) / sizeof(kSpecials[0]))];
  const double value = options.low + (options.high - options.low) * (static_cast<double>(random() >> 11) * 0x1p-53);
  return options.whole ? std::nearbyint(value) : value;
}

template <typename T>
void Put(std::vector<char>& bytes, int64_t index, T value) {
  std::memcpy(bytes.data() + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

void FillElement(ScalarType type, std::vector<char>& bytes, int64_t index, std::mt19937_64& random, const CheckOptions& options) {
  uint64_t bits = random() >> (random() % 64);
  const int size = static_cast<int>(c10::elementSize(type));
  switch (type) {
    case ScalarType::Float:
      return Put(bytes, index, static_cast<float>(RandomFloating(random, options)));
    case ScalarType::Double:
      return Put(bytes, index, RandomFloating(random, options));
    case ScalarType::BFloat16:
      return Put(bytes, index, c10::BFloat16(static_cast<float>(RandomFloating(random, options))));
    case ScalarType::Half:
      return Put(bytes, index, c10::Half(static_cast<float>(RandomFloating(random, options))));
    case ScalarType::Bool:
      return Put(bytes, index, static_cast<uint8_t>(random() % 2));
    default:
      if (random() % 2 == 0) bits = ~bits;
      if (!options.zeros && (bits << (64 - 8 * size)) == 0) bits = 3;
      std::memcpy(bytes.data() + index * size, &bits, size);
  }
}

double ReadFloating(ScalarType type, const char* address) {
  switch (type) {
    case ScalarType::Float: {
      float value;
      std::memcpy(&value, address, sizeof(value));
      return value;
    }
    case ScalarType::Double: {
      double value;
      std::memcpy(&value, address, sizeof(value));
      return value;
    }
    case ScalarType::BFloat16: {
      c10::BFloat16 value;
      std::memcpy(&value, address, sizeof(value));
      return static_cast<float>(value);
    }
    default: {
      c10::Half value;
      std::memcpy(&value, address, sizeof(value));
      return static_cast<float>(value);
    }
  }
}

bool Floating(ScalarType type) {
  return type == ScalarType::Float || type == ScalarType::Double || type == ScalarType::BFloat16 || type == ScalarType::Half;
}

double UnitInLastPlace(ScalarType type, double value) {
  const int digits = type == ScalarType::Double ? 53 : type == ScalarType::Float ? 24 : type == ScalarType::Half ? 11 : 8;
  const int min_exponent = type == ScalarType::Double ? -1074 : type == ScalarType::Half ? -24 : type == ScalarType::Float ? -149 : -133;
  if (value == 0) return std::ldexp(1.0, min_exponent);
  return std::ldexp(1.0, std::max(std::ilogb(value) - digits + 1, min_exponent));
}

bool Same(ScalarType type, const char* expected, const char* actual, const CheckOptions& options) {
  if (std::memcmp(expected, actual, c10::elementSize(type)) == 0) return true;
  if (!Floating(type)) return false;
  const double e = ReadFloating(type, expected), a = ReadFloating(type, actual);
  if (std::isnan(e) || std::isnan(a)) return std::isnan(e) && std::isnan(a);
  // Equal bits were asked for: 0 and -0 differ.
  if (options.ulps == 0 && options.absolute == 0) return false;
  if (std::isinf(e) || std::isinf(a)) return e == a;
  const double difference = std::fabs(e - a);
  return difference <= options.absolute || difference <= options.ulps * UnitInLastPlace(type, std::max(std::fabs(e), std::fabs(a)));
}

std::string Show(ScalarType type, const char* address) {
  if (Floating(type)) return absl::StrCat(ReadFloating(type, address));
  int64_t value = 0;
  std::memcpy(&value, address, c10::elementSize(type));
  return absl::StrCat(value);
}

}  // namespace

const std::vector<std::string>& AllIsas() {
  static const auto* const isas = [] {
    auto* const all = new std::vector<std::string>{"avx512", "avx2", "sse4"};
    // The others would be this one again.
    all->erase(all->begin(), std::find(all->begin(), all->end(), runtime::IsaName(runtime::WidestIsa())));
    return all;
  }();
  return *isas;
}

namespace {

// `kernel` with symbols for its sizes and strides, and their values.
struct OpenKernel {
  KernelIR kernel;
  std::vector<int64_t> values;
};

OpenKernel WithSymbols(const KernelIR& kernel) {
  OpenKernel open{kernel, {}};
  std::vector<int64_t*> numbers;
  for (int64_t& size : open.kernel.sizes) numbers.push_back(&size);
  for (KBuffer& buffer : open.kernel.buffers) {
    for (int64_t& stride : buffer.strides) numbers.push_back(&stride);
  }
  std::vector<int64_t> constants, hints;
  for (const int64_t* number : numbers) {
    if (*number < 2) {
      constants.push_back(*number);
    } else if (std::find(open.values.begin(), open.values.end(), *number) == open.values.end()) {
      open.values.push_back(*number);
      hints.push_back(64);  // Whatever the sizes are.
    }
  }
  open.kernel.symbols = runtime::SymbolTable::Make(hints, constants);
  for (int64_t* number : numbers) {
    const auto found = std::find(open.values.begin(), open.values.end(), *number);
    if (found != open.values.end()) *number = open.kernel.symbols.prime(static_cast<int>(found - open.values.begin()));
  }
  return open;
}

using Memory = std::vector<std::vector<char>>;

int64_t FrontBytes(const KBuffer& buffer, const CheckOptions& options) {
  return options.misaligned * static_cast<int64_t>(c10::elementSize(buffer.dtype));
}

std::vector<void*> Pointers(const KernelIR& kernel, const std::vector<char*>& begins, const CheckOptions& options) {
  std::vector<void*> pointers;
  for (size_t b = 0; b < begins.size(); ++b) pointers.push_back(begins[b] + FrontBytes(kernel.buffers[b], options));
  return pointers;
}

std::vector<void*> Pointers(const KernelIR& kernel, Memory& memory, const CheckOptions& options) {
  std::vector<char*> begins;
  for (std::vector<char>& bytes : memory) begins.push_back(bytes.data());
  return Pointers(kernel, begins, options);
}

void RunOnGpu(const KernelIR& kernel, const codegen::CompiledKernel& compiled, const std::vector<int64_t>& symbols, Memory& memory,
              const CheckOptions& options) {
  std::vector<at::Tensor> tensors;
  std::vector<char*> begins;
  const auto bytes = at::TensorOptions().dtype(at::kByte);
  for (std::vector<char>& host : memory) {
    tensors.push_back(at::from_blob(host.data(), {static_cast<int64_t>(host.size())}, bytes).to(at::kCUDA));
    begins.push_back(static_cast<char*>(tensors.back().mutable_data_ptr()));
  }
  compiled.Run(Pointers(kernel, begins, options).data(), options.scalars.data(), symbols.data());
  for (size_t b = 0; b < memory.size(); ++b) {
    at::from_blob(memory[b].data(), {static_cast<int64_t>(memory[b].size())}, bytes).copy_(tensors[b]);
  }
}

void RunOracle(const KernelIR& kernel, Memory& memory, const CheckOptions& options) {
  const std::vector<void*> pointers = Pointers(kernel, memory, options);
  if (!options.cpu_oracle) return RunReference(kernel, pointers.data(), options.scalars.data());
  codegen::KernelTarget target = options.target;
  target.cuda_arch = "";
  target.schedule = "default";
  codegen::CompileKernel(kernel, target, nullptr).value()->Run(pointers.data(), options.scalars.data(), nullptr);
}

std::string CheckAgainstReference(const KernelIR& kernel, const KernelIR& to_compile, const std::vector<int64_t>& symbols,
                                  const CheckOptions& options) {
  absl::StatusOr<std::shared_ptr<const codegen::CompiledKernel>> compiled = codegen::CompileKernel(to_compile, options.target, nullptr);
  if (!compiled.ok()) return std::string(compiled.status().message());
  std::mt19937_64 random(options.seed);
  Memory memory;
  for (const KBuffer& buffer : kernel.buffers) {
    const int64_t begin = options.misaligned, end = begin + Extent(kernel, buffer);
    std::vector<char> bytes(end * static_cast<int64_t>(c10::elementSize(buffer.dtype)) + kGuardBytes, 0x5A);
    for (int64_t i = begin; i < end; ++i) FillElement(buffer.dtype, bytes, i, random, options);
    memory.push_back(std::move(bytes));
  }
  Memory expected = memory;
  RunOracle(kernel, expected, options);
  if (options.target.cuda_arch.empty()) {
    (*compiled)->Run(Pointers(kernel, memory, options).data(), options.scalars.data(), symbols.data());
  } else {
    RunOnGpu(kernel, **compiled, symbols, memory, options);
  }
  const std::string where =
      absl::StrCat(" (", options.target.cuda_arch.empty() ? options.target.isa : options.target.cuda_arch, ", seed ", options.seed, ")\n");
  for (size_t b = 0; b < memory.size(); ++b) {
    const ScalarType type = kernel.buffers[b].dtype;
    const int64_t size = static_cast<int64_t>(c10::elementSize(type));
    const int64_t begin = options.misaligned, end = begin + Extent(kernel, kernel.buffers[b]);
    for (int64_t i = begin; i < end; ++i) {
      if (Same(type, expected[b].data() + i * size, memory[b].data() + i * size, options)) continue;
      return absl::StrCat("buffer ", b, " element ", i - begin, ": expected ", Show(type, expected[b].data() + i * size), ", got ",
                          Show(type, memory[b].data() + i * size), where, codegen::PrintKernel(to_compile));
    }
    if (std::memcmp(expected[b].data() + end * size, memory[b].data() + end * size, kGuardBytes) != 0) {
      return absl::StrCat("buffer ", b, ": written past its end", where, codegen::PrintKernel(to_compile));
    }
  }
  return "";
}

}  // namespace

std::string CheckKernel(const KernelIR& kernel, const CheckOptions& options) {
  if (std::string error = CheckAgainstReference(kernel, kernel, {}, options); !error.empty() || !options.with_symbols) return error;
  const OpenKernel open = WithSymbols(kernel);
  return open.values.empty() ? "" : CheckAgainstReference(kernel, open.kernel, open.values, options);
}

}  // namespace lazuli::testing
