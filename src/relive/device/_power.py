"""Powers of priorities in torch ops: what `_ring/kernels_numpy/power.py` does, with the same bits.

Outside of `torch.compile` each op is a kernel of its own, which no compiler can fuse with the next one. A number as
divisor is avoided: CUDA multiplies by its reciprocal, which is rounded once more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._ring.kernels_numpy.power import EXP_TERMS, HIGHEST_EXPONENT, LOG_TERMS, LOWEST_EXPONENT

SMALLEST_NORMAL = 2.0**-1022
LOWEST, HIGHEST = 2.0**LOWEST_EXPONENT, 2.0**HIGHEST_EXPONENT
ONE, HALF_ROOT, MANTISSA = 0x3FF0000000000000, 0x3FE6A09E667F3BCD, 0x000FFFFFFFFFFFFF
ROUNDER = 6755399441055744.0


def _log2(x: Tensor) -> Tensor:
    bits = torch.clamp(x, min=SMALLEST_NORMAL).view(torch.int64) + (ONE - HALF_ROOT)
    exponent = (bits >> 52).to(torch.float64) - 1023.0
    mantissa = ((bits & MANTISSA) + HALF_ROOT).view(torch.float64)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    z = s * s
    series = torch.full_like(z, LOG_TERMS[-1])
    for term in LOG_TERMS[-2::-1]:
        series = series * z + term
    return exponent + s * series


def _exp2(t: Tensor) -> Tensor:
    t = torch.clamp(t, LOWEST_EXPONENT, HIGHEST_EXPONENT)
    shifted = t + ROUNDER
    f = t - (shifted - ROUNDER)
    series = torch.full_like(f, EXP_TERMS[-1])
    for term in EXP_TERMS[-2::-1]:
        series = series * f + term
    return ((shifted.view(torch.int64) << 52) + series.view(torch.int64)).view(torch.float64)


def power(x: Tensor, exponent: float | Tensor) -> Tensor:
    """`x ** exponent` for non-negative finite `x`, float64; 0 stays 0 whatever the exponent, and NaN becomes 0.

    Args:
        x: float64, of any shape.
        exponent: A number, or a 0-d float64 tensor on the device of `x`: one that moves while a graph is replayed.
    """
    limited = torch.clamp(x, LOWEST, HIGHEST)
    if isinstance(exponent, Tensor):
        raised = torch.where(exponent == 1.0, limited, _exp2(exponent * _log2(x)))
    else:
        raised = limited if exponent == 1.0 else _exp2(exponent * _log2(x))
    return torch.where(x > 0.0, raised, 0.0)
