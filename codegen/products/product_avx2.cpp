#include <immintrin.h>

#include "codegen/products/attention_tiles.h"
#include "codegen/products/product_tiles.h"

namespace lazuli::codegen {
namespace {

constexpr int kLanes = 8;
constexpr int kMostVectors = 2;  // Of tiles.
using Vec = __m256;

// All ones in the first n lanes.
inline __m256i First(int64_t n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
}
inline Vec Zero() { return _mm256_setzero_ps(); }
inline Vec Load(const float* p) { return _mm256_loadu_ps(p); }
inline Vec LoadFirst(const float* p, int64_t n) { return _mm256_maskload_ps(p, First(n)); }
inline void Store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
inline void StoreFirst(float* p, Vec v, int64_t n) { _mm256_maskstore_ps(p, First(n), v); }
inline Vec Broadcast(const float* p) { return _mm256_broadcast_ss(p); }
inline Vec MultiplyAdd(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
inline Vec Low(Vec a, Vec b) { return _mm256_unpacklo_ps(a, b); }
inline Vec High(Vec a, Vec b) { return _mm256_unpackhi_ps(a, b); }
inline Vec LowPairs(Vec a, Vec b) { return _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(a), _mm256_castps_pd(b))); }
inline Vec HighPairs(Vec a, Vec b) { return _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(a), _mm256_castps_pd(b))); }

inline Vec Constant(float value) { return _mm256_set1_ps(value); }
inline Vec Subtract(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
inline Vec Multiply(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
inline Vec Divide(Vec a, Vec b) { return _mm256_div_ps(a, b); }
inline Vec Max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
inline Vec LaneIndex() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }
inline Vec LoadBytes(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline Vec ReplaceAbove(Vec limit, Vec index, Vec other, Vec v) {
  return _mm256_blendv_ps(v, other, _mm256_cmp_ps(index, limit, _CMP_GT_OQ));
}
inline Vec Round(Vec v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Vec ZeroBelow(Vec limit, Vec x, Vec v) { return _mm256_and_ps(v, _mm256_cmp_ps(x, limit, _CMP_NLT_UQ)); }
inline Vec ScaleByPowerOf2(Vec v, Vec n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}

// v from t, by whole quarters of 128 bits: the transpose of a matrix of quarters.
inline __attribute__((always_inline)) void TransposeQuarters(const Vec (&t)[kLanes], Vec (&v)[kLanes]) {
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
    v[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
  }
}

inline __m128 AddQuarters(Vec v) { return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)); }

#include "codegen/products/product_tiles_impl.h"

#include "codegen/products/attention_tiles_impl.h"

#include "codegen/products/attention_grad_tiles_impl.h"

// fn(shape) with the shape of tiles for so many vectors.
template <class Fn>
void ForShape(int64_t vectors, const Fn& fn) {
  if (vectors == 2) return fn(Shape<6, 2>());
  fn(Shape<8, 1>());
}

#include "codegen/products/product_tiles_entry.h"

}  // namespace

const ProductTiles kProductTilesAvx2 = {kLanes, kMostVectors, 4, &Pack, &Panel, &Columns, &Direct<3, 1>, &Attend, &AttendBack};

}  // namespace lazuli::codegen
