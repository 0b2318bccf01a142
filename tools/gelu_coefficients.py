#!/usr/bin/env python3
"""Finds the coefficients of GELU and its slope in rt/nnrt_math.h, both forms:  tools/gelu_coefficients.py

The slope of GELU, and GELU / x, are 1/2 + x P(x^2) / Q(x^2) up to a limit, and 0 or 1 beyond.  P / Q is the rational function
of least largest error: a linear least-squares problem whose weights grow where the error is large (Lawson's algorithm), with
the denominator of the step before (Sanathanan and Koerner).  Rounding the coefficients to f32 adds errors; a random search
over their last bits then lowers the error of the function as evaluated in f32 with fused multiply-add.
"""

import math

import numpy as np

erf = np.vectorize(math.erf)
U = math.sqrt(2 / math.pi)


def gelu(x):
    return erf(x / math.sqrt(2)) / 2


def gelu_back(x):
    return gelu(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def gelu_tanh(x):
    return np.tanh(U * (x + 0.044715 * x**3)) / 2


def gelu_tanh_back(x):
    t = np.tanh(U * (x + 0.044715 * x**3))
    return t / 2 + x * (1 - t * t) / 2 * U * (1 + 3 * 0.044715 * x * x)


# The function less 1/2, whether it is multiplied by x, the limit, the degrees of P and Q.
FUNCTIONS = [(gelu, True, 5.6, 5, 5), (gelu_back, False, 6.0, 7, 6), (gelu_tanh, True, 5.0, 5, 5),
             (gelu_tanh_back, False, 5.2, 6, 6)]


def fit(f, weight, s, n, m, steps=200):
    """Returns P and Q, lowest power first and Q[0] = 1, with P(s) / Q(s) near f."""
    z = s / s.max()
    powers = np.vander(z, max(n, m) + 1, increasing=True)
    lawson, q, least, best = np.ones_like(s), np.ones_like(s), np.inf, None
    for _ in range(steps):
        w = np.sqrt(lawson) * weight / np.abs(q)
        a = np.hstack([powers[:, :n + 1], -f[:, None] * powers[:, 1:m + 1]]) * w[:, None]
        size = np.sqrt((a * a).sum(axis=0))
        c = np.linalg.lstsq(a / size, f * w, rcond=1e-17)[0] / size
        p, q = powers[:, :n + 1] @ c[:n + 1], 1 + powers[:, 1:m + 1] @ c[n + 1:]
        error = np.abs(weight * (p / q - f))
        if q.min() > 0 and error.max() < least:
            least, best = error.max(), (c[:n + 1] / s.max()**np.arange(n + 1), np.append(1, c[n + 1:]) / s.max()**np.arange(m + 1))
        lawson *= error / error.max() + 1e-3
        lawson /= lawson.mean()
    return best


def horner(c, s):
    y = np.full_like(s, c[-1])
    for k in c[-2::-1]:
        y = np.float32(y.astype(np.float64) * s + k)
    return y


def error_of(p, q, x, times_x, want):
    """The errors of the function at the f32 numbers x, as evaluated in f32."""
    ratio = horner(p, x * x) / horner(q, x * x)
    y = np.float32(x.astype(np.float64) * ratio + 0.5).astype(np.float64)
    return (x * y if times_x else y) - want


def size_of(error):
    """The root of the mean square, and some of the largest error: the latter alone would permit a bias."""
    return np.sqrt((error * error).mean()) + 0.1 * np.abs(error).max()


def polish(p, q, x, times_x, want, tries=6000):
    random = np.random.default_rng(1)
    p, q = p.astype(np.float32), q.astype(np.float32)
    least = size_of(error_of(p, q, x, times_x, want))
    for _ in range(tries):
        c = np.concatenate([p, q[1:]])
        at = random.integers(len(c), size=2)
        c[at] = (c[at].view(np.int32) + random.integers(-3, 4, size=2, dtype=np.int32)).view(np.float32)
        new_p, new_q = c[:len(p)], np.append(np.float32(1), c[len(p):])
        error = size_of(error_of(new_p, new_q, x, times_x, want))
        if error <= least:
            p, q, least = new_p, new_q, error
    return p, q


for function, times_x, limit, n, m in FUNCTIONS:
    x = limit * np.sin(np.linspace(0, math.pi / 2, 6001))[1:]
    p, q = fit(function(x) / x, x * x if times_x else x, x * x, n, m)
    x = np.linspace(-limit, limit, 4000).astype(np.float32)
    exact = x.astype(np.float64)
    want = (0.5 + function(exact)) * (exact if times_x else 1)
    p, q = polish(p, q, x, times_x, want)
    error = error_of(p, q, x, times_x, want)
    print(f"{function.__name__}: largest error {np.abs(error).max():.2g}, {np.abs(error[np.abs(x) <= 4]).max():.2g} up to 4, "
          f"mean {error.mean():.1g}, root mean square {np.sqrt((error * error).mean()):.2g}")
    for name, c in (("p", p), ("q", q)):
        print(f"  {name}", *(float(k).hex() for k in c))
