"""The plan of shards, checked."""

from __future__ import annotations

import copy
import os
import uuid
from typing import Any

import numpy as np

from .._base import check
from .._base.capabilities import completed
from .._buffer.choices import Choices
from .._buffer.drawing import indivisible
from .._ring.lanes import BOUNDARIES
from ..buffer import ReplayBuffer
from ..errors import ArgumentError, message
from ..samplers import Sampler
from ..schema import Field, Schema
from ._wire import ShardPlan


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
) -> ShardPlan:
    """Check what shards are to be built from, and make the plan.

    Raises:
        ArgumentError: A choice of another kind, a value outside its limits, or a combination that makes no sense.
    """
    choices = Choices.of_new(schema, capacity, num_envs, item, sampler, None, boundaries, "Shards")
    lanes, count = choices.num_envs, check.integer(shards, "Shards(shards)", minimum=1)
    if count > lanes:
        remedy = "a shard needs at least one lane"
        raise ArgumentError(
            message(f"at most {lanes} shards, as many as lanes", f"`{count}`", "Shards(shards)", remedy)
        )
    _check_divisible(choices.sampler)
    check.one_length(choices.item, "Shards(item)")
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
    return ShardPlan(
        schema=choices.schema,
        steps=choices.steps,
        boundaries=choices.boundaries,
        num_envs=lanes,
        shards=count,
        item=choices.item,
        sampler=choices.sampler,
        seed=tuple(numbers.tolist()),
        run=uuid.uuid4().hex,
        save_dir=path,
        save_every=save_every,
    )


def _check_divisible(sampler: Sampler) -> None:
    """Refuse a sampler whose draws cannot be divided among shards.

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
