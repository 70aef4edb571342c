#include <immintrin.h>

#include "codegen/products/product_tiles.h"

namespace lazuli::codegen {
namespace {

constexpr int kLanes = 16;
using Vec = __m512;
using Vec4 = __m128;

inline __mmask16 First(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }
inline Vec Zero() { return _mm512_setzero_ps(); }
inline Vec Load(const float* p) { return _mm512_loadu_ps(p); }
inline Vec LoadFirst(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(First(n), p); }
inline void Store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
inline void StoreFirst(float* p, Vec v, int64_t n) { _mm512_mask_storeu_ps(p, First(n), v); }
inline Vec Broadcast(const float* p) { return _mm512_set1_ps(*p); }
inline Vec MultiplyAdd(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec4 Add4(Vec4 a, Vec4 b) { return _mm_add_ps(a, b); }
inline Vec4 Load4(const float* p) { return _mm_loadu_ps(p); }
inline void Store4(float* p, Vec4 v) { _mm_storeu_ps(p, v); }

inline Vec LowPairs(Vec a, Vec b) { return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b))); }
inline Vec HighPairs(Vec a, Vec b) { return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b))); }

// Transposes 4x4 blocks within quarters of the vectors, then the quarters.
inline __attribute__((always_inline)) void Transpose(Vec (&v)[kLanes]) {
  Vec t[kLanes];
  for (int i = 0; i < 16; i += 4) {
    const Vec low01 = _mm512_unpacklo_ps(v[i], v[i + 1]), high01 = _mm512_unpackhi_ps(v[i], v[i + 1]);
    const Vec low23 = _mm512_unpacklo_ps(v[i + 2], v[i + 3]), high23 = _mm512_unpackhi_ps(v[i + 2], v[i + 3]);
    t[i] = LowPairs(low01, low23);
    t[i + 1] = HighPairs(low01, low23);
    t[i + 2] = LowPairs(high01, high23);
    t[i + 3] = HighPairs(high01, high23);
  }
  for (int i = 0; i < 4; ++i) {
    const Vec even03 = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88), odd03 = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
    const Vec even47 = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88), odd47 = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
    v[i] = _mm512_shuffle_f32x4(even03, even47, 0x88);
    v[i + 4] = _mm512_shuffle_f32x4(odd03, odd47, 0x88);
    v[i + 8] = _mm512_shuffle_f32x4(even03, even47, 0xdd);
    v[i + 12] = _mm512_shuffle_f32x4(odd03, odd47, 0xdd);
  }
}

inline Vec4 SumEach(Vec a, Vec b, Vec c, Vec d) {
  const Vec ab = Add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const Vec cd = Add(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const Vec sums = Add(LowPairs(ab, cd), HighPairs(ab, cd));
  const __m256 halves = _mm256_add_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps(sums, 1));
  return _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
}

#include "codegen/products/product_tiles_impl.h"

void Pack(const Product& product, int64_t first, int64_t count, int64_t vectors, float* panel) {
  if (vectors == 4) return PackPanel<4>(product, first, count, panel);
  if (vectors == 3) return PackPanel<3>(product, first, count, panel);
  if (vectors == 2) return PackPanel<2>(product, first, count, panel);
  PackPanel<1>(product, first, count, panel);
}

void Panel(const Product& product, int64_t first, int64_t count, int64_t vectors, const float* panel, int64_t begin, int64_t end,
           float* scratch) {
  if (vectors == 4) return PanelBlock<6, 4>(product, first, count, panel, begin, end, scratch);
  if (vectors == 3) return PanelBlock<8, 3>(product, first, count, panel, begin, end, scratch);
  if (vectors == 2) return PanelBlock<12, 2>(product, first, count, panel, begin, end, scratch);
  PanelBlock<16, 1>(product, first, count, panel, begin, end, scratch);
}

}  // namespace

const ProductTiles kProductTilesAvx512 = {kLanes, 4, 8, &Pack, &Panel, &Direct<6, 2>};

}  // namespace lazuli::codegen
