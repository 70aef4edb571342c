#include "codegen/cuda/online_sums.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace lazuli::codegen {

const char* const kOnlineSumsText = R"(
// How much less a sum of exponentials of numbers below `from` is when they are taken below `to`.
D float down(float from, float to) { return expf(from - to); }
D double down(double from, double to) { return exp(from - to); }
// N more numbers to the largest one so far, and to the sums of exponentials of how far they are below it.
template <class T, int N, class E> D void online(const T (&a)[N], T& top, T (&sums)[N], E e) {
  const T none = (T)__uint_as_float(0xff800000u), most = lanes<T>(a, Max());
  if (!(most <= top)) {
    const T was = top;
    top = Max()(most, was);
    const T scale = was == none ? (T)0 : down(was, top);
#pragma unroll
    for (int v = 0; v < N; ++v) sums[v] *= scale;
  }
  const T from = top == none ? (T)0 : top;
#pragma unroll
  for (int v = 0; v < N; ++v) sums[v] += e(a[v] - from);
}
)";

namespace {

bool IsNumber(const KInst& inst, double number) {
  int64_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  return inst.op == KOp::kConst && inst.imm == bits;
}

bool IsMinusOne(const std::vector<KInst>& insts, int i) {
  return insts[i].op == KOp::kNeg ? IsNumber(insts[insts[i].in[0]], 1) : IsNumber(insts[i], -1);
}

}  // namespace

int MaximumAbove(const std::vector<KInst>& insts, int exp) {
  if (insts[exp].op != KOp::kExp) return -1;
  const KInst& below = insts[insts[exp].in[0]];
  int number = -1, largest = -1;
  if (below.op == KOp::kSub) {
    number = below.in[0];
    largest = below.in[1];
  } else if (below.op == KOp::kFma && IsMinusOne(insts, below.in[1])) {
    number = below.in[2];
    largest = below.in[0];
  }
  return largest >= 0 && insts[largest].op == KOp::kReduceMax && insts[largest].in[0] == number ? largest : -1;
}

void ChooseOnlineSums(CudaPlan* plan) {
  const std::vector<KInst>& insts = plan->kernel.insts;
  const int count = static_cast<int>(insts.size());
  plan->online.assign(insts.size(), -1);
  if (!plan->rows || plan->iterations > 0 || plan->launch.split || plan->has_scans) return;
  for (int pass = 0; pass + 1 < plan->num_passes; ++pass) {
    // All that the next pass does has to be done in this one.
    std::vector<int> maxima(insts.size(), -1);
    bool all = true;
    for (int i = 0; i < count; ++i) {
      if (!plan->live[i] || plan->pass[i] != pass + 1) continue;
      maxima[i] = insts[i].op == KOp::kReduceSum && c10::isFloatingType(insts[i].type) ? MaximumAbove(insts, insts[i].in[0]) : -1;
      all &= maxima[i] >= 0 && plan->pass[maxima[i]] == pass && std::count(maxima.begin(), maxima.end(), maxima[i]) == 1;
    }
    for (int i = 0; all && i < count; ++i) {
      if (maxima[i] < 0) continue;
      plan->online[i] = maxima[i];
      plan->online[maxima[i]] = i;
      plan->pass[i] = pass;
    }
  }
}

}  // namespace lazuli::codegen
