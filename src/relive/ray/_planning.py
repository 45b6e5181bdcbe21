"""What shards are to be built from, checked."""

from __future__ import annotations

import copy
import os
import uuid
from typing import Any

import numpy as np

from .._base import check
from .._base.capabilities import completed
from .._buffer.arguments import choice
from .._buffer.drawing import indivisible
from .._ring.lanes import BOUNDARIES
from ..buffer import ReplayBuffer
from ..errors import ArgumentError, message
from ..items import Item, Transitions
from ..samplers import Sampler, Uniform
from ..schema import Field, Schema
from ._wire import Plan


def planned(
    schema: Any,
    capacity: Any,
    num_envs: Any,
    shards: Any,
    item: Any,
    sampler: Any,
    rng: np.random.Generator,
    save_dir: Any = None,
    save_every: Any = None,
    boundaries: Any = BOUNDARIES,
) -> Plan:
    """What shards are to be built from.

    Raises:
        ArgumentError: A choice of another kind, a value outside its limits, or a combination that makes no sense.
    """
    if not isinstance(schema, Schema):
        raise ArgumentError(message("a `Schema`", f"`{type(schema).__name__}`", "Shards(schema)"))
    lanes = check.integer(num_envs, "Shards(num_envs)", minimum=1)
    count = check.integer(shards, "Shards(shards)", minimum=1)
    if count > lanes:
        remedy = "a shard needs at least one lane"
        raise ArgumentError(
            message(f"at most {lanes} shards, as many as lanes", f"`{count}`", "Shards(shards)", remedy)
        )
    steps = check.integer(capacity, "Shards(capacity)", minimum=1) // lanes
    if steps < 1:
        wanted = f"a capacity of at least one step for each of {lanes} lanes"
        raise ArgumentError(message(wanted, f"`{capacity}`", "Shards(capacity)"))
    made: Item = choice(item, Transitions(), ("window", "check", "bind"), "Shards(item)")
    made.check(schema, steps)
    drawn = _divisible(choice(sampler, Uniform(), ("index", "replacement"), "Shards(sampler)"))
    path = None
    if save_dir is not None:
        path = check.path(save_dir, "Shards(save_dir)")
        if not os.path.isabs(path):
            remedy = "jobs run in a directory of their own; name one that means the same on every node"
            raise ArgumentError(message("an absolute path", f"`{path}`", "Shards(save_dir)", remedy))
    if save_every is not None:
        save_every = check.real(save_every, "Shards(save_every)", above=0.0)
        if path is None:
            raise ArgumentError(message("`save_dir=` with `save_every=`", "none", "Shards(save_dir)"))
    # A copy: the generator's own numbers are the draws'.
    numbers = copy.deepcopy(rng).integers(0, 2**32, 4) if type(rng) is np.random.Generator else np.zeros(1, np.int64)
    return Plan(
        schema=schema,
        steps=steps,
        boundaries=check.real(boundaries, "Shards(boundaries)", low=0.0, high=1.0),
        num_envs=lanes,
        shards=count,
        item=made,
        sampler=drawn,
        seed=tuple(numbers.tolist()),
        run=uuid.uuid4().hex,
        save_dir=path,
        save_every=save_every,
    )


def _divisible(sampler: Any) -> Sampler:
    """A sampler whose draws can be divided among shards.

    Its index says so, of a buffer of one step.
    """
    at = "Shards(sampler)"
    if completed(sampler, Sampler).indivisible is not None:
        raise indivisible(sampler, "share", at)
    index = ReplayBuffer(Schema(obs=Field(), action=Field()), 1, sampler=sampler, seed=0)._core.index
    needed = ["share", "draw_at", *(["raise_priority"] if sampler.prioritizes else [])]
    for name in needed:
        if getattr(index, name) is None:
            raise indivisible(sampler, name, at)
    found: Sampler = sampler
    return found
