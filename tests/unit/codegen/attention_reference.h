// Attention over random numbers, and the same in double with what rounding may change of each result.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codegen/products/attention.h"
#include "runtime/cpu_features.h"

namespace lazuli::codegen {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct AttentionSizes {
  int64_t batch = 1, heads = 1, kv_heads = 1, queries = 16, keys = 16, width = 8;
  bool causal = false;
  float spread = 1;  // Of the numbers.
};
inline std::ostream& operator<<(std::ostream& out, const AttentionSizes& s) {
  return out << s.batch << " x " << s.heads << " (" << s.kv_heads << ") x " << s.queries << " x " << s.keys << " x " << s.width
             << (s.causal ? " causal" : "");
}

// Where a table of scores has numbers of its own; its other strides are 0.
struct TableShape {
  bool batch = true, head = true, query = true, key = true;
  int64_t apart = 1;  // From key to key.
};
inline std::ostream& operator<<(std::ostream& out, const TableShape& s) {
  return out << "table" << (s.batch ? " batch" : "") << (s.head ? " head" : "") << (s.query ? " query" : "") << (s.key ? " key " : " ")
             << s.apart;
}

// Every shape, and keys beside each other or not.
inline std::vector<TableShape> TableShapes() {
  std::vector<TableShape> shapes;
  for (int bits = 0; bits < 16; ++bits) {
    const TableShape shape = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, 1};
    shapes.push_back(shape);
    if (shape.key) shapes.push_back({shape.batch, shape.head, shape.query, true, 3});
  }
  return shapes;
}

template <class Float>
Float* RowOf(const HeadRows<Float>& rows, int64_t batch, int64_t head, int64_t row) {
  return rows.data + batch * rows.batch + head * rows.head + row * rows.row;
}
template <class Element>
Element NumberOf(const ScoreTable<Element>& table, int64_t batch, int64_t head, int64_t query, int64_t key) {
  return table.data == nullptr ? Element{} : table.data[batch * table.batch + head * table.head + query * table.query + key * table.key];
}

// Heads side by side in a row, as a layer for q, k and v leaves them, but with a gap after each. Gaps differ, so that strides do.
class HeadNumbers {
 public:
  HeadNumbers(int64_t batch, int64_t heads, int64_t rows, int64_t width, int64_t gap)
      : heads_(heads), rows_(rows), width_(width), pitch_(width + gap), all_(batch * rows * heads * pitch_, kUntouched) {}

  // Gaps of NaN spoil every sum that reads one.
  void Randomize(float spread, std::mt19937* random) {
    std::normal_distribution<float> normal(0, spread);
    for (size_t i = 0; i < all_.size(); ++i) {
      all_[i] = static_cast<int64_t>(i) % pitch_ < width_ ? normal(*random) : std::numeric_limits<float>::quiet_NaN();
    }
  }
  void Clear() { std::fill(all_.begin(), all_.end(), kUntouched); }
  int64_t Touched() const { return static_cast<int64_t>(all_.size()) - std::count(all_.begin(), all_.end(), kUntouched); }
  const std::vector<float>& all() const { return all_; }

  template <class Float>
  HeadRows<Float> Rows() {
    return {all_.data(), rows_ * heads_ * pitch_, pitch_, heads_ * pitch_};
  }

 private:
  static constexpr float kUntouched = 12345.0f;
  int64_t heads_, rows_, width_, pitch_;
  std::vector<float> all_;
};

class AttentionCase {
 public:
  explicit AttentionCase(const AttentionSizes& s)
      : q_(s.batch, s.heads, s.queries, s.width, 3),
        k_(s.batch, s.kv_heads, s.keys, s.width, 4),
        v_(s.batch, s.kv_heads, s.keys, s.width, 5),
        y_(s.batch, s.heads, s.queries, s.width, 6),
        logsumexp_(s.batch, s.heads, s.queries, 1, 1),
        sizes_(s) {
    for (HeadNumbers* numbers : {&q_, &k_, &v_}) numbers->Randomize(s.spread, &random_);
    attention_.batch = s.batch;
    attention_.heads = s.heads;
    attention_.kv_heads = s.kv_heads;
    attention_.queries = s.queries;
    attention_.keys = s.keys;
    attention_.width = s.width;
    attention_.q = q_.Rows<const float>();
    attention_.k = k_.Rows<const float>();
    attention_.v = v_.Rows<const float>();
    attention_.y = y_.Rows<float>();
    attention_.logsumexp = logsumexp_.Rows<float>();
    attention_.causal = s.causal;
    attention_.scale = 1 / std::sqrt(static_cast<float>(s.width));
  }
  AttentionCase(const AttentionCase&) = delete;
  AttentionCase& operator=(const AttentionCase&) = delete;

