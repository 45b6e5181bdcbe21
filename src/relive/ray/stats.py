"""Statistics of a set of shards."""

from __future__ import annotations

from .._base.frozen import Frozen


class ShardStats(Frozen, kw_only=True):
    """The state of one shard.

    Attributes:
        alive: Whether it answers.
        life: How often its actor was started before.
        size: Steps stored.
        mass: The sum of `priority**alpha`, or the number of items or episodes that can be drawn.
        last_heard: Seconds since it said something.
    """

    alive: bool
    life: int
    size: int
    mass: float
    last_heard: float


class ShardsStats(Frozen, kw_only=True):
    """A snapshot of all shards, as far as they answer, and of this handle.

    Attributes:
        size: Steps stored.
        capacity: The most steps that are stored.
        drawable: Items that can be drawn.
        nbytes: Bytes of all rings when they are full.
        added: Steps ever added, each life of a shard counted from its own beginning.
        drawn: Items that this handle drew.
        replay_ratio: `drawn / added`.
        draw_age: As in `Stats`, of the last batch and the shards that answer.
        draw_entropy: As in `Stats`, by the probabilities at that draw.
        cuts: Streams cut.
        stale_updates: Priorities dropped: of steps that were overwritten or lost, or of a shard that did not answer.
        beta: Exponent of this handle's last draw.
        dropped: Steps that writers dropped, since their shard did not answer.
        lost: Steps that were in a shard when it died and did not come back, as far as this handle had heard of them.
        late_batches: Batches of which a part did not come in time and was drawn from the other shards.
        missing: The shards that do not answer.
        missing_lanes: Their lanes.
        shards: Each shard.
    """

    size: int
    capacity: int
    drawable: int
    nbytes: int
    added: int
    drawn: int
    replay_ratio: float
    draw_age: tuple[float, ...]
    draw_entropy: float | None
    cuts: int
    stale_updates: int
    beta: float
    dropped: int
    lost: int
    late_batches: int
    missing: tuple[int, ...]
    missing_lanes: tuple[int, ...]
    shards: tuple[ShardStats, ...]

    @property
    def replay_volume(self) -> float:
        """`replay_ratio`, by its name beside the age and the entropy of what is drawn."""
        return self.replay_ratio
