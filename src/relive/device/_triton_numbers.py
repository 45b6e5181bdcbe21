"""What the Triton kernels share: how they are launched, uniforms, powers, and the addition of a node's children.

A kernel computes what the ops of `_random.py`, `_power.py` and `_tree.py` compute, operation by operation, so that all
bits are the same. This holds with `enable_fp_fusion=False` only: a fused multiply-add is rounded once, not twice.
Literals stand in arithmetic with float64 tensors, which makes them float64, too; elsewhere they may become float32.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from .._ring.kernels_numpy.power import EXP_TERMS, HIGHEST_EXPONENT, LOG_TERMS, LOWEST_EXPONENT
from . import _power, _random

SMALLEST_PROGRAM = 128
# As many threads as AMD has in a warp, so that no program has more threads than entries.
WARP, MOST_WARPS = 64, 16

_LOG = tl.constexpr(LOG_TERMS)
_EXP = tl.constexpr(EXP_TERMS)
_LOWEST_EXPONENT, _HIGHEST_EXPONENT = tl.constexpr(LOWEST_EXPONENT), tl.constexpr(HIGHEST_EXPONENT)
_SMALLEST_NORMAL = tl.constexpr(_power.SMALLEST_NORMAL)
_LOWEST, _HIGHEST = tl.constexpr(_power.LOWEST), tl.constexpr(_power.HIGHEST)
_SHIFT_UP = tl.constexpr(_power.ONE - _power.HALF_ROOT)
_HALF_ROOT, _MANTISSA = tl.constexpr(_power.HALF_ROOT), tl.constexpr(_power.MANTISSA)
_ROUNDER = tl.constexpr(_power.ROUNDER)
_M0, _M1 = tl.constexpr(_random.MULTIPLIERS[0]), tl.constexpr(_random.MULTIPLIERS[1])
_W0, _W1 = tl.constexpr(_random.INCREMENTS[0]), tl.constexpr(_random.INCREMENTS[1])
_ROUNDS = tl.constexpr(_random.ROUNDS)


def block_of(n: int, most: int) -> int:
    """How many of `n` entries a program takes: all of them, or `most`."""
    return min(max(1 << (n - 1).bit_length(), SMALLEST_PROGRAM), most)


def options_of(block: int) -> dict[str, int | bool]:
    """How kernels are compiled. Without stages nothing is read ahead of a barrier."""
    warps = min(max(block // WARP, 1), MOST_WARPS)
    return {"num_warps": warps, "num_stages": 1, "enable_fp_fusion": False}


def launch(kernel: Any, programs: int, block: int, *args: object, **constants: object) -> None:
    """Run a kernel on the device of its first argument, a tensor."""
    with torch.cuda.device_of(args[0]):  # type: ignore[no-untyped-call]
        kernel[(programs,)](*args, **constants, BLOCK=block, **options_of(block))


def programs_of(n: int, block: int) -> int:
    """How many programs take `n` entries."""
    return -(-n // block)


@triton.jit
def uniforms(key, position, i):
    """The i-th next uniforms of the stream; the position stays."""
    word = tl.load(position) + i
    c0 = ((word >> 2) + 1).to(tl.uint64, bitcast=True)
    c1 = c0 ^ c0
    c2 = c1
    c3 = c1
    k0 = tl.load(key).to(tl.uint64, bitcast=True)
    k1 = tl.load(key + 1).to(tl.uint64, bitcast=True)
    for _ in tl.static_range(_ROUNDS):
        high0 = tl.umulhi(c0, _M0)
        high1 = tl.umulhi(c2, _M1)
        low0 = c0 * _M0
        low1 = c2 * _M1
        c0 = high1 ^ c1 ^ k0
        c1 = low1
        c2 = high0 ^ c3 ^ k1
        c3 = low0
        k0 = k0 + _W0
        k1 = k1 + _W1
    place = word & 3
    drawn = tl.where(place == 0, c0, tl.where(place == 1, c1, tl.where(place == 2, c2, c3)))
    return (drawn >> 11).to(tl.float64) * 1.1102230246251565e-16  # 2**-53


@triton.jit
def power(x, exponent):
    """`x ** exponent`, float64; 0 for 0 and for NaN."""
    bits = tl.maximum(x, _SMALLEST_NORMAL).to(tl.int64, bitcast=True) + _SHIFT_UP
    whole = (bits >> 52).to(tl.float64) - 1023.0
    mantissa = ((bits & _MANTISSA) + _HALF_ROOT).to(tl.float64, bitcast=True)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    z = s * s
    series = z * _LOG[6] + _LOG[5]
    for k in tl.static_range(5):
        series = series * z + _LOG[4 - k]
    t = (whole + s * series) * exponent
    t = tl.minimum(tl.maximum(t, _LOWEST_EXPONENT), _HIGHEST_EXPONENT)
    shifted = t + _ROUNDER
    f = t - (shifted - _ROUNDER)
    series = f * _EXP[10] + _EXP[9]
    for k in tl.static_range(9):
        series = series * f + _EXP[8 - k]
    raised = ((shifted.to(tl.int64, bitcast=True) << 52) + series.to(tl.int64, bitcast=True)).to(
        tl.float64, bitcast=True
    )
    limited = tl.minimum(tl.maximum(x, _LOWEST), _HIGHEST)
    return tl.where(x > 0, tl.where(exponent == 1.0, limited, raised), 0.0)


@triton.jit
def node(at):
    """The eight entries of a node."""
    return (
        tl.load(at),
        tl.load(at + 1),
        tl.load(at + 2),
        tl.load(at + 3),
        tl.load(at + 4),
        tl.load(at + 5),
        tl.load(at + 6),
        tl.load(at + 7),
    )
