#include "tests/support/kernel_reference.h"

#include <ATen/core/PhiloxRNGEngine.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "tests/support/kernel_arithmetic.h"
#include "tests/support/thread_random.h"

namespace lazuli::testing {
namespace {

using c10::ScalarType;
using codegen::IsReduce;
using codegen::IsScan;
using codegen::KernelIR;
using codegen::KInst;
using codegen::KOp;

// Evaluates all instructions up to the one asked for, at one point; Reduce results are remembered per kept point.
class Interpreter {
 public:
  Interpreter(const KernelIR& kernel, void* const* buffers, const uint64_t* scalars)
      : kernel_(kernel),
        buffers_(buffers),
        scalars_(scalars),
        rank_(static_cast<int>(kernel.sizes.size())),
        kept_(rank_ - kernel.num_reduced),
        values_(kernel.insts.size()) {}

  void Run() {
    c10::DimVector point(rank_, 0);
    KeptPoints(0, &point);
  }

 private:
  void KeptPoints(int dim, c10::DimVector* point) {
    if (dim < kept_) {
      for (int64_t i = 0; i < kernel_.sizes[dim]; ++i) {
        (*point)[dim] = i;
        KeptPoints(dim + 1, point);
      }
      return;
    }
    const size_t n = kernel_.insts.size();
    reduced_.assign(n, Value());
    scanned_.assign(n, {});
    for (size_t r = 0; r < n; ++r) {
      if (IsReduce(kernel_.insts[r].op)) Reduce(static_cast<int>(r), point);
      if (IsScan(kernel_.insts[r].op)) Scan(static_cast<int>(r), point);
    }
    // Values of every store at every point of this kept point before anything is written.
    std::vector<std::pair<char*, std::pair<ScalarType, Value>>> writes;
    for (const KInst& inst : kernel_.insts) {
      if (inst.op == KOp::kCheck) {
        EachReduced(kept_, point, -1, [&] {
          if (ValuesAt(inst.in[0], *point).i == 0) writes.push_back({Address(static_cast<int>(inst.imm), *point), {inst.type, {0, 1}}});
        });
      }
      if (inst.op != KOp::kStore) continue;
      EachReduced(kept_, point, inst.imm, [&] {
        writes.push_back({Address(static_cast<int>(inst.imm), *point), {inst.type, ValuesAt(inst.in[0], *point)}});
      });
    }
    for (auto& [address, typed] : writes) Write(typed.first, address, typed.second);
    for (const KInst& inst : kernel_.insts) {
      if (codegen::IsScatter(inst.op)) EachReduced(kept_, point, -1, [&] { Scatter(inst, *point); });
      if (inst.op == KOp::kPartialSum) EachReduced(kept_, point, -1, [&] { AddToPart(inst, *point); });
    }
  }

  void Scatter(const KInst& inst, const c10::DimVector& point) {
    ValuesAt(std::max({inst.in[0], inst.in[1], inst.in[2]}), point);
    if (values_[inst.in[2]].i == 0) return;
    Value value = values_[inst.in[0]];
    const int64_t bytes = values_[inst.in[1]].i * static_cast<int64_t>(c10::elementSize(inst.type));
    char* address = Address(static_cast<int>(inst.imm), point) + bytes;
    if (inst.op == KOp::kScatterAdd) {
      KInst sum;
      sum.op = KOp::kAdd;
      value = Arithmetic(sum, inst.type, Read(inst.type, address), value, Value());
    }
    Write(inst.type, address, value);
  }

  // Parts of the outermost dimension, which take turns. They must be 0 before the first point.
  void AddToPart(const KInst& inst, const c10::DimVector& point) {
    int64_t width = static_cast<int64_t>(c10::elementSize(inst.type));
    for (int d = kept_; d < rank_; ++d) width *= kernel_.sizes[d];
    char* const address = Address(static_cast<int>(inst.imm), point) + point[0] % codegen::kPartialSums * width;
    Value value = Read(inst.type, address);
    value.d = Round(inst.type, value.d + ValuesAt(inst.in[0], point).d);
    Write(inst.type, address, value);
  }

  template <typename F>
  void EachReduced(int dim, c10::DimVector* point, int64_t buffer, const F& body) {
    if (dim == rank_) return body();
    const bool once = buffer >= 0 && kernel_.buffers[buffer].strides[dim] == 0;
    for (int64_t i = 0; i < (once ? 1 : kernel_.sizes[dim]); ++i) {
      (*point)[dim] = i;
      EachReduced(dim + 1, point, buffer, body);
    }
    (*point)[dim] = 0;
  }

  void Reduce(int r, c10::DimVector* point) {
    const KInst& inst = kernel_.insts[r];
    const bool floating = IsFloating(inst.type);
    const double inf = std::numeric_limits<double>::infinity();
    Value acc;
    if (inst.op == KOp::kReduceProd) acc = {1, 1};
    if (inst.op == KOp::kReduceAll) acc.i = 1;
    bool first = true;
    EachReduced(kept_, point, -1, [&] {
      const Value x = ValuesAt(inst.in[0], *point);
      switch (inst.op) {
        case KOp::kReduceSum:
          acc.d += x.d;
          acc.i = Wrap(inst.type, static_cast<int64_t>(static_cast<uint64_t>(acc.i) + static_cast<uint64_t>(x.i)));
          break;
        case KOp::kReduceProd:
          acc.d *= x.d;
          acc.i = Wrap(inst.type, static_cast<int64_t>(static_cast<uint64_t>(acc.i) * static_cast<uint64_t>(x.i)));
          break;
        case KOp::kReduceAny:
          acc.i |= x.i;
          break;
        case KOp::kReduceAll:
          acc.i &= x.i;
          break;
        default: {
          const bool is_max = inst.op == KOp::kReduceMax;
          if (floating && first) acc.d = is_max ? -inf : inf;
          if (!floating && first) acc = x;
          acc.d = floating ? MinMax(is_max ? KOp::kMax : KOp::kMin, acc.d, x.d) : 0;
          acc.i = is_max ? std::max(acc.i, x.i) : std::min(acc.i, x.i);
        }
      }
      first = false;
    });
    if (floating && first && inst.op == KOp::kReduceMax) acc.d = -inf;
    if (floating && first && inst.op == KOp::kReduceMin) acc.d = inf;
    acc.d = Round(inst.type, acc.d);
    reduced_[r] = acc;
  }