  // number(query, key), asked once for each number that the table has.
  template <class Number>
  void SetBias(const TableShape& shape, const Number& number) {
    attention_.bias = Tabulate(shape, number, std::numeric_limits<float>::quiet_NaN(), &bias_);
  }
  template <class IsFilled>
  void SetFilled(const TableShape& shape, float fill, const IsFilled& is_filled, bool keeps = false) {
    const auto number = [&](int64_t query, int64_t key) { return static_cast<uint8_t>(is_filled(query, key) != keeps); };
    attention_.filled = Tabulate(shape, number, uint8_t{!keeps}, &filled_);
    attention_.keeps = keeps;
    attention_.fill = fill;
  }
  // The same by either table.
  template <class IsHidden>
  void Hide(bool by_bias, const TableShape& shape, const IsHidden& is_hidden) {
    if (!by_bias) return SetFilled(shape, kMinusInfinity, is_hidden);
    SetBias(shape, [&](int64_t query, int64_t key) { return is_hidden(query, key) ? kMinusInfinity : 0; });
  }
  void set_zero_if_unseen(bool zero) { attention_.zero_if_unseen = zero; }

  float Normal() { return std::normal_distribution<float>()(random_); }
  bool OneOf(int count) { return std::uniform_int_distribution<int>(1, count)(random_) == 1; }

  void Run(runtime::Isa isa) {
    y_.Clear();
    logsumexp_.Clear();
    RunAttention(attention_, isa);
  }

  float* q(int64_t row) { return RowOf(q_.Rows<float>(), 0, 0, row); }
  float* k(int64_t row) { return RowOf(k_.Rows<float>(), 0, 0, row); }
  float* v(int64_t row) { return RowOf(v_.Rows<float>(), 0, 0, row); }
  const HeadNumbers& y() const { return y_; }
  const HeadNumbers& logsumexp() const { return logsumexp_; }
  const AttentionSizes& sizes() const { return sizes_; }
  const Attention& attention() const { return attention_; }
  std::mt19937* random() { return &random_; }

 private:
  template <class Element, class Number>
  ScoreTable<Element> Tabulate(const TableShape& shape, const Number& number, Element gap, std::vector<Element>* all) {
    const AttentionSizes& s = sizes_;
    const int64_t row = s.keys * shape.apart + 3;
    all->assign(static_cast<size_t>(s.batch * s.heads * s.queries * row), gap);
    const ScoreTable<Element> table = {all->data(), shape.batch ? s.heads * s.queries * row : 0, shape.head ? s.queries * row : 0,
                                       shape.query ? row : 0, shape.key ? shape.apart : 0};
    for (int64_t b = 0; b < (shape.batch ? s.batch : 1); ++b) {
      for (int64_t h = 0; h < (shape.head ? s.heads : 1); ++h) {
        for (int64_t i = 0; i < (shape.query ? s.queries : 1); ++i) {
          for (int64_t j = 0; j < (shape.key ? s.keys : 1); ++j) {
            (*all)[static_cast<size_t>(b * table.batch + h * table.head + i * table.query + j * table.key)] = number(i, j);
          }
        }
      }
    }
    return table;
  }

  std::mt19937 random_{7};
  HeadNumbers q_, k_, v_, y_, logsumexp_;
  std::vector<float> bias_;
  std::vector<uint8_t> filled_;
  AttentionSizes sizes_;
  Attention attention_;
};

constexpr double kRounding = 0x1p-24;  // Of a float, relative.

// A sum of products of numbers that may be wrong by an error with others that are exact. In any order, each of n terms is rounded at most n
// times: Higham, Accuracy and Stability of Numerical Algorithms, 3.1 and 4.2; here and below to first order.
class SumWithError {
 public:
  void Add(double a, double a_error, double b) {
    value_ += a * b;
    magnitude_ += std::abs(a * b);
    error_ += a_error * std::abs(b);
    ++terms_;
  }
  double value() const { return value_; }
  double error() const { return error_ + terms_ * kRounding * magnitude_; }

 private:
  double value_ = 0, magnitude_ = 0, error_ = 0, terms_ = 1;
};

// Whether it is that, or both are not numbers.
inline ::testing::AssertionResult IsNear(double got, double expected, double error) {
  if (got == expected || std::abs(got - expected) <= error || (std::isnan(got) && std::isnan(expected)))
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << got << " instead of " << expected << " +- " << error;
}

// One query's results.
class AttentionReference {
 public:
  struct Key {
    bool seen = false, filled = false;
    double score = 0, score_error = 0;
    double weight = 0, weight_error = 0;  // From the score and logsumexp: what gradients take.
  };

