"""A buffer that holds as many steps as it says, as other libraries count, for the adapters.

Their rings hold steps; relive's hold rows, of which a final observation takes one. So each lane is given two rows a
step, which is enough if every step ends an episode, and what is older than the newest `steps` steps is left out of the
draws. Where the other library stores `next_obs` beside `obs`, that is no more memory than there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from .._base.priorities import check_errors
from .._base.types import Array, Bool, Float64, Int64
from .._buffer.arguments import ids_of, shortage, td_errors
from .._buffer.drawing import count_update
from .._ring.lanes import CUTS, MANY_BOUNDARIES, OLDEST
from ..batch import Batch
from ..buffer import ReplayBuffer
from ..checkpoints._loading import load
from ..errors import ArgumentError, CorruptionError, message
from ..items import Transitions
from ..samplers import Prioritized, Uniform
from ..schema import Schema

_FILES, _FILE = "saved/", re.compile(r"[a-z]+-\d+\.(json|safetensors)")
_OWN = ("ids", "next", "size", "open")


class Counted:
    """The newest `steps` steps of every lane of a buffer with larger lanes, by slot: where a ring of them has them.

    Args:
        schema: What one step holds.
        steps: S, the steps that a lane holds.
        lanes: L.
        item: What a draw expands to.
        sampler: `Uniform` over steps, or `Prioritized`.
        seed: As for `ReplayBuffer`.

    Attributes:
        buffer: Where the steps are; its sampler has `eps=0`, so that what a TD error of 0 is given is never drawn.
        ids: The ids by slot, int64 `[L, S]`; -1 where there is no step.
        next: The slots that are written next, int64 `[L]`.
        size: How many steps each lane holds, int64 `[L]`.

    Raises:
        ArgumentError: A sampler of another kind, or lanes that are shorter than the item.
    """

    def __init__(
        self, schema: Schema, steps: int, lanes: int, item: Transitions, sampler: object = None, seed: Any = None
    ) -> None:
        chosen = Uniform() if sampler is None else sampler
        if not isinstance(chosen, Prioritized) and (not isinstance(chosen, Uniform) or chosen.over != "steps"):
            raise ArgumentError(message("`Uniform()` or `Prioritized(...)`", f"`{chosen!r}`", "$.sampler"))
        if steps < item.n_step:
            raise ArgumentError(message(f"room for {item.n_step} steps in each lane", f"{steps}", "$.capacity"))
        self.eps = chosen.eps if isinstance(chosen, Prioritized) else 0.0
        own = chosen.__replace__(eps=0.0) if isinstance(chosen, Prioritized) else chosen
        older = max((column.field.frames for column in schema.columns), default=1) - 1
        self._item, self._older = item, older
        rows, choices = lanes * (2 * steps + older), {"item": item, "sampler": own, "seed": seed}
        self._use(ReplayBuffer(schema, rows, num_envs=lanes, boundaries=0, **choices))
        self.ids = np.full((lanes, steps), -1)
        self.next, self.size = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
        self.open = np.zeros(lanes, bool)  # whether the newest step may still be continued

    def _use(self, buffer: ReplayBuffer) -> None:
        self.buffer = buffer
        # It would advise more rows, which no step needs.
        buffer._core.ring.kernel.watched &= ~MANY_BOUNDARIES
        self._cuts = np.full(buffer.num_envs, -1)  # what came before is not known

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._use(self.buffer)

    @property
    def prioritizes(self) -> bool:
        """Whether the sampler has priorities."""
        prioritizes: bool = self.buffer.sampler.prioritizes
        return prioritizes

    def __len__(self) -> int:
        return int(self.size.sum())

    def put(self, ids: Int64, ended: Bool) -> Int64:
        """Take in steps that were added to the buffer.

        Args:
            ids: What `add` or `extend` returned, `[L']` or `[L', T]`.
            ended: Which steps ended an episode, likewise.

        Returns:
            Their slots; those of steps that are overwritten by later ones of the same call are these steps'.
        """
        if ids.ndim == 1 or ids.shape[1] == 1:
            return self._put_one(ids.reshape(-1), ended.reshape(-1))
        lanes, count = ids[:, 0] % len(self.ids), ids.shape[1]
        rows, steps = lanes[:, None], self.ids.shape[1]
        slots = (self.next[rows] + np.arange(count)) % steps
        kept = slice(max(0, count - steps), None)
        over = self.ids[rows, slots[:, kept]].ravel()
        if self.prioritizes:
            self._retire(np.concatenate([over[over >= 0], ids[:, : kept.start].ravel()]))
        self.ids[rows, slots[:, kept]] = ids[:, kept]
        self.next[lanes] = (self.next[lanes] + count) % steps
        self.size[lanes] = np.minimum(self.size[lanes] + count, steps)
        self.open[lanes] = ~ended[:, -1]
        if self._older:
            self._drop_what_is_gone(lanes)
        return slots

    def _put_one(self, ids: Int64, ended: Bool) -> Int64:
        """One step of each of some lanes."""
        lanes = ids % len(self.ids)
        slots: Int64 = self.next[lanes]
        before = self.ids[lanes, slots]
        full = before >= 0
        if self.prioritizes and full.any():
            self._retire(before[full])
        self.ids[lanes, slots] = ids
        self.next[lanes] = (slots + 1) % self.ids.shape[1]
        self.size[lanes] += ~full
        self.open[lanes] = ~ended
        if self._older:
            self._drop_what_is_gone(lanes)
        return slots

    def newly_cut(self, lanes: Int64) -> Bool:
        """In which lanes a stream may have been cut since they were asked about; True for those that never were."""
        cuts = self.buffer._core.ring.counters[lanes, CUTS]
        new: Bool = cuts != self._cuts[lanes]
        self._cuts[lanes] = cuts
        return new

    def _retire(self, ids: Int64) -> None:
        """Keep steps out of the draws that the buffer still has."""
        if len(ids):
            applied = self.buffer.update_priorities(ids, np.zeros(len(ids)))
            self.buffer._core.tally.stale -= len(ids) - applied  # nobody's updates
            self.buffer._core.tally.updates -= len(ids)

    def _drop_what_is_gone(self, lanes: Int64) -> None:
        """Forget steps whose rows, or whose older frames', have gone to the frames before streams in mid-episode."""
        first = self.buffer._core.ring.counters[lanes, OLDEST] * len(self.ids) + lanes
        for lane, oldest in zip(lanes.tolist(), first.tolist(), strict=True):
            while self.size[lane] and self.ids[lane, self.next[lane] - self.size[lane]] < oldest:
                self.ids[lane, self.next[lane] - self.size[lane]] = -1
                self.size[lane] -= 1

    def slots(self, lane: int) -> Int64:
        """The slots of a lane that have steps, the oldest first."""
        return np.asarray((self.next[lane] - self.size[lane] + np.arange(self.size[lane])) % self.ids.shape[1])

    def newest(self) -> Int64:
        """The ids of the newest steps of all lanes that have one."""
        lanes = np.flatnonzero(self.size)
        return np.asarray(self.ids[lanes, self.next[lanes] - 1])

    def items(self) -> Int64:
        """The ids of all steps whose window is complete, lane by lane, the oldest first."""
        drawable = self._drawable()
        return self._at(np.arange(drawable.sum()), drawable)

    @property
    def drawable(self) -> int:
        """How many items can be drawn."""
        return int(self._drawable().sum())

    def _drawable(self) -> Int64:
        """How many of each lane's steps have a complete window; the newest ones of an open stream may not."""
        span = self._item.n_step
        if span == 1:
            return self.size
        waiting = np.zeros_like(self.size)
        lanes = np.flatnonzero(self.open & (self.size > 0))
        if len(lanes):
            back = self.buffer.follow(self.ids[lanes, self.next[lanes] - 1], 1 - span).steps
            waiting[lanes] = np.minimum(1 - back, span - 1)
        return np.asarray(np.maximum(self.size - waiting, 0))

    def _at(self, places: Int64, drawable: Int64) -> Int64:
        """The ids of the items with these numbers, in the order of `items`."""
        if len(drawable) == 1:
            return np.asarray(self.ids[0, (self.next[0] - self.size[0] + places) % self.ids.shape[1]])
        ends = drawable.cumsum()
        lanes = np.searchsorted(ends, places, side="right")
        within = places - (ends - drawable)[lanes]
        return np.asarray(self.ids[lanes, (self.next[lanes] - self.size[lanes] + within) % self.ids.shape[1]])

    def sample(self, batch_size: int, beta: float | None = None) -> Batch:
        """As `ReplayBuffer.sample`; `beta` is ignored where there are no priorities."""
        buffer = self.buffer
        if self.prioritizes:
            return buffer.sample(batch_size, beta=beta)
        drawable = self._drawable()
        total, repeats = int(drawable.sum()), buffer.sampler.replacement
        if total < (1 if repeats else batch_size):
            raise shortage(1 if repeats else batch_size, total, total, buffer._core.ring.waiting, self._item.n_step)
        rng = buffer.rng
        places = rng.integers(total, size=batch_size) if repeats else rng.choice(total, batch_size, replace=False)
        batch = buffer.read(self._at(places, drawable))
        buffer._core.tally.drawn += batch_size
        return batch

    def kept(self, ids: Int64) -> Bool:
        """Which ids are among the newest steps."""
        oldest = np.where(self.size > 0, self.ids[np.arange(len(self.ids)), self.next - self.size], 2**62)
        return np.asarray(ids >= oldest[ids % len(oldest)])

    def update(self, ids: Any, td_error: Any) -> int:
        """As `ReplayBuffer.update_priorities`; steps that are no longer among the newest are dropped and counted."""
        checked = ids_of(ids, "update_priorities")
        errors = td_errors(td_error, checked)
        check_errors(errors, self.eps)
        errors = np.abs(errors) + self.eps
        keep = self.kept(checked)
        if keep.all():
            return self.buffer.update_priorities(checked, errors)
        applied = self.buffer.update_priorities(checked[keep], errors[keep])
        dropped = len(checked) - int(keep.sum())
        count_update(self.buffer._core, dropped, dropped)
        return applied

    def weights(self, ids: Int64, beta: float | None) -> Float64:
        """Importance-sampling weights `p**(-alpha * beta)`, divided by the largest of them or in the buffer.

        Args:
            ids: Ids of items, `[n]`.
            beta: The exponent; None: the sampler's.
        """
        settings = self.buffer.sampler
        if not isinstance(settings, Prioritized) or not len(ids):
            return np.ones(len(ids))
        own = settings.beta if isinstance(settings.beta, float) else self.buffer.stats().beta
        raw = self.buffer.priorities(ids)
        smallest = raw if settings.weights == "batch" else self.buffer.priorities(self.items())
        return np.asarray((raw / smallest.min()) ** (-settings.alpha * (own if beta is None else beta)))

    def cut(self) -> None:
        """End all streams, as `ReplayBuffer.cut`."""
        self.buffer.cut()
        self.open[:] = False

    def clear(self) -> None:
        """Forget all steps."""
        self.buffer.clear()
        self.ids[:] = -1
        self.next[:] = self.size[:] = 0
        self.open[:] = False

    def packed(self) -> dict[str, Array]:
        """All of it as named arrays, for file formats that hold arrays: the files of a save as bytes, and the slots."""
        return {**packed(self.buffer), **{name: getattr(self, name).copy() for name in _OWN}}

    def restore(self, packed: Mapping[str, Any]) -> None:
        """Go on as the one that was packed; its newest steps are kept where this one holds fewer.

        Raises:
            ArgumentError: It holds other fields, or has another number of lanes.
            CorruptionError: An array is missing or damaged.
        """
        own = self.buffer
        loaded = unpacked(packed, capacity=own.capacity, item=self._item, sampler=own.sampler)
        if loaded.schema != own.schema or loaded.num_envs != own.num_envs:
            wanted = f"steps of `{own.schema!r}` in {own.num_envs} lanes"
            raise ArgumentError(message(wanted, f"`{loaded.schema!r}` in {loaded.num_envs}", "$.state"))
        ids, following, size, is_open = (np.asarray(packed[name]) for name in _OWN)
        self._use(loaded)
        self.open = is_open.astype(bool)
        if ids.shape == self.ids.shape:
            self.ids, self.next, self.size = ids.copy(), following.copy(), size.copy()
            return
        steps = self.ids.shape[1]
        self.ids[:] = -1
        self.size = np.minimum(size, steps)
        self.next = self.size % steps
        for lane, count in enumerate(size.tolist()):
            ordered = ids[lane, (following[lane] - count + np.arange(count)) % ids.shape[1]]
            self.ids[lane, : self.size[lane]] = ordered[count - self.size[lane] :]
            if self.prioritizes:
                states = self.buffer.column("ids")[lane]
                self._retire(np.intersect1d(ordered[: count - self.size[lane]], states))


