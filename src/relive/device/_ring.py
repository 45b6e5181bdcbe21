"""The rows of all lanes, which every call moves by one, and the observations that no row has room for.

Call number t writes row `t % R` of every lane. `id = t * lanes + lane`, and `id % (R * lanes)` is its place in every
flat tensor: one row later is `+ lanes`. Each observation is stored once: the row after a step has its `next_obs`. Where
an episode ends or a stream is cut, that row belongs to the next stream, and the observation becomes a *final*. Finals
of all lanes share a ring in the same tensor as the rows, so each read is arithmetic on places, and a gather.

    rows    `flags`, `place` (where the successor lies of a step that ended or was cut), and the fields
    finals  F of them; `owner` has the id of the step of each
    aside   an entry for each lane, written by calls without an end
    spare   the last entry, written with what must not be; of observations it stays zero

Invariants:
1. Finals are overwritten in the order of their steps. Nothing that starts at or before a step whose final is gone can
   be drawn: `floor` is the first id that can.
2. Items start at ids `[max(next - steps * lanes, floor), next - (span - 1) * lanes)`. None reaches over the newest row
   or needs a final that is gone. The row of the next call holds the newest steps' successors.
3. A window ends at the first row that has any of STOP; the row after it is never looked at.
4. No tensor moves, and no shape or Python number depends on a value: calls can be captured in a CUDA graph.
5. Tensors are written through their flat form. `torch.compile` would copy a tensor that is written through a view.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .._device_samplers.rows import Written
from .._disk.device_counts import ABSENT, COUNTS, DRAWN, DRAWS, MISPLACED, SERVED, SHUNNED, UNWRITTEN
from .._disk.device_rows import CUT, FIRST, LOST, PAUSE, STEP, STOP, TERMINATED, TRUNCATED
from .._ring.plans import Window
from ._fields import Fields, TensorField, taken, widened
from ._stacks import Stacks
from ._step import LanesStep


class LanesRing:
    """The rows and finals of all lanes.

    Args:
        fields: The fields.
        lanes: L.
        steps: Calls that are kept.
        window: The rows that items need.
        finals: F, observations of ends and cuts that are kept.
        repeats: True if calls may name a place twice.
        device: Where the tensors are.
    """

    def __init__(
        self,
        fields: Sequence[TensorField],
        lanes: int,
        steps: int,
        window: Window,
        finals: int,
        repeats: bool,
        device: torch.device,
    ) -> None:
        self.fields, self.lanes, self.steps, self.finals = fields, lanes, steps, finals
        self.span, self.starts = window.span, window.starts
        self.rows = rows_for(fields, steps, window)
        self.size = self.rows * lanes
        self.history = max([field.stack - 1 for field in fields] + [0])
        self.holes = False  # True once any lane may have been left out; known on the host

        def full(*shape: int, dtype: torch.dtype = torch.int64, fill: int = 0) -> Tensor:
            return torch.full(shape, fill, dtype=dtype, device=device)

        cells = {field: self.size // field.every + 1 + field.observed * (finals + lanes) for field in fields}
        self.data = {field: full(cells[field], *field.shape, dtype=field.dtype) for field in fields}
        self.flags, self.place = full(self.size, dtype=torch.uint8), full(self.size, dtype=torch.int32)
        self.owner, self.ended = full(finals + lanes, fill=-1), full(1, fill=-1)
        self.floor, self.cleared = full(1), full(1)  # the first id after `clear`
        # The number of the next call, the first id of that call, and of the one R calls before.
        self.clock = torch.tensor([0, 0, -self.size]).to(device)
        self.call, self.next, self.oldest = (self.clock[k : k + 1] for k in range(3))
        self.counts = full(COUNTS)
        self._tick = torch.tensor([1, lanes, lanes]).to(device)
        self.lane, self.all = torch.arange(lanes, device=device), torch.ones(lanes, dtype=torch.bool, device=device)
        # The rows of a call: before it, its own, after it; the newest that can start items now.
        self._offsets = torch.tensor([-1, 0, 1, 1 - self.span]).to(device) * lanes
        self._edges = torch.tensor([-steps * lanes, (1 - self.span) * lanes]).to(device)
        bits = [[STEP], [TERMINATED], [TRUNCATED], [FIRST], [LOST]]
        self._bits = torch.tensor(bits, dtype=torch.uint8).to(device)
        # A Python number in `where` is a launch; a tensor that is there is none.
        dtypes = {field.dtype for field in fields} | {torch.float32}
        self.zero = {dtype: torch.zeros((), dtype=dtype, device=device) for dtype in dtypes}
        self.none, self.spare, self._aside = full(fill=-1), full(fill=self.size), self.lane + finals
        self.one_step = full(dtype=torch.int32, fill=1)
        self._tags = full(self.size + 1 if repeats else 0, dtype=torch.int32, fill=-1)
        self._ranges: dict[tuple[int, torch.dtype], Tensor] = {}
        self._drawn: dict[int, Tensor] = {}
        self.stacks = Stacks(fields, self.data, self.flags, lanes)

    def add(self, step: LanesStep) -> Written:
        """Write one step of the lanes of its mask."""
        rows, ids = self._places(), self.lane + self.next
        before, row, *_ = rows
        was = self.flags[before]
        open_ = (was & (STEP | STOP)) == STEP
        active = self.all if step.mask is None else step.mask
        held: Fields = {}
        if step.mask is not None or not step.continues:
            held = self._held(row)
        if step.mask is not None:
            self.counts[ABSENT].add_((~active).sum())
        if not step.continues:
            strays = open_ & active & self.stacks.strays(before, held, step.values)
            was = self._close(before, was, strays, held)
            open_ = open_ & ~strays
            if self.history:
                fit = self.stacks.fit(open_, step)
                self.counts[SHUNNED].add_((active & ~fit).sum())
                active = active & fit
        if active is not self.all:
            self.flags.index_copy_(0, before, torch.where(open_ & ~active, was | PAUSE, was))
        ended = step.terminated | step.truncated
        ended = ended if active is self.all else ended & active
        bits, kept = [active, step.terminated, step.truncated, ~open_], ended
        if step.known is not None:
            kept = ended & step.known
            bits.append(ended & ~step.known)
        flags = (torch.stack(bits) * self._bits[: len(bits)]).sum(0, dtype=torch.uint8)
        self.flags.index_copy_(0, row, flags if active is self.all else flags * active)
        newest = {field.keys: field.newest(step.finals[field.keys]) for field in self.fields if field.observed}
        self.place.index_copy_(0, row, self._keep(kept, ids, row, newest))
        for field in self.fields:
            self._write(field, rows, step, held, active)
        self.clock += self._tick
        return Written(ids, active, rows)

    def _places(self) -> Tensor:
        """Return the places of the rows around this call, `[4, L]`."""
        return ((self.next + self._offsets) % self.size)[:, None] + self.lane

    def _held(self, row: Tensor) -> Fields:
        """Return the successors of the newest steps, which the row of the next call has."""
        return {field.keys: taken(self.data[field], row) for field in self.fields if field.observed}

    def _write(self, field: TensorField, rows: Tensor, step: LanesStep, held: Fields, active: Tensor) -> None:
        data, given = self.data[field], field.newest(step.values[field.keys])
        _, row, after, _ = rows
        if field.every > 1:  # calls that keep nothing write to the spare entry
            at = torch.where(self.call % field.every == 0, self.kept(field, row), len(data) - 1)
            data.index_copy_(0, at, given)
            return
        if field.observed and active is not self.all:
            given = torch.where(widened(active, given), given, held[field.keys])
        data.index_copy_(0, row, given)
        if field.observed:
            data.index_copy_(0, after, field.newest(step.nexts[field.keys]))

    def kept(self, field: TensorField, at: Tensor) -> Tensor:
        """Return the places of a field's values, of the rows at `at`."""
        return at if field.every == 1 else at // self.lanes // field.every * self.lanes + at % self.lanes

    def _keep(self, who: Tensor, ids: Tensor, at: Tensor, finals: Fields) -> Tensor:
        """Keep the finals of the lanes `who`, whose steps are `ids`; return the successors' places, elsewhere `at`."""
        number = who.cumsum(0)
        slot = torch.where(who, (self.ended + number) % self.finals, self._aside)
        gone = self.owner[slot].amax() + self.lanes
        self.floor.copy_(torch.maximum(self.floor, gone - gone % self.lanes))
        self.owner.index_copy_(0, slot, torch.where(who, ids, self.none))
        self.ended.add_(number[-1:])
        place = slot + self.size
        for field in self.fields:
            if field.observed:
                self.data[field].index_copy_(0, place, finals[field.keys])
        return torch.where(who, place, at).int()

    def _close(self, before: Tensor, was: Tensor, who: Tensor, held: Fields) -> Tensor:
        """Cut the streams of `who` after their newest steps; return the flags of the row before."""
        place = self._keep(who, self.lane + self.next - self.lanes, before, held)
        flags = torch.where(who, was | CUT, was)
        self.flags.index_copy_(0, before, flags)
        self.place.index_copy_(0, before, torch.where(who, place, self.place[before]))
        return flags

    def cut(self, who: Tensor) -> None:
        """Cut the streams of `who` that are open."""
        before, row, *_ = self._places()
        was = self.flags[before]
        self._close(before, was, who & ((was & (STEP | STOP)) == STEP), self._held(row))

    def clear(self) -> None:
        """Drop all steps."""
        self.flags.zero_()
        self.floor.copy_(self.next)
        self.cleared.copy_(self.next)

    def write(self, ids: Tensor, values: Mapping[TensorField, Tensor]) -> None:
        """Write values back to steps that are stored; the last one for a step counts. A wrong id refuses all."""
        stored = (ids >= self.bounds()[0]) & (ids < self.next) & ((self.flags[ids % self.size] & STEP) > 0)
        wrong = [(ids < -1) | (ids >= self.next)]
        call = torch.div(ids, self.lanes, rounding_mode="floor")
        misplaced = [stored & (call % field.every != 0) for field in values if field.every > 1]
        wrong += misplaced or [torch.zeros_like(stored)]
        counted = torch.stack((wrong[0], torch.stack(wrong[1:]).any(0))).sum(1)
        self.counts[UNWRITTEN : MISPLACED + 1].add_(counted)
        at = torch.where(stored & (counted.sum() == 0), ids % self.size, self.spare)
        last = self.last_of(at) & (at < self.size)
        for field, given in values.items():
            data = self.data[field]
            data.index_copy_(0, torch.where(last, self.kept(field, at), len(data) - 1), given)

    def last_of(self, at: Tensor) -> Tensor:
        """Return which places no later entry repeats. The largest number does not depend on an order."""
        number = self.numbers(len(at), torch.int32)
        self._tags.scatter_reduce_(0, at, number, "amax")
        last: Tensor = self._tags[at] == number
        self._tags.index_fill_(0, at, -1)
        return last

    def numbers(self, n: int, dtype: torch.dtype = torch.int64) -> Tensor:
        """Return the numbers below n; made once, so before a capture."""
        if (n, dtype) not in self._ranges:
            self._ranges[n, dtype] = torch.arange(n, dtype=dtype, device=self.lane.device)
        return self._ranges[n, dtype]

    def drew(self, n: int, there: Tensor) -> None:
        """Count a draw of `n` items, which found some where `there`."""
        if n not in self._drawn:  # made once, so before a capture
            self._drawn[n] = torch.full((2,), n, device=self.lane.device)
            self._drawn[n][:1].fill_(1)
        self.counts[DRAWS : DRAWN + 1].add_(self._drawn[n])
        self.counts[SERVED : SERVED + 1].add_(there)

    def bounds(self) -> tuple[Tensor, Tensor]:
        """Return the first id that an item can have, and the one after the last."""
        edges = self.next + self._edges
        return torch.maximum(edges[:1], self.floor), edges[1:]

    def drawable(self, ids: Tensor) -> Tensor:
        """Return which ids are those of items that can be drawn, priorities aside."""
        first, end = self.bounds()
        found = (ids >= first) & (ids < end)
        if self.starts > 1:
            found = found & (torch.div(ids, self.lanes, rounding_mode="floor") % self.starts == 0)
        return found & ((self.flags[ids % self.size] & STEP) > 0) if self.holes else found

    def ids_at(self, at: Tensor) -> Tensor:
        """Return the ids at places."""
        return (at - self.oldest) % self.size + self.oldest

    def successor(self, at: Tensor, free: Tensor) -> Tensor:
        """Return the places of the observations after steps; a step's own, where its final was never known.

        Args:
            at: The steps' places.
            free: Which steps neither ended nor were cut: the next row has their successors.
        """
        return torch.where(free, (at + self.lanes) % self.size, self.place[at].long())

    def calls(self) -> range:
        """Return the numbers of the calls that are kept; wait for the device."""
        _, first = self.clock[:2].tolist()
        begin = max(first - self.steps * self.lanes, int(self.floor))
        return range(-(-begin // self.lanes), first // self.lanes)

    def stored(self) -> Tensor:
        """Return the ids of all steps, by call and lane; wait for the device."""
        kept = self.calls()
        ids = torch.arange(kept.start * self.lanes, kept.stop * self.lanes, device=self.lane.device)
        return ids[(self.flags[ids % self.size] & STEP) > 0]

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors that a save holds, by name."""
        names = ("flags", "place", "owner", "ended", "floor", "cleared", "clock", "counts")
        return {name: getattr(self, name) for name in names}

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors."""
        return sum(each.nbytes for each in (*self.tensors().values(), *self.data.values(), self._tags))


def rows_for(fields: Sequence[TensorField], steps: int, window: Window) -> int:
    """Return the rows of a lane: those of `steps` calls, one for the newest successors, and those before items."""
    unit = math.lcm(*(field.every for field in fields))
    return -(-(steps + 1 + window.lookback) // unit) * unit
