"""Constructors that must refuse: fields, schemas, buffers, items, samplers, trees."""

from __future__ import annotations

import numpy as np
import pytest
from refused_calls import F, assert_refused, schema

import relive
from relive.errors import ArgumentError, SchemaError

# fmt: off
SCHEMAS = [
    ("Field, negative axis", SchemaError, lambda b: F((3, -1)),
     "Expected a shape of positive integers, got `(3, -1)` - at `Field(shape)`"),
    ("Field, zero axis", SchemaError, lambda b: F((3, 0)),
     "Expected a shape of positive integers, got `(3, 0)` - at `Field(shape)`"),
    ("Field, float axis", SchemaError, lambda b: F((3.0,)),
     "Expected a shape of positive integers, got `(3.0,)` - at `Field(shape)`"),
    ("Field, bool axis", SchemaError, lambda b: F((True,)),
     "Expected a shape of positive integers, got `(True,)` - at `Field(shape)`"),
    ("Field, text axis", SchemaError, lambda b: F('84'),
     "Expected a shape of positive integers, got `'84'` - at `Field(shape)`"),
    ("Field, None shape", SchemaError, lambda b: F(None),
     "Expected a shape of positive integers, got `None` - at `Field(shape)`"),
    ("Field, a negative number", SchemaError, lambda b: F(-3),
     "Expected a shape of positive integers, got `-3` - at `Field(shape)`"),
    ("Field, a set", SchemaError, lambda b: F({3}),
     "Expected a shape of positive integers, got `{3}` - at `Field(shape)`"),
    ("Field, dtype object", SchemaError, lambda b: F((), object),
     "Expected a boolean, integer, floating or complex dtype, got `<class 'object'>` - at `Field(dtype)`"),
    ("Field, dtype text", SchemaError, lambda b: F((), 'U8'),
     "Expected a boolean, integer, floating or complex dtype, got `'U8'` - at `Field(dtype)`"),
    ("Field, dtype unknown name", SchemaError, lambda b: F((), 'float31'),
     "Expected a boolean, integer, floating or complex dtype, got `'float31'` - at `Field(dtype)`"),
    ("Field, dtype None", SchemaError, lambda b: F((), None),
     "Expected a boolean, integer, floating or complex dtype, got `None` - at `Field(dtype)`"),
    ("Field, dtype date", SchemaError, lambda b: F((), 'M8[s]'),
     "Expected a boolean, integer, floating or complex dtype, got `'M8[s]'` - at `Field(dtype)`"),
    ("Field, dtype structured", SchemaError, lambda b: F((), [('x', 'f4')]),
     "Expected a boolean, integer, floating or complex dtype, got `[('x', 'f4')]` - at `Field(dtype)`"),
    ("Field, dtype void", SchemaError, lambda b: F((), 'V8'),
     "Expected a boolean, integer, floating or complex dtype, got `'V8'` - at `Field(dtype)`"),
    ("Field, dtype a number", SchemaError, lambda b: F((), 32),
     "Expected a boolean, integer, floating or complex dtype, got `32` - at `Field(dtype)`"),
    ("Schema, obs no field", SchemaError, lambda b: relive.Schema(obs=3, action=F()),
     "Expected a `Field` or a mapping of fields, got `3` - at `$.obs`"),
    ("Schema, obs a shape", SchemaError, lambda b: relive.Schema(obs=(84, 84), action=F()),
     "Expected a `Field` or a mapping of fields, got `(84, 84)` - at `$.obs`"),
    ("Schema, action None", SchemaError, lambda b: relive.Schema(obs=F(), action=None),
     "Expected a `Field` or a mapping of fields, got `None` - at `$.action`"),
    ("Schema, empty mapping", SchemaError, lambda b: relive.Schema(obs={}, action=F()),
     "Expected a `Field` or a mapping of fields, got an empty mapping - at `$.obs`"),
    ("Schema, a nested empty mapping", SchemaError, lambda b: relive.Schema(obs={'a': F(), 'b': {}}, action=F()),
     "Expected a `Field` or a mapping of fields, got an empty mapping - at `$.obs.b`"),
    ("Schema, a nested thing", SchemaError, lambda b: relive.Schema(obs={'a': {'b': 'float32'}}, action=F()),
     "Expected a `Field` or a mapping of fields, got `'float32'` - at `$.obs.a.b`"),
    ("Schema, a key that is a number", SchemaError, lambda b: relive.Schema(obs={0: F()}, action=F()),
     "Expected a name without dots or a leading underscore, got `0` - at `$.obs`"),
    ("Schema, a key with a dot", SchemaError, lambda b: relive.Schema(obs={'a.b': F()}, action=F()),
     "Expected a name without dots or a leading underscore, got `'a.b'` - at `$.obs`"),
    ("Schema, a private key", SchemaError, lambda b: relive.Schema(obs={'_a': F()}, action=F()),
     "Expected a name without dots or a leading underscore, got `'_a'` - at `$.obs`"),
    ("Schema, reward a mapping", SchemaError, lambda b: relive.Schema(obs=F(), action=F(), reward={'a': F()}),
     "Expected a single `Field`, got a mapping - at `$.reward`"),
    ("Schema, extra called next_obs", SchemaError, lambda b: relive.Schema(obs=F(), action=F(), next_obs=F()),
     "Expected a field name that is free, got `next_obs` - at `$.next_obs`: relive gives that name a meaning of"
     " its own; choose another"),
    ("Schema, extra called terminated", SchemaError, lambda b: relive.Schema(obs=F(), action=F(), terminated=F()),
     "Expected a field name that is free, got `terminated` - at `$.terminated`: relive gives that name a "
     "meaning of its own; choose another"),
    ("Schema, extra called truncated", SchemaError, lambda b: relive.Schema(obs=F(), action=F(), truncated=F()),
     "Expected a field name that is free, got `truncated` - at `$.truncated`: relive gives that name a meaning "
     "of its own; choose another"),
    ("Schema, extra called discount", SchemaError, lambda b: relive.Schema(obs=F(), action=F(), discount=F()),
     "Expected a field name that is free, got `discount` - at `$.discount`: relive gives that name a meaning of"
     " its own; choose another"),
    ("Schema, extra called weights", SchemaError, lambda b: relive.Schema(obs=F(), action=F(), weights=F()),
     "Expected a field name that is free, got `weights` - at `$.weights`: relive gives that name a meaning of "
     "its own; choose another"),
    ("Schema, extra called ids", SchemaError, lambda b: relive.Schema(obs=F(), action=F(), ids=F()),
     "Expected a field name that is free, got `ids` - at `$.ids`: relive gives that name a meaning of its own; "
     "choose another"),
    ("Schema, extra called steps", SchemaError, lambda b: relive.Schema(obs=F(), action=F(), steps=F()),
     "Expected a field name that is free, got `steps` - at `$.steps`: relive gives that name a meaning of its "
     "own; choose another"),
    ("Schema, extra called priority", SchemaError, lambda b: relive.Schema(obs=F(), action=F(), priority=F()),
     "Expected a field name that is free, got `priority` - at `$.priority`: relive gives that name a meaning of"
     " its own; choose another"),
    ("Schema, extra called env_ids", SchemaError, lambda b: relive.Schema(obs=F(), action=F(), env_ids=F()),
     "Expected a field name that is free, got `env_ids` - at `$.env_ids`: relive gives that name a meaning of "
     "its own; choose another"),
    ("Schema, extra called time_major", SchemaError, lambda b: relive.Schema(obs=F(), action=F(), time_major=F()),
     "Expected a field name that is free, got `time_major` - at `$.time_major`: relive gives that name a "
     "meaning of its own; choose another"),
    ("Schema, extra called keys", SchemaError, lambda b: relive.Schema(obs=F(), action=F(), keys=F()),
     "Expected a field name that is free, got `keys` - at `$.keys`: relive gives that name a meaning of its "
     "own; choose another"),
    ("Schema, extra a dtype", SchemaError, lambda b: relive.Schema(obs=F(), action=F(), log_prob='float32'),
     "Expected a `Field` or a mapping of fields, got `'float32'` - at `$.log_prob`"),
    ("from_example, no mapping", SchemaError, lambda b: relive.Schema.from_example([1, 2]),
     "Expected a mapping of names to arrays, got `list` - at `$`"),
    ("from_example, no action", SchemaError, lambda b: relive.Schema.from_example({'obs': np.zeros(3)}),
     "Expected an example value, got nothing - at `$.action`"),
    ("from_example, text", SchemaError, lambda b: relive.Schema.from_example({'obs': 'x', 'action': 1}),
     "Expected a numeric array, got `<U1` - at `$.obs`"),
    ("from_example, ragged", SchemaError, lambda b: relive.Schema.from_example({'obs': [[1], [1, 2]], 'action': 1}),
     "Expected an array, got `list` - at `$.obs`: …"),
]

