// Scaled dot-product attention: softmax(q k^T * scale + bias) v for each head, and its gradients.
//
// Scores exist for some keys at a time, with the queries along the vectors, so that all sums and maxima run down columns; sums so far are
// scaled when a larger score comes. The gradients compute them again. Sources: Milakov and Gimelshein, Online normalizer calculation for
// softmax, 2018; Dao et al., FlashAttention, 2022.
#pragma once

#include <cstdint>

#include "runtime/options.h"

namespace lazuli::codegen {

// Where rows of `width` floats are: element e of row r of head h of batch b at data + b * batch + h * head + r * row + e.
template <class Float>
struct HeadRows {
  Float* data = nullptr;
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;
};

// A number for each score: that of query i and key j of head h of batch b at data + b * batch + h * head + i * query + j * key. Null: none.
template <class Element>
struct ScoreTable {
  const Element* data = nullptr;
  int64_t batch = 0;
  int64_t head = 0;
  int64_t query = 0;
  int64_t key = 0;
};

struct Attention {
  int64_t batch = 0;
  int64_t heads = 0;     // Of queries.
  int64_t kv_heads = 0;  // Of keys and values: a divisor of `heads`; neighbours share one.
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t width = 0;  // Of a head, in q, k, v and y.
  HeadRows<const float> q, k, v;
  HeadRows<float> y;
  HeadRows<float> logsumexp;  // Of each query's scores: rows of one float,
  HeadRows<float> max;  // or, where there is `max`, of that: logsumexp without max. Nothing of it is lost then, however large scores are.
  bool causal = false;  // Query i sees keys 0 to i.
  float scale = 1;
  ScoreTable<float> bias;      // Added to scaled scores.
  ScoreTable<uint8_t> filled;  // 1: the score is `fill` whatever q, k and bias are; 0.
  bool keeps = false;          // `filled` is 0 there and 1 elsewhere.
  float fill = 0;
  bool zero_if_unseen = true;  // A query that sees no key (all scores are minus infinity) gives 0. Else it gives NaN, as softmax does.
};

// Rows as those of what they are the gradients of, but grad_y, which is like y. The attention's y and logsumexp are its results.
struct AttentionGradient {
  Attention attention;
  HeadRows<const float> grad_y;
  HeadRows<float> grad_q, grad_k, grad_v;
};

// Whether they beat the library by these sizes and by the instructions that the options in force allow.
bool SuitsAttention(int64_t queries, int64_t keys, int64_t width);

// On LibTorch's threads; the order of all sums depends on the sizes alone. No size is 0. Values of keys that none of several neighbouring
// queries sees are not looked at. `isa`, for tests: kAvx2 or kAvx512. Throw std::bad_alloc.
void RunAttention(const Attention& attention);
void RunAttention(const Attention& attention, runtime::Isa isa);
void RunAttentionGradient(const AttentionGradient& gradient);
void RunAttentionGradient(const AttentionGradient& gradient, runtime::Isa isa);

}  // namespace lazuli::codegen
