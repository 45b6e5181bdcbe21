"""Transitions whose goal is replaced by one that was achieved: hindsight experience replay."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any

import numpy as np

from .._base import check
from .._base.frozen import Frozen
from .._base.memory import Arena
from .._base.nests import mapped, nested, zipped
from .._base.types import Array, Int64
from .._ring import kernels
from .._ring.lanes import GONE
from .._ring.plans import Relabelled, Window
from .._ring.ring import Ring
from ..errors import ArgumentError, message
from ..schema import Column, Schema
from ._columns import Successors
from ._discounts import folded
from ._protocol import Item
from .transitions import Transitions

if TYPE_CHECKING:
    import numpy.typing as npt

    from .._ring.kernel_types import ExpansionKernel
    from ._protocol import Expander, Fields

STRATEGIES = ("future", "final", "episode")
_NONE = np.empty(0, np.int64)
_SUCCESSOR = np.ones(2, np.float32)  # the discounts of a window of one step


class Hindsight(Frozen, Item, kw_only=True):
    """Draw transitions of which a share pursues a goal that its episode achieved, with the reward for that goal.

    Items are those of `item`. In a share `ratio` of them the desired goal, in `obs` and in `next_obs`, is the goal that
    was achieved after some step of the same stream, and the rewards of all steps of the window are computed anew:

    * `"future"`: after a step drawn uniformly from the anchor (itself included) to the last step;
    * `"final"`: after the last step;
    * `"episode"`: after a step drawn uniformly from all steps;
    * a function `strategy(rng, position, length)`: after the steps that it returns, int64 `[C]`. Of each of C items it
      gets the anchor's place among the steps of its stream, and how many there are, int64 `[C]`; places count from 0.
      `"future"` is `rng.integers(position, length)`.

    These are the steps that are stored at the moment of the draw. So every step can be drawn at once: in an episode
    that goes on the last step is the newest one so far. No goal comes from another episode, or from behind a cut.

    `discount`, `terminated` and `truncated` stay those of the stored steps, unless `terminated=` is given: then a
    window ends with the first step that ends the episode under the new goal, terminated, with a discount of 0, and a
    stored end stays one. An item whose window ends without a final observation keeps its goal and its rewards, since
    what its last step achieved is not known. Priorities belong to steps, whichever goal they are drawn with.

    Args:
        item: What is relabelled: `Transitions(n_step, gamma)`.
        achieved: The field of the observation that says which goal it achieves; dots lead into nested observations.
        desired: The field that says which goal is pursued, of the same shape and dtype.
        reward: `reward(achieved_goal, desired_goal, info)` gives the rewards `[N]` of N steps: what was achieved after
            each step and the goal, `[N, ...]`, and the schema's extras of these steps, a dict of arrays `[N, ...]`. It
            must not call the buffer. Of a Gymnasium goal environment, `env.unwrapped.compute_reward`. Goals of two to
            seven numbers come in Fortran's order, which NumPy reduces along the last axis several times as fast.
        ratio: Probability that an item's goal is replaced, in [0, 1]; 0.8 is one real goal in five.
        strategy: Where goals come from: one of the three names, or a function, which must not call the buffer. `rng` is
            the buffer's generator.
        terminated: `terminated(achieved_goal, desired_goal, info)` says, bool `[N]`, which steps end an episode, where
            reaching the goal does. It gets what `reward` gets. None: reaching a goal ends none.

    Raises:
        ArgumentError: An argument outside these limits; when the buffer is built, a schema without these two fields of
            one shape and dtype, or with a stack of either; when items are drawn, rewards, ends or places of another
            kind than stated.

    Its functions cannot be saved: `relive.load` needs `item=`.

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
    >>> batch.discount.tolist() == [np.float32(0.99)] * 4  # reaching the goal ends no episode here
    True
    """

    item: Transitions = Transitions()
    achieved: str = "achieved_goal"
    desired: str = "desired_goal"
    reward: Callable[[Array, Array, dict[str, Any]], npt.ArrayLike]
    ratio: float = 0.8
    strategy: str | Callable[[np.random.Generator, Int64, Int64], npt.ArrayLike] = "future"
    terminated: Callable[[Array, Array, dict[str, Any]], npt.ArrayLike] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.item, Transitions):
            raise ArgumentError(message("`Transitions(...)`", f"`{self.item!r}`", "Hindsight(item)"))
        for name, function in (("reward", self.reward), ("terminated", self.terminated)):
            if not callable(function) and (name == "reward" or function is not None):
                wanted = "a function of achieved goals, desired goals and extras"
                raise ArgumentError(message(wanted, f"`{function!r}`", f"Hindsight({name})"))
        for name in ("achieved", "desired"):
            path = getattr(self, name)
            if not isinstance(path, str) or not path:
                raise ArgumentError(message("the name of a field of `obs`", f"`{path!r}`", f"Hindsight({name})"))
        object.__setattr__(self, "ratio", check.real(self.ratio, "Hindsight(ratio)", low=0.0, high=1.0))
        if not callable(self.strategy):
            check.one_of(self.strategy, STRATEGIES, "Hindsight(strategy)")

    def __repr__(self) -> str:
        return super().__repr__().replace(", terminated=None", "")

    def window(self, schema: Schema) -> Window:
        """Return the item's window: goals come from stored steps, and no step waits for them."""
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


