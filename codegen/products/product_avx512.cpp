#include <immintrin.h>

#include "codegen/products/attention_tiles.h"
#include "codegen/products/product_tiles.h"

namespace lazuli::codegen {
namespace {

constexpr int kLanes = 16;
constexpr int kMostVectors = 4;  // Of tiles.
using Vec = __m512;

inline __mmask16 First(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }
inline Vec Zero() { return _mm512_setzero_ps(); }
inline Vec Load(const float* p) { return _mm512_loadu_ps(p); }
inline Vec LoadFirst(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(First(n), p); }
inline void Store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
inline void StoreFirst(float* p, Vec v, int64_t n) { _mm512_mask_storeu_ps(p, First(n), v); }
inline Vec Broadcast(const float* p) { return _mm512_set1_ps(*p); }
inline Vec MultiplyAdd(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec Low(Vec a, Vec b) { return _mm512_unpacklo_ps(a, b); }
inline Vec High(Vec a, Vec b) { return _mm512_unpackhi_ps(a, b); }
inline Vec LowPairs(Vec a, Vec b) { return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b))); }
inline Vec HighPairs(Vec a, Vec b) { return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b))); }

inline Vec Constant(float value) { return _mm512_set1_ps(value); }
inline Vec Subtract(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
inline Vec Multiply(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec Divide(Vec a, Vec b) { return _mm512_div_ps(a, b); }
inline Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline Vec LaneIndex() { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
inline Vec LoadBytes(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline Vec ReplaceAbove(Vec limit, Vec index, Vec other, Vec v) {
  return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(index, limit, _CMP_GT_OQ), other);
}
inline Vec Round(Vec v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Vec ZeroBelow(Vec limit, Vec x, Vec v) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), v); }
inline Vec ScaleByPowerOf2(Vec v, Vec n) { return _mm512_scalef_ps(v, n); }

// v from t, by whole quarters of 128 bits: the transpose of a matrix of quarters.
inline __attribute__((always_inline)) void TransposeQuarters(const Vec (&t)[kLanes], Vec (&v)[kLanes]) {
  for (int i = 0; i < 4; ++i) {
    const Vec even03 = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88), odd03 = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
    const Vec even47 = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88), odd47 = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
    v[i] = _mm512_shuffle_f32x4(even03, even47, 0x88);
    v[i + 4] = _mm512_shuffle_f32x4(odd03, odd47, 0x88);
    v[i + 8] = _mm512_shuffle_f32x4(even03, even47, 0xdd);
    v[i + 12] = _mm512_shuffle_f32x4(odd03, odd47, 0xdd);
  }
}

inline __m128 AddQuarters(Vec v) {
  const __m256 halves = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  return _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
}

#include "codegen/products/product_tiles_impl.h"

#include "codegen/products/attention_tiles_impl.h"

#include "codegen/products/attention_grad_tiles_impl.h"

// fn(shape) with the shape of tiles for so many vectors.
template <class Fn>
void ForShape(int64_t vectors, const Fn& fn) {
  if (vectors == 4) return fn(Shape<6, 4>());
  if (vectors == 3) return fn(Shape<8, 3>());
  if (vectors == 2) return fn(Shape<12, 2>());
  fn(Shape<16, 1>());
}

#include "codegen/products/product_tiles_entry.h"

}  // namespace

const ProductTiles kProductTilesAvx512 = {kLanes, kMostVectors, 8, &Pack, &Panel, &Columns, &Direct<6, 2>, &Attend, &AttendBack};

}  // namespace lazuli::codegen
