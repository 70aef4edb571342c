#include "codegen/trial_operands.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "codegen/emit_llvm_plan.h"
#include "runtime/cuda_driver.h"
#include "runtime/device.h"

namespace lazuli::codegen {
namespace {

constexpr int64_t kTrialElements = 4096;  // Of a pattern.

uint32_t TrialHash(int64_t i) { return static_cast<uint32_t>(i) * 2654435761u >> 16; }

// Ordinary values: floats from 0.5 to 1.5, small whole numbers that can be divided by, both truth values.
template <class T>
std::string TrialPatternOf(T (*value)(uint32_t)) {
  std::vector<T> values(kTrialElements);
  for (int64_t i = 0; i < kTrialElements; ++i) values[static_cast<size_t>(i)] = value(TrialHash(i));
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <class T>
T FloatFrom(uint32_t bits) {
  return static_cast<T>(0.5f + static_cast<float>(bits) / 65536.0f);
}

template <class T>
T WholeFrom(uint32_t bits) {
  return static_cast<T>(1 + bits % 4);
}

std::string TrialPattern(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      return TrialPatternOf<float>(FloatFrom<float>);
    case c10::ScalarType::Double:
      return TrialPatternOf<double>(FloatFrom<double>);
    case c10::ScalarType::BFloat16:
      return TrialPatternOf<c10::BFloat16>(FloatFrom<c10::BFloat16>);
    case c10::ScalarType::Half:
      return TrialPatternOf<c10::Half>(FloatFrom<c10::Half>);
    case c10::ScalarType::Bool:
      return TrialPatternOf<uint8_t>([](uint32_t bits) { return static_cast<uint8_t>(bits % 2); });
    case c10::ScalarType::Long:
      return TrialPatternOf<int64_t>(WholeFrom<int64_t>);
    case c10::ScalarType::Int:
      return TrialPatternOf<int32_t>(WholeFrom<int32_t>);
    case c10::ScalarType::Short:
      return TrialPatternOf<int16_t>(WholeFrom<int16_t>);
    default:
      return TrialPatternOf<uint8_t>(WholeFrom<uint8_t>);
  }
}

// Fills memory of the current GPU with what is in `pattern`, again and again.
void FillOnGpu(void* memory, size_t bytes, const std::string& pattern, c10::Device device) {
  const runtime::CudaDriver& driver = runtime::RequireCudaDriver();
  const runtime::CudaStreamHandle stream = runtime::HandleOf(runtime::CurrentStream(device));
  const auto to = reinterpret_cast<uint64_t>(memory);
  size_t filled = std::min(bytes, pattern.size());
  int error = driver.memcpy_host_to_device(to, pattern.data(), filled, stream);
  while (error == 0 && filled < bytes) {
    const size_t more = std::min(filled, bytes - filled);
    error = driver.memcpy_device_to_device(to + filled, to, more, stream);
    filled += more;
  }
  TORCH_CHECK(error == 0, "lazuli: cannot fill memory of the GPU: ", driver.ErrorText(error));
}

}  // namespace

bool MayRunOnTrialOperands(const KernelIR& kernel) {
  return std::none_of(kernel.insts.begin(), kernel.insts.end(),
                      [](const KInst& inst) { return inst.op == KOp::kGather || inst.op == KOp::kCheck || IsScatter(inst.op); });
}

TrialOperands::TrialOperands(const KernelIR& kernel) : kernel_(kernel), in_place_(kernel.buffers.size(), false) {
  for (int i = 0; i < kernel.symbols.size(); ++i) symbols_.push_back(kernel.symbols.hint(i));
  for (const KInst& inst : kernel.insts) {
    if (inst.op == KOp::kLoad) in_place_[static_cast<size_t>(inst.imm)] = kernel.buffers[static_cast<size_t>(inst.imm)].written;
  }
  any_in_place_ = std::find(in_place_.begin(), in_place_.end(), true) != in_place_.end();
  for (const KBuffer& buffer : kernel.buffers) extents_.push_back(ExtentOf(buffer));
  // Parts lie one behind the other, which strides do not tell.
  for (const KInst& inst : kernel.insts) {
    if (inst.op == KOp::kPartialSum) extents_[static_cast<size_t>(inst.imm)].bytes *= kPartialSums;
  }
}

int64_t TrialOperands::bytes() const {
  int64_t bytes = 0;
  for (const Extent& extent : extents_) bytes += extent.bytes;
  return bytes;
}

void TrialOperands::Allocate(c10::Device device) {
  device_ = device;
  scalars_.assign(static_cast<size_t>(kernel_.num_scalars), 0);
  for (const KInst& inst : kernel_.insts) {
    if (inst.op != KOp::kScalar) continue;
    constexpr double kNumber = 0.5;
    uint64_t bits = 1;
    if (c10::isFloatingType(inst.type)) std::memcpy(&bits, &kNumber, sizeof(bits));
    scalars_[static_cast<size_t>(inst.imm)] = bits;
  }
  for (size_t b = 0; b < extents_.size(); ++b) {
    memory_.push_back(runtime::AllocatorOf(device)->allocate(static_cast<size_t>(std::max<int64_t>(extents_[b].bytes, 1))));
    pointers_.push_back(static_cast<char*>(memory_.back().get()) + extents_[b].first);
    Fill(b);
  }
}

void TrialOperands::Renew() {
  for (size_t b = 0; any_in_place_ && b < extents_.size(); ++b) {
    if (in_place_[b]) Fill(b);
  }
}

TrialOperands::Extent TrialOperands::ExtentOf(const KBuffer& buffer) const {
  int64_t low = 0, high = 0;
  for (size_t d = 0; d < kernel_.sizes.size(); ++d) {
    const int64_t reach = kernel_.symbols.Hint(buffer.strides[d]) * (std::max<int64_t>(kernel_.symbols.Hint(kernel_.sizes[d]), 1) - 1);
    (reach < 0 ? low : high) += reach;
  }
  const int64_t element = ElementBytes(buffer.dtype);
  return {(high - low + 1) * element, -low * element};
}

void TrialOperands::Fill(size_t b) {
  const std::string pattern = TrialPattern(kernel_.buffers[b].dtype);
  auto* memory = static_cast<char*>(memory_[b].get());
  const auto bytes = static_cast<size_t>(extents_[b].bytes);
  if (device_.is_cuda()) return FillOnGpu(memory, bytes, pattern, device_);
  for (size_t at = 0; at < bytes; at += pattern.size()) std::memcpy(memory + at, pattern.data(), std::min(pattern.size(), bytes - at));
}

}  // namespace lazuli::codegen