def _turned(goals: Array) -> Array:
    """Return goals of a few numbers number by number in memory, for functions that reduce their last axis.

    NumPy does so several times as fast, and adds fewer than eight numbers in the same order either way.
    """
    return np.asfortranarray(goals) if goals.ndim == 2 and 1 < goals.shape[1] < 8 else goals


class _Hindsight:
    """Relabels what the item expands."""

    # None where a goal may lie before its anchor, which another process overwrites, or where reaching one ends windows.
    kernel: ExpansionKernel | None = None

    def __init__(self, item: Hindsight, schema: Schema, ring: Ring, arena: Arena) -> None:
        self._item, self._ring = item, ring
        self._inner = item.item.bind(schema, ring, arena)
        self._n_step = item.item.n_step
        # A function chooses among all steps up to the last one.
        self._strategy = STRATEGIES.index("final" if callable(item.strategy) else item.strategy)
        self._recalls = callable(item.strategy) or item.strategy == "episode"
        columns = list(zip(schema.columns, ring.columns, strict=True))
        achieved = next(array for column, array in columns if column.path == f"$.obs.{item.achieved}")
        extras = [(c, array) for c, array in columns if c.keys[0] not in ("obs", "action", "reward")]
        self._achieved = ring.gather([achieved], [0])
        # The goals of steps, what these achieved, and their extras.
        arrays = [array for c, array in extras if not c.field.every]
        self._steps = ring.gather([achieved, achieved, *arrays], [0, 1] + [2] * len(arrays))
        self._successors = Successors(schema, ring, arena)
        self._outcomes = _Outcomes(item, schema, ring, extras)
        desired = item.desired.split(".")
        self._keys = [("obs", *desired), ("next_obs", *desired), ("reward",)]
        copies: ExpansionKernel | None = getattr(self._inner, "kernel", None)
        if copies is not None and not (self._recalls or item.terminated):
            self.kernel = self._steps.goals(
                ring.kernel, copies, self._keys, item.ratio, self._n_step, self._strategy, self._outcomes,
                item.reward if self._outcomes.singly else None,
            )  # fmt: skip

    def expand(self, slots: Int64, rng: np.random.Generator) -> Fields:
        """Return the transitions that start at `slots`."""
        kernel, numbers = self._ring.kernel, check.uniforms(rng, (2, len(slots)))
        # First, since the item may copy large batches last of all, while other threads write.
        new = self._steps.relabelled(kernel, slots, numbers, self._item.ratio, self._n_step, self._strategy)
        if callable(self._item.strategy):
            new = self._chosen(new, self._item.strategy, rng)
        if self._recalls:
            self._recall(new)
        *values, ends = self._outcomes.of(new)
        reached = _NONE if ends is None else (ends[new.item] == new.ages).nonzero()[0]
        successors = self._successors.of(new.after[reached]) if len(reached) else {}
        fields, which = self._inner.expand(slots, rng), new.which
        if len(reached):
            self._end(fields, which[new.item[reached]], new.ages[reached] + 1, successors)
        outs = [reduce(getitem, keys, fields[name]) for name, *keys in self._keys]
        kernels.active().put_rows(outs, which, values)
        return fields

    def _chosen(self, new: Relabelled, strategy: Callable[..., Any], rng: np.random.Generator) -> Relabelled:
        """Relabel items with goals of the steps that a function chooses among those up to `ahead`."""
        kernel, (rows, lanes) = self._ring.kernel, np.divmod(new.ids, self._ring.lanes)
        before = -kernel.follow(new.ids, np.full(len(new.ids), -self._ring.rows)).steps
        position = np.minimum(before, np.maximum(rows - self._ring.counters[lanes, GONE], 0))
        length = position + new.ahead + 1
        at, wanted = "Hindsight(strategy)", f"integers of shape `{position.shape}`, the places of steps"
        places = np.asarray(strategy(rng, position.copy(), length.copy()))
        if places.shape != position.shape or places.dtype.kind not in "iu":
            raise ArgumentError(message(wanted, f"`{places.dtype}` of shape `{places.shape}`", at))
        outside = (places < 0) | (places >= length)
        if outside.any():
            first = int(outside.argmax())
            raise ArgumentError(message(f"places >= 0 and < {length[first]}", f"`{places[first]}`", at))
        ahead = places.astype(np.int64) - position
        slots = (new.ids + ahead * self._ring.lanes) % self._ring.slots
        new.copies[:1] = self._achieved.taken([self._ring.windows(slots, _SUCCESSOR).after[new.item]])
        return new._replace(ahead=ahead)

    def _recall(self, new: Relabelled) -> None:
        """Replace goals of steps before the anchor that another process overwrote while they were copied."""
        rows, lanes = np.divmod(new.ids, self._ring.lanes)
        gone = ((new.ahead < 0) & (rows + new.ahead < self._ring.counters[lanes, GONE]))[new.item]
        if gone.any():
            own = self._ring.windows(new.ids[new.item[gone]] % self._ring.slots, _SUCCESSOR).after
            (new.copies[0][gone],) = self._achieved.taken([own])

    def _end(self, fields: Fields, which: Int64, steps: Int64, successors: dict[str, Any]) -> None:
        """Let the windows of the items `which` end, terminated, after so many `steps`."""
        shorter = steps < fields["steps"][which]
        fields["truncated"][which[shorter]] = False
        fields["discount"][which], fields["terminated"][which], fields["steps"][which] = 0.0, True, steps
        zipped(lambda mine, new: mine.__setitem__(which, new), fields["next_obs"], successors["next_obs"])
        if self._item.item.chunk:
            over = np.arange(self._n_step) >= steps[:, None]
            fields["mask"][which] &= ~over
            items, ages = np.nonzero(over)
            mapped(lambda actions: actions.__setitem__((which[items], ages), 0), fields["action"])