  AttentionReference(const Attention& a, int64_t batch, int64_t head, int64_t query) : y(a.width), y_errors(a.width) {
    for (int64_t j = 0; j < a.keys; ++j) keys.push_back(ScoreOf(a, batch, head, query, j));
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (const Key& key : keys) max = key.seen ? std::max(max, key.score) : max;
    if (std::isinf(max)) {
      logsumexp = a.zero_if_unseen ? 0 : max;
      if (!a.zero_if_unseen) std::fill(y.begin(), y.end(), std::numeric_limits<double>::quiet_NaN());
      return;
    }
    for (const Key& key : keys) sum += key.seen ? std::exp(key.score - max) : 0;
    logsumexp = max + std::log(sum);
    Average(a, batch, head / (a.heads / a.kv_heads), max);
    for (Key& key : keys) {
      if (!key.seen) continue;
      key.weight = std::exp(key.score - logsumexp);
      const double relative = key.score_error + logsumexp_error + (std::abs(key.score - logsumexp) + kExp) * kRounding;
      key.weight_error = key.weight * relative + kVanishing;
    }
  }

  std::vector<Key> keys;
  double logsumexp = 0, logsumexp_error = 0;
  std::vector<double> y, y_errors;

 private:
  static constexpr double kExp = 2;               // Roundings: it is right within an ulp.
  static constexpr double kVanishing = 0x1p-125;  // exp gives 0 for less.

  static Key ScoreOf(const Attention& a, int64_t batch, int64_t head, int64_t i, int64_t j) {
    const float bias = NumberOf(a.bias, batch, head, i, j);
    Key key;
    key.filled = a.filled.data != nullptr && (NumberOf(a.filled, batch, head, i, j) != 0) != a.keeps;
    key.seen = (!a.causal || j <= i) && (key.filled ? a.fill : bias) != kMinusInfinity;
    if (key.filled) key.score = a.fill;
    if (!key.seen || key.filled) return key;
    SumWithError sum;
    const float *q = RowOf(a.q, batch, head, i), *k = RowOf(a.k, batch, head / (a.heads / a.kv_heads), j);
    for (int64_t e = 0; e < a.width; ++e) sum.Add(q[e], 0, k[e]);
    const double scaled = sum.value() * a.scale;
    key.score = scaled + bias;
    key.score_error = sum.error() * a.scale + (std::abs(scaled) + std::abs(key.score)) * kRounding;
    return key;
  }

  // A term of a sum is wrong, relatively, by the error of its score, by rounding where a maximum is subtracted, and by each exp and product
  // with one when a larger maximum comes: once a block of keys. (Differences of maxima have one sign, so that their roundings add up to no
  // more than that of the whole.)
  void Average(const Attention& a, int64_t batch, int64_t kv_head, double max) {
    constexpr int64_t kBlock = 128;
    const double scalings = static_cast<double>(1 + (a.keys + kBlock - 1) / kBlock) * (kExp + 1);
    const auto relative = [&](const Key& key) { return key.score_error + (max - key.score + scalings) * kRounding; };
    double sum_error = 0, terms = 0;
    for (const Key& key : keys) {
      if (!key.seen) continue;
      sum_error += std::exp(key.score - logsumexp) * relative(key);
      ++terms;
    }
    sum_error += terms * kRounding;
    logsumexp_error = sum_error + (2 * (logsumexp - max) + std::abs(logsumexp)) * kRounding;  // log is right within an ulp.
    for (int64_t e = 0; e < a.width; ++e) {
      SumWithError sum;
      for (int64_t j = 0; j < a.keys; ++j) {
        const Key& key = keys[static_cast<size_t>(j)];
        if (!key.seen) continue;
        const double weight = std::exp(key.score - logsumexp);
        sum.Add(weight, weight * (relative(key) + sum_error + 2 * kRounding) + kVanishing, RowOf(a.v, batch, kv_head, j)[e]);
      }
      y[static_cast<size_t>(e)] = sum.value();
      y_errors[static_cast<size_t>(e)] = sum.error();
    }
  }
};

// Tests of one instruction set, which may set numbers of threads.
class AttentionIsaTest : public ::testing::TestWithParam<runtime::Isa> {
 protected:
  void SetUp() override {
    if (GetParam() > runtime::WidestIsa()) GTEST_SKIP() << "this CPU lacks the instructions";
    threads_ = at::get_num_threads();
  }
  void TearDown() override {
    if (threads_ > 0) at::set_num_threads(threads_);
  }

 private:
  int threads_ = 0;
};

}  // namespace lazuli::codegen
