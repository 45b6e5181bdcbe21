"""Uniforms on a device are NumPy's, and each continues the stream of the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from needs import needs

from relive.errors import ArgumentError

torch = needs("torch")

from relive.device._random import key_of, philox_of, uniforms

KEYS = st.integers(0, 2**128 - 1)
LENGTHS = st.lists(st.integers(0, 70), min_size=1, max_size=6)


@given(KEYS, LENGTHS)
def test_uniforms_are_those_of_numpy(key: int, lengths: list[int]) -> None:
    """A call takes up the words that the call before left over."""
    bits = np.random.Philox(key=key)
    generator, (words, position) = np.random.Generator(bits), key_of(bits)
    for n in lengths:
        drawn = uniforms(words, position, n)
        assert drawn.dtype == torch.float64
        np.testing.assert_array_equal(drawn.numpy(), generator.random(n))


@given(KEYS, st.integers(0, 9) | st.integers(2**32 - 9, 2**32 + 9) | st.integers(0, 2**62 - 2000), LENGTHS)
def test_the_stream_goes_on_there_and_back(key: int, position: int, lengths: list[int]) -> None:
    theirs = np.random.Philox(key=key)
    theirs.advance(position // 4)
    theirs.random_raw(position % 4)
    generator = np.random.Generator(theirs)
    for n in lengths:
        words, place = key_of(theirs)
        assert (words.dtype, place.dtype, place.tolist()) == (torch.int64, torch.int64, [position])
        ours = philox_of(words, place)
        drawn = uniforms(words, place, n)
        np.testing.assert_array_equal(drawn.numpy(), generator.random(n))
        np.testing.assert_array_equal(drawn.numpy(), np.random.Generator(ours).random(n))
        position += n
        assert place.tolist() == [position]


def test_a_generator_too_far_in_its_stream_is_refused() -> None:
    with pytest.raises(ArgumentError, match="2\\*\\*62 words"):
        key_of(np.random.Philox(7).jumped())
