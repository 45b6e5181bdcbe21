"""Stacks, stored state and sequences that must be refused."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from refused_calls import F, assert_refused

import relive
from relive.errors import ArgumentError, NotEnoughData, PriorityError, SchemaError, StaleId


def build(capacity=40, stack=None, state=None, item=None, reward=None):
    """A buffer of one lane with stacks of frames, or state that is kept at some steps."""
    extras = {} if state is None else {"state": F((2,), every=state)}
    schema = relive.Schema(obs=F((2,), stack=stack), action=F(), reward=reward, **extras)
    return relive.ReplayBuffer(schema, capacity, item=item, seed=0)


def good(t=0):
    """One step of a stream with stacks of three frames."""
    obs = np.full((3, 2), t) + np.arange(3)[:, None]
    return {
        "obs": obs, "action": 0.5, "reward": 1.0, "next_obs": obs + 1, "terminated": False, "truncated": False,
        "state": np.zeros(2),
    }  # fmt: skip


def running():
    """Ten steps of a stream, of which every second starts a sequence of three."""
    buffer = build(stack=3, state=2, item=relive.Sequences(3, starts=2))
    for t in range(10):
        buffer.add(**good(t))
    return buffer


# fmt: off
CASES = [
    ("Field, stack zero", SchemaError, lambda b: F((2,), stack=0),
     "Expected a positive integer or None, got `0` - at `Field(stack)`"),
    ("Field, stack a float", SchemaError, lambda b: F((2,), stack=4.0),
     "Expected a positive integer or None, got `4.0` - at `Field(stack)`"),
    ("Field, stack a bool", SchemaError, lambda b: F((2,), stack=True),
     "Expected a positive integer or None, got `True` - at `Field(stack)`"),
    ("Field, an unknown pad", SchemaError, lambda b: F((2,), stack=4, pad='edge'),
     "Expected `'zero'` or `'first'`, got `'edge'` - at `Field(pad)`"),
    ("Field, another stack axis", SchemaError, lambda b: F((2,), stack=4, stack_axis=1),
     "Expected 0 or -1, got `1` - at `Field(stack_axis)`"),
    ("Field, every zero", SchemaError, lambda b: F((2,), every=0),
     "Expected a positive integer or None, got `0` - at `Field(every)`"),
    ("Field, every negative", SchemaError, lambda b: F((2,), every=-2),
     "Expected a positive integer or None, got `-2` - at `Field(every)`"),
    ("Schema, a stacked action", SchemaError, lambda b: relive.Schema(obs=F(), action=F((), stack=2)),
     "Expected `stack=` in fields of `obs` only, got `Field((), 'float32', stack=2, pad='zero')` - at `$.action`"),
    ("Schema, a stacked extra", SchemaError,
     lambda b: relive.Schema(obs=F(), action=F(), flow={'x': F((2,), stack=2)}),
     "Expected `stack=` in fields of `obs` only, got `Field((2,), 'float32', stack=2, pad='zero')` - at "
     "`$.flow.x`"),
    ("Schema, an observation kept now and then", SchemaError, lambda b: relive.Schema(obs=F((), every=4), action=F()),
     "Expected `every=` in extras only, got `Field((), 'float32', every=4)` - at `$.obs`"),
    ("Schema, a reward kept now and then", SchemaError,
     lambda b: relive.Schema(obs=F(), action=F(), reward=F((), every=4)),
     "Expected `every=` in extras only, got `Field((), 'float32', every=4)` - at `$.reward`"),
    ("Schema, an extra named all_prev_action", SchemaError,
     lambda b: relive.Schema(obs=F(), action=F(), all_prev_action=F()),
     "Expected a field name that is free, got `all_prev_action` - at `$.all_prev_action`: relive gives "
     "that name a meaning of its own; choose another"),
    ("spaces, no axis of the stack", SchemaError,
     lambda b: relive.Schema.from_spaces(spaces.Box(0, 1, (84, 84)), spaces.Discrete(2), stack=4),
     "Expected 4 frames along axis 0, got shape `(84, 84)` - at `$.obs`"),
    ("spaces, a scalar and a stack", SchemaError,
     lambda b: relive.Schema.from_spaces(spaces.Discrete(3), spaces.Discrete(2), stack=4),
     "Expected 4 frames along axis 0, got shape `()` - at `$.obs`"),
    ("Sequences, no steps", ArgumentError, lambda b: relive.Sequences(0),
     "Expected an integer >= 1, got `0` - at `Sequences(length)`"),
    ("Sequences, a float length", ArgumentError, lambda b: relive.Sequences(4.0),
     "Expected an integer >= 1, got `4.0` - at `Sequences(length)`"),
    ("Sequences, a negative burn-in", ArgumentError, lambda b: relive.Sequences(4, burn_in=-1),
     "Expected an integer >= 0, got `-1` - at `Sequences(burn_in)`"),
    ("Sequences, no window", ArgumentError, lambda b: relive.Sequences(4, n_step=0),
     "Expected an integer >= 1, got `0` - at `Sequences(n_step)`"),
    ("Sequences, gamma above one", ArgumentError, lambda b: relive.Sequences(4, gamma=1.5),
     "Expected a finite number >= 0 and <= 1, got `1.5` - at `Sequences(gamma)`"),
    ("Sequences, starts zero", ArgumentError, lambda b: relive.Sequences(4, starts=0),
     "Expected an integer >= 1, got `0` - at `Sequences(starts)`"),
    ("Sequences, across a number", ArgumentError, lambda b: relive.Sequences(4, across_episodes=1),
     "Expected `True` or `False`, got `1` - at `Sequences(across_episodes)`"),
    ("Sequences, time_major text", ArgumentError, lambda b: relive.Sequences(4, time_major='yes'),
     "Expected `True` or `False`, got `'yes'` - at `Sequences(time_major)`"),
    ("Transitions, state now and then", ArgumentError, lambda b: build(state=4),
     "Expected fields that are kept at every step, at any of which a transition may start, got `every=4` "
     "- at `$.state`: use `every=1`, or `Sequences(starts=...)`"),
    ("Transitions, frames that do not fit", ArgumentError,
     lambda b: build(capacity=4, stack=4, item=relive.Transitions(n_step=2)),
     "Expected at most 4 steps, as many as a lane keeps, got `5` (2 steps and 3 older frames) - at "
     "`Transitions(n_step)`: raise `capacity` or lower `n_step`"),
    ("Sequences, longer than a lane", ArgumentError, lambda b: build(capacity=8, item=relive.Sequences(6, burn_in=2)),
     "Expected at most 8 steps, as many as a lane keeps, got `9` (8 + 0 steps, and 1 before them) - at "
     "`Sequences(length)`: raise `capacity` or lower `length`"),
    ("Sequences, frames that do not fit", ArgumentError,
     lambda b: build(capacity=8, stack=4, item=relive.Sequences(4, n_step=3)),
     "Expected at most 8 steps, as many as a lane keeps, got `9` (4 + 2 steps, and 3 before them) - at "
     "`Sequences(length)`: raise `capacity` or lower `length`"),
    ("Sequences, starts between states", ArgumentError, lambda b: build(state=4, item=relive.Sequences(2, starts=2)),
     "Expected `starts` to be a multiple of 4, the steps at which `$.state` is kept, got `2` - at "
     "`Sequences(starts)`: say `Sequences(starts=4)`, so that no item starts without its state"),
    ("Sequences, starts at every step", ArgumentError, lambda b: build(state=4, item=relive.Sequences(2)),
     "Expected `starts` to be a multiple of 4, the steps at which `$.state` is kept, got `1` - at "
     "`Sequences(starts)`: say `Sequences(starts=4)`, so that no item starts without its state"),
    ("Sequences, an integer reward", ArgumentError,
     lambda b: build(reward=F((), 'int64'), item=relive.Sequences(2, n_step=2)),
     "Expected a `float32` or `float64` reward to discount over steps, got `int64` - at `$.reward`: state "
     "`reward=Field(...)` in the schema"),
    ("Uniform, over what is not there", ArgumentError, lambda b: relive.Uniform(over='lanes'),
     "Expected one of `'steps'`, `'episodes'`, got `'lanes'` - at `Uniform(over)`"),
    ("Uniform, over episodes without replacement", ArgumentError,
     lambda b: relive.Uniform(over='episodes', replacement=False),
     "Expected `replacement=True` with `over='episodes'`, got `False` - at `Uniform(replacement)`: "
     "without replacement, long episodes would be drawn more and more often within a batch"),
    ("sequence_priority, eta above one", ArgumentError, lambda b: relive.sequence_priority([[1.0]], [[True]], eta=1.1),
     "Expected a finite number >= 0 and <= 1, got `1.1` - at `sequence_priority(eta)`"),
    ("sequence_priority, one axis", PriorityError, lambda b: relive.sequence_priority([1.0], [True]),
     "Expected TD errors `[B, T]`, got `float64` of shape `(1,)` - at `sequence_priority(td)`"),
    ("sequence_priority, text", PriorityError, lambda b: relive.sequence_priority([['a']], [[True]]),
     "Expected TD errors `[B, T]`, got `<U1` of shape `(1, 1)` - at `sequence_priority(td)`"),
    ("sequence_priority, a mask of numbers", ArgumentError, lambda b: relive.sequence_priority([[1.0]], [[1]]),
     "Expected `bool` of shape `(1, 1)`, got `int64` of shape `(1, 1)` - at `sequence_priority(mask)`"),
    ("sequence_priority, a mask of another shape", ArgumentError,
     lambda b: relive.sequence_priority([[1.0, 2.0]], [[True]]),
     "Expected `bool` of shape `(1, 2)`, got `bool` of shape `(1, 1)` - at `sequence_priority(mask)`"),
    ("add, a frame instead of a stack", SchemaError, lambda b: b.add(**{**good(), 'obs': np.zeros(2)}),
     "Expected `float32` of shape `(3, 2)`, got `float64` of shape `(2,)` - at `$.obs`"),
    ("add, a longer stack", SchemaError, lambda b: b.add(**{**good(), 'obs': np.zeros((4, 2))}),
     "Expected `float32` of shape `(3, 2)`, got `float64` of shape `(4, 2)` - at `$.obs`"),
    ("add, frames behind", SchemaError, lambda b: b.add(**{**good(), 'next_obs': np.zeros((2, 3))}),
     "Expected `float32` of shape `(3, 2)`, got `float64` of shape `(2, 3)` - at `$.next_obs`"),
    ("add, no state", SchemaError, lambda b: b.add(**{k: v for k, v in good().items() if k != 'state'}),
     "Expected a value, got nothing - at `$.state`"),
    ("read, no start of a sequence", StaleId, lambda b: b.read([4, 2]),
     "Expected ids of drawable items, got `4`, not a step at which items start (2 of 2) - at `ReplayBuffer.read`"),
    ("read, a step of a sequence that is not complete", StaleId, lambda b: b.read([9]),
     "Expected ids of drawable items, got `9`: its window is not complete yet (1 of 1) - at `ReplayBuffer.read`"),
    ("read, an older frame", StaleId, lambda b: b.read([0]),
     "Expected ids of drawable items, got `0`, never issued (1 of 1) - at `ReplayBuffer.read`"),
    ("sample, nothing yet", NotEnoughData, lambda b: build(item=relive.Sequences(3)).sample(1),
     "Expected at least 1 drawable item, got 0 - at `ReplayBuffer.sample`: 0 of 3 steps of the first "
     "3-step window are stored"),
]
# fmt: on


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_refused(case):
    assert_refused(running, case)
