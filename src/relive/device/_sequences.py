"""Sequences of steps, read from rows: within an episode, or across."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from .._disk.device_rows import CUT, FIRST, LOST, OVER, STEP, STOP, TERMINATED, TRUNCATED
from ..items import Sequences
from ._fields import Fields, TensorField, taken, widened
from ._ring import LanesRing


class SequenceReader:
    """Expands places of anchors to sequences.

    Across episodes rows follow the calls: a hole between two episodes is a position whose `mask` is False. After a
    cut, and within an episode after its end, observations repeat the last one.

    Args:
        ring: The rows.
        item: The sequences.
        lists_first: True where batches have the field `first`.
    """

    def __init__(self, ring: LanesRing, item: Sequences, lists_first: bool) -> None:
        self._ring, self._item, self._lists_first, device = ring, item, lists_first, ring.clock.device
        self._back = 0 if item.across_episodes else item.burn_in  # rows before the anchor
        self._i = torch.arange(item.steps + item.n_step, device=device)  # positions of observations
        self._k = torch.arange(item.n_step, device=device)
        self._powers = torch.tensor([item.gamma**k for k in range(item.n_step + 1)]).to(device)

    def read(self, ids: Tensor, at: Tensor) -> Fields:
        """Return the fields of the items `ids` at `at`; of id -1 padding alone."""
        ring, item, i, back, lanes = self._ring, self._item, self._i, self._back, self._ring.lanes
        length, n, span = item.steps, item.n_step, item.steps + item.n_step - 1
        there = ids[:, None] >= 0
        rows = (at[:, None] + (i - back) * lanes) % ring.size  # [B, span + 1]
        flags = ring.flags[rows[:, :span]]
        stops, firsts = (flags & STOP) > 0, (flags & FIRST) > 0
        begin = self._begin(firsts)
        breaks = (flags & CUT) > 0 if item.across_episodes else stops
        last = torch.where(breaks & (i[:span] >= back), i[:span], span - 1).amin(1, keepdim=True)
        mask = (i[:length] <= last) & there
        if back:
            mask = mask & (i[:length] >= begin)
        if item.across_episodes and ring.holes:
            mask = mask & ((flags[:, :length] & STEP) > 0)
        # The windows of the targets, and the successor of each row.
        ends = torch.where(stops, i[:span], span).unfold(1, n, 1).amin(2)
        ends = torch.minimum(ends, i[:length] + (n - 1))
        steps = torch.where(mask, ends + 1 - i[:length], 0)
        after = ring.successor(rows[:, :span], (flags & OVER) == 0)
        base = rows.gather(1, torch.minimum(torch.maximum(i, begin), last))  # whose older frames an observation has
        newest = torch.where(i <= last, base, after.gather(1, last))  # of all observations
        at_end = flags.gather(1, ends)
        terminated, truncated = (mask & ((at_end & bit) > 0) for bit in (TERMINATED, TRUNCATED))
        # What came before each observation.
        stepped = pad((flags & STEP) > 0, (1, 0), value=True)
        led = there & stepped & ((i == last + 1) | ((i <= last) & ~pad(firsts, (0, 1))))
        if back:
            led = led & (i >= begin)
        fields: Fields = {}
        for field in ring.fields:
            rest = field.keys[1:]
            if field.observed:
                seen = self._gathered(field, base, newest, (i > last).long())
                fields["all_obs", *rest] = seen
                fields["obs", *rest] = self._part(seen, 0, length)
                if item.across_episodes:
                    final = rows.gather(1, ends), after.gather(1, ends)
                    own, following = self._gathered(field, *final, 1), self._narrowed(seen, n, length)
                    fields["next_obs", *rest] = torch.where(widened(self._turned(mask), own), own, following)
                else:
                    fields["next_obs", *rest] = self._part(seen, n, length)
            elif field.every > 1:
                fields[field.keys] = self._state(field, ids, rows, begin)
            else:
                fields |= self._between(field, rows, mask, led, steps)
        plain = {"discount": self._discount(mask, at_end, steps), "mask": mask, "steps": steps.int()}
        plain |= {"terminated": terminated, "truncated": truncated}
        if item.step_ids:
            plain["step_ids"] = torch.where(mask, ids[:, None] + (i[:length] - back) * lanes, -1)
        found = fields | {(name,): self._turned(value) for name, value in plain.items()}
        if self._lists_first:
            found["first",] = firsts.gather(1, begin)[:, 0] & there[:, 0]
        return found

    def _begin(self, firsts: Tensor) -> Tensor:
        """Return the positions of the first steps, `[B, 1]`: those in front are padding."""
        past = (~firsts[:, 1 : self._back + 1]).to(torch.uint8).flip(1).cumprod(1)
        return self._back - past.sum(1, keepdim=True)

    def _discount(self, mask: Tensor, at_end: Tensor, steps: Tensor) -> Tensor:
        """Return the discounts, 0 after windows that end terminated or without a known final."""
        return (mask & ((at_end & (TERMINATED | LOST)) == 0)) * self._powers[steps]

    def _state(self, field: TensorField, ids: Tensor, rows: Tensor, begin: Tensor) -> Tensor:
        """Return a field with `every` as it was at the first step; zero where that does not keep it."""
        ring = self._ring
        values = taken(ring.data[field], ring.kept(field, rows.gather(1, begin)[:, 0]))
        if not self._back:
            return values
        call = torch.div(ids, ring.lanes, rounding_mode="floor") + begin[:, 0] - self._back
        return torch.where(widened(call % field.every == 0, values), values, ring.zero[field.dtype])

    def _between(self, field: TensorField, rows: Tensor, mask: Tensor, led: Tensor, steps: Tensor) -> Fields:
        """Return a field of steps; of actions and rewards also those before each observation."""
        ring, item, (name, *rest) = self._ring, self._item, field.keys
        length, zero = item.steps, ring.zero[field.dtype]
        raw = taken(
            ring.data[field], self._turned((rows - ring.lanes) % ring.size)
        )  # of the step before each observation
        own = self._narrowed(raw, 1, length)
        if name == "reward" and item.n_step > 1:
            windows = self._narrowed(raw, 1, length + item.n_step - 1).unfold(1 - item.time_major, item.n_step, 1)
            inside = self._k < self._turned(steps).reshape(*own.shape[:2], *[1] * (own.ndim - 2), 1)
            own = torch.where(inside, windows * self._powers[:-1], zero).sum(-1, dtype=field.dtype)
        else:
            own = torch.where(widened(self._turned(mask), own), own, zero)
        if name not in ("action", "reward"):
            return {field.keys: own}
        before = torch.where(widened(self._turned(led), raw), raw, zero)
        return {
            field.keys: own,
            (f"all_prev_{name}", *rest): before,
            (f"prev_{name}", *rest): self._part(before, 0, length),
        }

    def _gathered(self, field: TensorField, base: Tensor, newest: Tensor, shift: Tensor | int) -> Tensor:
        shift = shift if isinstance(shift, int) else self._turned(shift)
        at = self._ring.stacks.places(field, self._turned(base), self._turned(newest), shift)
        return field.shown(taken(self._ring.data[field], at))

    def _turned(self, plan: Tensor) -> Tensor:
        """Return `[B, T]` with the axes that batches have."""
        return plan.T if self._item.time_major else plan

    def _narrowed(self, values: Tensor, begin: int, count: int) -> Tensor:
        return values.narrow(1 - self._item.time_major, begin, count)

    def _part(self, values: Tensor, begin: int, count: int) -> Tensor:
        """Return a part of the positions in memory of its own."""
        return self._narrowed(values, begin, count).clone()
