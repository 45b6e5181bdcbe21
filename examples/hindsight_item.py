"""An item of one's own: hindsight experience replay (Andrychowicz et al. 2017), with the strategy "future".

python examples/hindsight_item.py --ratio 0.8
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import relive
from relive.errors import ArgumentError, message
from relive.items import Arena, Expander, Fields, Ring, Window
from relive.testing import ItemContract


@dataclass(frozen=True, kw_only=True)
class Hindsight:
    """Draw one-step transitions, some with the goal that was achieved at a later step of the same episode.

    The schema's `obs` has `achieved_goal` and `desired_goal`, as goal-conditioned environments give them.

    Args:
        reward: Maps achieved and desired goals, each `[B, ...]`, to rewards `[B]`.
        ratio: Probability that the goal of an item is replaced.
        horizon: How many steps later the goal may be achieved. A step can be drawn when so many are known, or its
            episode has ended.
        gamma: Discount per step.
    """

    reward: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ratio: float = 0.8
    horizon: int = 50
    gamma: float = 0.99

    def window(self, schema: relive.Schema) -> Window:
        """Items start at any step, and look at the `horizon` steps from there on."""
        return Window(span=self.horizon)

    def check(self, schema: relive.Schema, steps: int) -> None:
        """Refuse a schema without goals, and lanes shorter than the horizon."""
        paths = [column.path for column in schema.columns]
        for path in ("$.obs.achieved_goal", "$.obs.desired_goal"):
            if path not in paths:
                raise ArgumentError(message("a field", "none", path))
        if self.horizon > steps:
            raise ArgumentError(message(f"at most {steps} steps of a lane", f"`{self.horizon}`", "Hindsight(horizon)"))
        relive.Transitions(gamma=self.gamma).check(schema, steps)

    def bind(self, schema: relive.Schema, ring: Ring, arena: Arena) -> Expander:
        """Prepare to expand slots of `ring`."""
        return HindsightExpander(self, schema, ring, arena)


class HindsightExpander:
    """Relabels what `Transitions` expands."""

    def __init__(self, item: Hindsight, schema: relive.Schema, ring: Ring, arena: Arena) -> None:
        self._item, self._ring = item, ring
        self._transitions = relive.Transitions(gamma=item.gamma).bind(schema, ring, arena)
        columns = {column.path: array for column, array in zip(schema.columns, ring.columns, strict=True)}
        self._achieved = columns["$.obs.achieved_goal"]

    def expand(self, slots: np.ndarray, rng: np.random.Generator) -> Fields:
        """Return the transitions that start at `slots`."""
        fields = self._transitions.expand(slots, rng)
        choose, when = rng.random((2, len(slots)))
        # Discounts do not matter here: `windows` also tells how many steps there are up to the episode's end.
        left = self._ring.windows(slots, np.ones(self._item.horizon + 1, np.float32)).steps
        later = (slots + (when * left).astype(np.int64) * self._ring.lanes) % self._ring.slots
        after = self._ring.windows(later, np.ones(2, np.float32)).after
        relabelled = np.flatnonzero(choose < self._item.ratio)
        goals = self._achieved[after[relabelled]]
        for name in ("obs", "next_obs"):
            fields[name]["desired_goal"][relabelled] = goals
        fields["reward"][relabelled] = self._item.reward(fields["next_obs"]["achieved_goal"][relabelled], goals)
        return fields


def sparse(achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
    """0 where the goal is achieved, else -1."""
    return (np.abs(achieved - desired).max(axis=-1) < 0.5) - 1.0


GOALS = relive.Schema(
    obs={"observation": relive.Field(2), "achieved_goal": relive.Field(2), "desired_goal": relive.Field(2)},
    action=relive.Field(2),
)


class TestHindsight(ItemContract):
    """The promises of every item; pytest runs them, too."""

    item = Hindsight(reward=sparse, horizon=6)
    schema = GOALS
    random = True  # the item draws numbers of its own


def main() -> None:
    """Run the contract, then count rewards of a walk that never reaches its goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ratio", type=float, default=0.8, help="of items whose goal is replaced (default 0.8)")
    args = parser.parse_args()
    print(f"Hindsight keeps {TestHindsight.run_all()} promises of an item")
    buffer = relive.ReplayBuffer(GOALS, 1000, item=Hindsight(reward=sparse, ratio=args.ratio), seed=0)
    walk = np.cumsum(np.random.default_rng(0).choice([-1.0, 1.0], (101, 2)), axis=0)
    far = np.full((101, 2), 1000.0)
    obs = {"observation": walk, "achieved_goal": walk, "desired_goal": far}
    buffer.extend(
        obs={name: array[:-1] for name, array in obs.items()},
        next_obs={name: array[1:] for name, array in obs.items()},
        action=np.diff(walk, axis=0),
        reward=np.full(100, -1.0),
        terminated=np.zeros(100, bool),
        truncated=np.arange(100) == 99,
    )
    batch = buffer.sample(1000)
    relabelled = (batch.obs.desired_goal != 1000).any(axis=1).mean()
    print(f"{relabelled:.0%} of the goals are relabelled, {(batch.reward == 0).mean():.0%} of the rewards are 0")


if __name__ == "__main__":
    main()
