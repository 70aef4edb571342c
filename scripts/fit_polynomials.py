#!/usr/bin/env python3
"""Fits the polynomials of codegen/emit_llvm_*.cpp and prints their coefficients, lowest power first. Needs mpmath and numpy.

Each is a minimax fit of a remainder on an interval, by Remez's exchange: the largest |error * weight| is as small as it can be, where the
weight makes the error relative to the function's result. Coefficients are rounded one after the other, lowest power first, and the rest
is fitted again each time, so that the rounding of one is made up for by the next. Usage: fit_polynomials.py [NAME...]
"""
import struct
import sys

import numpy as np
from mpmath import asin, atan, cos, cosh, erf, erfc, exp, expm1, log, log1p, lu_solve, matrix, mp, mpf, pi, sin, sinh, sqrt, tan, tanh

mp.dps = 50


def round_to(value, bits):
    if bits == 24:
        return mpf(struct.unpack("f", struct.pack("f", float(value)))[0])
    return mpf(float(value))


def chebyshev_nodes(low, high, count):
    return [(low + high) / 2 - (high - low) / 2 * cos(pi * (2 * i + 1) / (2 * count)) for i in range(count)]


def remez(target, weight, low, high, powers):
    """Coefficients of x^p, p in powers, and the largest |(target - polynomial) * weight| on [low, high]."""
    count = len(powers) + 1
    points = chebyshev_nodes(low, high, count)
    grid = chebyshev_nodes(low, high, 24 * count)
    grid = [low] + grid + [high]
    values = [(target(x), weight(x)) for x in grid]
    for _ in range(12):
        rows = matrix(count, count)
        rhs = matrix(count, 1)
        for i, x in enumerate(points):
            for j, p in enumerate(powers):
                rows[i, j] = x**p
            rows[i, count - 1] = (-1) ** i / weight(x)
            rhs[i] = target(x)
        solution = lu_solve(rows, rhs)
        coefficients = [solution[j] for j in range(count - 1)]
        errors = [(f - sum(c * x**p for c, p in zip(coefficients, powers))) * w for x, (f, w) in zip(grid, values)]
        # One extremum for each run of errors of one sign.
        extrema = []
        for x, e in zip(grid, errors):
            if extrema and (e > 0) == (extrema[-1][1] > 0):
                if abs(e) > abs(extrema[-1][1]):
                    extrema[-1] = (x, e)
            else:
                extrema.append((x, e))
        worst = max(abs(e) for e in errors)
        while len(extrema) > count:
            extrema.pop(0 if abs(extrema[0][1]) < abs(extrema[-1][1]) else -1)
        if len(extrema) < count:
            break
        points = [x for x, _ in extrema]
        if worst < abs(solution[count - 1]) * mpf("1.01"):
            break
    return coefficients, worst


def fit(target, weight, low, high, powers, bits=53):
    """As remez, with coefficients of so many bits."""
    signed_weight, weight = weight, lambda x: max(abs(signed_weight(x)), mpf(10) ** -12)
    fixed = []
    left = list(powers)
    low, high = mpf(low), mpf(high)
    while left:
        rest = lambda x: target(x) - sum(c * x**p for c, p in fixed)
        coefficients, worst = remez(rest, weight, low, high, left)
        if bits == 53:  # Their rounding changes next to nothing.
            fixed = [(round_to(c, bits), p) for c, p in zip(coefficients, left)]
            break
        fixed.append((round_to(coefficients[0], bits), left.pop(0)))
    final = max(abs((target(x) - sum(c * x**p for c, p in fixed)) * weight(x)) for x in chebyshev_nodes(low, high, 500))
    return [c for c, _ in fixed], final


