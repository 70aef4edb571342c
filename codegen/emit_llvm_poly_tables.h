// Coefficients, lowest power first. scripts/fit_polynomials.py computes those that are marked with the name it gives them, and says how:
// minimax fits by Remez's exchange. The number after the name bounds what their error adds to the result, relative to it.
#pragma once

#include <llvm/ADT/ArrayRef.h>

namespace lazuli::codegen {

// What the functions of one type need, for the same formulas in the type's own arithmetic.
struct PolyTable {
  // Where exp, exp2 and expm1 have reached their limits.
  double exp_low, exp_high;
  double exp2_low, exp2_high;
  double expm1_low;
  double tanh_high;  // From here tanh is 1;
  // Of doubles, as erf and what is named erfc: floats have tables of intervals.
  double erf_high = 0;   // From here erf is 1.
  double erf_small = 0;  // Below, it is a polynomial of its own.
  double sinh_high;      // From here sinh and cosh are infinite.
  double linear;         // Below, x + x^2 / 2 rounds to x.
  // In two parts: products of the high one with a whole number below 2^9 (2^11) are exact.
  double ln2_high, ln2_low;
  double log10_2_high, log10_2_low;
  // In two parts, the high one rounded to the type.
  double log2_e_high, log2_e_low;
  double log10_e_high, log10_e_low;
  double ln2_rounded, ln2_rest;
  double min_normal;
  // pi / 2 in three parts, rounded down. Products of the second one with a whole number below 2^12 (2^21) are exact.
  double half_pi[3];
  double trig_high;                 // n pi / 2 for such a number n.
  llvm::ArrayRef<double> exp;       // exp(r), |r| <= ln(2) / 2.
  llvm::ArrayRef<double> exp2;      // (2^r - 1) / r, |r| <= 1/2.
  llvm::ArrayRef<double> expm1;     // (exp(r) - 1 - r) / r^2.
  llvm::ArrayRef<double> tanh;      // (tanh(x) / x - 1) / x^2, in x^2 <= 1.
  llvm::ArrayRef<double> sinh;      // (sinh(r) / r - 1) / r^2, in r^2.
  llvm::ArrayRef<double> cosh;      // (cosh(r) - 1) / r^2, in r^2.
  llvm::ArrayRef<double> log;       // (log(1 + f) - f + f^2 / 2) / f^3, sqrt(1/2) <= 1 + f <= sqrt(2).
  llvm::ArrayRef<double> erf;       // erf(x) / x - 1, in x^2 <= erf_small^2.
  llvm::ArrayRef<double> sin;       // (1 - sin(x) / x) / x^2, in x^2 <= (pi/4)^2.
  llvm::ArrayRef<double> cos;       // cos(x), in x^2.
  llvm::ArrayRef<double> tan;       // (tan(x) / x - 1) / x^2, in x^2 <= (pi/4)^2. Floats only, as the next ones.
  llvm::ArrayRef<double> asin;      // (asin(x) / x - 1) / x^2, in x^2 <= 1/4.
  llvm::ArrayRef<double> atan;      // (atan(x) / x - 1) / x^2, in x^2 <= 1.
  llvm::ArrayRef<double> exp_16th;  // (exp(r) - 1 - r) / r^2, |r| <= ln(2) / 32.
  // (-log(erfc(t)) - erfc_0) / (t - erfc_from), in t - erfc_from, erf_small <= t <= erf_high.
  llvm::ArrayRef<double> erfc;
  double erfc_from = 0;
  double erfc_0[2] = {0, 0};  // In two parts, the first one so short that its sum with n ln2_high is exact.
};

const PolyTable& PolyTableFor(bool is_float);

// An odd function of floats, by intervals of |x| < high: function(center + d) = value + d (p0 + p1 d + ... + p4 d^4). The interval's index
// is the lowest five bits (three, of eight intervals) of the bits of |x| + offset, shifted right. Each center is chosen such that the value
// is next to a float, and larger than any d. In the interval that begins at 0 the center and the value are 0, and it is d + d (p0 + ...).
template <int kIntervals, int kTerms>
struct IntervalTableOf {
  static constexpr int kRows = 2 + kTerms;

  double offset;
  int shift;
  double high;
  const double (&rows)[kRows][kIntervals];  // Centers, values, p0 to p4.
};
using IntervalTable = IntervalTableOf<32, 5>;
// For registers of eight floats: fewer intervals, p0 to p7.
using ShortIntervalTable = IntervalTableOf<8, 8>;

extern const IntervalTable kTanhTable, kErfTable;
extern const ShortIntervalTable kShortErfTable;
// exp(x^2) erfc(x), not odd, and 1 + d (p0 + ...) in the first interval. From `high` on erfc is 0.
extern const IntervalTable kScaledErfcTable;

// A logarithm of floats, by 32 intervals of mantissas 0.75 <= m < 1.5, whose index is what the five highest bits of m say. With
// r = m inverse - 1 the logarithm of m is value + r factor_high + r (factor_low + r p(r)), and that of 2 is unit_high + unit_low. Inverses
// are chosen such that values are next to multiples of 2^-16, as `unit_high` is, so that their sums are exact. Around 1 inverses are 1.
struct LogTable {
  const double (&rows)[2][32];  // Inverses, values.
  llvm::ArrayRef<double> near;  // p.
  double factor_high, factor_low;
  double unit_high, unit_low;
};

extern const LogTable kLogTable, kLog2Table, kLog10Table;

// 2^(i / 16) rounded to floats, and the logarithms of what that leaves of them.
extern const double (&kExp2SixteenthRows)[2][16];

// For floats in double arithmetic.
extern const llvm::ArrayRef<double> kSinWide;   // sin(x) / x, in x^2 <= (pi/2)^2.
extern const llvm::ArrayRef<double> kTanWide;   // tan(x) / x, in x^2 <= (pi/4)^2.
extern const llvm::ArrayRef<double> kLog2Wide;  // log2(1 + f) / f, sqrt(1/2) <= 1 + f <= sqrt(2).
extern const llvm::ArrayRef<double> kExp2Wide;  // 2^r, |r| <= 1/2.
extern const llvm::ArrayRef<double> kErfWide;   // erf(x) / x, in x^2 <= 1.
extern const llvm::ArrayRef<double> kErfcWide;  // (-log(erfc(1 + u)) + log(erfc(1))) / u, 0 <= u <= 9.1.
extern const llvm::ArrayRef<double> kAtanWide;  // atan(x) / x, in x^2 <= 1.

// log2((1 + s) / (1 - s)) / s without its first two terms, divided by s^4; in s^2, sqrt(1/2) <= (1 + s) / (1 - s) <= sqrt(2).
extern const llvm::ArrayRef<double> kLog2Double;

}  // namespace lazuli::codegen
