"""Transitions whose goal is replaced by one that was achieved: hindsight experience replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._base import check
from .._base.frozen import Frozen
from .._base.memory import Arena
from .._base.nests import nested
from .._base.types import Array, Bool, Int64
from .._ring.lanes import END, GONE, HEAD, HELD, LOST
from .._ring.plans import Window
from .._ring.ring import Ring
from ..errors import ArgumentError, message
from ..schema import Column, Schema
from ._protocol import Item
from .transitions import Transitions

if TYPE_CHECKING:
    import numpy.typing as npt

    from ._protocol import Expander, Fields

STRATEGIES = ("future", "final", "episode")
_SUCCESSOR = np.ones(2, np.float32)  # the discounts of a window of one step


class Hindsight(Frozen, Item, kw_only=True):
    """Draw transitions of which a share pursues a goal that its episode achieved, with the reward for that goal.

    Items are those of `item`. In a share `ratio` of them the desired goal, in `obs` and in `next_obs`, is the goal that
    was achieved after some step of the same stream, and the rewards of all steps of the window are computed anew:

    * `"future"`: after a step drawn uniformly from the anchor (itself included) to the last step;
    * `"final"`: after the last step;
    * `"episode"`: after a step drawn uniformly from all steps.

    These are the steps that are stored at the moment of the draw. So every step can be drawn at once: in an episode
    that goes on the last step is the newest one so far. No goal comes from another episode, or from behind a cut.

    `discount`, `terminated` and `truncated` stay those of the stored steps. An item whose window ends without a final
    observation keeps its goal and its rewards, since what its last step achieved is not known. Priorities belong to
    steps, whichever goal they are drawn with.

    Args:
        item: What is relabelled: `Transitions(n_step, gamma)`.
        achieved: The field of the observation that says which goal it achieves; dots lead into nested observations.
        desired: The field that says which goal is pursued, of the same shape and dtype.
        reward: `reward(achieved_goal, desired_goal, info)` gives the rewards `[N]` of N steps: what was achieved after
            each step and the goal, `[N, ...]`, and the schema's extras of these steps, a dict of arrays `[N, ...]`. It
            must not call the buffer. Of a Gymnasium goal environment, `env.unwrapped.compute_reward`.
        ratio: Probability that an item's goal is replaced, in [0, 1]; 0.8 is one real goal in five.
        strategy: Where goals come from.

    Raises:
        ArgumentError: An argument outside these limits; when the buffer is built, a schema without these two fields of
            one shape and dtype, or with a stack of either; when items are drawn, rewards of another shape.

    Its function cannot be saved: `relive.load` needs `item=`.

    Source: Andrychowicz et al., "Hindsight Experience Replay", NeurIPS 2017.

    >>> import numpy as np, relive
    >>> def reward(achieved_goal, desired_goal, info):
    ...     return (achieved_goal == desired_goal).all(axis=-1) - 1.0
    >>> goal = relive.Field((1,))
    >>> schema = relive.Schema(obs={"achieved_goal": goal, "desired_goal": goal}, action=relive.Field())
    >>> buffer = relive.ReplayBuffer(schema, 100, item=relive.Hindsight(reward=reward, strategy="final", ratio=1.0))
    >>> walk, far = np.arange(5.0)[:, None], np.full((5, 1), 99.0)
    >>> ids = buffer.extend(
    ...     obs={"achieved_goal": walk[:-1], "desired_goal": far[:-1]},
    ...     next_obs={"achieved_goal": walk[1:], "desired_goal": far[1:]},
    ...     action=np.ones(4), reward=-np.ones(4), terminated=np.zeros(4, bool), truncated=np.arange(4) == 3,
    ... )
    >>> batch = buffer.read(ids)
    >>> batch.obs.desired_goal[:, 0].tolist(), batch.reward.tolist()
    ([4.0, 4.0, 4.0, 4.0], [-1.0, -1.0, -1.0, 0.0])
    """

    item: Transitions = Transitions()
    achieved: str = "achieved_goal"
    desired: str = "desired_goal"
    reward: Callable[[Array, Array, dict[str, Any]], npt.ArrayLike]
    ratio: float = 0.8
    strategy: str = "future"

    def __post_init__(self) -> None:
        if not isinstance(self.item, Transitions):
            raise ArgumentError(message("`Transitions(...)`", f"`{self.item!r}`", "Hindsight(item)"))
        if not callable(self.reward):
            wanted = "a function of achieved goals, desired goals and extras"
            raise ArgumentError(message(wanted, f"`{self.reward!r}`", "Hindsight(reward)"))
        for name in ("achieved", "desired"):
            path = getattr(self, name)
            if not isinstance(path, str) or not path:
                raise ArgumentError(message("the name of a field of `obs`", f"`{path!r}`", f"Hindsight({name})"))
        object.__setattr__(self, "ratio", check.real(self.ratio, "Hindsight(ratio)", low=0.0, high=1.0))
        check.one_of(self.strategy, STRATEGIES, "Hindsight(strategy)")

    def window(self, schema: Schema) -> Window:
        """That of the item: goals come from what is stored, and no step waits for them."""
        return self.item.window(schema)

    def check(self, schema: Schema, steps: int) -> None:
        """Refuse a schema without goals, and what the item refuses."""
        fields = [_goal(schema, getattr(self, name), f"Hindsight({name})").field for name in ("achieved", "desired")]
        kinds = [(field.shape, field.dtype) for field in fields]
        if kinds[0] != kinds[1]:
            wanted = f"goals like `{self.achieved}`, `{fields[0]!r}`"
            raise ArgumentError(message(wanted, f"`{fields[1]!r}`", f"$.obs.{self.desired}"))
        self.item.check(schema, steps)

    def bind(self, schema: Schema, ring: Ring, arena: Arena) -> Expander:
        """Prepare to expand slots of `ring`."""
        return _Hindsight(self, schema, ring, arena)


def _goal(schema: Schema, name: str, at: str) -> Column:
    path = f"$.obs.{name}"
    for column in schema.columns[: schema.num_obs]:
        if column.path == path:
            if column.field.stack is not None:
                raise ArgumentError(message("a goal that is not a stack of frames", f"`{column.field!r}`", path))
            return column
    known = ", ".join(f"`{'.'.join(column.keys[1:])}`" for column in schema.columns[: schema.num_obs])
    got = f"`{name}`" + (
        f" besides {known}" if schema.columns[0].keys != ("obs",) else " in an observation of one field"
    )
    raise ArgumentError(message("the name of a field of `obs`", got, at))


class _Relabelled(NamedTuple):
    """The items of a batch that get another goal: their positions in it `[C]`, goals `[C, ...]`, rewards `[C, ...]`."""

    which: Int64
    goals: Array
    rewards: Array


class _Hindsight:
    """Relabels what the item expands."""

    def __init__(self, item: Hindsight, schema: Schema, ring: Ring, arena: Arena) -> None:
        self._item, self._ring = item, ring
        self._inner = item.item.bind(schema, ring, arena)
        self._ones = np.ones(item.item.n_step + 1, np.float32)
        self._gammas = item.item.gamma ** np.arange(item.item.n_step, dtype=np.float64)
        columns = list(zip(schema.columns, ring.columns, strict=True))
        self._achieved = next(array for column, array in columns if column.path == f"$.obs.{item.achieved}")
        self._extras = [(c.keys, array) for c, array in columns if c.keys[0] not in ("obs", "action", "reward")]
        self._rewards = schema.reward
        self._desired = item.desired.split(".")

    def expand(self, slots: Int64, rng: np.random.Generator) -> Fields:
        """Return the transitions that start at `slots`."""
        # First, since the item may copy large batches last of all, while other threads write.
        new = self._relabelled(slots, *check.uniforms(rng, (2, len(slots))))
        fields = self._inner.expand(slots, rng)
        for name in ("obs", "next_obs"):
            node = fields[name]
            for key in self._desired[:-1]:
                node = node[key]
            node[self._desired[-1]][new.which] = new.goals
        fields["reward"][new.which] = new.rewards
        return fields

    def _relabelled(self, slots: Int64, whether: Array, where: Array) -> _Relabelled:
        ring, lanes = self._ring, self._ring.lanes
        which = np.flatnonzero(whether < self._item.ratio)
        steps = ring.windows(slots[which], self._ones).steps
        ids = ring.ids(slots[which])
        ahead = self._ahead(ids)
        known = ahead >= steps - 1  # what every step of the window achieved
        if not known.all():
            which, steps, ids, ahead = which[known], steps[known], ids[known], ahead[known]
        goals = self._goals(ids, self._chosen(ids, ahead, where[which]))
        item, ages = np.nonzero(np.arange(len(self._gammas)) < steps[:, None])
        members = ids[item] + ages * lanes
        rewards = np.zeros((*steps.shape, len(self._gammas), *self._rewards.shape))
        rewards[item, ages] = self._reward(members, goals[item])
        return _Relabelled(which, goals, np.tensordot(rewards, self._gammas, axes=(1, 0)))

    def _ahead(self, ids: Int64) -> Int64:
        """How many steps later the last one is of which is known what it achieved; -1 where that is none."""
        ring = self._ring
        # Before the walk: another process may add steps meanwhile, and what those achieved is left out then.
        held, head = ring.counters[:, HELD].copy(), ring.counters[:, HEAD].copy()
        last, ahead = ring.kernel.follow(ids, np.full(len(ids), ring.rows))
        rows, lanes = np.divmod(last, ring.lanes)
        marks = ring.marks[ring.at(rows, lanes)]
        newest: Bool = (rows + 1 == head[lanes]) & (held[lanes] == head[lanes])
        known = ((marks & LOST) == 0) & (((marks & END) > 0) | newest)
        return np.asarray(np.where(known, ahead, ahead - 1))

    def _chosen(self, ids: Int64, ahead: Int64, where: Array) -> Int64:
        """How many steps later (earlier, where negative) the goal was achieved."""
        if self._item.strategy == "final":
            return ahead
        first = np.zeros_like(ahead)
        if self._item.strategy == "episode":
            ring = self._ring
            rows, lanes = np.divmod(ids, ring.lanes)
            first = ring.kernel.follow(ids, np.full(len(ids), -ring.rows)).steps
            first = np.maximum(first, np.minimum(ring.counters[lanes, GONE] - rows, 0))
        # The product may be rounded up to the number of steps.
        return np.asarray(np.minimum(first + (where * (ahead - first + 1)).astype(np.int64), ahead))

    def _goals(self, ids: Int64, steps: Int64) -> Array:
        """The goals achieved so many steps later."""
        chosen = ids + steps * self._ring.lanes
        goals = self._achieved_after(chosen)
        # Steps before the anchor may have been overwritten by another process while they were copied.
        rows, lanes = np.divmod(chosen, self._ring.lanes)
        gone = (steps < 0) & (rows < self._ring.counters[lanes, GONE])
        if gone.any():
            goals[gone] = self._achieved_after(ids[gone])
        return goals

    def _achieved_after(self, ids: Int64) -> Array:
        found: Array = self._achieved[self._ring.windows(ids % self._ring.slots, _SUCCESSOR).after]
        return found

    def _reward(self, ids: Int64, goals: Array) -> Array:
        """The rewards of the steps `ids` under other goals."""
        if not len(ids):
            return np.zeros((0, *self._rewards.shape))
        rows = self._ring.storage(*np.divmod(ids, self._ring.lanes))
        info = nested((path, array[rows]) for path, array in self._extras)
        rewards = np.asarray(self._item.reward(self._achieved_after(ids), goals, info))
        wanted = (len(ids), *self._rewards.shape)
        if rewards.shape != wanted or rewards.dtype.kind not in "biuf":
            got = f"`{rewards.dtype}` of shape `{rewards.shape}`"
            raise ArgumentError(message(f"numbers of shape `{wanted}`, one reward a step", got, "Hindsight(reward)"))
        return rewards