def fit_by_weights(target, weight, low, high, powers, bits):
    """As fit, by least squares whose weights are raised where the error is largest (C. L. Lawson's algorithm), in doubles: for more powers
    than Remez's exchange takes where the weight is 0 inside of the interval."""
    powers = list(powers)
    points = chebyshev_nodes(mpf(low), mpf(high), 200)
    values = [target(x) for x in points]
    weights = np.array([abs(float(weight(x))) for x in points])
    scale = max(abs(float(low)), abs(float(high)))
    scaled = np.array([float(x) for x in points]) / scale
    fixed = []
    error = lambda: [value - sum(c * x**p for c, p in zip(fixed, powers)) for value, x in zip(values, points)]
    for k in range(len(powers)):
        left = np.array([float(e) for e in error()])
        columns = np.stack([scaled**p for p in powers[k:]], 1)
        raised = np.ones(len(points))
        for _ in range(30):
            factors = np.sqrt(raised) * weights
            solution = np.linalg.lstsq(columns * factors[:, None], left * factors, rcond=None)[0]
            rest_of_it = np.abs((columns @ solution - left) * weights)
            raised *= rest_of_it / rest_of_it.max() + 1e-3
            raised /= raised.max()
        fixed.append(round_to(solution[0] / scale ** powers[k], bits))
    return fixed, max(abs(e * weight(x)) for e, x in zip(error(), points))


def even(function, limit):
    """Of z = x^2; `limit` is the value near 0, where quotients of small numbers lose all their digits."""
    return lambda z: limit if z < mpf(10) ** -15 else function(sqrt(z))


def rest(function, limit):
    return lambda x: limit if abs(x) < mpf(10) ** -12 else function(x)


def log_near(factor):
    """(factor log(1 + r) - factor r) / r^2, for the remainders that log_table leaves."""
    target = rest(lambda x: factor * (log1p(x) - x) / x**2, -factor / 2)
    return target, rest(lambda x: x**2 / log1p(x) / factor, mpf(0)), -mpf(1) / 32, mpf(1) / 16, range(4), 24


