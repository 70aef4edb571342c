// Random kernels, by seed. LAZULI_FUZZ_SEED starts elsewhere, LAZULI_FUZZ_COUNT asks for more.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

#include "tests/support/kernel_builder.h"

namespace lazuli::testing {

inline int64_t EnvOr(const char* name, int64_t fallback) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoll(text) : fallback;
}

// Kernels whose values are small whole numbers where their operands are, so that every result is exact whatever the order of additions.
class RandomKernel {
  using T = c10::ScalarType;
  using K = codegen::KOp;

 public:
  explicit RandomKernel(uint64_t seed) : random_(seed), builder_(RandomDomain()) {}

  codegen::KernelIR Build() {
    const int num_loads = 1 + Pick(4);
    for (int i = 0; i < num_loads; ++i) AddLoad();
    if (Pick(3) == 0) AddValue(Bounded(builder_.Cast(builder_.Index(Pick(rank_)), T::Float)), true);
    if (Pick(3) == 0) AddGather();
    AddValue(builder_.Const(Pick(7) - 3), false);
    const int num_ops = 3 + Pick(14);
    for (int i = 0; i < num_ops; ++i) {
      if (reduced_ > 0 && Pick(4) == 0) {
        AddReduce();
      } else if (reduced_ == 1 && builder_.kernel().sizes.back() > 1 && Pick(4) == 0) {
        AddScan();
      } else {
        AddOp();
      }
    }
    if (Pick(4) == 0) builder_.Check(builder_.Flag(), builder_.Op(K::kLt, AnyValue().value, builder_.Const(Pick(40) - 12)));
    const int num_stores = 1 + Pick(3);
    for (int i = 0; i < num_stores; ++i) AddStore();
    return builder_.kernel();
  }

 private:
  struct Typed {
    int value;
    bool full;  // May vary over the reduced dimensions.
  };

  int Pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  KernelBuilder RandomDomain() {
    static constexpr int64_t kSizes[] = {1, 2, 3, 4, 7, 8, 16, 17, 33, 64, 100, 257};
    rank_ = 1 + Pick(4);
    reduced_ = Pick(3) == 0 ? 0 : Pick(rank_ + 1);
    c10::DimVector sizes;
    int64_t numel = 1;
    for (int d = 0; d < rank_; ++d) {
      int64_t size = kSizes[Pick(12)];
      if (numel * size > 20000) size = 2;
      numel *= size;
      sizes.push_back(size);
    }
    from_end_ = Pick(2) == 0;
    // Now and then long enough to be split.
    if (Pick(12) == 0) sizes[rank_ - 1 - Pick(rank_)] *= 40;
    return KernelBuilder(sizes, reduced_);
  }

  // Dense over the dimensions chosen by `mask`, in random order, sometimes with gaps.
  c10::DimVector RandomStrides(uint64_t mask) {
    std::vector<int> order(rank_);
    for (int d = 0; d < rank_; ++d) order[d] = d;
    if (Pick(2) == 0) std::shuffle(order.begin(), order.end(), random_);
    c10::DimVector strides(rank_, 0);
    int64_t stride = Pick(5) == 0 ? 2 : 1;
    for (int i = rank_ - 1; i >= 0; --i) {
      const int d = order[i];
      if (((mask >> d) & 1) == 0) continue;
      strides[d] = stride;
      stride *= builder_.kernel().sizes[d];
    }
    return strides;
  }

  uint64_t KeptMask() const { return (uint64_t{1} << (rank_ - reduced_)) - 1; }

  void AddLoad() {
    static constexpr T kTypes[] = {T::Float, T::Float, T::BFloat16, T::Half, T::Int, T::Char};
    const uint64_t all = (uint64_t{1} << rank_) - 1;
    const uint64_t mask = Pick(2) == 0 ? all : random_() & all;
    const T type = kTypes[Pick(6)];
    const bool in_place = type == T::Float && Pick(4) == 0 && (mask == all || mask == KeptMask());
    const int buffer = builder_.Buffer(type, RandomStrides(mask), in_place);
    if (in_place) in_place_.push_back({buffer, mask != KeptMask() || reduced_ == 0});
    int value = builder_.Load(buffer);
    if (type != T::Float) value = builder_.Cast(value, T::Float);
    AddValue(type == T::Int || type == T::Char ? Bounded(value) : value, true);
  }

