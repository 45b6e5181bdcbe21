"""Ordinary buffers made of device buffers and the reverse, step by step."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .._base.nests import nested, paths
from .._base.types import Array, Int64
from ..buffer import ReplayBuffer
from ..errors import ReliveError, ReliveWarning, message
from ..items import Transitions
from ..schema import Schema
from ._fields import taken
from ._ring import LanesRing
from ._samplers import WeightedDraws
from ._step import CUT, LOST, OVER, PAUSE, STEP, TERMINATED, TRUNCATED, LanesStep

if TYPE_CHECKING:
    from .buffer import DeviceBuffer


def made_of(source: DeviceBuffer) -> ReplayBuffer:
    """Return an ordinary buffer with the steps and priorities of a device buffer."""
    refuse_states(source.schema, "DeviceBuffer.host")
    made = ReplayBuffer(
        source.schema,
        source.capacity,
        num_envs=source.num_envs,
        item=source.item,
        sampler=source.sampler,
        boundaries=source.boundaries,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReliveWarning)  # what these steps make an ordinary buffer say
        for call in source._ring.calls():
            _add_call(source, made, call)
    return made


def _add_call(source: DeviceBuffer, made: ReplayBuffer, call: int) -> None:
    ring = source._ring
    at = _places(ring, range(call, call + 1))
    flags = ring.flags[at]
    after, lost = ring.successor(at, (flags & OVER) == 0), (flags & LOST) > 0
    for unknown in (False, True):
        who = torch.nonzero(((flags & STEP) > 0) & (lost == unknown))[:, 0]
        if len(who):
            _add(source, made, who, at[who], None if unknown else after[who])
    ended = torch.nonzero((flags & (CUT | PAUSE)) > 0)[:, 0]
    if len(ended):
        made.cut(ended.cpu().numpy())


def _places(ring: LanesRing, calls: range) -> Tensor:
    ids = torch.arange(calls.start * ring.lanes, calls.stop * ring.lanes, device=ring.lane.device)
    return ids % ring.size


def _add(source: DeviceBuffer, made: ReplayBuffer, who: Tensor, at: Tensor, after: Tensor | None) -> None:
    ring, given, nexts = source._ring, {}, {}
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
    if isinstance(source._draws, WeightedDraws):
        step["priority"] = _arrays(source._draws.raw(at))
    for name, bit in (("terminated", TERMINATED), ("truncated", TRUNCATED)):
        step[name] = _arrays((ring.flags[at] & bit) > 0)
    made.add(env_ids=_arrays(who), **step)


def _arrays(nest: Any) -> Any:
    return {name: _arrays(value) for name, value in nest.items()} if isinstance(nest, dict) else nest.cpu().numpy()


def fill(made: DeviceBuffer, buffer: ReplayBuffer) -> None:
    """Add the steps of an ordinary buffer to an empty device buffer, and take over their priorities."""
    refuse_states(buffer.schema, "DeviceBuffer.of(buffer)")
    with buffer.hold():
        of_lanes = [_of_lane(lane) for lane in buffer.column("ids")]
        longest = max(map(len, of_lanes))
        # The newest steps of all lanes share the last call.
        ids = np.stack([np.concatenate([np.full(longest - len(lane), -1), lane]) for lane in of_lanes], axis=1)
        ids = ids[-made._ring.steps :]
        made._ring.holes |= bool((ids < 0).any())
        for call in ids:
            _take(made, buffer, call)


def _of_lane(ids: Int64) -> Int64:
    return np.sort(ids[ids >= 0])


def _take(made: DeviceBuffer, buffer: ReplayBuffer, ids: Int64) -> None:
    """Add the steps `ids`, int64 `[L]`, as one call; -1 where a lane has none."""
    there = ids >= 0
    read = buffer.read(ids[there], item=Transitions())
    device, every = made.device, torch.from_numpy(there)

    def spread(values: Array) -> Tensor:
        found = torch.zeros((len(ids), *values.shape[1:]), dtype=torch.from_numpy(values[:0]).dtype)
        found[every] = torch.from_numpy(values)
        return found.to(device)

    flat = {keys: spread(values) for keys, values in paths(read)}
    nexts = {("obs", *keys[1:]): values for keys, values in flat.items() if keys[0] == "next_obs"}
    terminated, truncated = flat["terminated",], flat["truncated",]
    known = spread(read.discount != 0) | terminated
    step = LanesStep(flat, nexts, nexts, known, terminated, truncated, spread(there[there]), continues=True)
    written = made._ring.add(step)
    draws = made._draws
    given = spread(buffer.priorities(ids[there]).astype(np.float32)) if isinstance(draws, WeightedDraws) else None
    draws.added(written, given)
    made._added = True
    ends = torch.from_numpy(np.isin(ids, _cut(buffer, ids[there])))
    if bool(ends.any()):
        made.cut(ends.to(device))


def _cut(buffer: ReplayBuffer, ids: Int64) -> Int64:
    """Return the ids of steps that no later one follows, although their episodes go on."""
    raise NotImplementedError


def refuse_states(schema: Schema, at: str) -> None:
    """Refuse fields that are kept at every so many steps: the two kinds of buffers count them differently.

    Raises:
        ReliveError: The schema has one.
    """
    for column in schema.columns:
        if (column.field.every or 1) > 1:
            remedy = "save it, and `relive.load(path, device=...)`"
            raise ReliveError(message("fields that every step keeps", f"`{column.path}`", at, remedy))