def table():
    """name: (target, weight, low, high, powers, bits of a coefficient)"""
    wide = mpf("1.0001")  # Reductions may end a little outside of their interval.
    quarter, half = (pi / 4) ** 2 * wide, (pi / 2) ** 2 * wide
    r = log(2) / 2 * wide
    f_low, f_high = 1 / sqrt(mpf(2)) - 1, sqrt(mpf(2)) - 1
    sinc, tanc = even(lambda x: sin(x) / x, mpf(1)), even(lambda x: tan(x) / x, mpf(1))
    sinhc = even(lambda x: sinh(x) / x, mpf(1))
    tanhc, atanc = even(lambda x: tanh(x) / x, mpf(1)), even(lambda x: atan(x) / x, mpf(1))
    exp_rest = rest(lambda x: (exp(x) - 1 - x) / x**2, mpf(1) / 2)
    log_rest = rest(lambda f: (log1p(f) - f + f**2 / 2) / f**3, mpf(1) / 3)
    log2_quotient = rest(lambda f: log1p(f) / f / log(2), 1 / log(2))
    erf_rest = even(lambda x: erf(x) / x - 1, 2 / sqrt(pi) - 1)
    erf_quotient = even(lambda x: erf(x) / x, 2 / sqrt(pi))
    erfc_1 = round_to(-log(erfc(mpf(1))), 53)
    erfc_quotient = rest(lambda u: (-log(erfc(1 + u)) - erfc_1) / u, 2 * exp(-mpf(1)) / sqrt(pi) / erfc(mpf(1)))
    sin_rest = rest(lambda z: (1 - sinc(z)) / z, mpf(1) / 6)
    tan_rest = rest(lambda z: (tanc(z) - 1) / z, mpf(1) / 3)
    asinc = even(lambda x: asin(x) / x, mpf(1))
    asin_rest = rest(lambda z: (asinc(z) - 1) / z, mpf(1) / 6)
    atan_rest = rest(lambda z: (atanc(z) - 1) / z, -mpf(1) / 3)
    cos_rest = rest(lambda z: (cos(sqrt(z)) - 1 + z / 2) / z**2, mpf(1) / 24)
    sinh_rest = rest(lambda z: (sinhc(z) - 1) / z, mpf(1) / 6)
    cosh_rest = rest(lambda z: (cosh(sqrt(z)) - 1 - z / 2) / z**2, mpf(1) / 24)
    # log2(m) / s, in z = s^2, s = (m - 1) / (m + 1).
    z_high = (f_high / (2 + f_high)) ** 2
    log2_atanh = even(lambda s: log((1 + s) / (1 - s), 2) / s, 2 / log(2))
    log2_atanh_rest = rest(lambda z: (log2_atanh(z) - 2 / log(2) - 2 * z / (3 * log(2))) / z**2, 2 / (5 * log(2)))
    exp2_rest = rest(lambda r: (mpf(2) ** r - 1) / r, log(mpf(2)))
    relative = lambda function: lambda z: 1 / function(z)
    return {
        # Floats, in float arithmetic.
        "sin_float": (sin_rest, lambda z: z / sinc(z), 0, quarter, range(3), 24),
        "cos_float": (cos_rest, lambda z: z**2 / cos(sqrt(z)), 0, quarter, range(3), 24),
        "tan_float": (tan_rest, lambda z: z / tanc(z), 0, quarter, range(7), 24),
        "asin_float": (asin_rest, lambda z: z / asinc(z), 0, mpf("0.25") * wide, range(5), 24),
        "atan_float": (atan_rest, lambda z: z / atanc(z), 0, mpf(1) * wide, range(9), 24),
        "exp_16th_float": (exp_rest, lambda x: x**2, -r / 16, r / 16, range(2), 53),
        "sinh_float": (sinh_rest, lambda z: z / sinhc(z), 0, r**2, range(3), 24),
        "cosh_float": (cosh_rest, lambda z: z**2 / cosh(sqrt(z)), 0, r**2, range(2), 24),
        "log_near_float": log_near(mpf(1)),
        "log2_near_float": log_near(1 / log(mpf(2))),
        "log10_near_float": log_near(1 / log(mpf(10))),
        # Floats, in double arithmetic.
        "sin_wide": (sinc, relative(sinc), 0, half, range(6), 53),
        "tan_wide": (tanc, relative(tanc), 0, quarter, range(9), 53),
        "log2_wide": (log2_quotient, relative(log2_quotient), f_low, f_high, range(15), 53),
        "exp2_wide": (lambda x: mpf(2) ** x, lambda x: mpf(2) ** -x, -mpf("0.50001"), mpf("0.50001"), range(8), 53),
        "atan_wide": (atanc, relative(atanc), 0, mpf(1), range(13), 53),
        "erf_wide": (erf_quotient, lambda z: sqrt(z) / erfc(sqrt(z)), 0, mpf(1), range(8), 53),
        "erfc_wide": (erfc_quotient, lambda u: u, 0, mpf("9.1"), range(18), 53),
        # Doubles.
        "erf_double": (erf_rest, lambda z: 1 / (erf_rest(z) + 1), 0, mpf("0.723"), range(13), 53),
        "erfc_double": (lambda u: -log(erfc(1 + u)) - erfc_1, lambda u: erfc(1 + u) / erf(1 + u), mpf("-0.151"), mpf("4.95"), range(19), 53),
        "exp_double": (exp_rest, rest(lambda x: x**2 / expm1(x), mpf(0)), -r, r, range(11), 53),
        "exp2_float": (exp2_rest, lambda r: r / mpf(2) ** r, -mpf(1) / 2, mpf(1) / 2, range(7), 24),
        "exp2_double": (exp2_rest, lambda r: r / mpf(2) ** r, -mpf(1) / 2, mpf(1) / 2, range(12), 53),
        "tanh_double": (rest(lambda z: (tanhc(z) - 1) / z, -mpf(1) / 3), lambda z: z / tanhc(z), 0, mpf(1), range(18), 53),
        "log_double": (log_rest, rest(lambda f: f**3 / log1p(f), mpf(0)), f_low, f_high, range(21), 53),
        "log2_double": (log2_atanh_rest, lambda z: z**2 / log2_atanh(z), 0, z_high, range(8), 53),
        "sinh_double": (sinh_rest, lambda z: z / sinhc(z), 0, r**2, range(6), 53),
        "cosh_double": (cosh_rest, lambda z: z**2 / cosh(sqrt(z)), 0, r**2, range(5), 53),
        "sin_double": (sin_rest, lambda z: z / sinc(z), 0, quarter, range(7), 53),
        "cos_double": (cos_rest, lambda z: z**2 / cos(sqrt(z)), 0, quarter, range(6), 53),
    }


