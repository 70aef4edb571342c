// Random numbers in kernels for GPUs: device_helpers.cpp's part of that name.
#pragma once

namespace lazuli::codegen {

constexpr const char* kRandomHelpers = R"(
// Four numbers come at a time, for as many lanes where these are elements from a multiple of four on. place: where.
struct Philox { unsigned x, y, z, w; int word; bool whole; };
// Which of the four is the lane's.
template <int V, class F> D int draw(Philox& g, int v, i64 element, F place, i64 seed) {
  constexpr int S = V < 4 ? V : 4;
  if (v % S == 0) g.whole = element % S == 0;
  if (v % S == 0 || !g.whole) {
    i64 number, sequence;
    place(number, sequence);
    g.word = (int)number;
    const u64 counter = (u64)number >> 2;
    unsigned x = (unsigned)counter, y = (unsigned)(counter >> 32), z = (unsigned)sequence, w = (unsigned)((u64)sequence >> 32);
    unsigned k0 = (unsigned)(u64)seed, k1 = (unsigned)((u64)seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
      const unsigned low0 = 0xD2511F53u * x, high0 = __umulhi(0xD2511F53u, x), low1 = 0xCD9E8D57u * z, high1 = __umulhi(0xCD9E8D57u, z);
      x = high1 ^ y ^ k0;
      y = low1;
      z = high0 ^ w ^ k1;
      w = low0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    g.x = x;
    g.y = y;
    g.z = z;
    g.w = w;
  }
  return S == 1 || !g.whole ? g.word & 3 : v % S;
}
D float uniform_of(unsigned bits) { return fmaf((float)bits, 2.3283064365386963e-10f, 1.16415321826934814e-10f); }
template <int V, class F> D float uniform(Philox& g, int v, i64 element, F place, i64 seed) {
  const int word = draw<V>(g, v, element, place, seed);
  return uniform_of(word & 2 ? (word & 1 ? g.w : g.z) : (word & 1 ? g.y : g.x));
}
template <int V, class F> D float normal(Philox& g, int v, i64 element, F place, i64 seed) {
  const int word = draw<V>(g, v, element, place, seed);
  constexpr float turn = 2.3283064e-10f * 6.2831855f;
  const float angle = fmaf((float)(word & 2 ? g.w : g.y), turn, turn / 2);
  const float radius = sqrtf(-2.0f * logf(uniform_of(word & 2 ? g.z : g.x)));
  float sine, cosine;
  __sincosf(angle, &sine, &cosine);
  return (word & 1 ? cosine : sine) * radius;
}
)";

}  // namespace lazuli::codegen
