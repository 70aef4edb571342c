#include "runtime/kernel_settings.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <xmmintrin.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lazuli::runtime {
namespace {

using at::Float32Backend;
using at::Float32Op;

// at::Context's functions would take longer than recording an operator does. An explicit instantiation may name private members.
template <class Tag, auto Member>
struct ExposeAs {
  friend constexpr auto MemberOf(Tag) { return Member; }
};

// A member of at::Context whose values take `width` bits.
#define LAZULI_SETTING(member, width)             \
  struct member {                                 \
    static constexpr const char* kName = #member; \
    static constexpr int kWidth = width;          \
    friend constexpr auto MemberOf(member);       \
  };                                              \
  template struct ExposeAs<member, &at::Context::member>;

LAZULI_SETTING(enabled_cudnn, 1)
LAZULI_SETTING(deterministic_cudnn, 1)
LAZULI_SETTING(deterministic_mkldnn, 1)
LAZULI_SETTING(_deterministic_algorithms, 1)
LAZULI_SETTING(_deterministic_algorithms_warn_only, 1)
LAZULI_SETTING(_deterministic_fill_uninitialized_memory, 1)
LAZULI_SETTING(enabled_fa3SDP, 1)
LAZULI_SETTING(benchmark_cudnn, 1)
LAZULI_SETTING(allow_tf32_cudnn, 1)
LAZULI_SETTING(allow_fp16_accumulation_cublas, 1)
LAZULI_SETTING(enabled_mkldnn, 1)
LAZULI_SETTING(allow_tf32_onednn, 1)
LAZULI_SETTING(enabled_nnpack, 1)
LAZULI_SETTING(allow_fp16_reduction_cpu, 1)
LAZULI_SETTING(float32_matmul_precision, 2)
LAZULI_SETTING(allow_fp16_reduction_cublas, 2)
LAZULI_SETTING(allow_bf16_reduction_cublas, 2)
LAZULI_SETTING(linalg_preferred_backend, 2)
LAZULI_SETTING(blas_preferred_backend, 2)
#undef LAZULI_SETTING

struct Precisions {
  friend constexpr auto MemberOf(Precisions);
};
template struct ExposeAs<Precisions, &at::Context::fp32_precision>;

struct Precision {
  const char* name;
  Float32Backend backend;
  Float32Op op;
};
constexpr Precision kPrecisions[] = {
    {"fp32_precision", Float32Backend::GENERIC, Float32Op::ALL},
    {"fp32_precision of mkldnn", Float32Backend::MKLDNN, Float32Op::ALL},
    {"fp32_precision of mkldnn.conv", Float32Backend::MKLDNN, Float32Op::CONV},
    {"fp32_precision of mkldnn.rnn", Float32Backend::MKLDNN, Float32Op::RNN},
    {"fp32_precision of mkldnn.matmul", Float32Backend::MKLDNN, Float32Op::MATMUL},
    {"fp32_precision of cuda", Float32Backend::CUDA, Float32Op::ALL},
    {"fp32_precision of cuda.conv", Float32Backend::CUDA, Float32Op::CONV},
    {"fp32_precision of cuda.rnn", Float32Backend::CUDA, Float32Op::RNN},
    {"fp32_precision of cuda.matmul", Float32Backend::CUDA, Float32Op::MATMUL},
};
constexpr int kPrecisionWidth = 2;

// Of the control register for vector arithmetic: whether denormal operands are zeros, and results; between them the mode of rounding.
constexpr int kDenormalOperandsBit = 6, kRoundingBit = 13;
constexpr unsigned kControlMask = 1u << kDenormalOperandsBit | 7u << kRoundingBit;
constexpr int kControlWidth = 4;

// Each setting's place in the word, from bit 0 on.
class Places {
 public:
  static const Places& Get() {
    static const auto* const places = new Places;
    return *places;
  }

  uint64_t Pack() const {
    uint64_t bits = 0;
    int shift = 0;
    VisitMembers([&](auto member) {
      bits |= static_cast<uint64_t>(context_.*MemberOf(member)) << shift;
      shift += member.kWidth;
    });
    for (const at::Float32Precision* precision : precisions_) {
      bits |= static_cast<uint64_t>(*precision) << shift;
      shift += kPrecisionWidth;
    }
    const unsigned control = _mm_getcsr();
    return bits | static_cast<uint64_t>(control >> kDenormalOperandsBit & 1u) << shift |
           static_cast<uint64_t>(control >> kRoundingBit & 7u) << (shift + 1);
  }