  void Scan(int s, c10::DimVector* point) {
    const KInst& inst = kernel_.insts[s];
    const bool sum = inst.op == KOp::kScanSum;
    const int64_t size = kernel_.sizes[kept_];
    scanned_[s].resize(static_cast<size_t>(size));
    Value acc = sum ? Value() : Value{1, 1};
    for (int64_t k = 0; k < size; ++k) {
      const int64_t at = inst.imm == codegen::kFromEnd ? size - 1 - k : k;
      (*point)[kept_] = at;
      const Value x = ValuesAt(inst.in[0], *point);
      const auto a = static_cast<uint64_t>(acc.i), b = static_cast<uint64_t>(x.i);
      acc.d = Round(inst.type, sum ? acc.d + x.d : acc.d * x.d);
      acc.i = Wrap(inst.type, static_cast<int64_t>(sum ? a + b : a * b));
      scanned_[s][static_cast<size_t>(at)] = acc;
    }
    (*point)[kept_] = 0;
  }

  // By LibTorch's own generator of the kind.
  static uint32_t RandomBits(int64_t number, int64_t sequence, uint64_t seed) {
    at::Philox4_32 engine(seed, static_cast<uint64_t>(sequence), static_cast<uint64_t>(number) / 4);
    uint32_t bits = engine();
    for (int64_t i = 0; i < number % 4; ++i) bits = engine();
    return bits;
  }
  static double Normal(int64_t number, int64_t sequence, uint64_t seed) {
    const int64_t even = number & ~int64_t{1};
    return NormalOf(RandomBits(even, sequence, seed), RandomBits(even + 1, sequence, seed), number != even);
  }

  char* Address(int b, const c10::DimVector& point) const {
    int64_t offset = 0;
    for (int d = 0; d < rank_; ++d) offset += point[d] * kernel_.buffers[b].strides[d];
    return static_cast<char*>(buffers_[b]) + offset * static_cast<int64_t>(c10::elementSize(kernel_.buffers[b].dtype));
  }

  Value ValuesAt(int last, const c10::DimVector& point) {
    for (int i = 0; i <= last; ++i) {
      const KInst& inst = kernel_.insts[i];
      switch (inst.op) {
        case KOp::kLoad:
          values_[i] = Read(inst.type, Address(static_cast<int>(inst.imm), point));
          break;
        case KOp::kGather: {
          const int64_t bytes = values_[inst.in[0]].i * static_cast<int64_t>(c10::elementSize(inst.type));
          values_[i] = Read(inst.type, Address(static_cast<int>(inst.imm), point) + bytes);
          break;
        }
        case KOp::kStore:
        case KOp::kCheck:
        case KOp::kScatter:
        case KOp::kScatterAdd:
        case KOp::kPartialSum:
          break;
        case KOp::kConst:
        case KOp::kScalar: {
          const uint64_t bits = inst.op == KOp::kConst ? static_cast<uint64_t>(inst.imm) : scalars_[inst.imm];
          if (IsFloating(inst.type)) {
            double d;
            std::memcpy(&d, &bits, sizeof(d));
            values_[i].d = Round(inst.type, d);
          } else {
            values_[i].i = Wrap(inst.type, static_cast<int64_t>(bits));
          }
          break;
        }
        case KOp::kIndex:
          values_[i].i = point[inst.imm];
          break;
        case KOp::kUniform:
          values_[i].d = UniformOf(RandomBits(values_[inst.in[1]].i, values_[inst.in[2]].i, scalars_[codegen::UniformScalar(inst.imm)]));
          break;
        case KOp::kNormal:
          values_[i].d = Normal(values_[inst.in[1]].i, values_[inst.in[2]].i, scalars_[codegen::UniformScalar(inst.imm)]);
          break;
        default: {
          if (IsReduce(inst.op) || IsScan(inst.op)) {
            values_[i] = IsReduce(inst.op) ? reduced_[i] : scanned_[i][static_cast<size_t>(point[kept_])];
            break;
          }
          auto operand = [&](int k) { return inst.in[k] < 0 ? Value() : values_[inst.in[k]]; };
          values_[i] = Arithmetic(inst, kernel_.insts[inst.in[0]].type, operand(0), operand(1), operand(2));
        }
      }
    }
    return values_[last];
  }

  const KernelIR& kernel_;
  void* const* buffers_;
  const uint64_t* scalars_;
  int rank_;
  int kept_;
  std::vector<Value> reduced_;               // Per Reduce, at the current kept point.
  std::vector<std::vector<Value>> scanned_;  // Per scan, at the current kept point's reduced points.
  std::vector<Value> values_;                // Per instruction, at the current point.
};

}  // namespace

void RunReference(const KernelIR& kernel, void* const* buffers, const uint64_t* scalars) { Interpreter(kernel, buffers, scalars).Run(); }

uint64_t BitsOf(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

}  // namespace lazuli::testing
