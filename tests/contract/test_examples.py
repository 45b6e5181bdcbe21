"""The sampler and the item of the examples: pytest runs their contracts here, and they do what they say."""

from __future__ import annotations

from dataclasses import dataclass, replace

import hindsight_item
import numpy as np
import pytest
from hindsight_item import Hindsight, TestHindsight, sparse
from recent_sampler import Recent, TestRecent
from test_processes import make, steps

import relive
from relive.testing import ItemContract, TransitionsModel
from relive.testing.agreement import is_refused
from relive.testing.oracle import Anchor

__all__ = ["TestHindsight", "TestRecent"]  # collected by pytest


@dataclass(frozen=True)
class HindsightModel:
    """Every goal is the one achieved half way to the end of the episode, or of the horizon: what 0.5 chooses."""

    horizon: int
    starts: int = 1
    older: int = 0

    def expand(self, anchor: Anchor) -> dict[str, object] | None:
        if TransitionsModel(self.horizon, 1.0).expand(anchor) is None:
            return None
        fields = TransitionsModel(1, 0.99).expand(anchor)
        left = min(self.horizon, len(anchor.episode.steps) - anchor.position)
        later = TransitionsModel(1, 0.99).expand(replace(anchor, position=anchor.position + left // 2))
        goal = {"desired_goal": later["next_obs"]["achieved_goal"]}
        reward = sparse(fields["next_obs"]["achieved_goal"], goal["desired_goal"])
        return {**fields, "obs": fields["obs"] | goal, "next_obs": fields["next_obs"] | goal, "reward": reward}


class TestGoalsOfHindsight(ItemContract):
    item = Hindsight(reward=sparse, horizon=5)
    schema = hindsight_item.GOALS
    model = HindsightModel(5)
    random = True


def test_goals_are_replaced_as_often_as_asked_for() -> None:
    for ratio in (0.0, 0.3, 1.0):
        item = Hindsight(reward=sparse, ratio=ratio, horizon=8)
        buffer = relive.ReplayBuffer(hindsight_item.GOALS, 60, item=item, seed=0)
        walk = np.arange(101.0)[:, None].repeat(2, axis=1)
        obs = {"observation": walk, "achieved_goal": walk, "desired_goal": walk * 0 - 1}
        off = np.zeros(100, bool)
        buffer.extend(
            obs={name: array[:-1] for name, array in obs.items()},
            next_obs={name: array[1:] for name, array in obs.items()},
            action=walk[:-1], reward=off, terminated=off, truncated=off,
        )  # fmt: skip
        batch = buffer.sample(4000)
        goal, there = batch.obs.desired_goal[:, 0], batch.obs.achieved_goal[:, 0]
        relabelled = goal >= 0
        assert abs(relabelled.mean() - ratio) < 0.03
        np.testing.assert_array_equal(np.unique((goal - there)[relabelled]), np.arange(1, 9) if ratio else [])
        np.testing.assert_array_equal(batch.reward[relabelled], ((goal == there + 1) - 1.0)[relabelled])


@pytest.mark.filterwarnings("ignore:Expected room for:relive.errors.ReliveWarning")
def test_recent_draws_the_newest_steps_of_every_lane() -> None:
    buffer = make(1, 30, 2, sampler=Recent(k=4), item=relive.Transitions(n_step=3))
    added = [[], []]
    for t in range(0, 200, 10):
        for lane in (0, 1) if t < 100 else (0,):  # lane 1 is cut at every call, and stops
            added[lane] += buffer.extend(**steps(1, t, 10 - 5 * lane, lane))[0].tolist()
        newest = [[key for key in ids[-10:] if not is_refused(buffer, key)][-4:] for ids in added]
        assert set(buffer.sample(300).ids.tolist()) == {*newest[0], *newest[1]}


@pytest.mark.slow
def test_bit_flipping_is_learned_with_hindsight_alone() -> None:
    pytest.importorskip("torch")
    from bit_flipping import train

    assert train(bits=8, steps=12_000, ratio=0.8, seed=0) > 0.8
    assert train(bits=8, steps=12_000, ratio=0.0, seed=0) < 0.3
