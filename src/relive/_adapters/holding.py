"""Steps that are held back until their episode is over, so that it can be left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._base.nests import nested
from .._base.priorities import raw_priorities
from .._base.types import Array, Bool, Float64, Int64
from .._schema.step_parser import Step, StepParser
from ..buffer import ReplayBuffer
from ..schema import Column

if TYPE_CHECKING:
    from ..processes.writer import Writer

_NO_IDS = np.empty(0, np.int64)
# Steps of an episode for which there is room at first.
_ROOM = 64


class Held:
    """Takes the place of a buffer: has the steps of the episodes under way, and adds them when these are over.

    Values are checked and cast as they come. Room for the longest episode so far stays, in every lane.

    Args:
        buffer: Where the steps go.
        lanes: Lanes, numbered from 0.
    """

    def __init__(self, buffer: ReplayBuffer | Writer, lanes: int) -> None:
        self._buffer, self._lanes = buffer, np.arange(lanes)
        self._parser: StepParser | None = None  # a writer claims its lanes when it is asked for its schema
        self._room: list[Array] = []  # `[steps, lanes, ...]`: columns, `next_obs`, flags, priorities; what is `anew`
        self._first, self._count = np.zeros((2, lanes), np.int64)  # of the steps that are still to be added
        self._over = np.zeros(lanes, bool)  # episodes that have ended, whose steps are still here
        self._left_out = np.zeros(lanes, bool)  # episodes under way that were discarded
        self._anew = np.zeros(lanes, bool)  # lanes whose next step does not continue the one before it

    def add(self, *, env_ids: Any = None, priority: Any = None, **step: Any) -> Int64:
        """Hold a step of every lane, or of the lanes `env_ids`; as `ReplayBuffer.add`."""
        if self._parser is None:
            self._parser = StepParser(self._buffer.schema)
        lanes = self._lanes if env_ids is None else np.asarray(env_ids)
        parsed = self._parser.step(step, (len(lanes),), 1)
        given = raw_priorities(priority, (len(lanes),), getattr(self._buffer, "sampler", None))
        taken = ~self._left_out[lanes]
        self._put(parsed, np.full(len(lanes), np.nan) if given is None else given, lanes, taken)
        ended = parsed.terminated | parsed.truncated
        self._over[lanes] = ended & taken
        self._left_out[lanes[ended]] = False
        return _NO_IDS

    def commit(self, lanes: Bool | None = None) -> Int64:
        """Add the steps of episodes that are over, or of all of `lanes`, bool `[L]`; returns their ids."""
        if lanes is None and not self._over.any():
            return _NO_IDS
        added = [self._flush(lane) for lane in np.flatnonzero(self._over if lanes is None else lanes).tolist()]
        return np.concatenate([_NO_IDS, *added])

    def cut(self, env_ids: Any) -> None:
        """End the streams of some lanes, whose steps are added first."""
        which = np.isin(self._lanes, env_ids)
        self._left_out[which], self._anew[which] = False, True
        self.commit(which)
        self._buffer.cut(self._named(which))

    def discard(self, which: Bool) -> int:
        """Drop the steps of lanes, bool `[L]`, and what follows of the same episodes; returns how many were here."""
        dropped = which & (self._count > 0)
        self._left_out |= dropped & ~self._over
        self._anew |= dropped
        self._over[dropped] = False
        steps = int((self._count - self._first)[dropped].sum())
        self._first[dropped] = self._count[dropped] = 0
        return steps

    def _put(self, step: Step, priority: Float64, lanes: Int64, taken: Bool) -> None:
        flags = [step.terminated, step.truncated, priority, self._anew[lanes]]
        values = [*step.values, *(step.next_values or ()), *flags]
        if not self._room:
            self._room = [np.empty((_ROOM, len(self._lanes), *v.shape[1:]), v.dtype) for v in values]
        rows, lanes = self._count[lanes[taken]], lanes[taken]
        if rows.max(initial=0) == len(self._room[0]):
            self._room = [np.concatenate([array, np.empty_like(array)]) for array in self._room]
        for array, value in zip(self._room, values, strict=True):
            array[rows, lanes] = value[taken]
        self._count[lanes] += 1  # from here on they are held
        self._anew[lanes] = False

    def _flush(self, lane: int) -> Int64:
        """Add what is held of a lane. An error leaves what is not added yet; an interrupt may lose a call's steps."""
        first, count = int(self._first[lane]), int(self._count[lane])
        if not count:
            return _NO_IDS
        env_ids, added = self._named(self._lanes == lane), [_NO_IDS]
        *values, priority, anew = (array[:, lane] for array in self._room)
        for begin, end in self._runs(first, count, priority, anew):
            if anew[begin]:
                self._buffer.cut(env_ids)
            step = self._given([value[begin:end] for value in values])
            given = None if np.isnan(priority[begin]) else priority[begin:end][None]
            follows = anew[end : end + 1] if end < count else self._anew[lane : lane + 1]
            before = follows.copy()
            # An interrupt comes before or after the steps are added: they are not added twice, and nothing joins them.
            self._first[lane], follows[:] = end, True
            try:
                ids = self._buffer.extend(env_ids=env_ids, priority=given, **step)
            except Exception:
                self._first[lane], anew[begin], follows[:] = begin, False, before
                raise
            follows[:] = before
            added += [] if ids is None else [np.ravel(ids)]
        self._first[lane] = self._count[lane] = 0
        self._over[lane] = False
        return np.concatenate(added)

    def _given(self, values: list[Array]) -> dict[str, Any]:
        """Turn steps `[T, ...]` of one lane into arguments of `extend`, with stacks as callers have them."""
        schema = self._buffer.schema
        observed = [Column(("next_obs", *c.keys[1:]), c.field) for c in schema.columns[: schema.num_obs]]
        given: dict[str, Any] = {"terminated": values[-2][None], "truncated": values[-1][None]}
        found = []
        for column, value in zip([*schema.columns, *observed], values[:-2], strict=True):
            field = column.field
            if field.stack:
                frames = value.reshape(len(value), field.stack, *field.shape)
                value = np.moveaxis(frames, 1, -1) if field.stack_axis else frames
            found.append((column.keys, value[None]))
        return nested(found) | given

    def _runs(self, first: int, count: int, priority: Float64, anew: Bool) -> list[tuple[int, int]]:
        """Split steps into runs for one call each: of one stream, all with a priority or none, few under a limiter."""
        given, begins = np.isnan(priority[first:count]), anew[first:count]
        changes = np.flatnonzero((given[1:] != given[:-1]) | begins[1:]) + 1 + first
        ends = [*changes.tolist(), count]
        most = max(count, 1) if getattr(self._buffer, "limiter", None) is None else len(self._lanes)
        return [
            (at, min(at + most, end))
            for begin, end in zip([first, *ends[:-1]], ends, strict=True)
            for at in range(begin, end, most)
        ]

    def _named(self, which: Bool) -> Int64:
        """Return the buffer's numbers of these lanes; a writer has any of them."""
        theirs = getattr(self._buffer, "env_ids", None)
        return np.asarray(self._lanes if theirs is None else theirs)[which]