def scaled_erfc(x):
    return exp(x * x) * erfc(x)


def float_ulp(value):
    return mpf(2) ** (int(mp.floor(log(abs(value), 2))) - 23)


def best_center(function, low, high):
    """The float around the middle whose function value is nearest to a float."""
    candidates = [round_to((low + high) / 2 + (high - low) * i / 8000, 24) for i in range(-1000, 1001)]
    return min(candidates, key=lambda c: abs(function(c) - round_to(function(c), 24)) / float_ulp(function(c)))


def interval_row(function, slope, low, high, terms):
    """center, function there, and p with function(center + d) = function(center) + d p(d), or d + d p(d) where both are 0."""
    slack = mpf(2) ** -21
    center = best_center(function, low, high) if low > 0 else mpf(0)
    at_center = function(center)
    known = 1 if at_center == 0 else 0
    target = rest(lambda d: (function(center + d) - at_center) / d - known, slope(center) - known)
    weight = lambda d: d / function(center + d) if center + d > 0 else mpf(1)
    odd_from_0 = known == 1 and slope(mpf(0)) == 1  # There p(0) is 0, so that tiny numbers are their own result.
    powers = range(1, terms) if odd_from_0 else range(terms)
    begin = low - center - slack if low > 0 else mpf(2) ** -20
    coefficients, error = (fit if terms <= 5 else fit_by_weights)(target, weight, begin, high - center + slack, powers, 24)
    if odd_from_0:
        coefficients = [mpf(0)] + coefficients
    return [center, round_to(at_center, 24)] + coefficients, error


def interval_table(function, slope, offset, bits, high, count=32, terms=5):
    """Rows for |x| < high, by the exponent and the highest `bits` of the mantissa of |x| + offset, modulo `count`."""
    rows = [[mpf(0)] * (2 + terms) for _ in range(count)]
    worst = mpf(0)
    u = mpf(offset)
    while u < offset + high:
        exponent = int(mp.floor(log(u, 2) + mpf(10) ** -9))
        step = mpf(2) ** (exponent - bits)
        index = ((exponent + 127) * 2**bits + int((u / mpf(2) ** exponent - 1) * 2**bits)) % count
        assert not any(rows[index])
        rows[index], error = interval_row(function, slope, u - offset, u + step - offset, terms)
        worst = max(worst, error)
        u += step
    return rows, worst