def unpacked(packed: Mapping[str, Any], **choices: Any) -> ReplayBuffer:
    """The buffer in what `Counted.packed` returned, under other choices, as `relive.load` takes them."""
    if any(name not in packed for name in _OWN):
        raise CorruptionError(message("the arrays of a saved buffer", f"`{sorted(packed)}`", "$.state"))
    return opened(packed, **choices)


def packed(buffer: ReplayBuffer) -> dict[str, Array]:
    """The files of a save as named arrays of bytes."""
    with TemporaryDirectory() as folder:
        buffer.save(folder)
        files = [path for path in sorted(Path(folder).iterdir()) if _FILE.fullmatch(path.name)]
        return {_FILES + path.name: np.fromfile(path, np.uint8) for path in files}


def opened(packed: Mapping[str, Any], **choices: Any) -> ReplayBuffer:
    """The buffer in what `packed` returned, under other choices, as `relive.load` takes them."""
    names = [name for name in packed if name.startswith(_FILES)]
    if not names:
        raise CorruptionError(message("the arrays of a saved buffer", f"`{sorted(packed)}`", "$.state"))
    with TemporaryDirectory() as folder:
        for name in names:
            if not _FILE.fullmatch(name.removeprefix(_FILES)):
                raise CorruptionError(message("a file of a saved buffer", f"`{name}`", "$.state"))
            np.asarray(packed[name], np.uint8).tofile(Path(folder) / name.removeprefix(_FILES))
        return load(folder, **choices)
