"""Powers of priorities by one fixed sequence of float64 operations.

`x ** e` is `2 ** (e * log2 x)` with polynomials of our own instead of the C library's `pow`: every operation below is
one correctly rounded IEEE operation, written in the same order in `native/power.hpp`, so the same priorities have the
same bits on every machine and in both back ends (a drawn id must not depend on the C library). Relative error: about
1e-15 times `1 + |e * log2 x|`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..plans import Mass

Float64s = NDArray[np.float64]

# A power is kept in [2**-1000, 2**960]: no sum over any number of leaves overflows, and no denormal number arises.
LOWEST_EXPONENT = -1000.0
HIGHEST_EXPONENT = 960.0

_SMALLEST_NORMAL = 2.0**-1022
_ONE = np.uint64(0x3FF0000000000000)
_HALF_ROOT = np.uint64(0x3FE6A09E667F3BCD)  # sqrt(1/2): the mantissa is taken in [sqrt(1/2), sqrt(2))
_MANTISSA = np.uint64(0x000FFFFFFFFFFFFF)
_SHIFT = np.uint64(52)
_ROUNDER = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to an integer, whose low bits are then the result's
# log2(m) = s * P(z), s = (m - 1) / (m + 1), z = s * s <= 0.0295: P interpolates at Chebyshev's points, to 2e-16.
LOG_TERMS = (
    2.885390081777927,
    0.9617966939243345,
    0.5770780172463286,
    0.4121984020482752,
    0.32061638813224547,
    0.2614442493522915,
    0.2429160853987535,
)
# 2 ** f = 1 + f * Q(f), |f| <= 1/2, likewise to 6e-16; it is exactly 1 at f = 0.
EXP_TERMS = (
    1.0,
    0.6931471805599462,
    0.24022650695910075,
    0.05550410866465167,
    0.009618129107618665,
    0.0013333558200794592,
    0.00015403530424776529,
    1.5252672924850737e-05,
    1.3215451633221434e-06,
    1.0205905413765595e-07,
    7.070977866508138e-09,
)


def _log2(x: Float64s) -> Float64s:
    """Compute the binary logarithm of positive numbers; subnormal ones count as the smallest normal number."""
    bits = np.maximum(x, _SMALLEST_NORMAL).view(np.uint64) + (_ONE - _HALF_ROOT)
    exponent = (bits >> _SHIFT).astype(np.float64) - 1023.0
    mantissa = ((bits & _MANTISSA) + _HALF_ROOT).view(np.float64)
    result: Float64s = exponent + _log2_series((mantissa - 1.0) / (mantissa + 1.0))
    return result


def _log2_series(s: Float64s) -> Float64s:
    """Compute `log2((1 + s) / (1 - s))` near 0."""
    z = s * s
    series = np.full_like(z, LOG_TERMS[-1])
    for term in LOG_TERMS[-2::-1]:
        series = series * z + term
    return s * series


def _exp2(t: Float64s) -> Float64s:
    """Compute `2 ** t`, with `t` clipped to the exponents that a power may have."""
    t = np.minimum(np.maximum(t, LOWEST_EXPONENT), HIGHEST_EXPONENT)
    shifted = t + _ROUNDER
    f = t - (shifted - _ROUNDER)
    raised = _exp2_series(f) * f + EXP_TERMS[0]
    return ((shifted.view(np.uint64) << _SHIFT) + raised.view(np.uint64)).view(np.float64)


def _exp2_series(f: Float64s) -> Float64s:
    """Compute `(2 ** f - 1) / f`, for f up to a half of either sign."""
    series = np.full_like(f, EXP_TERMS[-1])
    for term in EXP_TERMS[-2:0:-1]:
        series = series * f + term
    return series


def power(x: Float64s, exponent: float) -> Float64s:
    """Compute `x ** exponent` for non-negative finite `x`; 0 stays 0 for every exponent, even 0."""
    if exponent == 1.0:
        raised = np.minimum(np.maximum(x, 2.0**LOWEST_EXPONENT), 2.0**HIGHEST_EXPONENT)
    else:
        raised = _exp2(exponent * _log2(x))
    return np.where(x > 0.0, raised, 0.0)


def mass(td_error: Float64s, eps: float, alpha: float) -> Mass:
    """Compute unnormalised probabilities `(|td| + eps) ** alpha`, and the largest `|td| + eps`.

    The second is NaN if any input is not finite (the first then means nothing), and 0 for no input.
    """
    raw = np.abs(td_error) + eps
    if not np.isfinite(raw).all():
        return Mass(np.zeros_like(raw), math.nan)
    return Mass(power(raw, alpha), float(raw.max(initial=0.0)))


def weights(values: Float64s, reference: float, beta: float) -> NDArray[np.float32]:
    """Compute importance-sampling weights `(reference / value) ** beta`, float32."""
    with np.errstate(all="ignore"):
        return power(reference / values, beta).astype(np.float32)


def smallest(values: Float64s) -> float:
    """Return the smallest of at least one value."""
    return float(values.min())


def decay(t: Float64s) -> Float64s:
    """Compute `2 ** -t`, for `t >= 0`."""
    return _exp2(-t)


def covered(t: Float64s) -> Float64s:
    """Compute `1 - 2 ** -t`, for `t >= 0`, to full precision where `t` is tiny, too."""
    f = np.where(t < 0.5, -t, 0.0)
    return np.where(t < 0.5, -(f * _exp2_series(f)), 1.0 - _exp2(-t))


def reached(z: Float64s) -> Float64s:
    """Compute the `t` at which `covered(t)` is `z`, for `z < 1`."""
    return np.where(z < 0.25, -_log2_series(-z / (2.0 - z)), -_log2(1.0 - z))


class Ordered(NamedTuple):
    """Items in an order, of which the first ones are in their places; here all of them."""

    ids: NDArray[np.int64]

    def upto(self, count: int) -> None:
        """Put the first `count` items, at least, to their places."""


def shuffled(items: NDArray[np.int64], numbers: Float64s) -> Ordered:
    """Put the items in the order of their numbers in [0, 1), equal ones as they come."""
    return Ordered(items[np.argsort(numbers, kind="stable")])
