"""Ordinary buffers made of device buffers and the reverse, step by step."""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from .._base.nests import mapped, nested, paths
from .._base.types import Array, Bool, Int64
from .._buffer.choices import Choices
from ..buffer import ReplayBuffer
from ..errors import ReliveError, ReliveWarning, message
from ..items import Transitions
from ..schema import Schema
from ._fields import Fields, taken
from ._ring import LanesRing
from ._samplers import Draws, WeightedDraws
from ._step import CUT, LOST, OVER, PAUSE, STEP, TERMINATED, TRUNCATED, LanesStep

_STEPS = Transitions()


def made_of(choices: Choices, ring: LanesRing, draws: Draws) -> ReplayBuffer:
    """Return an ordinary buffer with the steps and priorities of a device buffer."""
    refuse_states(choices.schema, "DeviceBuffer.host")
    made = ReplayBuffer(
        choices.schema,
        choices.steps * choices.num_envs,
        num_envs=choices.num_envs,
        item=choices.item,
        sampler=choices.sampler,
        boundaries=choices.boundaries,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReliveWarning)  # what these steps make an ordinary buffer say
        for call in ring.calls():
            _add_call(ring, draws, made, call)
    return made


def _add_call(ring: LanesRing, draws: Draws, made: ReplayBuffer, call: int) -> None:
    at = _places(ring, range(call, call + 1))
    flags = ring.flags[at]
    after, lost = ring.successor(at, (flags & OVER) == 0), (flags & LOST) > 0
    for unknown in (False, True):
        who = torch.nonzero(((flags & STEP) > 0) & (lost == unknown))[:, 0]
        if len(who):
            _add(ring, draws, made, who, at[who], None if unknown else after[who])
    ended = torch.nonzero((flags & (CUT | PAUSE)) > 0)[:, 0]
    if len(ended):
        made.cut(ended.cpu().numpy())


def _places(ring: LanesRing, calls: range) -> Tensor:
    ids = torch.arange(calls.start * ring.lanes, calls.stop * ring.lanes, device=ring.lane.device)
    return ids % ring.size


def _add(ring: LanesRing, draws: Draws, made: ReplayBuffer, who: Tensor, at: Tensor, after: Tensor | None) -> None:
    given: Fields = {}
    nexts: Fields = {}
    for field in ring.fields:
        data = ring.data[field]
        if field.observed:
            given[field.keys] = field.shown(taken(data, ring.stacks.places(field, at, at, 0)))
            if after is not None:
                nexts[field.keys[1:]] = field.shown(taken(data, ring.stacks.places(field, at, after, 1)))
        else:
            given[field.keys] = taken(data, ring.kept(field, at))
    step = {name: _arrays(value) for name, value in nested(given.items()).items()}
    if nexts:
        step["next_obs"] = _arrays(nexts[()] if () in nexts else nested(nexts.items()))
    if isinstance(draws, WeightedDraws):
        step["priority"] = _arrays(draws.raw(at))
    for name, bit in (("terminated", TERMINATED), ("truncated", TRUNCATED)):
        step[name] = _arrays((ring.flags[at] & bit) > 0)
    made.add(env_ids=_arrays(who), **step)


def _arrays(nest: Any) -> Any:
    return mapped(lambda tensor: tensor.cpu().numpy(), nest)


class Takes(Protocol):
    """An empty device buffer."""

    num_envs: int
    device: torch.device

    def _take(self, step: LanesStep, priority: Tensor | None) -> object: ...

    def cut(self, mask: Tensor) -> None:
        """End the streams of lanes."""
        ...


def fill(made: Takes, ring: LanesRing, buffer: ReplayBuffer) -> None:
    """Add the steps of an ordinary buffer to an empty device buffer, with their priorities; streams end there."""
    refuse_states(buffer.schema, "DeviceBuffer.of(buffer)")
    with buffer.hold():
        ids = buffer.ids(item=_STEPS)
        if len(ids):
            calls = _aligned(ids, made.num_envs)[-ring.steps :]
            ring.holes |= bool((calls < 0).any())
            known = dict(zip(drawn := buffer.ids(), buffer.priorities(drawn), strict=True))
            ended = set(ids[buffer.follow(ids, 1).steps == 0].tolist())
            for call in calls:
                _take(made, buffer, call, known, np.array([i in ended for i in call.tolist()]))


def _aligned(ids: Int64, lanes: int) -> Int64:
    """Return the ids of each call, `[T, lanes]`, -1 where a lane has none: the newest of all share the last call."""
    of_lanes = [ids[ids % lanes == lane] for lane in range(lanes)]
    longest = max(map(len, of_lanes))
    return np.stack([np.concatenate([np.full(longest - len(lane), -1), lane]) for lane in of_lanes], axis=1)


def _take(made: Takes, buffer: ReplayBuffer, ids: Int64, known: dict[int, float], ended: Bool) -> None:
    """Add the steps `ids`, int64 `[L]`, as one call; the streams of `ended` ones are cut unless an episode ended."""
    there, device = ids >= 0, made.device
    read = buffer.read(ids[there], item=_STEPS)
    which = torch.from_numpy(np.flatnonzero(there))

    def spread(values: Array) -> Tensor:
        given = torch.from_numpy(np.ascontiguousarray(values))
        return given.new_zeros(len(ids), *given.shape[1:]).index_copy_(0, which, given).to(device)

    flat = {keys: spread(values) for keys, values in paths(read)}
    nexts = {("obs", *keys[1:]): values for keys, values in flat.items() if keys[0] == "next_obs"}
    terminated, truncated = flat["terminated",], flat["truncated",]
    step = LanesStep(
        values=flat,
        nexts=nexts,
        finals=nexts,
        known=spread(read.discount != 0) | terminated,
        terminated=terminated,
        truncated=truncated,
        mask=torch.from_numpy(there).to(device),
        continues=True,
    )
    largest = max(known.values(), default=1.0)  # for steps whose items are not complete yet
    given = torch.tensor([known.get(i, largest) for i in ids.tolist()], device=device)
    made._take(step, given if buffer.sampler.prioritizes else None)
    made.cut(torch.from_numpy(ended & there).to(device))


def refuse_states(schema: Schema, at: str) -> None:
    """Refuse fields that are kept at every so many steps: the two kinds of buffers count them differently.

    Raises:
        ReliveError: The schema has one.
    """
    for column in schema.columns:
        if (column.field.every or 1) > 1:
            remedy = "save it, and `relive.load(path, device=...)`"
            raise ReliveError(message("fields that every step keeps", f"`{column.path}`", at, remedy))
