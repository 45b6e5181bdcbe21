"""What a buffer can say about itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Stats:
    """A snapshot of one buffer.

    Attributes:
        size: Steps stored now; boundary rows (final observations) do not count.
        capacity: Rows over all lanes; boundary rows do count.
        drawable: Items that can be drawn now.
        nbytes: Bytes reserved for columns, marks and counters when the buffer is full (the sampler's own are in its
            docs).
        added: Steps ever added.
        drawn: Items ever drawn.
        replay_ratio: `drawn / added`, 0 before the first step.
        cuts: Streams cut: a new observation that was not the held `next_obs`, or a call of `cut`.
        unbootstrapped: Truncated steps that came without a final observation.
        ends: Episodes that ended with a final observation unlike the one before it, and were followed by a stream.
        repeated_finals: Of these the streams that began with the very same observation: most of them do where steps
            that only reset are added, or where the next episode's first observation is given as the final one.
        stale_updates: Priorities dropped because their step had been overwritten or was not complete.
        beta: Exponent of the last draw's weights; 0 for uniform draws.
        effective_sample_size: `(sum w)**2 / sum w**2` of the last draw's weights: how many equally weighted items it
            is worth.
        priority_quantiles: Raw priorities at 0, 25, 50, 75 and 100 %, over the items with a positive one; empty for
            `Uniform`.
        age_quantiles: Rows of the same lane that are newer than the items of the last draw, at the same points.

    >>> import relive
    >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000)
    >>> buffer.stats().size, buffer.stats().capacity
    (0, 1000)
    """

    size: int
    capacity: int
    drawable: int
    nbytes: int
    added: int
    drawn: int
    replay_ratio: float
    cuts: int
    unbootstrapped: int
    ends: int
    repeated_finals: int
    stale_updates: int
    beta: float
    effective_sample_size: float
    priority_quantiles: tuple[float, ...]
    age_quantiles: tuple[float, ...]