  // Read where random indices say, of which there is one for each point of some dimensions.
  void AddGather() {
    static constexpr T kTypes[] = {T::Float, T::BFloat16, T::Double, T::Char};
    const uint64_t all = (uint64_t{1} << rank_) - 1;
    const int index = builder_.Load(builder_.Buffer(T::Long, RandomStrides(random_() & all)));
    const int64_t step = Pick(2) == 0 ? 1 : 5;
    const int offset = builder_.Op(K::kMul, builder_.Op(K::kAnd, index, builder_.Const(511, T::Long)), builder_.Const(step, T::Long));
    const T type = kTypes[Pick(4)];
    const int value = builder_.Gather(builder_.Buffer(type, RandomStrides(random_() & all)), offset);
    const int wide = type == T::Float ? value : builder_.Cast(value, T::Float);
    AddValue(type == T::Char ? Bounded(wide) : wide, true);
  }

  int Bounded(int value) { return builder_.Op(K::kMax, builder_.Op(K::kMin, value, builder_.Const(16)), builder_.Const(-16)); }

  void AddValue(int value, bool full) { values_.push_back({value, full}); }
  Typed AnyValue() { return values_[Pick(static_cast<int>(values_.size()))]; }

  void AddReduce() {
    static constexpr K kReduces[] = {K::kReduceSum, K::kReduceSum, K::kReduceMax, K::kReduceMin};
    AddValue(Bounded(builder_.Op(kReduces[Pick(4)], AnyValue().value)), false);
  }

  void AddScan() { AddValue(Bounded(builder_.Scan(K::kScanSum, AnyValue().value, from_end_)), true); }

  void AddOp() {
    const Typed a = AnyValue(), b = AnyValue(), c = AnyValue();
    switch (Pick(6)) {
      case 0:
        return AddValue(Bounded(builder_.Op(K::kAdd, a.value, b.value)), a.full || b.full);
      case 1:
        return AddValue(Bounded(builder_.Op(K::kMul, a.value, b.value)), a.full || b.full);
      case 2:
        return AddValue(builder_.Op(K::kMax, a.value, b.value), a.full || b.full);
      case 3:
        return AddValue(builder_.Op(K::kSelect, builder_.Op(K::kLt, a.value, b.value), c.value, a.value), a.full || b.full || c.full);
      case 4:
        // A function worth keeping between passes; its rounding hides in the rounding to a whole number.
        return AddValue(builder_.Op(K::kRound, builder_.Op(K::kMul, builder_.Op(K::kTanh, a.value), builder_.Const(9.3))), a.full);
      default:
        return AddValue(builder_.Op(K::kAbs, a.value), a.full);
    }
  }

  void AddStore() {
    const Typed v = AnyValue();
    if (!in_place_.empty() && (in_place_.back().full || !v.full)) {
      builder_.Store(in_place_.back().value, v.value);
      in_place_.pop_back();
    } else if (v.full || reduced_ == 0 || Pick(3) == 0) {
      builder_.Store(builder_.Buffer(T::Float, RandomStrides((uint64_t{1} << rank_) - 1), true), v.value);
    } else {
      builder_.Store(builder_.Buffer(T::Float, RandomStrides(KeptMask()), true), v.value);
    }
  }

  std::mt19937_64 random_;
  int rank_ = 0;
  int reduced_ = 0;
  bool from_end_ = false;  // Where scans begin.
  KernelBuilder builder_;
  std::vector<Typed> values_;
  std::vector<Typed> in_place_;  // Buffers still to be stored; `full`: at every point.
};

}  // namespace lazuli::testing