def log_table(factor):
    """inverse, value = -factor log(inverse) for mantissas 0.75 <= m < 1.5 by their five highest bits; r = m inverse - 1 is small.

    Of the floats near the interval's inverse the one whose value is next to a multiple of 2^-16. Around 1 inverses are 1, and next to
    there remainders are the smaller the nearer mantissas are to 1, since so are the logarithms.
    """
    rows, worst = [], mpf(0)
    for i in range(32):
        low = 1 + mpf(i) / 32 if i < 16 else (1 + mpf(i) / 32) / 2
        high = low + (mpf(1) / 32 if i < 16 else mpf(1) / 64)
        if low < mpf("1.06") and high > mpf("0.97"):
            rows.append([mpf(1), mpf(0)])
            continue
        towards_1 = (1 / low - 1 / high) / 4 * {2: 1, 29: -1}.get(i, 0)
        middle = np.float32((1 / low + 1 / high) / 2 + towards_1)
        unit = float(np.spacing(middle))
        width = float((1 / low - 1 / high) / 6)
        candidates = np.longdouble(middle) + np.arange(-int(width / unit), int(width / unit)) * np.longdouble(unit)
        values = -np.log(candidates) * np.longdouble(float(factor)) - np.log(candidates) * np.longdouble(float(factor - float(factor)))
        best = candidates[np.argmin(np.abs(values * 65536 - np.rint(values * 65536)))]
        value = -log(mpf(float(best))) * factor
        rows.append([mpf(float(best)), mp.nint(value * 65536) / 65536])
        worst = max(worst, abs(value - rows[-1][1]))
    return rows, worst


def exp_16ths_table():
    """2^(i / 16) rounded to a float, and the logarithm of what that leaves of it."""
    rows = []
    for i in range(16):
        value = mpf(2) ** (mpf(i) / 16)
        rows.append([round_to(value, 24), log(value / round_to(value, 24))])
    return rows, mpf(2) ** -48


def scaled_erfc_table():
    """Rows for exp(x^2) erfc(x) = high + low + d p(d), d = x - center, by the exponent and the three highest bits of 1 + x <= 32."""
    rows, worst = [], mpf(0)
    for i in range(39):
        step = mpf(2) ** (i // 8 - 3)
        low = 2 ** (i // 8) + i % 8 * step - 1
        center = low + step / 2
        at_center = scaled_erfc(center)
        slope = 2 * center * at_center - 2 / sqrt(pi)
        target = rest(lambda d: (scaled_erfc(center + d) - at_center) / d, slope)
        weight = lambda d: d / scaled_erfc(center + d)
        coefficients, error = fit(target, weight, -step / 2, step / 2, range(11))
        high = round_to(at_center, 53)
        rows.append([center, high, round_to(at_center - high, 53)] + coefficients)
        worst = max(worst, error)
    return rows, worst


def print_columns(name, rows, error, digits):
    print(f"{name}: error 2^{float(log(error, 2)):.1f}")
    for column in zip(*rows):
        print("  {" + ", ".join(f"{float(value):.{digits}g}" for value in column) + "},")


def print_tables(names):
    tables = {
        "tanh_table": (tanh, lambda x: 1 - tanh(x) ** 2, 1, 3, 10),
        "erf_table": (erf, lambda x: 2 / sqrt(pi) * exp(-x * x), 2, 4, 4),
        "erf_table_8": (erf, lambda x: 2 / sqrt(pi) * exp(-x * x), 8, 4, 4, 8, 8),
        "erfc_table": (scaled_erfc, lambda x: 2 * x * scaled_erfc(x) - 2 / sqrt(pi), 1, 3, 15),
    }
    for name, args in tables.items():
        if not names or name in names:
            print_columns(name, *interval_table(*args), 9)
    for name, factor in {"log_table": mpf(1), "log2_table": 1 / log(mpf(2)), "log10_table": 1 / log(mpf(10))}.items():
        if not names or name in names:
            print_columns(name, *log_table(factor), 9)
    if not names or "exp_16ths_table" in names:
        print_columns("exp_16ths_table", *exp_16ths_table(), 9)
    if not names or "scaled_erfc_table" in names:
        print_columns("scaled_erfc_table", *scaled_erfc_table(), 17)


def main():
    print_tables(sys.argv[1:])
    for name, args in table().items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        coefficients, error = fit(*args)
        digits = 9 if args[5] == 24 else 17
        print(f"{name}: error 2^{float(log(error, 2)):.1f}")
        print("  {" + ", ".join(f"{float(c):.{digits}g}" for c in coefficients) + "}")


main()