  void Unpack(uint64_t bits) const {
    const auto take = [&bits](int width) { return std::exchange(bits, bits >> width) & ((1u << width) - 1); };
    VisitMembers([&](auto member) {
      auto& place = context_.*MemberOf(member);
      place = static_cast<std::decay_t<decltype(place)>>(take(member.kWidth));
    });
    for (at::Float32Precision* precision : precisions_) *precision = static_cast<at::Float32Precision>(take(kPrecisionWidth));
    const auto control = static_cast<unsigned>((take(1) << kDenormalOperandsBit) | (take(kControlWidth - 1) << kRoundingBit));
    _mm_setcsr((_mm_getcsr() & ~kControlMask) | control);
  }

  std::string Text(uint64_t bits, uint64_t usual) const {
    std::vector<std::string> texts;
    const auto add = [&](const char* name, int width) {
      const uint64_t mask = (1u << width) - 1;
      if (((bits ^ usual) & mask) != 0) texts.push_back(absl::StrCat(name, " ", bits & mask));
      bits >>= width;
      usual >>= width;
    };
    VisitMembers([&](auto member) { add(member.kName, member.kWidth); });
    for (const Precision& precision : kPrecisions) add(precision.name, kPrecisionWidth);
    add("denormals and rounding", kControlWidth);
    return absl::StrJoin(texts, ", ");
  }

 private:
  Places() {
    auto& map = context_.*MemberOf(Precisions());
    for (size_t i = 0; i < precisions_.size(); ++i) precisions_[i] = &map.at({kPrecisions[i].backend, kPrecisions[i].op});
  }

  template <class Visit>
  static void VisitMembers(const Visit& visit) {
    const auto each = [&visit](auto... members) { (visit(members), ...); };
    each(enabled_cudnn(), deterministic_cudnn(), deterministic_mkldnn(), _deterministic_algorithms(), _deterministic_algorithms_warn_only(),
         _deterministic_fill_uninitialized_memory(), enabled_fa3SDP(), benchmark_cudnn(), allow_tf32_cudnn(),
         allow_fp16_accumulation_cublas(), enabled_mkldnn(), allow_tf32_onednn(), enabled_nnpack(), allow_fp16_reduction_cpu(),
         float32_matmul_precision(), allow_fp16_reduction_cublas(), allow_bf16_reduction_cublas(), linalg_preferred_backend(),
         blas_preferred_backend());
  }

  at::Context& context_ = at::globalContext();
  std::array<at::Float32Precision*, std::size(kPrecisions)> precisions_{};
};

// The words that have been given numbers.
struct Numbers {
  std::mutex mutex;
  std::vector<uint64_t> words;

  static Numbers& Get() {
    static auto* const numbers = new Numbers;
    return *numbers;
  }
};

}  // namespace

KernelSettings KernelSettings::Current() {
  KernelSettings settings;
  settings.bits_ = Places::Get().Pack();
  return settings;
}

void KernelSettings::Apply() const { Places::Get().Unpack(bits_); }

uint16_t KernelSettings::number() const {
  Numbers& numbers = Numbers::Get();
  std::lock_guard<std::mutex> lock(numbers.mutex);
  const auto it = std::find(numbers.words.begin(), numbers.words.end(), bits_);
  const auto number = static_cast<size_t>(it - numbers.words.begin());
  TORCH_CHECK(number <= kMaxNumber, "lazuli: a program may not record under more than ", kMaxNumber + 1,
              " different combinations of at::globalContext()'s settings");
  if (it == numbers.words.end()) numbers.words.push_back(bits_);
  return static_cast<uint16_t>(number);
}

std::string KernelSettings::TextOf(uint16_t number) {
  Numbers& numbers = Numbers::Get();
  std::lock_guard<std::mutex> lock(numbers.mutex);
  if (number >= numbers.words.size()) return "";
  return Places::Get().Text(numbers.words[number], numbers.words[0]);
}

}  // namespace lazuli::runtime
