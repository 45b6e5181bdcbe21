"""`numpy.random.Philox` (4x64, ten rounds) in torch ops, word for word.

The same key and position give the uniforms that `numpy.random.Generator(numpy.random.Philox(...)).random` gives, so a
buffer on a device draws what an ordinary buffer draws, and each continues the stream of the other.

A state is two tensors: `key`, int64 `[2]`, the bits of the two words of NumPy's key, and `position`, int64 `[1]`, the
number of words of the stream that were taken so far.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..errors import ArgumentError, message

ROUNDS, WORDS = 10, 4  # of a block
MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
INCREMENTS = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B  # of the key, after each round
_LOW = 0xFFFFFFFF


def key_of(philox: np.random.Philox) -> tuple[Tensor, Tensor]:
    """The state of NumPy's bit generator: `key` and `position`, on the CPU.

    Half a word that a draw of 32-bit integers has left over is not kept.

    Raises:
        ArgumentError: It is more than 2**62 words into its stream, as after `jumped()`.
    """
    state = philox.state
    block = sum(int(word) << 64 * place for place, word in enumerate(state["state"]["counter"]))
    position = (block - 1) * WORDS + int(state["buffer_pos"])
    if not 0 <= position < 2**62:
        wanted = "a generator within the first 2**62 words of its stream"
        raise ArgumentError(message(wanted, f"position {position}", "DeviceBuffer(seed)", "do not use `jumped()`"))
    key = torch.from_numpy(state["state"]["key"].view(np.int64).copy())
    return key, torch.full((1,), position, dtype=torch.int64)


def philox_of(key: Tensor, position: Tensor) -> np.random.Philox:
    """NumPy's bit generator with the state of `key` and `position`. Waits for the device."""
    bits = np.random.Philox(key=key.cpu().numpy().view(np.uint64))
    block, taken = divmod(int(position.cpu()[0]), WORDS)
    bits.advance(block)
    bits.random_raw(taken)
    return bits


def uniforms(key: Tensor, position: Tensor, n: int) -> Tensor:
    """The next `n` uniforms in [0, 1), float64; `position` moves on by `n`."""
    words = _words(key, position, n)
    position.add_(n)
    return ((words >> 11) & ((1 << 53) - 1)).to(torch.float64) * 2.0**-53


def _words(key: Tensor, position: Tensor, n: int) -> Tensor:
    """The bits of the words `[position, position + n)` of the stream, int64."""
    blocks = (n + WORDS - 1) // WORDS + 1
    c0 = (position >> 2) + 1 + torch.arange(blocks, device=key.device)
    c1, c2, c3 = torch.zeros_like(c0), torch.zeros_like(c0), torch.zeros_like(c0)
    k0, k1 = key[0], key[1]
    for _ in range(ROUNDS):
        high0, low0 = _product(c0, MULTIPLIERS[0])
        high1, low1 = _product(c2, MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _signed(INCREMENTS[0]), k1 + _signed(INCREMENTS[1])
    words = torch.stack((c0, c1, c2, c3), 1).reshape(-1)
    return words[(position & 3) + torch.arange(n, device=key.device)]


def _product(a: Tensor, b: int) -> tuple[Tensor, Tensor]:
    """The high and the low half of the product of two unsigned words; `a` has their bits in int64."""
    a0, a1, b0, b1 = a & _LOW, (a >> 32) & _LOW, b & _LOW, b >> 32
    p01, p10 = a0 * b1, a1 * b0
    middle = ((a0 * b0 >> 32) & _LOW) + (p01 & _LOW) + (p10 & _LOW)
    high = a1 * b1 + ((p01 >> 32) & _LOW) + ((p10 >> 32) & _LOW) + (middle >> 32)
    return high, a * _signed(b)


def _signed(word: int) -> int:
    """The int64 that has the bits of an unsigned word."""
    return word - 2**64 if word >= 2**63 else word