class _Outcomes:
    """Computes what relabelled items get; it refers to no kernel, which could not be dropped with it."""

    def __init__(self, item: Hindsight, schema: Schema, ring: Ring, extras: list[tuple[Column, Array]]) -> None:
        self._item, self._ring, self._n_step = item, ring, item.item.n_step
        self._gammas = item.item.gamma ** np.arange(self._n_step, dtype=np.float64)
        self._states = [(c.keys, array) for c, array in extras if c.field.every]
        self._keys = [c.keys for c, _ in extras if not c.field.every]
        self._reward, self._discounted = schema.reward, schema.discount is not None
        self.singly = self._n_step == 1 and not self._states  # a step's extras are all that is asked for

    def extras(self, copies: list[Array]) -> dict[str, Any]:
        """Return the steps' own extras as functions get them."""
        return nested(zip(self._keys, copies, strict=True)) if copies else {}

    def rewards(self, given: Any, steps: int) -> Array:
        """Return what a function gave for items of one step as their field has it."""
        return np.ascontiguousarray(self._checked(given, steps), self._reward.dtype)

    def __call__(self, new: Relabelled) -> tuple[Array, Array, Array]:
        """Return the goals for `obs` and for `next_obs`, and the rewards."""
        return self.of(new)[:3]

    def of(self, new: Relabelled) -> tuple[Array, Array, Array, Int64 | None]:
        """Return the same, and at which age windows end under the new goals; None: nothing ends one."""
        goals = new.copies[0]
        if self._n_step > 1:
            goals = goals.take((new.ages == 0).nonzero()[0], axis=0)
        rewards, ends, own = self._rewards(new)
        return goals, goals, np.ascontiguousarray(self._folded(new, rewards, ends, own), self._reward.dtype), ends

    def _rewards(self, new: Relabelled) -> tuple[Array, Int64 | None, Array | None]:
        """Compute the rewards of all steps of windows under the new goals, `[M, ...]`, and the windows' ends, `[C]`.

        An end is the age of the first step that ends its episode under the new goal, or `n_step`, where there is none;
        None: nothing says which do. Last come the steps' own discounts, `[M]`, if they have any.
        """
        if not len(new.item):
            return np.zeros((0, *self._reward.shape)), None, None
        (goals, achieved), extras = map(_turned, new.copies[:2]), new.copies[2:]
        info = self.extras(extras)
        own = info["discount"].astype(np.float64) if self._discounted else None
        if self._states:
            ids = new.ids[new.item] + new.ages * self._ring.lanes
            info |= nested((keys, array[self._ring.state_rows(ids, 1)]) for keys, array in self._states)
        rewards = self._checked(self._item.reward(achieved, goals, info), len(goals))
        ends = None
        if self._item.terminated is not None:
            over = np.asarray(self._item.terminated(achieved, goals, info))
            if over.shape != new.item.shape or over.dtype.kind != "b":
                text = f"bools of shape `{new.item.shape}`, one a step"
                got = f"`{over.dtype}` of shape `{over.shape}`"
                raise ArgumentError(message(text, got, "Hindsight(terminated)"))
            ends = np.full(len(new.which), self._n_step)
            last_first = np.flatnonzero(over)[::-1]  # of several steps of an item the first one is assigned last
            ends[new.item[last_first]] = new.ages[last_first]
        return rewards, ends, own

    def _checked(self, given: Any, steps: int) -> Array:
        """Refuse what is not one reward a step."""
        wanted = (steps, *self._reward.shape)
        check.unmasked(given, "Hindsight(reward)", ArgumentError)
        rewards = np.asarray(given)
        if rewards.shape != wanted or rewards.dtype.kind not in "biuf":
            got = f"`{rewards.dtype}` of shape `{rewards.shape}`"
            raise ArgumentError(message(f"numbers of shape `{wanted}`, one reward a step", got, "Hindsight(reward)"))
        return rewards

    def _folded(self, new: Relabelled, rewards: Array, ends: Int64 | None, own: Array | None) -> Array:
        """Sum the rewards over the windows, discounted, `[C, ...]`."""
        if self._n_step == 1:
            return rewards
        apart = np.zeros((len(new.which), self._n_step, *self._reward.shape))
        apart[new.item, new.ages] = rewards
        if ends is not None:
            apart[np.arange(self._n_step) > ends[:, None]] = 0.0
        if own is None:
            return np.asarray(np.tensordot(apart, self._gammas, axes=(1, 0)))
        factors = np.ones((len(new.which), self._n_step))
        factors[new.item, new.ages] = own * self._item.item.gamma
        whole = np.full((len(factors), 1), self._n_step)
        return folded(apart, factors, whole, self._n_step)[0][:, 0]
