"""Ordinary buffers made of device buffers and the reverse, step by step."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from .._base.nests import mapped, nested, paths
from .._base.types import Array, Bool, Int64
from .._buffer.choices import Choices
from .._buffer.stored import numbers
from .._device_samplers import Draws
from .._disk.device_rows import CUT, LOST, OVER, PAUSE, STEP, STOP, TERMINATED, TRUNCATED
from ..buffer import ReplayBuffer
from ..errors import ReliveWarning
from ..items import Transitions
from ..schema import Schema
from ._fields import Fields, taken
from ._ring import LanesRing
from ._step import LanesStep


class _Steps(Transitions):
    """Single steps, whatever the schema; fields with `every=` are right where they are kept."""

    def check(self, schema: Schema, steps: int) -> None:
        """Accept every schema."""


_STEPS = _Steps()


class _Plan(NamedTuple):
    """The steps of a device buffer that an ordinary one is given.

    A field with `every=k` is kept at calls there and at steps here that are multiples of k, and items start alike. So
    where a lane was left out, the number of its next step has to be raised: by steps without a successor, which a cut
    drops.

    Attributes:
        calls: int64 `[T]`.
        there: Which lanes have a step at each call, bool `[T, L]`.
        raised: By how much the number of that step is raised, int64 `[T, L]`.
        steps: Steps that each lane has to keep.
        boundaries: The share of these that the observations without a step of their own need.
    """

    calls: Int64
    there: Bool
    raised: Int64
    steps: int
    boundaries: float

    @staticmethod
    def of(choices: Choices, ring: LanesRing) -> _Plan:
        """Plan all steps that are kept, and those before them that their items show."""
        kept, lookback = ring.calls(), choices.window.lookback
        first = max(kept.start - lookback, kept.stop - ring.rows + 1, 0)
        calls = np.arange(first, kept.stop)
        flags = ring.flags[_places(ring, range(first, kept.stop))].view(-1, ring.lanes).cpu().numpy()
        there, older = (flags & STEP) > 0, kept.start - first
        on = there[:older] & ((flags[:older] & STOP) == 0)  # the stream goes on in the next call
        there[:older] = np.logical_and.accumulate(on[::-1])[::-1]
        last = np.maximum.accumulate(np.where(there, calls[:, None], -1))  # the newest step's call
        before = np.concatenate([np.full((1, ring.lanes), -1), last[:-1]])
        raised = np.where(there, (calls[:, None] - before - 1) % ring.starts, 0)
        apart = (there & ((flags & STOP) > 0)).sum(0) + raised.sum(0) + 2 * ring.history
        steps = max(choices.steps, int(there.sum(0).max()))
        return _Plan(calls, there, raised, steps, min(max(choices.boundaries, int(apart.max()) / steps), 1.0))


def made_of(choices: Choices, ring: LanesRing, draws: Draws) -> ReplayBuffer:
    """Return an ordinary buffer with the steps and priorities of a device buffer."""
    plan = _Plan.of(choices, ring)
    made = ReplayBuffer(
        choices.schema,
        plan.steps * choices.num_envs,
        num_envs=choices.num_envs,
        item=choices.item,
        sampler=choices.sampler,
        boundaries=plan.boundaries,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReliveWarning)  # what these steps make an ordinary buffer say
        for call, there, raised in zip(plan.calls.tolist(), plan.there, plan.raised, strict=True):
            for number in range(raised.max()):
                _raise(made, np.flatnonzero(raised > number))
            _add_call(ring, draws, made, call, torch.from_numpy(there).to(ring.lane.device))
    return made


def _raise(made: ReplayBuffer, who: Int64) -> None:
    """Raise the numbers of some lanes' next steps by one."""
    zeros = {c.keys: np.zeros((len(who), *c.field.full_shape), c.field.dtype) for c in made.schema.columns}
    no = np.zeros(len(who), bool)
    made.add(env_ids=who, **nested(zeros.items()), terminated=no, truncated=no)
    made.cut(who)


def _add_call(ring: LanesRing, draws: Draws, made: ReplayBuffer, call: int, there: Tensor) -> None:
    at = _places(ring, range(call, call + 1))
    flags = ring.flags[at]
    after, lost = ring.successor(at, (flags & OVER) == 0), (flags & LOST) > 0
    for unknown in (False, True):
        who = torch.nonzero(there & (lost == unknown))[:, 0]
        if len(who):
            _add(ring, draws, made, who, at[who], None if unknown else after[who])
    ended = torch.nonzero(there & ((flags & (CUT | PAUSE)) > 0))[:, 0]
    if len(ended):
        made.cut(ended.cpu().numpy())


def _places(ring: LanesRing, calls: range) -> Tensor:
    return torch.arange(calls.start * ring.lanes, calls.stop * ring.lanes, device=ring.lane.device) % ring.size


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
    if draws.weighted:
        step["priority"] = _arrays(draws.weighted.raw(at))
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


def boundaries_for(buffer: ReplayBuffer) -> float:
    """Return the share of final observations that a device buffer needs for all that an ordinary one stores."""
    with buffer.hold():
        ends = int((buffer.follow(buffer.ids(item=_STEPS), 1).steps == 0).sum())
    share = buffer.boundaries * (buffer.num_envs / buffer.capacity if buffer.boundaries > 1 else 1)
    return float(min(max(share, -(-ends // buffer.num_envs) * buffer.num_envs / buffer.capacity), 1.0))


def fill(made: Takes, ring: LanesRing, buffer: ReplayBuffer) -> None:
    """Add the steps of an ordinary buffer to an empty device buffer, with their priorities; streams end there."""
    with buffer.hold():
        ids = buffer.ids(item=_STEPS)
        if len(ids):
            calls = _aligned(ids, numbers(buffer._core, ids), made.num_envs, ring.starts)
            ring.holes |= bool((calls < 0).any())
            known = dict(zip(drawn := buffer.ids(), buffer.priorities(drawn), strict=True))
            ended = set(ids[buffer.follow(ids, 1).steps == 0].tolist())
            for call in calls:
                _take(made, buffer, call, known, np.array([i in ended for i in call.tolist()]))


def _aligned(ids: Int64, numbers: Int64, lanes: int, starts: int) -> Int64:
    """Return the ids of each call, `[T, lanes]`, -1 where a lane has none.

    Items start at steps there and at calls here that are multiples of `starts`. With 1, the newest steps of all lanes
    share the last call.

    Args:
        ids: All steps.
        numbers: Their numbers in their lane, modulo `starts`.
        lanes: L.
        starts: See above.
    """
    places = np.empty(len(ids), np.int64)
    for lane in set((ids % lanes).tolist()):
        own = np.flatnonzero(ids % lanes == lane)
        own = own[np.argsort(ids[own])]
        ahead = 1 + (np.diff(numbers[own]) - 1) % starts  # to the next one
        last = -((-numbers[own[-1]]) % starts)
        places[own] = last - np.append(np.cumsum(ahead[::-1])[::-1], 0)
    places -= places.min() // starts * starts
    found = np.full((places.max() + 1, lanes), -1)
    found[places, ids % lanes] = ids
    return found


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
