"""The commonest slips of a first minute: each error names the remedy, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from refused_calls import F, fingerprint, flat_step, prioritized, schema, step, uniform

import relive

FLAGS = "`terminated=` is for a terminal state, `truncated=` for a time limit"


def four() -> relive.ReplayBuffer:
    return relive.ReplayBuffer(relive.Schema(obs=F((3,)), action=F()), 100, num_envs=4)


def batched() -> relive.ReplayBuffer:
    """A schema of the spaces of a vector environment, by mistake."""
    space = spaces.Box(-1, 1, (4, 3), "float32")
    return relive.ReplayBuffer(relive.Schema.from_spaces(space, spaces.Box(-1, 1, (4,))), 100, num_envs=4)


def waiting() -> relive.ReplayBuffer:
    buffer = relive.ReplayBuffer(relive.Schema(obs=F(), action=F()), 100)
    buffer.add(obs=0, action=0, reward=0, terminated=False, truncated=False)
    return buffer


def renamed(old: str, new: str) -> dict[str, Any]:
    given = step()
    return {**{name: value for name, value in given.items() if name != old}, new: given[old]}


def of_four(**changes: Any) -> dict[str, Any]:
    return {name: np.repeat(np.asarray(value)[None], 4, 0) for name, value in flat_step().items()} | changes


def camera(side: int) -> dict[str, Any]:
    seen = {"camera": np.zeros((side, side, 1))}
    return {"obs": seen, "action": 0, "reward": 0, "next_obs": seen, "terminated": False, "truncated": False}


def begun() -> relive.ReplayBuffer:
    """Two steps of the three of the first window."""
    buffer = relive.ReplayBuffer(relive.Schema(obs=F(), action=F()), 10, item=relive.Transitions(n_step=3))
    for t in range(2):
        buffer.add(obs=t, action=0, reward=0, next_obs=t + 1, terminated=False, truncated=False)
    return buffer


# fmt: off
CALLS: list[tuple[Callable[[], Any], Callable[[Any], object], str]] = [
    (prioritized, lambda b: b.add(**renamed("terminated", "done")), f"got `done` - at `done`: {FLAGS}"),
    (prioritized, lambda b: b.add(**renamed("reward", "rewards")), "at `rewards`: did you mean `reward`?"),
    (prioritized, lambda b: b.add(**renamed("next_obs", "next_state")), "at `next_state`: did you mean `next_obs`?"),
    (uniform, lambda b: b.add(**flat_step(truncated=...)),
     f"Expected a value, got nothing - at `truncated`: every step needs `truncated`; {FLAGS}"),
    (schema, lambda s: relive.ReplayBuffer(s, 100, n_step=3),
     "got `n_step=3` - at `ReplayBuffer(n_step)`: say `item=relive.Transitions(n_step=3)`"),
    (schema, lambda s: relive.ReplayBuffer(s, 100, gamma=0.9), "say `item=relive.Transitions(gamma=0.9)`"),
    (schema, lambda s: relive.ReplayBuffer(s, 100, alpha=0.6), "say `sampler=relive.Prioritized(alpha=0.6)`"),
    (schema, lambda s: relive.ReplayBuffer(s, 100, beta=0.4), "say `sampler=relive.Prioritized(beta=0.4)`"),
    (schema, lambda s: relive.ReplayBuffer(s, 100, batch_size=32), "say `buffer.sample(32)`"),
    (schema, lambda s: relive.ReplayBuffer(s, buffer_size=100), "say `capacity=100`"),
    (schema, lambda s: relive.ReplayBuffer(s, 100, sampler="prioritized"),
     "got `'prioritized'` - at `ReplayBuffer(sampler)`: say `relive.Prioritized()`"),
    (schema, lambda s: relive.ReplayBuffer(s, 1e6), "at `ReplayBuffer(capacity)`: write `1_000_000`"),
    (four, lambda b: b.add(**flat_step()),
     "Expected shape `(4, 3)`, got shape `(3,)` - at `obs`: give a step of each of 4 environments; that of one alone "
     "is `env_ids=[i]`"),
    (uniform, lambda b: b.add(**of_four()),
     "Expected shape `(3,)`, got shape `(4, 3)` - at `obs`: 4 environments need `ReplayBuffer(num_envs=4)`, and no "
     "`env_ids`"),
    (batched, lambda b: b.add(**of_four(action=np.zeros((4, 4)))),
     "at `obs`: a schema comes from `envs.single_observation_space`, not from the batched space"),
    (four, lambda b: b.sample(8),
     "at `ReplayBuffer.sample`: the buffer is empty: add steps first; `can_sample` says when there are enough"),
    (waiting, lambda b: b.sample(8),
     "but not what follows them: give `next_obs=` with each step, or add the next one"),
    (uniform, lambda b: b.add(**flat_step(obs=np.zeros(4))), "Expected shape `(3,)`, got shape `(4,)` - at `obs`"),
    # As the documentation shows them, word for word.
    (lambda: relive.ReplayBuffer(relive.Schema(obs={"camera": F((84, 84), "float32")}, action=F()), 10),
     lambda b: b.add(**camera(84)), "Expected shape `(84, 84)`, got shape `(84, 84, 1)` - at `obs.camera`"),
    (prioritized, lambda b: b.update_priorities([12] * 256, np.where(np.isin(range(256), (17, 40, 200)), np.nan, 1.0)),
     "Expected a finite TD error, got `nan` (3 of 256) - at `td_error[17]`: check the loss"),
    *((begun, lambda b, n=n: b.sample(n),
       "Expected at least 1 drawable item, got 0 - at `ReplayBuffer.sample`: 2 of 3 steps of the first 3-step window "
       "are stored; `can_sample` says when there are enough") for n in (1, 32)),
]
# fmt: on


@pytest.mark.parametrize(("make", "call", "text"), CALLS)
def test_a_slip_names_its_remedy(make: Callable[[], Any], call: Callable[[Any], object], text: str) -> None:
    thing = make()
    if isinstance(thing, relive.ReplayBuffer):
        thing.can_sample(1)  # the sampler takes in new steps
    before = fingerprint(thing)
    with pytest.raises(relive.ReliveError) as caught:
        call(thing)
    assert str(caught.value).endswith(text), caught.value
    assert fingerprint(thing) == before


@pytest.mark.parametrize("method", ["add", "extend"])
def test_values_without_names_are_refused(method: str) -> None:
    with pytest.raises(TypeError, match=f"(buffer.{method}\\(obs=|takes 1 positional)"):
        getattr(uniform(), method)(np.zeros(3), 0, 1.0)


@pytest.mark.parametrize(
    ("name", "instead"),
    [("PrioritizedReplayBuffer", r"sampler=relive.Prioritized\(\)"), ("NStepReplayBuffer", r"Transitions\(n_step=3\)")],
)
def test_names_of_other_libraries_lead_to_the_choice(name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=f"relive has no {name}: use `relive.ReplayBuffer.*{instead}"):
        getattr(relive, name)


def test_a_directory_of_saves_is_not_opened(tmp_path: Path) -> None:
    uniform().save(tmp_path)
    with pytest.raises(relive.StorageError, match=r"got a directory - at .*: a save is loaded by `relive.load`"):
        relive.open(tmp_path)


def test_priorities_of_a_uniform_sampler_are_passed_over() -> None:
    buffer = uniform()
    batch = buffer.sample(3)
    assert buffer.update_priorities(batch.ids, np.ones(3)) == 0
    assert buffer.stats().updates == 0
    with pytest.raises(relive.PriorityError):
        buffer.update_priorities(batch.ids, np.ones(2))


def test_a_batch_says_how_it_is_indexed() -> None:
    batch = uniform().sample(3)
    for index, shown in ((0, r"\[0\]"), (slice(None, 2), r"\[:2\]"), ((0, 1), r"\[\(0, 1\)\]")):
        with pytest.raises(KeyError, match=rf"indexed by field, as in `batch.obs{shown}`"):
            batch[index]
    with pytest.raises(AttributeError, match="did you mean `reward`"):
        batch.rewards  # noqa: B018
    assert "rewards" not in batch
    assert 0 not in batch
    assert batch.get("rewards", 5) == 5