BUFFERS = [
    ("ReplayBuffer, no schema", ArgumentError, lambda b: relive.ReplayBuffer({'obs': F()}, 10),
     "Expected a `Schema`, got `dict` - at `ReplayBuffer(schema)`"),
    ("ReplayBuffer, the schema's class", ArgumentError, lambda b: relive.ReplayBuffer(relive.Schema, 10),
     "Expected a `Schema`, got `type` - at `ReplayBuffer(schema)`"),
    ("ReplayBuffer, capacity zero", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 0),
     "Expected an integer >= 1, got `0` - at `ReplayBuffer(capacity)`"),
    ("ReplayBuffer, capacity negative", ArgumentError, lambda b: relive.ReplayBuffer(schema(), -10),
     "Expected an integer >= 1, got `-10` - at `ReplayBuffer(capacity)`"),
    ("ReplayBuffer, capacity a float", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 1e6),
     "Expected an integer >= 1, got `1000000.0` - at `ReplayBuffer(capacity)`"),
    ("ReplayBuffer, capacity a bool", ArgumentError, lambda b: relive.ReplayBuffer(schema(), True),
     "Expected an integer >= 1, got `True` - at `ReplayBuffer(capacity)`"),
    ("ReplayBuffer, capacity text", ArgumentError, lambda b: relive.ReplayBuffer(schema(), '1000'),
     "Expected an integer >= 1, got `'1000'` - at `ReplayBuffer(capacity)`"),
    ("ReplayBuffer, capacity None", ArgumentError, lambda b: relive.ReplayBuffer(schema(), None),
     "Expected an integer >= 1, got `None` - at `ReplayBuffer(capacity)`"),
    ("ReplayBuffer, capacity NaN", ArgumentError, lambda b: relive.ReplayBuffer(schema(), np.nan),
     "Expected an integer >= 1, got `nan` - at `ReplayBuffer(capacity)`"),
    ("ReplayBuffer, num_envs zero", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10, num_envs=0),
     "Expected an integer >= 1, got `0` - at `ReplayBuffer(num_envs)`"),
    ("ReplayBuffer, num_envs negative", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10, num_envs=-1),
     "Expected an integer >= 1, got `-1` - at `ReplayBuffer(num_envs)`"),
    ("ReplayBuffer, num_envs a float", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10, num_envs=2.0),
     "Expected an integer >= 1, got `2.0` - at `ReplayBuffer(num_envs)`"),
    ("ReplayBuffer, num_envs a bool", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10, num_envs=True),
     "Expected an integer >= 1, got `True` - at `ReplayBuffer(num_envs)`"),
    ("ReplayBuffer, num_envs None", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10, num_envs=None),
     "Expected an integer >= 1, got `None` - at `ReplayBuffer(num_envs)`"),
    ("ReplayBuffer, num_envs text", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10, num_envs='2'),
     "Expected an integer >= 1, got `'2'` - at `ReplayBuffer(num_envs)`"),
    ("ReplayBuffer, more lanes than rows", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10, num_envs=11),
     "Expected a capacity of at least one row for each of 11 lanes, got `10` - at `ReplayBuffer(capacity)`"),
    ("ReplayBuffer, more than fits in memory", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10**14),
     "Expected at most …"),
    ("ReplayBuffer, item the class", ArgumentError,
     lambda b: relive.ReplayBuffer(schema(), 10, item=relive.Transitions),
     "Expected an object like `Transitions(n_step=1, gamma=0.99)`, got `<class "
     "'relive.items.transitions.Transitions'>` - at `ReplayBuffer(item)`"),
    ("ReplayBuffer, item a number", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10, item=3),
     "Expected an object like `Transitions(n_step=1, gamma=0.99)`, got `3` - at `ReplayBuffer(item)`"),
    ("ReplayBuffer, item text", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10, item='transitions'),
     "Expected an object like `Transitions(n_step=1, gamma=0.99)`, got `'transitions'` - at "
     "`ReplayBuffer(item)`"),
    ("ReplayBuffer, item a sampler", ArgumentError,
     lambda b: relive.ReplayBuffer(schema(), 10, item=relive.Uniform()),
     "Expected an object like `Transitions(n_step=1, gamma=0.99)`, got `Uniform()` - at `ReplayBuffer(item)`"),
    ("ReplayBuffer, sampler the class", ArgumentError,
     lambda b: relive.ReplayBuffer(schema(), 10, sampler=relive.Prioritized),
     "Expected an object like `Uniform()`, got `<class 'relive.samplers.prioritized.Prioritized'>` - at "
     "`ReplayBuffer(sampler)`"),
    ("ReplayBuffer, sampler text", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10, sampler='uniform'),
     "Expected an object like `Uniform()`, got `'uniform'` - at `ReplayBuffer(sampler)`"),
    ("ReplayBuffer, sampler an item", ArgumentError,
     lambda b: relive.ReplayBuffer(schema(), 10, sampler=relive.Transitions()),
     "Expected an object like `Uniform()`, got `Transitions(n_step=1, gamma=0.99)` - at `ReplayBuffer(sampler)`"),
    ("ReplayBuffer, sampler a bool", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10, sampler=True),
     "Expected an object like `Uniform()`, got `True` - at `ReplayBuffer(sampler)`"),
    ("ReplayBuffer, storage the class", ArgumentError,
     lambda b: relive.ReplayBuffer(schema(), 10, storage=relive.Ram),
     "Expected an object like `Ram()`, got `<class 'relive.storage.ram.Ram'>` - at `ReplayBuffer(storage)`"),
    ("ReplayBuffer, storage text", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10, storage='ram'),
     "Expected an object like `Ram()`, got `'ram'` - at `ReplayBuffer(storage)`"),
    ("ReplayBuffer, storage a path", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10, storage='/tmp'),
     "Expected an object like `Ram()`, got `'/tmp'` - at `ReplayBuffer(storage)`"),
    ("ReplayBuffer, seed a float", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10, seed=0.5),
     "Expected an integer >= 0, got `0.5` - at `ReplayBuffer(seed)`"),
    ("ReplayBuffer, seed negative", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10, seed=-1),
     "Expected an integer >= 0, got `-1` - at `ReplayBuffer(seed)`"),
    ("ReplayBuffer, seed text", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10, seed='0'),
     "Expected an integer >= 0, got `'0'` - at `ReplayBuffer(seed)`"),
    ("ReplayBuffer, seed a bool", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10, seed=True),
     "Expected an integer >= 0, got `True` - at `ReplayBuffer(seed)`"),
    ("ReplayBuffer, seed an old generator", ArgumentError,
     lambda b: relive.ReplayBuffer(schema(), 10, seed=np.random.RandomState(0)),
     "Expected an integer >= 0, got `…"),
    ("ReplayBuffer, seed the module", ArgumentError, lambda b: relive.ReplayBuffer(schema(), 10, seed=np.random),
     "Expected an integer >= 0, got `…"),
    ("ReplayBuffer, a window longer than a lane", ArgumentError,
     lambda b: relive.ReplayBuffer(schema(), 12, num_envs=2, item=relive.Transitions(n_step=7)),
     "Expected at most 6 steps, the rows of a lane, got `7` - at `Transitions(n_step)`: raise `capacity` or "
     "lower `n_step`"),
    ("ReplayBuffer, integer rewards over steps", ArgumentError,
     lambda b: relive.ReplayBuffer(
         relive.Schema(obs=F(), action=F(), reward=F((), 'int32')), 10, item=relive.Transitions(n_step=2)),
     "Expected a `float32` or `float64` reward to discount over steps, got `int32` - at `$.reward`: state "
     "`reward=Field(...)` in the schema"),
]
# fmt: on


@pytest.mark.parametrize("case", [*SCHEMAS, *BUFFERS], ids=lambda case: case[0])
def test_a_constructor_refuses(case):
    assert_refused(lambda: None, case)
