#include "codegen/cuda/device_helpers.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/cuda/online_sums.h"
#include "codegen/cuda/random_helpers.h"

namespace lazuli::codegen {
namespace {

struct Section {
  std::vector<const char*> markers;  // Any of them in the text that follows asks for the section.
  const char* text;
};

// In the order of the text; a section may use earlier ones.
const std::vector<Section>& Sections() {
  static const auto* const sections = new std::vector<Section>{
      {{"GRID_CONSTANT"}, R"(
// Arguments that are read where they are.
#if __CUDA_ARCH__ >= 700
#define GRID_CONSTANT __grid_constant__
#else
#define GRID_CONSTANT
#endif
)"},
      {{"wait()", "ldg("}, R"(
// A launch may begin before what was launched ahead of it has ended. What that wrote is there after wait(), through pointers that are known
// only then, and for loads that do not take memory for constant.
#if __CUDA_ARCH__ >= 900
D void wait() { asm volatile("griddepcontrol.wait;" : : : "memory"); }
template <class T> D T* waited(T* p) {
  u64 place = __cvta_generic_to_global(p);
  asm volatile("" : "+l"(place) : : "memory");
  return (T*)__cvta_global_to_generic(place);
}
template <class T> D T ldg(const T* p) { return *p; }
#else
D void wait() {}
template <class T> D T* waited(T* p) { return p; }
template <class T> D T ldg(const T* p) { return __ldg(p); }
#endif
)"},
      {{"row_barrier("}, R"(
// Of those threads of a block that call it with the same number, from 1 on.
D void row_barrier(int number, int threads) { asm volatile("bar.sync %0, %1;" : : "r"(number), "r"(threads) : "memory"); }
)"},
      {{"aligned<", "ld<", "st(", "ld("}, R"(
// N consecutive elements: whole vectors where the place is aligned, the first n one by one where not.
template <int B> struct Word { typedef unsigned char T; };
template <> struct Word<2> { typedef unsigned short T; };
template <> struct Word<4> { typedef unsigned T; };
template <> struct Word<8> { typedef uint2 T; };
template <> struct Word<16> { typedef uint4 T; };
template <int B> D bool aligned(const void* p) { return ((u64)p & (B < 16 ? B - 1 : 15)) == 0; }
template <bool RO, class T, int N> D void ld(T (&r)[N], const T* p, bool fast, int n) {
  constexpr int B = N * sizeof(T) < 16 ? N * sizeof(T) : 16, K = N * sizeof(T) / B;
  typedef typename Word<B>::T W;
  if (fast && n == N) {
    union { W w[K]; T t[N]; } u;
#pragma unroll
    for (int k = 0; k < K; ++k) u.w[k] = RO ? ldg((const W*)p + k) : ((const W*)p)[k];
#pragma unroll
    for (int v = 0; v < N; ++v) r[v] = u.t[v];
  } else {
#pragma unroll
    for (int v = 0; v < N; ++v) r[v] = v < n ? p[v] : T(0);
  }
}
template <class T, int N> D void st(T* p, const T (&r)[N], bool fast, int n) {
  constexpr int B = N * sizeof(T) < 16 ? N * sizeof(T) : 16, K = N * sizeof(T) / B;
  typedef typename Word<B>::T W;
  if (fast && n == N) {
    union { W w[K]; T t[N]; } u;
#pragma unroll
    for (int v = 0; v < N; ++v) u.t[v] = r[v];
#pragma unroll
    for (int k = 0; k < K; ++k) ((W*)p)[k] = u.w[k];
  } else {
#pragma unroll
    for (int v = 0; v < N; ++v) if (v < n) p[v] = r[v];
  }
}
// The lanes whose bits are in `in`. A whole vector is read with some of its neighbours: no memory ends within one.
template <bool RO, class T, int N> D void ld(T (&r)[N], const T* p, bool fast, unsigned in) {
  if (fast && in != 0) return ld<RO>(r, p, true, N);
#pragma unroll
  for (int v = 0; v < N; ++v) r[v] = in >> v & 1 ? p[v] : T(0);
}
template <class T, int N> D void st(T* p, const T (&r)[N], bool fast, unsigned in) {
  if (fast && in == (1u << N) - 1) return st(p, r, true, N);
#pragma unroll
  for (int v = 0; v < N; ++v) if (in >> v & 1) p[v] = r[v];
}
)"},
      {{"lds(", "sts("}, R"(
// The first n of N elements that lie s apart.
template <class T, int N> D void lds(T (&r)[N], const T* p, i64 s, int n) {
#pragma unroll
  for (int v = 0; v < N; ++v) r[v] = v < n ? p[v * s] : T(0);
}
template <class T, int N> D void sts(T* p, const T (&r)[N], i64 s, int n) {
#pragma unroll
  for (int v = 0; v < N; ++v) if (v < n) p[v * s] = r[v];
}
)"},
      {{"pack(", "part("}, R"(
// Two small numbers to a register.
template <class T, int N, int M> D void pack(unsigned (&c)[M], const T (&r)[N]) {
#pragma unroll
  for (int k = 0; k < M; ++k) c[k] = (unsigned)(u16)r[2 * k] | (unsigned)(u16)r[2 * k + 1] << 16;
}
template <int M> D u16 part(const unsigned (&c)[M], int v) { return (u16)(c[v / 2] >> v % 2 * 16); }
)"},
      {{"b2f("}, R"(
D float b2f(u16 b) { return __uint_as_float((unsigned)b << 16); }
)"},
      {{"f2b(", "rb("}, R"(
// Two numbers at once take a quarter of the time that one alone does: the other is zero. rb: and back, which is what the upper half says.
D u16 f2b(float f) {
#if __CUDA_ARCH__ >= 800
  unsigned u;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(0.0f), "f"(f));
  return (u16)u;
#else
  const unsigned u = __float_as_uint(f);
  return f != f ? 0x7fff : (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
#endif
}
D float rb(float f) {
#if __CUDA_ARCH__ >= 800
  unsigned u;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(f), "f"(0.0f));
  return __uint_as_float(u);
#else
  return __uint_as_float((unsigned)f2b(f) << 16);
#endif
}
)"},
      {{"h2f(", "rh("}, R"(
D float h2f(u16 h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
)"},
      {{"f2h(", "rh("}, R"(
// As f2b.
D u16 f2h(float f) {
#if __CUDA_ARCH__ >= 800
  unsigned u;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(0.0f), "f"(f));
  return (u16)u;
#else
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
#endif
}
)"},
      {{"rh("}, R"(
D float rh(float f) { return h2f(f2h(f)); }
)"},
      // ex2 and rcp are right to 2 ulp. What rounding a * log2(e) does to the result grows with the number: 2^-21 for 8, 2^-18 for 80.
      {{"rough_exp(", "rough_tanh("}, R"(
D float rough_exp(float a) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a * 1.442695041f));
  return r;
}
)"},
      {{"rough_tanh(", "rough_div("}, R"(
D float rough_inverse(float a) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
}
)"},
      // Next to 0 by the first terms of its series.
      {{"rough_tanh("}, R"(
D float rough_tanh(float a) {
  const float p = a * a, far = fmaf(-2.0f, rough_inverse(rough_exp(2.0f * a) + 1.0f), 1.0f);
  const float near = fmaf(a * p, fmaf(p, 0.133333333f, -0.333333333f), a);
  return fabsf(a) < 0.1f ? near : far;
}
)"},
      // Where neither the divisor nor its inverse is 0, infinite or subnormal.
      {{"rough_div("}, R"(
D float rough_div(float a, float b) {
  const bool usual = (__float_as_uint(b) << 1) - 0x01000000u < 0xfc000000u;
  return usual ? a * rough_inverse(b) : a / b;
}
)"},
      {{"wadd", "wsub", "wmul", "wneg", "Sum()", "Prod()"}, R"(
// Arithmetic of integers wraps.
template <class T> struct Wide { typedef unsigned T_; };
template <> struct Wide<i64> { typedef u64 T_; };
template <class T> D T wadd(T a, T b) { typedef typename Wide<T>::T_ U_; return (T)((U_)a + (U_)b); }
template <class T> D T wsub(T a, T b) { typedef typename Wide<T>::T_ U_; return (T)((U_)a - (U_)b); }
template <class T> D T wmul(T a, T b) { typedef typename Wide<T>::T_ U_; return (T)((U_)a * (U_)b); }
template <class T> D T wneg(T a) { return wsub(T(0), a); }
D float wadd(float a, float b) { return a + b; }
D double wadd(double a, double b) { return a + b; }
D float wmul(float a, float b) { return a * b; }
D double wmul(double a, double b) { return a * b; }
)"},
      {{"shl(", "shr("}, R"(
// Shifts by less than 0, or by all bits and more, shift everything out.
template <class T> D T shl(T a, T b) { return b < 0 || b >= (T)(8 * sizeof(T)) ? T(0) : (T)((u64)a << b); }
template <class T> D T shr(T a, T b) { return a >> (b < 0 || b >= (T)(8 * sizeof(T)) ? (int)(8 * sizeof(T) - 1) : (int)b); }
D u8 shr(u8 a, u8 b) { return b >= 8 ? 0 : a >> b; }
)"},
      {{"nmin(", "nmax(", "Min()", "Max()"}, R"(
// NaN wins. Of two zeros the least is -0 and the greatest 0, as for ATen's CUDA kernels.
template <class T> D T nmin(T a, T b) { return a < b ? a : b; }
template <class T> D T nmax(T a, T b) { return a > b ? a : b; }
D float nmin(float a, float b) { return a != a ? a : b != b ? b : fminf(a, b); }
D float nmax(float a, float b) { return a != a ? a : b != b ? b : fmaxf(a, b); }
D double nmin(double a, double b) { return a != a ? a : b != b ? b : fmin(a, b); }
D double nmax(double a, double b) { return a != a ? a : b != b ? b : fmax(a, b); }
)"},
      {{"Sum()"}, "struct Sum { template <class T> D T operator()(T a, T b) const { return wadd(a, b); } };\n"},
      {{"Prod()"}, "struct Prod { template <class T> D T operator()(T a, T b) const { return wmul(a, b); } };\n"},
      {{"Min()", "Max()"}, R"(
// Of reductions: one instruction, whichever NaN it gives. Elements keep theirs.
#if __CUDA_ARCH__ >= 800
D float least(float a, float b) { asm("min.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(a), "f"(b)); return a; }
D float greatest(float a, float b) { asm("max.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(a), "f"(b)); return a; }
#endif
template <class T> D T least(T a, T b) { return nmin(a, b); }
template <class T> D T greatest(T a, T b) { return nmax(a, b); }
struct Min { template <class T> D T operator()(T a, T b) const { return least(a, b); } };
struct Max { template <class T> D T operator()(T a, T b) const { return greatest(a, b); } };
)"},
      {{"holds<"}, R"(
// Whether a number is one of N coordinates from `first` on.
template <int N, class T> D bool holds(i64 a, T first) { return (u64)(a - (i64)first) < N; }
)"},
      {{"is_at("}, R"(
// Whether a number is a coordinate. What is said of the number alone is computed ahead of loops.
template <class T> D bool is_at(i64 a, T i) { return (T)a == i && (i64)(T)a == a; }
)"},
      {{"Any()"}, "struct Any { D bool operator()(bool a, bool b) const { return a || b; } };\n"},
      {{"All()"}, "struct All { D bool operator()(bool a, bool b) const { return a && b; } };\n"},
      {{"lanes<", "warps<"}, R"(
// All of N numbers in registers, in a fixed tree.
template <class T, int N, class F> D T lanes(const T (&a)[N], F f) {
  T t[N];
#pragma unroll
  for (int v = 0; v < N; ++v) t[v] = a[v];
#pragma unroll
  for (int s = N / 2; s > 0; s /= 2)
#pragma unroll
    for (int v = 0; v < s; ++v) t[v] = f(t[v], t[v + s]);
  return t[0];
}
template <class T> D T shuffle(unsigned mask, T a, int s) { return (T)__shfl_xor_sync(mask, (int)a, s); }
D float shuffle(unsigned mask, float a, int s) { return __shfl_xor_sync(mask, a, s); }
D double shuffle(unsigned mask, double a, int s) { return __shfl_xor_sync(mask, a, s); }
D i64 shuffle(unsigned mask, i64 a, int s) { return __shfl_xor_sync(mask, a, s); }
// All of W neighbouring threads' numbers; each of them gets the result.
template <int W, class T, class F> D T warps(T a, F f, unsigned mask) {
#pragma unroll
  for (int s = W / 2; s > 0; s /= 2) a = f(a, shuffle(mask, a, s));
  return a;
}
)"},
      {{"online("}, kOnlineSumsText},
      {{"scan<"}, R"(
// All N numbers of each of W neighbouring threads, put together in order (BACK: of the last number first), and `before` in front of them,
// which becomes all of them together. `warps`: shared memory for what each warp comes to, where there are several.
template <int W, bool BACK, class T, int N, class F, class B>
D void scan(T (&e)[N], T& before, T* warps, F f, unsigned mask, B barrier) {
#pragma unroll
  for (int v = 1; v < N; ++v) {
    if (BACK) e[N - 1 - v] = f(e[N - 1 - v], e[N - v]); else e[v] = f(e[v], e[v - 1]);
  }
  constexpr int width = W < 32 ? W : 32, count = W > 32 ? W / 32 : 1;
  const int lane = threadIdx.x % width;
  T all = BACK ? e[0] : e[N - 1], first = before;
#pragma unroll
  for (int s = 1; s < width; s *= 2) {
    const T other = __shfl_up_sync(mask, all, s, width);
    if (lane >= s) all = f(all, other);
  }
  if (W > 32) {
    if (lane == 31) warps[threadIdx.x / 32] = all;
    barrier();
    T of_warps = warps[lane % count];
#pragma unroll
    for (int s = 1; s < count; s *= 2) {
      const T other = __shfl_up_sync(mask, of_warps, s, count);
      if (lane % count >= s) of_warps = f(of_warps, other);
    }
    const int warp = threadIdx.x / 32;
    const T earlier = __shfl_sync(mask, of_warps, warp > 0 ? warp - 1 : 0);
    if (warp > 0) first = f(first, earlier);
    before = f(before, (T)__shfl_sync(mask, of_warps, count - 1));
  } else if (W > 1) {
    before = f(before, (T)__shfl_sync(mask, all, width - 1, width));
  } else {
    before = f(before, all);
  }
  if (W > 1) {
    const T earlier = __shfl_up_sync(mask, all, 1, width);
    if (lane > 0) first = f(first, earlier);
  }
#pragma unroll
  for (int v = 0; v < N; ++v) e[v] = f(e[v], first);
}
)"},
      {{"scan_columns<"}, R"(
// K points of each of N columns, by Y threads for each, of which a block has X side by side: all of them put together in order, and
// `before` in front of them, which becomes all of them together. `threads`: shared memory for what each thread comes to.
template <int X, int Y, class T, int K, int N, class F>
D void scan_columns(T (&e)[K][N], T (&before)[N], T* threads, F f) {
#pragma unroll
  for (int v = 0; v < N; ++v) {
#pragma unroll
    for (int u = 1; u < K; ++u) e[u][v] = f(e[u][v], e[u - 1][v]);
    if (Y > 1) threads[(threadIdx.y * X + threadIdx.x) * N + v] = e[K - 1][v];
  }
  if (Y > 1) __syncthreads();
#pragma unroll
  for (int v = 0; v < N; ++v) {
    const T first = before[v];
    T all = first, own = first;
#pragma unroll
    for (int y = 0; y < Y; ++y) {
      const T other = Y > 1 ? threads[(y * X + threadIdx.x) * N + v] : e[K - 1][v];
      if (y < threadIdx.y) own = f(own, other);
      all = f(all, other);
    }
    before[v] = all;
#pragma unroll
    for (int u = 0; u < K; ++u) e[u][v] = f(e[u][v], own);
  }
}
)"},
      {{"check("}, R"(
extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, unsigned long);
D void check(bool valid, const char* said) {
  if (!valid) __assertfail(said, "lazuli", 0, "kernel", 1);
}
)"},
      {{"add_at("}, R"(
// Adds to memory that other threads add to as well.
template <class W, class F> D void change_at(W* p, F change) {
  W old = *(volatile W*)p, seen;
  do {
    seen = old;
    old = atomicCAS(p, seen, change(seen));
  } while (old != seen);
}
D void add_at(float* p, float a) { atomicAdd(p, a); }
D void add_at(double* p, double a) { atomicAdd(p, a); }
D void add_at(int* p, int a) { atomicAdd(p, a); }
D void add_at(i64* p, i64 a) { atomicAdd((u64*)p, (u64)a); }
template <class T> D void add_part(T* p, T a) {
  const int shift = 8 * (int)((u64)p & 3);
  const unsigned mask = (sizeof(T) == 1 ? 0xffu : 0xffffu) << (sizeof(T) == 1 ? shift : shift & 16);
  change_at((unsigned*)((u64)p & ~3ull), [=](unsigned w) {
    const unsigned sum = ((w & mask) >> shift) + (unsigned)a;
    return (w & ~mask) | (sum << shift & mask);
  });
}
D void add_at(short* p, short a) { add_part(p, a); }
D void add_at(signed char* p, signed char a) { add_part(p, a); }
D void add_at(u8* p, u8 a) { add_part(p, a); }
)"},
      {{"add_alike("}, R"(
// The same, once for a warp all of which adds to one place, as where indices are sorted.
template <class T> D void add_alike(T* p, T a) {
  const unsigned active = __activemask();
  const unsigned low = (unsigned)(u64)p;
  if (active == 0xffffffffu && __all_sync(active, low == __shfl_sync(active, low, 0))) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) a += __shfl_xor_sync(active, a, d);
    if (threadIdx.x % 32 != 0) return;
  }
  add_at(p, a);
}
)"},
      {{"add_vector("}, R"(
// The first n of N.
template <int N> D void add_vector(float* p, const float (&r)[N], int n) {
#if __CUDA_ARCH__ >= 900
  if (N % 4 == 0 && n == N && aligned<16>(p)) {
#pragma unroll
    for (int k = 0; k < N / 4; ++k) {
      asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" : : "l"(__cvta_generic_to_global(p + 4 * k)), "f"(r[4 * k]),
                   "f"(r[4 * k + 1]), "f"(r[4 * k + 2]), "f"(r[4 * k + 3]) : "memory");
    }
    return;
  }
#endif
#pragma unroll
  for (int v = 0; v < N; ++v) if (v < n) atomicAdd(p + v, r[v]);
}
)"},
      {{"quotient("}, R"(
D i64 quotient(i64 a, i64 b) { return (u64)(a | b) >> 32 == 0 ? (i64)((unsigned)a / (unsigned)b) : a / b; }
)"},
      {{"Philox "}, kRandomHelpers},
      {{"add_half(", "add_bf16("}, R"(
template <class F> D void change_half(u16* p, F change) {
  const int shift = 8 * (int)((u64)p & 2);
  unsigned* word = (unsigned*)((u64)p & ~2ull);
  unsigned old = *(volatile unsigned*)word, seen;
  do {
    seen = old;
    const unsigned h = change((u16)(seen >> shift));
    old = atomicCAS(word, seen, (seen & ~(0xffffu << shift)) | h << shift);
  } while (old != seen);
}
)"},
      {{"add_bf16("}, R"(
D void add_bf16(u16* p, u16 a) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.noftz.bf16 [%0], %1;" : : "l"(p), "h"(a) : "memory");
#else
  change_half(p, [=](u16 h) { return f2b(b2f(h) + b2f(a)); });
#endif
}
)"},
      {{"add_half("}, R"(
D void add_half(u16* p, u16 a) {
#if __CUDA_ARCH__ >= 700
  asm volatile("red.global.add.noftz.f16 [%0], %1;" : : "l"(p), "h"(a) : "memory");
#else
  change_half(p, [=](u16 h) { return f2h(h2f(h) + h2f(a)); });
#endif
}
)"},
  };
  return *sections;
}

constexpr const char* kPrelude = R"(typedef long long i64;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;
#define D __device__ __forceinline__
)";

}  // namespace

std::string DeviceHelpersFor(const std::string& body) {
  std::string after = body;
  const std::vector<Section>& sections = Sections();
  for (size_t i = sections.size(); i-- > 0;) {
    for (const char* marker : sections[i].markers) {
      if (!absl::StrContains(after, marker)) continue;
      after = absl::StrCat(sections[i].text, after);
      break;
    }
  }
  return absl::StrCat(kPrelude, after);
}

}  // namespace lazuli::codegen
